"""Build a run's objects from its configuration: network and first head, loss and objective, optimiser.

The parts built here take plain arguments: none of them knows what a configuration is."""

import inspect
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.config.layers import naming_keys
from ccp_dml.config.schema import CcpConfig, Config, LossConfig, ModelConfig
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import evaluation_batches
from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation import own_code
from ccp_dml.foundation.mapped import MappedFiles
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.foundation.randomness import derive_seed, drawing_alike, generator
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.functional.row_adam import RowAdam
from ccp_dml.losses.memory import CrossBatchMemory
from ccp_dml.losses.metrix import Metrix, TakesMixtures
from ccp_dml.losses.pml import Miner, PmlLoss, pml_miners, settable_arguments
from ccp_dml.models.backbones import FROM_SCRATCH, create_backbone
from ccp_dml.models.embedder import Embedder, start_as_pca
from ccp_dml.objectives import BatchObjective, ProxyObjective
from ccp_dml.proxies import ClassProxies, pool_size
from ccp_dml.runs.arguments import (
    PREFIX,
    LossContext,
    call_own,
    checked_against,
    checked_arguments,
    construct_own,
    find_loss,
)
from ccp_dml.runs.conflicts import refuse_conflicts
from ccp_dml.trainer import with_gradient


@naming_keys("model")
def build_network(model: ModelConfig, data: LabelledSet | None, seed: int) -> Embedder:
    """Build the embedder with its first weights; `data` tells whether features or maps are the input, not images."""
    sample = None if data is None else data.load(torch.arange(1))
    width = sample.shape[1] if sample is not None and sample.ndim == 2 else None  # of features (B, F)
    network = build_network_for(model, width, seed)
    if sample is not None and not sample.is_floating_point() and own_code.is_own(model.backbone, own_code.BACKBONES):
        refuse_odd_backbone(network.backbone, model.backbone, sample)
    if network.cut is not None and sample is not None and sample.is_floating_point():
        network.keep_what_learns()
    return network


@naming_keys("model")
def build_network_for(
    model: ModelConfig, width: int | None, seed: int, own_backbone: Callable[..., nn.Module] | None = None
) -> Embedder:
    """Build the embedder with its first weights, for features of this `width`, or for images if that is None.

    `own_backbone` stands in for the code that `model.backbone` names; see `ccp_dml.load`.
    """
    own = own_backbone_of(model, own_backbone)
    backbone = create_backbone(
        model.backbone,
        pretrained=model.pretrained and model.weights is None,
        weights=None if model.weights is None else Path(model.weights).expanduser(),
        seed=seed,
        feature_dim=width,
        input_mean=model.input_mean,
        input_std=model.input_std,
        own=own,
    )
    return Embedder(
        backbone,
        model.embedding_dim,
        model.pooling,
        model.normalise,
        freeze_batch_norm=model.freeze_batch_norm,
        freeze_backbone=model.freeze_backbone,
        train_from=model.train_from,
        feature_precision=model.feature_precision,
        scale_features=model.head_init != "xavier",
        hidden_dim=model.hidden_dim,
        generator=generator(seed, "linear"),
    )


def own_backbone_of(
    model: ModelConfig, given: Callable[..., nn.Module] | None = None
) -> Callable[[], nn.Module] | None:
    """Return what constructs a backbone of the user's own; None for the backbones that everybody has."""
    name, arguments = model.backbone, dict(model.args)
    if given is not None:
        return lambda: call_own(name, own_code.BACKBONES, given, arguments)
    if not own_code.is_own(name, own_code.BACKBONES):
        if arguments:
            raise UserError(
                f"model.args.{next(iter(arguments))} is set, but the backbone {name!r} takes no arguments; only "
                "backbones of your own do (model.backbone=FILE.py:NAME)."
            )
        return None
    return lambda: construct_own(name, own_code.BACKBONES, arguments, "model.args.", "backbone", base=nn.Module)


@torch.no_grad()
def refuse_odd_backbone(backbone: nn.Module, name: str, inputs: Tensor) -> None:
    """Raise unless a backbone of the user's own makes features of the width that it states; `inputs` is one item."""
    was_training = backbone.training
    try:
        features = backbone.eval()(inputs)
    except Exception as error:
        raise own_code.failed(
            f"{name}, called with {inputs.dtype} {tuple(inputs.shape)}",
            str(own_code.source_file(name, own_code.BACKBONES)),
            error,
        ) from error
    finally:
        backbone.train(was_training)
    width = backbone.num_features
    if not isinstance(features, Tensor) or features.ndim not in (2, 4) or features.shape[:2] != (1, width):
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise UserError(
            f"{name} says num_features = {width}, but gives {found} for one image; it must give features "
            f"(1, {width}) or feature maps (1, {width}, height, width)."
        )


def weights_note(model: ModelConfig) -> str | None:
    """Warn, in words, about a backbone that should be pretrained and is not; None if all is well."""
    if model.has_trained_backbone or model.backbone in FROM_SCRATCH:
        return None
    return (
        f"The backbone {model.backbone} starts from random weights; for pretrained ones set "
        "model.weights=FILE or, with a backbone of timm, model.pretrained=true."
    )


def build_objective(
    config: Config, classes: int, steps_per_epoch: int = 100, processes: Processes = ALONE
) -> tuple[nn.Module, ClassProxies | None]:
    """Build what a step minimises, and return the proxies in it that CCP reselects, if any.

    `steps_per_epoch` matters to losses that do something every few epochs. `processes` train together.
    """
    context = context_of_loss(config, classes, steps_per_epoch)
    dim, seed = context.dim, context.seed
    loss = build_loss(config.loss, context)
    refuse_conflicts(config, loss, context, processes)
    if config.metrix.enabled:
        assert isinstance(loss, TakesMixtures)
        return Metrix(loss, config.metrix.weight, config.metrix.alpha, seed=seed), None
    if config.ccp.has_proxies:
        proxies = ClassProxies(
            classes,
            config.ccp.proxies_per_class,
            dim,
            config.ccp.proxy_length,
            proxy_slots(config.ccp) if config.ccp.proxies_by_need else None,
            normalise=normalisation_of(loss),
            gradient_by_rows=config.optim.proxies_by_rows,
            holders=processes if config.run.proxies_over_processes else ALONE,
        )
        return ProxyObjective(loss, proxies, config.ccp.pair_weight, config.ccp.balance), proxies
    if config.xbm.enabled:
        remembered = config.xbm.memory_batches * config.train.batch_size
        return CrossBatchMemory(loss, remembered, dim, config.xbm.start_step), None
    return BatchObjective(loss), None


def context_of_loss(config: Config, classes: int, steps_per_epoch: int) -> LossContext:
    """Collect what a loss may ask about the run."""
    return LossContext(classes, config.model.embedding_dim, steps_per_epoch, derive_seed(config.run.seed, "loss"))


MOST_TRIED = 1 << 24
"""Numbers of proxies with which a loss of the user's own is tried out; with more of them, in the batch alone."""


def refuse_odd_loss(config: Config, classes: int, steps_per_epoch: int, device: torch.device) -> None:
    """Raise unless a loss of the user's own makes one number with a gradient of batches like those of the run.

    It is tried out twice, where it gets references with those, too: a second step may find what the first one left.
    The loss that trains is another one, so that a trial leaves no trace in it.
    """
    name, train, ccp = config.loss.name, config.train, config.ccp
    if not own_code.is_own(name, own_code.LOSSES):
        return
    context = context_of_loss(config, classes, steps_per_epoch)
    numbers = torch.arange(classes, device=device)
    labels = numbers[: train.classes_per_batch].repeat_interleave(train.images_per_class)
    with drawing_alike(device, "trial of a loss"):
        loss = build_loss(config.loss, context).to(device)
        for _ in range(2):
            embeddings = NORMALISERS[config.model.normalise](torch.randn(len(labels), context.dim, device=device))
            given: list[tuple[Tensor, ...]] = [()]
            if ccp.has_proxies and classes * ccp.proxies_per_class * context.dim <= MOST_TRIED:
                ref_labels = numbers.repeat_interleave(ccp.proxies_per_class)
                given.append((torch.randn(len(ref_labels), context.dim, device=device).requires_grad_(), ref_labels))
            elif config.xbm.enabled:
                given.append((embeddings.clone(), labels))  # all that a queue holds at first
            for references in given:
                _try_out(loss, name, embeddings.requires_grad_(), labels, *references)


def _try_out(loss: nn.Module, name: str, embeddings: Tensor, labels: Tensor, *references: Tensor) -> None:
    batch = f"a batch of {len(labels)} embeddings" + (f" and {len(references[1])} references" if references else "")
    try:
        found = loss(embeddings, labels, *references)
        if isinstance(found, Tensor) and found.ndim == 0:
            (gradient,) = torch.autograd.grad(with_gradient(found, embeddings), embeddings, allow_unused=True)
            if gradient is None:
                raise UserError("its gradient does not reach the embeddings: compute it without detach.")
            if not gradient.isfinite().all():
                raise UserError(
                    "its gradient holds NaN or infinity; that of a root at zero does, as in the distance of an "
                    "embedding to itself: see ccp_dml.losses.pairs.pair_up."
                )
            return
    except UserError as error:
        raise UserError(f"{name}, called with {batch}: {error}") from None
    except Exception as error:
        source = str(own_code.source_file(name, own_code.LOSSES))
        raise own_code.failed(f"{name}, called with {batch}", source, error) from error
    given = f"a tensor {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise UserError(f"{name} gives {given} for {batch}; a loss gives one number, a tensor without dimensions.")


def normalisation_of(loss: nn.Module) -> str:
    """Name how a loss normalises references; one of a user's own that does not say so as `pair_up` does by default."""
    name = getattr(loss, "normalise", "clip")
    return name if isinstance(name, str) and name in NORMALISERS else "clip"


def proxy_slots(ccp: CcpConfig) -> int:
    """Count the proxies that a class may have at most where need decides: twice the mean, or the whole pool."""
    return min(2 * ccp.proxies_per_class, pool_size(ccp.pool_per_class, ccp.proxies_per_class))


def build_optimizer(
    config: Config, network: nn.Module, objective: nn.Module, files: MappedFiles | None = None
) -> torch.optim.Adam:
    """Set up Adam (D16) without its own weight decay: decay must enter before the gradient is clipped (D15).

    The fused one updates many proxies several times as fast. In 16-mixed, where gradients are scaled, it would insist
    on undoing the scale by itself, after the clipping, so there it is not used. `files` hold the moments of proxies.
    """
    optim, is_scaled = config.optim, config.run.precision == "16-mixed"
    groups = [{"params": [value for value in network.parameters() if value.requires_grad], "lr": optim.lr}]
    of_objective = [value for value in objective.parameters() if value.requires_grad]
    if of_objective:
        groups.append({"params": of_objective, "lr": optim.lr * optim.proxy_lr_factor})
    settings: dict[str, Any] = {"lr": optim.lr, "betas": optim.betas, "eps": optim.eps, "fused": not is_scaled}
    if not optim.proxies_by_rows:
        return torch.optim.Adam(groups, **settings)
    if files is None:
        return RowAdam(groups, **settings)
    return RowAdam(groups, **settings, zeros_like=lambda value: files.zeros(value.shape, value.dtype))


def compile_backbone(network: Embedder, device: torch.device, backend: str = "inductor") -> None:
    """Let torch translate the backbone when it first runs (`run.compile`); weights keep their places and names.

    The translation fuses operations: results differ from those without it in their last digits.
    """
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++", "cl")
    if backend == "inductor" and device.type == "cpu" and not any(map(shutil.which, compilers)):
        raise UserError("run.compile needs a C++ compiler, and none was found; install g++, or leave run.compile off.")
    network.backbone.compile(backend=backend)


def build_loss(loss: LossConfig, context: LossContext) -> nn.Module:
    """Build the loss by name, with its miner: one of this package, of pytorch-metric-learning, or of the user's own."""
    arguments = checked_arguments(loss)
    if loss.miner is not None and not loss.name.startswith(PREFIX):
        raise UserError(
            f"loss.miner = {loss.miner!r} chooses pairs for losses of pytorch-metric-learning; loss.name = "
            f"{loss.name!r} chooses by itself: remove loss.miner, or take a loss such as pml:TripletMarginLoss."
        )
    try:
        if loss.name.startswith(PREFIX):
            name, own = loss.name.removeprefix(PREFIX), context
            miner = build_miner(loss)
            adapted = PmlLoss.named(name, arguments, classes=own.classes, dim=own.dim, seed=own.seed, miner=miner)
            adapted.rehearse(references=False, classes=own.classes, dim=own.dim)
            return adapted
        constructor = find_loss(loss.name)
        asked_for = inspect.signature(constructor).parameters
        given = {name: value for name, value in asdict(context).items() if name in asked_for}
        if own_code.is_own(loss.name, own_code.LOSSES):
            built: nn.Module = call_own(loss.name, own_code.LOSSES, constructor, arguments | given)
            return built
        return constructor(**arguments, **given)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"loss.name = {loss.name!r}: {error}.") from None


def build_miner(loss: LossConfig) -> Miner | None:
    """Build what chooses the pairs of a loss of pytorch-metric-learning; None: the loss takes all."""
    name, arguments = loss.miner, dict(loss.miner_args)
    if name is None:
        if arguments:
            raise UserError(f"loss.miner_args.{next(iter(arguments))} is set, but loss.miner is not: name a miner.")
        return None
    if own_code.is_own(name, own_code.MINERS):
        miner: Miner = construct_own(name, own_code.MINERS, arguments, "loss.miner_args.", "miner")
        return miner
    known = {PREFIX + key: value for key, value in pml_miners().items()}
    if name not in known:
        raise UserError(
            f"loss.miner = {name!r} is no miner{did_you_mean(name, list(known))}; there are {', '.join(known)}, and "
            "FILE.py:NAME of your own."
        )
    parameters = dict(settable_arguments(known[name]).parameters)
    return known[name](**checked_against(name, parameters, arguments, "loss.miner_args.", "miner"))


@naming_keys("model")
def start_head(
    network: Embedder, config: Config, learned: LabelledSet, workers: int, processes: Processes = ALONE
) -> None:
    """Set the head's first weights as `model.head_init` asks, from the images of the classes that train alone."""
    if network.scaling is None:
        return  # "xavier": as the network was built
    features = pooled_features(network, learned, config.run.evaluation_batch, workers, processes)
    start_as_pca(network.linear, network.scaling, features, whiten=config.model.head_init == "whitened-pca")
    processes.share([network.linear.weight, network.scaling.centre, network.scaling.scale])


@torch.no_grad()
def pooled_features(
    network: Embedder, data: LabelledSet, batch_size: int, workers: int, processes: Processes = ALONE
) -> Tensor:
    """Compute the backbone's features (N, F) of all of `data` under the evaluation transform."""
    network.eval()
    device = network.linear.weight.device
    batches = evaluation_batches(data, batch_size, workers, processes)
    return processes.gather_rows([network.features(inputs.to(device)) for inputs, _ in batches], device)
