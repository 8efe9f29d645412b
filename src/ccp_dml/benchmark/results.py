"""A benchmark's results as rows, one per run and metric, and what they add up to."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from ccp_dml.foundation.files import write_text

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


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over runs, with their number (D29)."""

    mean: float
    sd: float | None  # None: a single run has none
    n: int


def spread(values: Sequence[float]) -> Spread:
    return Spread(mean(values), stdev(values) if len(values) > 1 else None, len(values))


def select(rows: Iterable[ResultRow], **wanted: Any) -> list[ResultRow]:
    """The rows whose fields have the given values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def write_results(path: Path, rows: Sequence[ResultRow]) -> None:
    write_text(path, as_csv([field.name for field in fields(ResultRow)], map(asdict, rows)))


def as_csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """CSV text; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
