"""A network that needs no training: it embeds a picture by its colours."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccp_dml.data.files.images import decode
from ccp_dml.errors import UserError
from ccp_dml.serving.match_threshold import MatchThreshold, match_threshold
from ccp_dml.serving.model import Verdict


class StandInModel:
    """Has what the index and the server use of an EmbeddingModel; vectors are means of a 4 x 4 grid, of length 1."""

    def __init__(self, name: str = "stand-in", digest: str = "d" * 32, batch: int = 16) -> None:
        self.name, self.digest, self.dim, self.batch = name, digest, 48, batch
        self.skipped: list[tuple[Any, str]] = []
        self.embedded = 0
        self.class_names = ("red", "green")
        self.certificate: dict[str, Any] | None = made_up_certificate()

    def embed_stream(
        self, items: Sequence[Any], *, batch_size: int | None = None, on_error: str = "raise"
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        size = batch_size or self.batch
        self.skipped = []
        for start in range(0, len(items), size):
            positions, vectors = [], []
            for position in range(start, min(start + size, len(items))):
                try:
                    vectors.append(self.vector(items[position]))
                    positions.append(position)
                except Exception as error:
                    if on_error == "raise":
                        raise UserError(f"cannot embed {items[position]}") from error
                    self.skipped.append((items[position], "not an image"))
            self.embedded += len(positions)
            yield positions, np.array(vectors, dtype=np.float32).reshape(-1, self.dim)

    def embed(self, images: Sequence[Any], **options: Any) -> np.ndarray:
        return np.concatenate([vectors for _, vectors in self.embed_stream(images, **options)])

    def vector(self, item: Any) -> np.ndarray:
        picture = decode(Path(item)) if isinstance(item, str | Path) else item.convert("RGB")
        cells = np.asarray(picture.resize((4, 4), Image.Resampling.BOX), dtype=np.float64).ravel() - 120.0
        return cells / max(1e-9, np.linalg.norm(cells))

    def comparable(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

    def same(self, a: Any, b: Any, false_match_rate: float | None = None) -> Verdict:
        found = self.match_threshold(false_match_rate)
        one, two = self.embed([a]).astype(np.float64), self.embed([b]).astype(np.float64)
        distance = float(np.linalg.norm(one - two))
        return Verdict(distance <= found.beta, distance, found.beta, found.promise)

    def threshold(self, false_match_rate: float | None = None) -> float:
        return self.match_threshold(false_match_rate).beta

    def match_threshold(self, false_match_rate: float | None = None) -> MatchThreshold:
        return match_threshold(self.certificate, false_match_rate, self.name)


def made_up_certificate() -> dict[str, Any]:
    """The parts of a certificate that thresholds are read from: the distance is the rate's square root."""
    rates = [10 ** (exponent / 10) for exponent in range(-30, 1)]
    curve = [
        {"wanted": rate, "reached": {"beta": rate**0.5, "false_match_rate": rate, "miss_rate": (1 - rate) ** 2}}
        for rate in rates
    ]
    violation = {"by_images": {"estimate": 0.012, "low": 0.01, "high": 0.02, "pairs": 100}}
    return {
        "terms": {"confidence": 0.95},
        "hold_out": "classes",
        "threshold": {"wanted": 0.01, "beta": 0.1, "interval": {"low": 0.09, "high": 0.11}},
        "sets": {
            "validation": {"trade_off": curve},
            "test": {"at_threshold": {"false_matches": violation, "misses": violation}},
        },
    }
