"""Any loss of pytorch-metric-learning by name: its arguments, its proxies, and whether it takes references."""

import copy
import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.functional.distances import at_least_float32

PREFIX = "pml:"

_NEED_MORE_THAN_LABELS = frozenset({"BaseMetricLossFunction", "GenericPairLoss", "ManifoldLoss", "VICRegLoss"})
"""Base classes, and losses that learn without labels."""

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


def settable_arguments(name: str) -> inspect.Signature:
    """List the arguments of a loss that a configuration can set: numbers, switches and words.

    The library's constructors hand `**kwargs` on to their base classes, so the arguments of all of them are gathered.
    """
    found: dict[str, inspect.Parameter] = {}
    for part in pml_losses()[name].__mro__:
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


class PmlLoss(nn.Module):
    """A loss of pytorch-metric-learning, called like the losses of this package.

    The library L2-normalises embeddings and references itself. With references, batch and references are different
    sets to it: no pair is a self-pair, as it must be for proxies.

    Inputs: `embeddings` (B, D), `labels` (B,), optionally `ref_embeddings` (R, D), `ref_labels` (R,). Output: a scalar.

        loss = PmlLoss("CircleLoss", {"m": 0.4, "gamma": 80}, classes=100, dim=128)
        loss(embeddings, labels).backward()

    Args:
        name: of the library's class.
        arguments: of its constructor; see `settable_arguments`.
        classes, dim: filled in where the loss has class vectors of its own.
        seed: of those vectors.

    Musgrave, Belongie, Lim: PyTorch Metric Learning. 2020.
    """

    def __init__(self, name: str, arguments: dict[str, Any], *, classes: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        self.name, self.classes, self.dim = name, classes, dim
        constructor = pml_losses()[name]
        sizes = {"classes": classes, "dim": dim}
        required = [key for key in _SIZES if _is_required(constructor, key)]
        try:
            self.loss = seeded(seed, constructor, **arguments, **{key: sizes[_SIZES[key]] for key in required})
        except Exception as error:  # the library checks its arguments by whatever happens to them
            raise ValueError(f"{name} refuses its arguments: {_reason(error)}") from None

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):
            if ref_embeddings is None or ref_labels is None:
                loss: Tensor = self.loss(at_least_float32(embeddings), labels)
            else:
                # Views, because the library takes the same object for the same set and leaves self-pairs out.
                references, ref_labels = at_least_float32(ref_embeddings)[:], ref_labels[:]
                loss = self.loss(at_least_float32(embeddings), labels, ref_emb=references, ref_labels=ref_labels)
        return loss

    def rehearse(self, *, references: bool) -> None:
        """Take two steps of backpropagation on a tiny batch, so that what cannot work fails before training."""
        copied = copy.deepcopy(self)
        draw = torch.Generator().manual_seed(0)
        labels = torch.arange(min(self.classes, 3)).repeat_interleave(2)
        ref_labels = torch.arange(min(self.classes, 4)).repeat_interleave(3)
        try:
            for _ in range(2):  # some losses keep what they should let go, and fail in the second step
                batch = torch.randn(len(labels), self.dim, generator=draw, requires_grad=True)
                others = torch.randn(len(ref_labels), self.dim, generator=draw, requires_grad=True)
                with torch.random.fork_rng(devices=[]):  # some losses draw their triplets
                    loss = copied(batch, labels, others, ref_labels) if references else copied(batch, labels)
                loss.backward()
        except Exception as error:
            if not references:
                raise ValueError(f"{self.name} does not work: {_reason(error)}") from None
            raise ValueError(
                f"{self.name} cannot be measured against references such as proxies or a memory: {_reason(error)}"
            ) from None

    def works(self, *, references: bool) -> bool:
        try:
            self.rehearse(references=references)
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


def describe(name: str) -> str:
    """Describe one of the library's losses: what it needs, and whether CCP and XBM can use it."""
    settable = settable_arguments(name).parameters
    needed = [f"loss.{key}" for key, value in settable.items() if value.default is value.empty]
    if needed:
        return f"of pytorch-metric-learning; needs {' and '.join(needed)}"
    loss = PmlLoss(name, {}, classes=4, dim=8)
    if not loss.works(references=False):
        return "of pytorch-metric-learning, in this version of which it cannot be trained"
    if next(loss.parameters(), None) is not None:
        return "of pytorch-metric-learning; class vectors of its own"
    if not loss.works(references=True):
        return "of pytorch-metric-learning; inside the batch only"
    return "of pytorch-metric-learning; also against proxies (CCP) and a memory (XBM)"


def _is_required(constructor: type, name: str) -> bool:
    """Tell whether a constructor, or one of those it hands its arguments on to, asks for an argument."""
    for part in constructor.__mro__:
        parameter = inspect.signature(vars(part)["__init__"]).parameters.get(name) if "__init__" in vars(part) else None
        if parameter is not None:
            return parameter.default is parameter.empty
    return False


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".").split("\n")[0] or type(error).__name__
