"""A network as a program for other runtimes: ONNX, and torch's own exported programs."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.models.embedder import Embedder
from ccp_dml.serving.exports.resizing import ResizeAndCrop
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.preprocessing import GreyPreprocessing, PhotoPreprocessing, VectorPreprocessing

ONNX, ONNX_OF_IMAGES, TORCH = "model.onnx", "model_uint8.onnx", "model.pt2"
OUTPUT, FEATURES = "embeddings", "features"
EXAMPLE_SIZE = (97, 131)
"""Height and width of the images that the graph is traced with. Nothing in it depends on them."""

Program = Callable[[np.ndarray], np.ndarray]


class FromInputs(nn.Module):
    """Network inputs as float32, (B, 3, H, W) on the scale 0..255 or vectors (B, F) -> embeddings (B, D).

    Args:
        with_features: also gives what embeddings are made of: a frozen backbone's features (B, F), rounded to half
            precision.
        preprocessing: with it, inputs are images (B, H, W, 3) uint8 of any one size.
    """

    def __init__(
        self, network: Embedder, with_features: bool = False, preprocessing: ResizeAndCrop | None = None
    ) -> None:
        super().__init__()
        self.network, self.with_features, self.preprocessing = network, with_features, preprocessing

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        network = self.network
        features = network.features(inputs if self.preprocessing is None else self.preprocessing(inputs))
        embeddings: Tensor = NORMALISERS[network.normalise](network.head(features))
        return (embeddings, features) if self.with_features else embeddings


def write_onnx(model: EmbeddingModel, folder: Path) -> None:
    """Write model.onnx, which takes network inputs, and where those are made of images model_uint8.onnx."""
    require_onnx()
    refuse_mixed_precision(model)
    with_features = model.network.freeze_backbone and model.network.rounds_features
    _write_onnx(FromInputs(model.network, with_features), example_inputs(model), "inputs", ["batch"], folder / ONNX)
    preprocessing = graph_of_preprocessing(model)
    if preprocessing is not None:
        images = torch.zeros(2, *EXAMPLE_SIZE, 3, dtype=torch.uint8)
        of_images = FromInputs(model.network, with_features, preprocessing)
        _write_onnx(of_images, images, "images", ["batch", "height", "width"], folder / ONNX_OF_IMAGES)


def write_torch(model: EmbeddingModel, folder: Path) -> None:
    """Write model.pt2, a program of torch.export that takes network inputs."""
    refuse_mixed_precision(model)
    dynamic = {"inputs": {0: torch.export.Dim.DYNAMIC}}
    with torch.no_grad(), quiet():
        program = torch.export.export(FromInputs(model.network), (example_inputs(model),), dynamic_shapes=dynamic)
        torch.export.save(program, folder / TORCH)


def _write_onnx(module: FromInputs, example: Tensor, name: str, free_axes: list[str], file: Path) -> None:
    """Write a program whose input `name` may have any size along its first axes, which readers see by these names."""
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            module.eval(),
            (example,),
            dynamo=True,
            dynamic_shapes={"inputs": dict(enumerate(free_axes))},
            input_names=[name],
            output_names=[OUTPUT, FEATURES] if module.with_features else [OUTPUT],
            verbose=False,
        )
        assert program is not None
        program.save(str(file))


def run_onnx(file: Path, output: str = OUTPUT) -> Program:
    """Load the program in `file`, for onnxruntime on the processor, and give one of its outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: np.asarray(session.run([output], {name: inputs})[0])


def run_torch(file: Path) -> Program:
    """Run the program in `file` by torch."""
    with quiet():
        module = torch.export.load(file).module()
    return lambda inputs: module(torch.from_numpy(inputs)).detach().numpy()


def example_inputs(model: EmbeddingModel) -> Tensor:
    """Make two network inputs, all zero."""
    own = model.preprocessing
    if isinstance(own, VectorPreprocessing):
        return torch.zeros(2, own.width)
    side = own.crop if isinstance(own, PhotoPreprocessing) else own.side
    return torch.zeros(2, 3, side, side)


def graph_of_preprocessing(model: EmbeddingModel) -> ResizeAndCrop | None:
    """Build the preprocessing as plain tensor operations; None for vectors, which have none."""
    own = model.preprocessing
    if isinstance(own, PhotoPreprocessing):
        return ResizeAndCrop(own.resize, own.crop, grey=False)
    return ResizeAndCrop(own.side, own.side, grey=True) if isinstance(own, GreyPreprocessing) else None


def refuse_mixed_precision(model: EmbeddingModel) -> None:
    if model.description.precision != "32-true":
        raise UserError(
            f"{model.name} works in {model.description.precision}, which --onnx and --torch cannot keep to: export "
            "without them, or train with run.precision=32-true."
        )


def require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"--onnx needs {error.name}: pip install 'ccp-dml[onnx]'.") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's exporters from printing and logging what only their authors need."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
