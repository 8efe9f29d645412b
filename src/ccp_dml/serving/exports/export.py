"""A run as a folder for others: network, preprocessing, programs and a model card, checked before it appears."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ccp_dml.data.files.class_folders import images_below
from ccp_dml.data.files.images import decode, reason_of
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import atomic_folder
from ccp_dml.foundation.randomness import generator
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.datasets import build_data
from ccp_dml.serving.exports.model_card import write_card
from ccp_dml.serving.exports.programs import (
    FEATURES,
    ONNX,
    ONNX_OF_IMAGES,
    OUTPUT,
    TORCH,
    Program,
    run_onnx,
    run_torch,
    write_onnx,
    write_torch,
)
from ccp_dml.serving.model import WEIGHTS, EmbeddingModel
from ccp_dml.serving.stored_model import load_run, load_saved

BATCHES = (1, 2, 7)
TOLERANCE = 1e-5
"""Largest difference of any number of a vector between what was loaded from a run and what was exported from it."""

ARITHMETIC = 1e-5
"""Relative difference that features may have between two ways to compute them: ten times the usual one."""


@dataclass(frozen=True)
class Rounded:
    """What becomes of a frozen backbone's features in another runtime: some are rounded to the other side."""

    otherwise: int  # features that were
    features: int  # of so many
    beyond: int  # images whose vectors differ by more than `TOLERANCE` for that
    images: int  # of so many
    head: float  # how far vectors are at most from what the run's head makes of the same features


@dataclass(frozen=True)
class Exported:
    """What was written, and how far each program's vectors are from the run's, at most."""

    folder: Path
    files: list[str]
    allowed: float
    differences: dict[str, float]
    rounded: dict[str, Rounded]  # of ONNX programs of a frozen backbone


def export_run(
    folder: Path,
    out: Path,
    *,
    onnx: bool = False,
    torch_program: bool = False,
    images: Path | None = None,
    settings: Sequence[str] = (),
    trust_code: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Write the model of the run in `folder` to the new folder `out`, and check it on images; all of it, or nothing.

    Args:
        onnx: also model.onnx and, for images, model_uint8.onnx.
        torch_program: also model.pt2.
        images: a folder to check on; the run's own images, if None.
        settings, trust_code: as for `load`.
        report: told what is being done.
    """
    model = load_run(folder, "cpu", settings, trust_code=trust_code)
    if images is not None and model.transform is None:
        raise UserError(f"{folder} was trained on vectors, not on images, and is checked on those: leave out --images.")
    items = sample_of(images) if images is not None else sample_of_run(folder, settings, trust_code)
    allowed = allowed_difference(model, items)
    try:
        with atomic_folder(out) as scratch:
            report("Writing the network")
            model.write_files(scratch)
            if onnx:
                report("Writing ONNX programs")
                write_onnx(model, scratch)
            if torch_program:
                report("Writing the torch program")
                write_torch(model, scratch)
            report("Checking what was written")
            differences = checked_differences(model, scratch, items, allowed)
            rounded = checked_rounding(model, scratch, items)
            write_card(model, RunFolder.read(folder), scratch, allowed)
            files = sorted(file.name for file in scratch.iterdir())
    except FileExistsError:
        raise UserError(f"{out} is not empty; export to a new or empty folder.") from None
    return Exported(out, files, allowed, differences, rounded)


@torch.no_grad()
def allowed_difference(model: EmbeddingModel, items: Sequence[Any]) -> float:
    """Say how far vectors may be apart at most: `TOLERANCE`, and more only where features are rounded.

    A run may round a frozen backbone's features to half precision. Another runtime may compute them differently in the
    last bit, so that some are rounded to the other side. How much that can change is measured on the items themselves.
    """
    network = model.network
    if not network.rounds_features:
        return TOLERANCE
    inputs = torch.stack([model.preprocessing.load(item) for item in items])
    if network.cut is not None:
        return TOLERANCE + 2 * change_by_rounded_maps(network, inputs)
    exact = network.pooled(inputs)
    signs = torch.randint(0, 2, exact.shape, generator=generator(0, "export rounding")) * 2 - 1

    def vectors(features: Tensor) -> Tensor:
        return NORMALISERS[network.normalise](network.head(features.half().float()))

    change = (vectors(exact * (1 + ARITHMETIC * signs)) - vectors(exact)).abs().max()
    return TOLERANCE + 2 * float(change)


def change_by_rounded_maps(network: Embedder, inputs: Tensor) -> float:
    """Measure what vectors change by if the maps below `train_from` differ in their last bit before rounding."""
    assert network.cut is not None

    def differ(_: nn.Module, maps: tuple[Tensor, ...]) -> tuple[Tensor]:
        signs = torch.randint(0, 2, maps[0].shape, generator=generator(0, "export rounding")) * 2 - 1
        return (maps[0] * (1 + ARITHMETIC * signs),)

    exact = network(inputs)
    handle = network.backbone.get_submodule(network.cut.stage).register_forward_pre_hook(differ, prepend=True)
    try:
        return float((network(inputs) - exact).abs().max())
    finally:
        handle.remove()


def checked_differences(model: EmbeddingModel, folder: Path, items: Sequence[Any], allowed: float) -> dict[str, float]:
    """Compare everything in `folder` with `model` in several batch sizes: file -> largest difference of a number."""
    found = {WEIGHTS: largest_difference(model, load_saved(folder, "cpu", trust_code=True).embed, list(items), items)}
    for name, (inputs, pictures) in inputs_of_programs(model, folder, items).items():
        program = (run_torch if name == TORCH else run_onnx)(folder / name)
        found[name] = largest_difference(model, stacked(program), inputs, pictures)
    for name, difference in found.items():
        if not difference <= allowed:
            raise UserError(
                f"{name} does not give the vectors of {model.name}: they differ by up to {difference:.2g}, and more "
                f"than {allowed:.2g} is too much; nothing was exported. Try other versions of torch and onnxruntime, "
                "or leave that file out."
            )
    return found


@torch.no_grad()
def checked_rounding(model: EmbeddingModel, folder: Path, items: Sequence[Any]) -> dict[str, Rounded]:
    """Count the features that ONNX programs round otherwise than the run, and refuse a head that differs."""
    network = model.network
    if not (network.freeze_backbone and network.rounds_features) or not (folder / ONNX).exists():
        return {}
    found = {}
    for name, (inputs, pictures) in inputs_of_programs(model, folder, items).items():
        if name == TORCH:
            continue
        features, vectors = (run_onnx(folder / name, output)(np.stack(inputs)) for output in (FEATURES, OUTPUT))
        expected = network.features(torch.stack([model.preprocessing.load(item) for item in pictures])).numpy()
        of_same = NORMALISERS[network.normalise](network.head(torch.from_numpy(features))).numpy()
        head = float(np.abs(vectors - of_same).max())
        if not head <= TOLERANCE:
            raise UserError(
                f"{name} makes other vectors of its features than {model.name} does: they differ by up to {head:.2g}, "
                f"and more than {TOLERANCE:.2g} is too much; nothing was exported. Try other versions of torch and "
                "onnxruntime, or leave that file out."
            )
        difference = np.abs(vectors - model.embed(list(pictures), batch_size=len(pictures)))
        found[name] = Rounded(
            otherwise=int((features != expected).sum()),
            features=expected.size,
            beyond=int((difference.max(axis=1) > TOLERANCE).sum()),
            images=len(pictures),
            head=head,
        )
    return found


def inputs_of_programs(
    model: EmbeddingModel, folder: Path, items: Sequence[Any]
) -> dict[str, tuple[list[np.ndarray], Sequence[Any]]]:
    """List the inputs of each program in `folder`, and the items that they were made of."""
    inputs = [model.preprocessing.load(item).float().numpy() for item in items]
    arrays = of_one_size(items) if (folder / ONNX_OF_IMAGES).exists() else []
    given: dict[str, tuple[list[np.ndarray], Sequence[Any]]] = {
        ONNX: (inputs, items),
        TORCH: (inputs, items),
        ONNX_OF_IMAGES: (arrays, arrays),
    }
    return {name: both for name, both in given.items() if (folder / name).exists()}


def largest_difference(
    model: EmbeddingModel, program: Callable[[list[Any]], np.ndarray], inputs: Sequence[Any], items: Sequence[Any]
) -> float:
    """Compare the vectors of `model` for `items` with those of `program` for the `inputs` made of them."""
    largest = 0.0
    for size in BATCHES:
        expected = model.embed(list(items[:size]), batch_size=size)
        difference = np.abs(program(list(inputs[:size])) - expected).max()
        largest = max(largest, float(difference)) if np.isfinite(difference) else float("inf")
    return largest


def stacked(program: Program) -> Callable[[list[np.ndarray]], np.ndarray]:
    return lambda inputs: program(np.stack(inputs))


def sample_of_run(folder: Path, settings: Sequence[str], trust_code: bool) -> list[Any]:
    """Take as many of the run's images, or vectors, as the largest batch takes, spread over all that test.

    Where no class was left to test on, they are spread over those that train.
    """
    try:
        config = Logbook.reopen(folder).config_here(settings, ["data.name"], trust_code=trust_code)
        halves = build_data(config.data)
        part = halves.test.queries if len(halves.test.queries) else halves.train
        rows = torch.linspace(0, len(part) - 1, max(BATCHES)).long()
        pictures = [part.source.picture(position) for position in part.positions[rows].tolist()]
    except UserError as error:
        sentence = str(error).rstrip(".")
        raise UserError(
            f"{sentence}. The export is checked on the run's images: give others with --images DIR."
        ) from None
    if any(picture is None for picture in pictures):
        return list(part.load(rows).numpy())
    return pictures


def sample_of(folder: Path) -> list[Any]:
    """Take as many images below `folder` as the largest batch takes; the first ones again where there are fewer."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; give --images a folder with images to check the export on.")
    found = images_below(folder)
    if not found:
        raise UserError(f"{folder} holds no images to check the export on; give --images another folder.")
    return [_decoded(found[place % len(found)]) for place in range(max(BATCHES))]


def _decoded(path: Path) -> Image.Image:
    try:
        return decode(path)
    except Exception as error:  # a decoder raises whatever its format runs into
        raise UserError(
            f"cannot read the image {path} ({reason_of(error)}): repair or remove it, or give --images another folder."
        ) from None


def of_one_size(items: Sequence[Image.Image]) -> list[np.ndarray]:
    """Scale the images to the size of the first, as arrays (H, W, 3): a batch has one size."""
    return [np.asarray(image.convert("RGB").resize(items[0].size)) for image in items]
