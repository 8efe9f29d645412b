"""Losses and miners of pytorch-metric-learning, constructed or by name, called like the losses of this package."""

import copy
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import at_least_float32, without_autocast
from ccp_dml.functional.labels import refuse_labels_out_of_range
from ccp_dml.losses.pairs import check_labelled, check_references

_NEED_MORE_THAN_LABELS = frozenset({"BaseMetricLossFunction", "GenericPairLoss", "ManifoldLoss", "VICRegLoss"})
"""Base classes, and losses that learn without labels."""

_NO_CHOICE_AMONG_LABELS = frozenset({"BaseMiner", "EmbeddingsAlreadyPackagedAsTriplets"})
"""The base class, and one that takes the order of a batch for what labels should say."""

_SIZES = {"num_classes": "classes", "embedding_size": "dim", "descriptors_dim": "dim"}
"""The library's names for what the data and the network decide."""

_NOT_SETTABLE = frozenset(
    {
        *_SIZES,
        # Objects of the library, and weights and switches that do nothing without such an object:
        "distance",
        "reducer",
        "embedding_regularizer",
        "embedding_reg_weight",
        "weight_regularizer",
        "weight_reg_weight",
        "weight_init_func",
        "collect_stats",
        # What a subclass settles for its base class:
        "mat_based_loss",
    }
)


_SHORTEST = 1e-12  # what the library divides shorter vectors by
_SHORTEST_IN_FLOAT16 = 2.0**-10


@cache
def pml_losses() -> dict[str, type[nn.Module]]:
    """Name -> class of the library's losses that learn from class labels."""
    from pytorch_metric_learning import losses  # takes a second to import: only for runs that use it

    classes: dict[str, Any] = {name: value for name, value in vars(losses).items() if inspect.isclass(value)}
    return {
        name: loss
        for name, loss in classes.items()
        if issubclass(loss, losses.BaseMetricLossFunction) and name not in _NEED_MORE_THAN_LABELS
    }


@cache
def pml_miners() -> dict[str, type[nn.Module]]:
    """Name -> class of the library's miners."""
    from pytorch_metric_learning import miners

    classes: dict[str, Any] = {name: value for name, value in vars(miners).items() if inspect.isclass(value)}
    return {
        name: miner
        for name, miner in classes.items()
        if issubclass(miner, miners.BaseMiner) and name not in _NO_CHOICE_AMONG_LABELS
    }


def settable_arguments(constructor: type[nn.Module]) -> inspect.Signature:
    """List the arguments of a loss or miner that a configuration can set: numbers, switches and words.

    The library's constructors hand `**kwargs` on to their base classes, so the arguments of all of them are gathered.
    """
    found: dict[str, inspect.Parameter] = {}
    for part in constructor.__mro__:
        if "__init__" not in vars(part):
            continue
        for parameter in list(inspect.signature(vars(part)["__init__"]).parameters.values())[1:]:  # without self
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or parameter.name in _NOT_SETTABLE:
                continue
            settable = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=_type_like(parameter.default))
            found.setdefault(parameter.name, settable)
    return inspect.Signature(list(found.values()))


def _type_like(default: Any) -> Any:
    if isinstance(default, bool):
        return bool
    if isinstance(default, int | float):
        return int | float
    if default is None:
        return bool | int | float | str | None
    return bool | int | float | str  # a word may stand where a number may, too: triplets_per_anchor="all"


def seeded(seed: int, constructor: type[nn.Module], **arguments: Any) -> nn.Module:
    """Construct a module that draws its first weights from torch's global generator, without disturbing that one."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return constructor(**arguments)


Miner = Callable[..., tuple[Tensor, ...]]
"""`miner(embeddings, labels, ref_emb, ref_labels)` -> indices of triplets (a, p, n) or of pairs (a, p, a, n)."""


class PmlLoss(nn.Module):
    """A loss of pytorch-metric-learning, called like the losses of this package; see `wrap`.

    The library L2-normalises embeddings and references itself. With references, batch and references are different
    sets to it: no pair is a self-pair, as it must be for proxies.

    Inputs: `embeddings` (B, D), `labels` (B,), optionally `ref_embeddings` (R, D), `ref_labels` (R,). Output: a scalar.

    Args:
        loss: a constructed loss of the library. Class vectors of its own are parameters of this module.
        miner: chooses pairs or triplets, among the references where there are any; None: the loss takes all.

    Musgrave, Belongie, Lim: PyTorch Metric Learning. 2020.
    """

    normalise = "l2"  # what the library does; proxies are measured accordingly

    def __init__(self, loss: nn.Module, miner: Miner | None = None) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner
        self.takes_references = False  # until a rehearsal has shown it
        self.classes = _count_classes(loss)  # where the loss has a vector of each: labels beyond it are refused

    @classmethod
    def named(
        cls,
        name: str,
        arguments: dict[str, Any],
        *,
        classes: int,
        dim: int,
        seed: int = 0,
        miner: Miner | None = None,
    ) -> Self:
        """Construct a loss by the name of its class.

            loss = PmlLoss.named("CircleLoss", {"m": 0.4, "gamma": 80}, classes=100, dim=128)

        Args:
            name: of the library's class.
            arguments: of its constructor; see `settable_arguments`.
            classes, dim: filled in where the loss has class vectors of its own.
            seed: of those vectors.
            miner: as for the class.
        """
        constructor = pml_losses()[name]
        sizes = {"classes": classes, "dim": dim}
        required = [key for key in _SIZES if _is_required(constructor, key)]
        try:
            loss = seeded(seed, constructor, **arguments, **{key: sizes[_SIZES[key]] for key in required})
        except Exception as error:  # the library checks its arguments by whatever happens to them
            raise ValueError(f"{name} refuses its arguments: {_reason(error)}") from None
        return cls(loss, miner)

    @property
    def name(self) -> str:
        return type(self.loss).__name__

    @property
    def has_class_vectors(self) -> bool:
        """Tell whether samples are compared with vectors that the loss trains itself, one or more per class."""
        return any(value.ndim > 1 for value in self.loss.parameters())

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        if (ref_embeddings is None) != (ref_labels is None):
            raise ValueError("references are embeddings and labels: give both `ref_embeddings` and `ref_labels`")
        check_labelled("", embeddings, labels)
        labels = labels.to(embeddings.device, torch.int64)  # the library takes some other integers for masks
        if ref_embeddings is not None and ref_labels is not None:
            check_references(embeddings, ref_embeddings, ref_labels)
            ref_labels = ref_labels.to(labels)
            if not self.takes_references:
                self.rehearse(references=True, classes=4, dim=embeddings.shape[1])
        if len(embeddings) == 0:
            return at_least_float32(embeddings).sum()  # zero, with a gradient; the library would take a mean of nothing
        if self.classes is not None:
            refuse_labels_out_of_range(labels, self.classes)
        with without_autocast(embeddings.device):
            return self._loss(embeddings, labels, ref_embeddings, ref_labels)

    def _loss(
        self, embeddings: Tensor, labels: Tensor, ref_embeddings: Tensor | None, ref_labels: Tensor | None
    ) -> Tensor:
        embeddings = with_direction(embeddings)
        references: dict[str, Tensor] = {}
        if ref_embeddings is not None and ref_labels is not None:
            given = with_direction(ref_embeddings)
            dtype = torch.promote_types(embeddings.dtype, given.dtype)  # the library multiplies like with like only
            embeddings = embeddings.to(dtype)
            # Views, because the library takes the same object for the same set and leaves self-pairs out.
            references = {"ref_emb": given.to(dtype)[:], "ref_labels": ref_labels[:]}
        indices = None if self.miner is None else self.miner(embeddings, labels, *references.values())
        loss: Tensor = self.loss(embeddings, labels, indices, **references)
        if self.name == "NCALoss":  # takes a mean over the anchors with positives, also where there are none
            same = labels.unsqueeze(1) == references.get("ref_labels", labels)  # (B, R)
            has_positives = same.any() if references else same.sum() > len(labels)
            loss = torch.where(has_positives, loss, 0 * embeddings.sum())
        return loss

    @torch.inference_mode(False)  # whoever only measures a loss comes here first without gradients
    @torch.enable_grad()
    def rehearse(self, *, references: bool, classes: int, dim: int) -> None:
        """Take two steps of backpropagation on a tiny batch, so that what cannot work fails before training."""
        name = self.name
        if references and self.has_class_vectors:
            raise ValueError(
                f"{name} compares samples with class vectors of its own, so that it takes no references such as "
                "proxies or a memory"
            )
        copied, device = copy.deepcopy(self), next((value.device for value in self.parameters()), torch.device("cpu"))
        draw = torch.Generator().manual_seed(0)
        labels = torch.arange(min(classes, 3), device=device).repeat_interleave(2)
        ref_labels = torch.arange(min(classes, 4), device=device).repeat_interleave(3)
        try:
            for _ in range(2):  # some losses keep what they should let go, and fail in the second step
                batch = torch.randn(len(labels), dim, generator=draw, device="cpu").to(device).requires_grad_()
                given = torch.randn(len(ref_labels), dim, generator=draw, device="cpu").to(device).requires_grad_()
                with torch.random.fork_rng(devices=[]):  # some losses and miners draw their triplets
                    loss = copied._loss(batch, labels, *((given, ref_labels) if references else (None, None)))
                loss.backward()
        except Exception as error:
            if not references:
                raise ValueError(f"{name} does not work: {_reason(error)}") from None
            raise ValueError(
                f"{name} cannot be measured against references such as proxies or a memory: {_reason(error)}"
            ) from None
        self.takes_references = self.takes_references or references

    def works(self, *, references: bool, classes: int, dim: int) -> bool:
        try:
            self.rehearse(references=references, classes=classes, dim=dim)
        except ValueError:
            return False
        return True

    def get_extra_state(self) -> dict[str, Tensor]:
        """Collect what the library keeps in plain attributes, a running histogram for instance."""
        return {name: value.detach() for name, value in vars(self.loss).items() if isinstance(value, Tensor)}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        vars(self.loss).update(state)

    def extra_repr(self) -> str:
        return self.name


def wrap(loss: nn.Module, miner: Miner | None = None) -> PmlLoss:
    """Adapt a constructed loss of pytorch-metric-learning, with a miner if wished, for one's own loop and for CCP.

        loss = ccp.losses.wrap(TripletMarginLoss(margin=0.1), miner=TripletMarginMiner(margin=0.2))
        loss(embeddings, labels)               # inside the batch
        loss(embeddings, labels, *proxies())   # against the proxies of CCP, or any references

    Class vectors that the loss trains itself are parameters of the result: hand them to the optimiser. Such a loss
    takes no references.
    """
    from pytorch_metric_learning import losses as library

    if isinstance(loss, type):
        raise UserError(f"wrap takes a constructed loss, not the class {loss.__name__}: write {loss.__name__}(...).")
    if isinstance(loss, library.CrossBatchMemory):
        raise UserError(
            "CrossBatchMemory of pytorch-metric-learning keeps references of its own: wrap the loss inside it, and put "
            "the result into ccp.losses.CrossBatchMemory, or use it against proxies."
        )
    if not isinstance(loss, library.BaseMetricLossFunction) or type(loss).__name__ in _NEED_MORE_THAN_LABELS:
        raise UserError(
            f"{type(loss).__name__} is no loss of pytorch-metric-learning that learns from labels alone; a loss of "
            "your own needs no wrapping, only the call loss(embeddings, labels, ref_embeddings, ref_labels)."
        )
    refuse_odd_miner(miner)
    return PmlLoss(loss, miner)


def refuse_odd_miner(miner: Any) -> None:
    """Raise unless `miner` can be called for indices, or there is none."""
    if isinstance(miner, type):
        raise UserError(
            f"a miner is a constructed object, not the class {miner.__name__}: write {miner.__name__}(...)."
        )
    if miner is not None and not callable(miner):
        raise UserError(
            f"a miner is called as miner(embeddings, labels, ref_emb, ref_labels); {type(miner).__name__} cannot be."
        )


def with_direction(vectors: Tensor) -> Tensor:
    """Prepare vectors (B, D) for a library that divides them by their lengths; in float32 at least.

    Those that are too long for its sum of squares would become zero, and become NaN here, which is noticed. Those that
    are too short for their own precision have no direction, and get no gradient: it would be 1 / length, which
    overflows in float16.
    """
    shortest = _SHORTEST_IN_FLOAT16 if vectors.dtype == torch.float16 else _SHORTEST
    vectors = at_least_float32(vectors)
    lengths = torch.linalg.vector_norm(vectors.detach(), dim=1, keepdim=True)
    vectors = torch.where(lengths > shortest, vectors, vectors.detach())
    return torch.where(torch.isinf(lengths), torch.nan, vectors)


def describe(name: str) -> str:
    """Describe one of the library's losses: what it needs, and whether CCP and XBM can use it."""
    settable = settable_arguments(pml_losses()[name]).parameters
    needed = [f"loss.{key}" for key, value in settable.items() if value.default is value.empty]
    if needed:
        return f"of pytorch-metric-learning; needs {' and '.join(needed)}"
    loss = PmlLoss.named(name, {}, classes=4, dim=8)
    if not loss.works(references=False, classes=4, dim=8):
        return "of pytorch-metric-learning, in this version of which it cannot be trained"
    if loss.has_class_vectors:
        return "of pytorch-metric-learning; class vectors of its own"
    if not loss.works(references=True, classes=4, dim=8):
        return "of pytorch-metric-learning; inside the batch only"
    return "of pytorch-metric-learning; also against proxies (CCP) and a memory (XBM)"


def _is_required(constructor: type, name: str) -> bool:
    """Tell whether a constructor, or one of those it hands its arguments on to, asks for an argument."""
    for part in constructor.__mro__:
        parameter = inspect.signature(vars(part)["__init__"]).parameters.get(name) if "__init__" in vars(part) else None
        if parameter is not None:
            return parameter.default is parameter.empty
    return False


def _count_classes(loss: nn.Module) -> int | None:
    """Count the classes that a loss of the library has vectors of; None where it has none, or does not tell."""
    if isinstance(count := getattr(loss, "num_classes", None), int) and count > 0:  # 0 where it is only recorded
        return count
    proxies, columns = getattr(loss, "proxies", None), getattr(loss, "W", None)  # (C, D) or (D, C)
    if isinstance(proxies, nn.Parameter):
        return len(proxies)
    return columns.shape[1] if isinstance(columns, nn.Parameter) else None


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".").split("\n")[0] or type(error).__name__
