"""From a configuration to objects. Nothing below this file knows what a configuration is."""

import warnings
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from ccp_dml.config.schema import Config, LossConfig, ModelConfig, OptimConfig
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.errors import UserError
from ccp_dml.foundation.randomness import derive_seed, generator
from ccp_dml.losses.memory import CrossBatchMemory
from ccp_dml.models.backbones import FROM_SCRATCH, create_backbone
from ccp_dml.models.embedder import Embedder
from ccp_dml.objective import BatchObjective, ProxyObjective
from ccp_dml.proxies import ClassProxies
from ccp_dml.runs.build_loss import Surroundings, build_loss, checked_arguments, refuse_without_references


def build_network(model: ModelConfig, data: LabelledSet | None, seed: int) -> Embedder:
    """The embedder with its first weights. `data` tells how wide precomputed features are, where they are the input."""
    width = feature_width(data)
    backbone = create_backbone(
        model.backbone,
        pretrained=model.pretrained and model.weights is None,
        weights=None if model.weights is None else Path(model.weights).expanduser(),
        seed=seed,
        feature_dim=width,
        input_mean=model.input_mean,
        input_std=model.input_std,
    )
    return Embedder(
        backbone,
        model.embedding_dim,
        model.pooling,
        model.normalise,
        freeze_batch_norm=model.freeze_batch_norm,
        freeze_backbone=model.freeze_backbone,
        scale_features=model.head_init != "xavier",
        hidden_dim=model.hidden_dim,
        generator=generator(seed, "linear"),
    )


def feature_width(data: LabelledSet | None) -> int | None:
    """F where the items of `data` are features (F,), None where they are images."""
    sample = None if data is None else data.load(torch.arange(1))
    return sample.shape[1] if sample is not None and sample.ndim == 2 else None


def starts_from_nothing(model: ModelConfig) -> bool:
    """Whether a backbone that is made to be pretrained begins with random weights."""
    return not (model.pretrained or model.weights or model.backbone in FROM_SCRATCH)


def weights_note(model: ModelConfig) -> str | None:
    """What to tell a person whose backbone should have weights and has none."""
    if not starts_from_nothing(model):
        return None
    return (
        f"The backbone {model.backbone} starts from random weights; for pretrained ones set "
        "model.weights=FILE or, with a backbone of timm, model.pretrained=true."
    )


def complete(config: Config) -> Config:
    """The same with every argument of the loss spelled out, so that a saved configuration does not lean on defaults."""
    loss = LossConfig(name=config.loss.name, **checked_arguments(config.loss))
    return config.model_copy(update={"loss": loss})


def build_objective(config: Config, classes: int, steps_per_epoch: int = 100) -> tuple[nn.Module, ClassProxies | None]:
    """What a step minimises, and the proxies in it that are to be reselected.

    `steps_per_epoch` matters to losses that do something every few epochs.
    """
    dim, seed = config.model.embedding_dim, derive_seed(config.run.seed, "loss")
    loss = build_loss(config.loss, Surroundings(classes, dim, steps_per_epoch, seed))
    if config.ccp.mode != "off":
        if config.xbm.enabled:
            raise UserError("xbm.enabled and ccp.mode are both set: references are either a memory or proxies.")
        refuse_without_references(loss, config.loss.name, f"ccp.mode={config.ccp.mode}")
        proxies = ClassProxies(classes, config.ccp.proxies_per_class, dim)
        return ProxyObjective(loss, proxies, config.ccp.pair_weight), proxies
    if config.xbm.enabled:
        refuse_without_references(loss, config.loss.name, "xbm.enabled=true")
        batch = config.train.classes_per_batch * config.train.images_per_class
        return CrossBatchMemory(loss, config.xbm.memory_batches * batch, dim, config.xbm.start_step), None
    return BatchObjective(loss), None


def build_optimizer(optim: OptimConfig, network: nn.Module, objective: nn.Module) -> torch.optim.Adam:
    """Adam (D16) without its own weight decay: decay must enter before the gradient is clipped (D15)."""
    groups = [{"params": [value for value in network.parameters() if value.requires_grad], "lr": optim.lr}]
    of_objective = [value for value in objective.parameters() if value.requires_grad]
    if of_objective:
        groups.append({"params": of_objective, "lr": optim.lr * optim.proxy_lr_factor})
    return torch.optim.Adam(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps)


def build_fabric(device: str, precision: Any) -> Fabric:
    """One process on one device."""
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (number and not (kind == "cuda" and number.isdigit())):
        raise UserError(f"run.device = {device!r} is no device; use auto, cpu, cuda, cuda:N or mps.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(
            f"run.device = {device!r}: this machine has {torch.cuda.device_count()} CUDA devices; use auto."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UserError("run.device = 'mps': this machine has no Apple GPU that torch can use; use auto.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is not available on.*|.*tensorboard.*")
        return Fabric(accelerator=kind, devices=[int(number)] if number else 1, precision=precision)
