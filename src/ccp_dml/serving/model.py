"""A trained network with everything that belongs to it: preprocessing, class names, certificate."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image
from rich.progress import track
from torch import Tensor

from ccp_dml.config.schema import Config, ModelConfig
from ccp_dml.data.files.class_folders import images_below
from ccp_dml.data.files.images import SUFFIXES, reason_of
from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import save_weights
from ccp_dml.foundation.digests import digest, tensor_digest
from ccp_dml.foundation.files import atomic_folder, write_json
from ccp_dml.foundation.machine import usable_cores
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.models.embedder import Embedder
from ccp_dml.records import layout
from ccp_dml.records.code_copies import name_of_copy, write_copies
from ccp_dml.serving.match_threshold import MatchThreshold, match_threshold
from ccp_dml.serving.preprocessing import (
    PhotoPreprocessing,
    Preprocessing,
    VectorPreprocessing,
    as_values,
    unusable,
)

OnError = Literal["raise", "skip"]
FORMAT = 1
WEIGHTS, MODEL, PREPROCESSING = "model.safetensors", "model.json", "preprocessing.json"
BATCHES_AHEAD = 2
"""Batches whose images are decoded while the network works on an earlier one."""


@dataclass(frozen=True)
class Verdict:
    """Whether two images are called the same, and why."""

    same: bool
    distance: float
    threshold: float
    promise: str  # what the certificate says about this threshold


@dataclass(frozen=True)
class Description:
    """What is known about a network besides its weights.

    Args:
        name: for people; the run's folder, if nothing else was chosen.
        network: what the weights belong to. Its `weights` and `pretrained` play no part.
        batch_size: images embedded at once unless a call says otherwise; results may differ in the last bit with it.
        precision: of a frozen backbone's features, as Lightning names it; other networks work in float32.
        metric: how the certificate normalised embeddings before it measured distances: none, clip or l2.
        class_names: of the classes the network learned from; None where the run did not record them.
        certificate: what `ccp certify` wrote; None where there is none.
        code: digest of the code of a backbone of the user's own; None for other backbones.
    """

    name: str
    network: ModelConfig
    batch_size: int
    precision: str
    metric: str
    class_names: tuple[str, ...] | None
    certificate: dict[str, Any] | None
    code: str | None = None


class EmbeddingModel:
    """Turns images into vectors. Several threads may use one model at a time. Made by `ccp_dml.load`."""

    def __init__(
        self, network: Embedder, preprocessing: Preprocessing, description: Description, fabric: Fabric
    ) -> None:
        self.network = network.to(fabric.device).eval().requires_grad_(False)
        self.preprocessing = preprocessing
        self.description = description
        self.fabric = fabric
        self.digest = model_digest(network, preprocessing, description)
        self._load = preprocessing.load
        self._one_batch_at_a_time = threading.Lock()  # two forward passes at once would fight for the same cores
        self._calls = threading.local()

    def hurry(self, *, reduced_decoding: bool, channels_last: bool) -> None:
        """Embed faster from now on, with vectors that differ a little; see `ccp_dml.load`.

        It stays the same model: its digest, what it saves, and the indexes that it may search.
        """
        if reduced_decoding and isinstance(self.preprocessing, PhotoPreprocessing):
            self._load = replace(self.preprocessing, reduced_decoding=True).load
        if channels_last:
            self.network.to(memory_format=torch.channels_last)

    def __repr__(self) -> str:
        return f"<EmbeddingModel {self.name}: {self.dim} numbers per image, {self.digest[:8]}, on {self.device}>"

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def dim(self) -> int:
        return self.network.embedding_dim

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    @property
    def transform(self) -> Callable[[Image.Image], Tensor] | None:
        """Give what an upright RGB image goes through: PIL image -> uint8 (3, H, W). None for a model of vectors."""
        return self.preprocessing.transform

    @property
    def certificate(self) -> dict[str, Any] | None:
        return self.description.certificate

    @property
    def class_names(self) -> tuple[str, ...]:
        """List the names of the classes that the network learned from."""
        if self.description.class_names is None:
            raise UserError(f"{self.name} was trained by a version that did not record class names; train it again.")
        return self.description.class_names

    @property
    def skipped(self) -> list[tuple[Any, str]]:
        """List (item, reason) of what the last call of this thread with on_error="skip" left out."""
        return getattr(self._calls, "skipped", [])

    def embed(
        self,
        images: Any,
        *,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        progress: bool = False,
    ) -> np.ndarray:
        """Embed images: (N, D) float32, normalised as in training.

        Args:
            images: one of, or a list of: a path, a PIL image, a uint8 array (H, W, 3) or (H, W), the bytes of an image
                file. A folder stands for all images below it, sorted by path; an array (N, H, W, 3) for N images. A
                model of vectors takes arrays (N, F) or (F,).
            batch_size: images at once; as the run was evaluated, if None.
            on_error: "raise" an error that names the item, or "skip" it and list it in `skipped`.
            progress: show a bar.
        """
        items = self.items_of(images)
        found: Iterable[tuple[list[int], np.ndarray]] = self.embed_stream(
            items, batch_size=batch_size, on_error=on_error
        )
        if progress:
            batches = -(-len(items) // (batch_size or self.description.batch_size))
            found = track(found, "Embedding", total=batches, transient=True)
        vectors = [part for _, part in found]
        return np.concatenate(vectors) if vectors else np.empty((0, self.dim), dtype=np.float32)

    def embed_stream(
        self, items: Sequence[Any], *, batch_size: int | None = None, on_error: OnError = "raise"
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Embed `items` batch by batch: their positions, in order, and vectors (B, D).

        Positions b * batch_size to (b + 1) * batch_size - 1 are one batch, without those that are skipped. A caller
        that goes on at the start of a batch gets the same vectors, bit for bit.
        """
        size = self.description.batch_size if batch_size is None else batch_size
        if size < 1:
            raise UserError(f"batch_size={size} is too small: give at least 1.")
        if on_error not in ("raise", "skip"):
            raise UserError(f'on_error={on_error!r} is unknown: give "raise" or "skip".')
        skipped: list[tuple[Any, str]] = []
        if on_error == "skip":
            self._calls.skipped = skipped
        for block, outcomes in self._loaded(items, size):
            positions, inputs = [], []
            for position, outcome in zip(block, outcomes, strict=True):
                if isinstance(outcome, Tensor):
                    positions.append(position)
                    inputs.append(outcome)
                elif on_error == "raise":
                    raise unusable(items, position, outcome)
                else:
                    skipped.append((items[position], reason_of(outcome)))
            yield positions, self._vectors(inputs)

    def items_of(self, images: Any) -> list[Any]:
        """List everything that `images` stands for, one item per vector."""
        if isinstance(self.preprocessing, VectorPreprocessing):
            array = images if isinstance(images, np.ndarray) else np.asarray(images)
            return list(array) if array.ndim == 2 or array.size == 0 else [images]
        if isinstance(images, str | Path):
            return expanded(Path(images))
        is_column = isinstance(images, np.ndarray) and images.ndim == 1 and images.dtype.kind in "OU"
        if isinstance(images, np.ndarray) and not is_column:
            return list(images) if images.ndim == 4 else [images]
        is_open_file = hasattr(images, "read")  # whose lines would be taken for pictures
        if isinstance(images, Image.Image | bytes) or is_open_file or not isinstance(images, Iterable):
            return [images]
        return [one for item in images for one in (expanded(Path(item)) if isinstance(item, str | Path) else [item])]

    def similarity(self, a: Any, b: Any) -> float:
        """Measure the dot product of two images' vectors: their cosine where vectors have length 1."""
        first, second = self._pair(a, b)
        return float(first @ second)

    def distance(self, a: Any, b: Any) -> float:
        """Measure the distance of two images, as the certificate does."""
        first, second = self._pair(a, b)
        return float(np.linalg.norm(first - second))

    def same(self, a: Any, b: Any, false_match_rate: float | None = None) -> Verdict:
        """Decide whether two images show the same class, at the certificate's threshold or at that of another rate."""
        found = self.match_threshold(false_match_rate)
        distance = self.distance(a, b)
        return Verdict(distance <= found.beta, distance, found.beta, found.promise)

    def threshold(self, false_match_rate: float | None = None) -> float:
        """Choose the distance up to which to call two images the same; see `match_threshold`."""
        return self.match_threshold(false_match_rate).beta

    def match_threshold(self, false_match_rate: float | None = None) -> MatchThreshold:
        """Read the threshold for a false-match rate, and what it promises, from the certificate.

        It is the largest known whose rate is no higher than the one asked for; None: the one that was certified.
        """
        return match_threshold(self.certificate, false_match_rate, self.name)

    def comparable(self, vectors: np.ndarray) -> np.ndarray:
        """Normalise vectors (N, D) as the certificate does before it measures distances; mostly they stay the same."""
        if self.description.metric in ("none", self.network.normalise):
            return vectors
        return NORMALISERS[self.description.metric](torch.from_numpy(vectors)).numpy()

    def save(self, folder: str | Path) -> None:
        """Write the whole network and all that belongs to it into a new `folder`, for `ccp_dml.load`."""
        try:
            with atomic_folder(Path(folder)) as scratch:
                self.write_files(scratch)
        except FileExistsError:
            raise UserError(f"{folder} is not empty; save to a new or empty folder.") from None

    def write_files(self, folder: Path) -> None:
        """Write model.safetensors, model.json, preprocessing.json and, where there is one, certificate.json."""
        own = self.description
        left_out = {"weights", "pretrained"} | (set() if own.network.args else {"args"})
        network = own.network.model_dump(mode="json", exclude=left_out)
        network["backbone"] = name_of_copy(own.network.backbone, "model.backbone")
        write_copies(folder, Config(model=own.network))
        save_weights(folder / WEIGHTS, dict(self.network.state_dict()))
        write_json(
            folder / MODEL,
            {
                "format": FORMAT,
                "name": own.name,
                "digest": self.digest,
                "network": network,
                **({} if own.code is None else {"code": own.code}),
                "batch_size": own.batch_size,
                "precision": own.precision,
                "metric": own.metric,
            },
        )
        names = None if own.class_names is None else list(own.class_names)
        write_json(folder / PREPROCESSING, {**as_values(self.preprocessing), "class_names": names})
        if own.certificate is not None:
            write_json(folder / layout.CERTIFICATE, own.certificate)

    def _pair(self, a: Any, b: Any) -> np.ndarray:
        # Not in one batch: each must come out as it does alone.
        vectors = np.concatenate([self.embed([each], batch_size=1) for each in (a, b)])
        if len(vectors) != 2:
            raise UserError("compare two images; a folder stands for many.")
        return self.comparable(vectors).astype(np.float64)

    def _loaded(self, items: Sequence[Any], size: int) -> Iterator[tuple[range, list[Tensor | Exception]]]:
        """Yield per batch its positions, and of each the network input or what is wrong with it."""
        if len(items) == 1:
            yield range(1), [attempt(self._load, items[0])]
            return
        # Threads, not processes: Pillow and torch work outside Python's lock, and nothing is forked inside a server.
        threads = ThreadPoolExecutor(min(usable_cores(), 8), thread_name_prefix="ccp-decode")
        ahead: deque[tuple[range, list[Future[Tensor | Exception]]]] = deque()
        try:
            for first in range(0, len(items), size):
                block = range(first, min(first + size, len(items)))
                ahead.append((block, [threads.submit(attempt, self._load, items[position]) for position in block]))
                if len(ahead) > BATCHES_AHEAD:
                    yield _awaited(*ahead.popleft())
            while ahead:
                yield _awaited(*ahead.popleft())
        finally:
            threads.shutdown(cancel_futures=True)

    @torch.no_grad()
    def _vectors(self, inputs: list[Tensor]) -> np.ndarray:
        """Map network inputs -> vectors (B, D)."""
        if not inputs:
            return np.empty((0, self.dim), dtype=np.float32)
        batch = torch.stack(inputs)
        network = self.network
        with self._one_batch_at_a_time:
            batch = batch.to(self.device, non_blocking=True)
            with self.fabric.autocast():
                features = network.features(batch)
            vectors = NORMALISERS[network.normalise](network.head(features))
            return vectors.float().cpu().numpy()


def attempt(load: Callable[[Any], Tensor], item: Any) -> Tensor | Exception:
    """Make the network input of an item, or return its error: a decoder raises whatever its format runs into."""
    try:
        return load(item)
    except Exception as error:
        return error


def _awaited(block: range, futures: list[Future[Tensor | Exception]]) -> tuple[range, list[Tensor | Exception]]:
    return block, [future.result() for future in futures]


def expanded(path: Path) -> list[Path]:
    """List a file as itself, a folder as all images below it, sorted."""
    path = path.expanduser()
    if not path.is_dir():
        return [path]
    if found := images_below(path):
        return found
    raise UserError(f"{path} holds no images ({', '.join(sorted(SUFFIXES))}); give a folder that does.")


def model_digest(network: Embedder, preprocessing: Preprocessing, description: Description) -> str:
    """Tell models apart by what they compute (weights, constants, architecture, preprocessing), not by their name."""
    constants = [(f"constant {name}", value) for name, value in network.named_buffers()]
    weights = tensor_digest([*network.state_dict().items(), *constants])
    of_network = sorted(architecture(description.network, description.code).items())
    return digest(weights, repr(of_network), description.precision, repr(sorted(as_values(preprocessing).items())))


def architecture(model: ModelConfig, code: str | None) -> dict[str, Any]:
    """Name what decides which function the weights make up; not where they came from, nor how they were trained."""
    kept = ["backbone", "embedding_dim", "pooling", "normalise", "freeze_backbone", "head_init", "hidden_dim"]
    if model.train_from is not None:  # said only where it is set: models of earlier versions keep their digests
        kept.append("train_from")
    if (model.freeze_backbone or model.train_from is not None) and model.feature_precision != "half":
        kept.append("feature_precision")
    values = model.model_dump(mode="json")
    own = {} if code is None else {"backbone": f"{code}:{model.backbone.rpartition(':')[2]}", "args": values["args"]}
    return {name: values[name] for name in (*kept, "input_mean", "input_std")} | own
