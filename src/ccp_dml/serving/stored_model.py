"""Models on disk: a run's best network joined with its preprocessing, and folders that `EmbeddingModel.save` wrote."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ccp_dml.config.schema import Config, ModelConfig, RunConfig
from ccp_dml.errors import UserError, first_line
from ccp_dml.foundation.checkpoint import load_weights
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.models.embedder import Embedder
from ccp_dml.records import layout
from ccp_dml.records.code_copies import with_copies
from ccp_dml.records.documents import read_json
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.build import build_network_for
from ccp_dml.runs.devices import FULL, build_fabric
from ccp_dml.runs.frozen import digest_of
from ccp_dml.serving.model import FORMAT, MODEL, PREPROCESSING, WEIGHTS, Description, EmbeddingModel
from ccp_dml.serving.preprocessing import from_values, preprocessing_of

BACKBONE = "model.backbone"


def load(
    path: str | Path,
    device: str | torch.device = "auto",
    *,
    settings: Sequence[str] = (),
    trust_code: bool = False,
    backbone: Callable[..., nn.Module] | None = None,
    reduced_decoding: bool = False,
    channels_last: bool = False,
) -> EmbeddingModel:
    """Load a trained network: the folder of a run, or one that `ccp export` or `EmbeddingModel.save` wrote.

    Args:
        path: the folder.
        device: auto, cpu, cuda or cuda:N, or such a device of torch.
        settings: for a run whose files have moved, such as ["model.weights=FILE"]; see `Logbook.config_here`.
        trust_code: run the code of a backbone that came with the folder. Read it first: it may do anything.
        backbone: the class of the backbone, in place of such code.
        reduced_decoding: decode large JPEG files at a half, a quarter or an eighth of their size, as far as the network
            does not need more. Much faster on photos of many megapixels; vectors differ a little.
        channels_last: lay images out in memory as most processors prefer it for convolutions. Faster for most
            backbones; vectors differ in the last digits.
    """
    if isinstance(settings, str):
        raise UserError(f"settings are a list: write [{settings!r}].")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise UserError(f"there is no model {folder}: give the folder of a run, or one that `ccp export` wrote.")
    if (folder / MODEL).is_file():
        if settings:
            raise UserError(
                f"{folder} is an exported model, which has all that it needs: leave out {', '.join(settings)}, which "
                "is for runs whose files have moved."
            )
        model = load_saved(folder, str(device), trust_code=trust_code, backbone=backbone)
    elif (folder / layout.CONFIG).is_file():
        model = load_run(folder, str(device), settings, trust_code=trust_code, backbone=backbone)
    else:
        raise UserError(
            f"{folder} holds no model, neither {layout.CONFIG} nor {MODEL}: give the folder of a run, or one that "
            "`ccp export` wrote."
        )
    model.hurry(reduced_decoding=reduced_decoding, channels_last=channels_last)
    return model


def load_run(
    folder: Path,
    device: str,
    settings: Sequence[str],
    *,
    trust_code: bool,
    backbone: Callable[..., nn.Module] | None = None,
) -> EmbeddingModel:
    """Load the best network of a run, whole: a head that was trained on features is joined with its backbone."""
    logbook = Logbook.reopen(folder)
    config = logbook.config_here(settings, [BACKBONE], trust_code=trust_code or backbone is not None)
    if not logbook.best_file.exists():
        raise UserError(
            f"{folder} has no {logbook.best_file.name} yet; finish it with `ccp train --resume --out "
            f"{quote(str(folder))}`."
        )
    weights = logbook.best_weights()
    width = input_width(config.model, weights, logbook.best_file)
    network, precision = joined_network(logbook, config, weights, width, backbone)
    record = RunFolder.read(folder)
    description = Description(
        name=record.name,
        network=config.model,
        code=logbook.code_digests().get(BACKBONE),
        batch_size=config.run.evaluation_batch,
        precision=precision,
        metric=config.loss.arguments.get("normalise", "none"),  # a run's configuration spells out every argument
        class_names=None if record.classes is None else tuple(record.classes["learned"]),
        certificate=record.certificate,
    )
    fabric = build_fabric(device, precision)
    return EmbeddingModel(network, preprocessing_of(config.data, width), description, fabric)


def joined_network(
    logbook: Logbook,
    config: Config,
    weights: dict[str, Tensor],
    width: int | None,
    backbone: Callable[..., nn.Module] | None,
) -> tuple[Embedder, str]:
    """Build the network from an image to its embedding, and name the precision in which its backbone works."""
    on_features = config.model.trains_on_features
    # Otherwise there is nothing to load or download: the run's own weights hold the backbone, too.
    model = config.model if on_features else config.model.without_source
    network = build_network_for(model, width, config.run.seed, backbone)
    if on_features:
        logbook.pin_backbone(digest_of(network))
        below = {f"backbone.{name}": value for name, value in network.backbone.state_dict().items()}
        weights = {**below, **weights}  # what was trained replaces what it began with
    fill(network, weights, logbook.best_file, logbook.folder / layout.CONFIG)
    return network, config.run.precision_outside_training if on_features else FULL


def load_saved(
    folder: Path, device: str, *, trust_code: bool, backbone: Callable[..., nn.Module] | None = None
) -> EmbeddingModel:
    """Load what `EmbeddingModel.save` wrote; raise where any of it is missing or was changed."""
    values, inputs = json_object(folder / MODEL), json_object(folder / PREPROCESSING)
    if values.get("format") != FORMAT:
        raise UserError(
            f"{folder / MODEL} is of format {values.get('format')}, and this version of ccp-dml reads {FORMAT}; export "
            "the run again."
        )
    names = inputs.pop("class_names", None)
    try:
        description = Description(
            name=str(values["name"]),
            network=ModelConfig(**values["network"]),
            code=values.get("code"),
            batch_size=int(values["batch_size"]),
            precision=RunConfig(precision=values["precision"]).precision,
            metric=str(values["metric"]),
            class_names=None if names is None else tuple(names),
            certificate=json_object(folder / layout.CERTIFICATE) if (folder / layout.CERTIFICATE).exists() else None,
        )
        preprocessing, expected = from_values(inputs), str(values["digest"])
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise damaged(folder, f"{type(error).__name__}: {first_line(error)}") from None
    weights = load_weights(folder / WEIGHTS)
    width = input_width(description.network, weights, folder / WEIGHTS)
    digests = {} if description.code is None else {BACKBONE: description.code}
    consent = trust_code or backbone is not None  # whose class then stands in for the code
    described = with_copies(folder, Config(model=description.network), digests, [BACKBONE], trust_code=consent)
    description = replace(description, network=described.model)
    network = build_network_for(description.network.without_source, width, seed=0, own_backbone=backbone)
    fill(network, weights, folder / WEIGHTS, folder / MODEL)
    model = EmbeddingModel(network, preprocessing, description, build_fabric(device, description.precision))
    if model.digest != expected:
        raise damaged(folder, "its digest is not that of its content")
    return model


def input_width(model: ModelConfig, weights: dict[str, Tensor], file: Path) -> int | None:
    """Give F where the network takes vectors (F,), None where it takes images."""
    if "linear.weight" not in weights:
        raise UserError(f"{file} holds no network of ccp-dml (no linear.weight in it); restore the file.")
    return weights["linear.weight"].shape[1] if model.backbone == IDENTITY else None


def fill(network: Embedder, weights: dict[str, Tensor], file: Path, description: Path) -> None:
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise UserError(
            f"{file} does not fit the network that {description} describes: one of the two was changed after training; "
            "restore what was changed."
        ) from None


def json_object(file: Path) -> dict[str, Any]:
    value = read_json(file, "export the run again")
    if value is None:
        raise UserError(f"{file} is missing, so that the model is not whole; export the run again.")
    return value


def damaged(folder: Path, why: str) -> UserError:
    return UserError(f"The model in {folder} is damaged or was changed ({why}); export the run again.")
