"""Keep the results of a benchmark as rows of results.csv, one per run and score."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ccp_dml.foundation.files import as_csv, write_text
from ccp_dml.records import layout
from ccp_dml.records.benchmark_table import EvaluationSetting


@dataclass(frozen=True)
class ResultRow:
    """A line of results.csv. Scores are fractions."""

    protocol: str
    dataset: str
    backbone: str
    image_size: int | None  # None: the data set is of features
    method: str
    setting: EvaluationSetting
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
    """Choose the rows whose fields have the given values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def write_results(folder: Path, rows: Sequence[ResultRow]) -> None:
    """Write results.csv into the folder of the benchmark."""
    write_text(folder / layout.RESULTS, as_csv([field.name for field in fields(ResultRow)], map(asdict, rows)))
