"""The table of a benchmark: a row per method, mean and spread per score, the paper's score and the gap beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ccp_dml.benchmark import paper
from ccp_dml.benchmark.results import ResultRow, Setting, select
from ccp_dml.evaluation import Spread, spread

SETTINGS: dict[Setting, str] = {"separated": "separated", "concatenated": "concatenated", "single": "one model"}
TITLES = {"precision_at_1": "P@1", "r_precision": "P@R", "map_at_r": "MAP@R"}
MARK = " *"
MARKED = "* selected on the test classes themselves"


@dataclass(frozen=True)
class Column:
    setting: Setting
    dim: int
    metric: str

    @property
    def title(self) -> str:
        return TITLES.get(self.metric, self.metric.replace("recall_at_", "R@"))

    @property
    def group(self) -> str:
        return f"{self.dim}-D, {SETTINGS[self.setting]}"


@dataclass(frozen=True)
class Cell:
    """A score of a method; fractions."""

    score: Spread
    paper: float | None
    is_best: bool

    @property
    def gap(self) -> float | None:
        return None if self.paper is None else self.score.mean - self.paper


@dataclass(frozen=True)
class TableRow:
    method: str
    is_marked: bool  # at least one of its runs was chosen on the test classes themselves (D28)
    cells: list[Cell | None]  # one per column; None: no result

    @property
    def label(self) -> str:
        return self.method + (MARK if self.is_marked else "")


@dataclass(frozen=True)
class BenchmarkTable:
    title: str
    columns: list[Column]
    rows: list[TableRow]
    notes: list[str]

    def groups(self) -> list[tuple[str, list[int]]]:
        """Titles of the groups of columns, each with the places of its columns."""
        groups: dict[str, list[int]] = {}
        for place, column in enumerate(self.columns):
            groups.setdefault(column.group, []).append(place)
        return list(groups.items())


def build_table(
    results: Sequence[ResultRow],
    methods: Sequence[str],
    *,
    title: str,
    paper_dataset: str | None = None,
    notes: Sequence[str] = (),
) -> BenchmarkTable:
    """Put results into a table, in the order of `methods`.

    Args:
        paper_dataset: recipe name of the paper's data set to compare with, where the results' own names none.
        notes: what the reader should know besides.
    """
    columns = list(dict.fromkeys(Column(row.setting, row.dim, row.metric) for row in results))
    scores = {
        (method, column): spread([row.value for row in found])
        for method in methods
        for column in columns
        if (found := select(results, method=method, setting=column.setting, dim=column.dim, metric=column.metric))
    }
    best = {column: max((s.mean for (_, c), s in scores.items() if c == column), default=None) for column in columns}

    def cell(method: str, column: Column) -> Cell | None:
        if (method, column) not in scores:
            return None
        score, example = scores[method, column], select(results, method=method)[0]
        dataset = paper_dataset or example.dataset
        published = paper.paper_score(column.setting, dataset, example.backbone, method, column.metric)
        return Cell(score, published, is_best=len(methods) > 1 and score.mean == best[column])

    rows = [
        TableRow(
            method,
            is_marked=any(row.selected_on == "test" for row in select(results, method=method)),
            cells=[cell(method, column) for column in columns],
        )
        for method in methods
    ]
    return BenchmarkTable(title, columns, rows, [*table_notes(rows, results, paper_dataset), *notes])


def table_notes(rows: Sequence[TableRow], results: Sequence[ResultRow], paper_dataset: str | None) -> list[str]:
    """What a reader must know before comparing."""
    notes = [MARKED] if any(row.is_marked for row in rows) else []
    compared = any(cell is not None and cell.paper is not None for row in rows for cell in row.cells)
    if not compared:
        return notes
    notes.append("In brackets: the paper's score, and the gap to it in points.")
    if paper_dataset is not None:
        notes.append(f"Compared with the paper's results on {paper.DATASETS[paper_dataset]}.")
    setups = dict.fromkeys((row.backbone, row.image_size, row.setting) for row in results)
    for backbone, image_size, setting in dict.fromkeys(setups):
        theirs = paper.paper_backbone(backbone, setting)
        ours = backbone if image_size is None else f"{backbone} at {image_size} px"
        if backbone.partition(".")[0] != theirs or image_size != paper.IMAGE_SIZE:
            note = f"Here {ours}, in the paper {paper.BACKBONES[theirs]} at {paper.IMAGE_SIZE} px."
            notes += [note] if note not in notes else []
    for setting, dim in dict.fromkeys((row.setting, row.dim) for row in results):
        if str(dim) != paper.PROTOCOLS[setting][1]:
            notes.append(
                f"{SETTINGS[setting].capitalize()}: here {dim}-D, in the paper {paper.PROTOCOLS[setting][1]}-D."
            )
    return notes
