"""The table of a benchmark: a row per method, a column per score. It is kept in table.json for the report."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from ccp_dml.errors import UserError, first_line
from ccp_dml.evaluation import SCORE_TITLES, Lead, PairedDifference, Spread
from ccp_dml.foundation.files import from_json, write_json
from ccp_dml.records import layout

EvaluationSetting = Literal["separated", "concatenated", "single"]
"""What was scored: each of several models, the ensemble of them, or the only model of the conventional protocol."""

SETTING_NAMES: dict[EvaluationSetting, str] = {
    "separated": "separated",
    "concatenated": "concatenated",
    "single": "one model",
}
MARK = " *"


@dataclass(frozen=True)
class Column:
    """One score of one setting."""

    setting: EvaluationSetting
    dim: int
    metric: str

    @property
    def title(self) -> str:
        return SCORE_TITLES.get(self.metric, self.metric.replace("recall_at_", "R@"))

    @property
    def group(self) -> str:
        """Name the columns that belong together, for example "128-D, separated"."""
        return f"{self.dim}-D, {SETTING_NAMES[self.setting]}"


@dataclass(frozen=True)
class Cell:
    """A score of a method, and the paper's score where there is one; fractions."""

    score: Spread
    paper: float | None
    is_best: bool  # the highest mean of its column
    # Tables of earlier versions lack these.
    baseline: str | None = None  # the method that it is compared with, in runs of equal fold and seed
    difference: PairedDifference | None = None  # to the baseline
    lead: Lead | None = None  # None: it is not the best

    @property
    def is_bold(self) -> bool:
        """Tell whether it is the best of its column, and better than every other by more than chance explains."""
        return self.is_best and self.lead is not None and self.lead.is_clear

    @property
    def gap(self) -> float | None:
        return None if self.paper is None else self.score.mean - self.paper


@dataclass(frozen=True)
class TableRow:
    """The scores of one method."""

    method: str
    is_marked: bool  # at least one of its runs was chosen on the test classes themselves (D28)
    cells: list[Cell | None]  # one per column; None: no result

    @property
    def label(self) -> str:
        return self.method + (MARK if self.is_marked else "")


@dataclass(frozen=True)
class BenchmarkTable:
    """All scores of a benchmark, with notes that a reader needs before comparing them."""

    title: str
    columns: list[Column]
    rows: list[TableRow]
    notes: list[str]

    def groups(self) -> list[tuple[str, list[int]]]:
        """List the titles of the groups of columns, each with the places of its columns."""
        groups: dict[str, list[int]] = {}
        for place, column in enumerate(self.columns):
            groups.setdefault(column.group, []).append(place)
        return list(groups.items())


def write_table(folder: Path, table: BenchmarkTable) -> None:
    """Write the table into the folder of its benchmark."""
    write_json(folder / layout.TABLE_JSON, asdict(table))


def read_table(folder: Path) -> BenchmarkTable | None:
    """Read the table that `write_table` left in `folder`; None where there is none."""
    path = folder / layout.TABLE_JSON
    if not path.is_file():
        return None
    try:
        return TypeAdapter(BenchmarkTable).validate_python(from_json(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise UserError(
            f"{path} is damaged ({first_line(error)}); repeat the benchmark's command, which writes it anew without "
            "training again."
        ) from None
