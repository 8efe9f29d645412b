"""A benchmark's results as rows, one per run and metric, and what they add up to."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ccp_dml.foundation.files import as_csv, write_text

Setting = Literal["separated", "concatenated", "single"]
"""One of several models, the ensemble of them, or the conventional protocol's only model."""


@dataclass(frozen=True)
class ResultRow:
    """A line of results.csv. Scores are fractions."""

    protocol: str
    dataset: str
    backbone: str
    image_size: int | None  # None: the data set is of features
    method: str
    setting: Setting
    dim: int
    repeat: int
    fold: int | None  # None: an ensemble of all folds
    seed: int | None  # likewise
    selected_on: str
    metric: str  # as in result.json; recall_at_1, recall_at_2, ...
    value: float
    best_step: int | None
    steps: int | None
    folder: str


def select(rows: Iterable[ResultRow], **wanted: Any) -> list[ResultRow]:
    """The rows whose fields have the given values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def write_results(path: Path, rows: Sequence[ResultRow]) -> None:
    write_text(path, as_csv([field.name for field in fields(ResultRow)], map(asdict, rows)))
