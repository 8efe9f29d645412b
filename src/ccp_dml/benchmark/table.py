"""Build the table of a benchmark: a row per method, mean and spread of each score, and the paper's score beside it."""

from collections.abc import Mapping, Sequence

from ccp_dml.benchmark import paper
from ccp_dml.benchmark.results import ResultRow, select
from ccp_dml.config.recipes import loss_of
from ccp_dml.evaluation import lead_over, paired_difference, spread
from ccp_dml.records.benchmark_table import SETTING_NAMES, BenchmarkTable, Cell, Column, TableRow
from ccp_dml.reports.words import SELECTED_ON_TEST, difference_text, winner_text

HEADLINE = "map_at_r"


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

    def pairs(method: str, column: Column) -> dict[tuple[int, int | None], float]:
        """List the scores of a cell by what its runs are compared by."""
        found = select(results, method=method, setting=column.setting, dim=column.dim, metric=column.metric)
        return {(row.repeat, row.fold): row.value for row in found}

    scores = {
        (method, column): spread(list(found.values()))
        for method in methods
        for column in columns
        if (found := pairs(method, column))
    }
    with_results = [method for method in methods if any(row.method == method for row in results)]
    found_in = {column: [score.mean for (_, other), score in scores.items() if other == column] for column in columns}

    def cell(method: str, column: Column) -> Cell | None:
        if (method, column) not in scores:
            return None
        score, example = scores[method, column], select(results, method=method)[0]
        dataset = paper_dataset or example.dataset
        published = paper.paper_score(column.setting, dataset, example.backbone, method, column.metric)
        baseline = baseline_of(method, with_results)
        difference = None if baseline is None else paired_difference(pairs(method, column), pairs(baseline, column))
        is_best = len(found_in[column]) > 1 and score.mean == max(found_in[column])  # alone, it is compared with none
        rivals = (other for other, place in scores if place == column)
        lead = lead_over(method, {other: pairs(other, column) for other in rivals}) if is_best else None
        return Cell(score, published, is_best, None if difference is None else baseline, difference, lead)

    rows = [
        TableRow(
            method,
            is_marked=any(row.selected_on == "test" for row in select(results, method=method)),
            cells=[cell(method, column) for column in columns],
        )
        for method in methods
    ]
    known = [*winners(columns, rows), *comparisons(columns, rows), *table_notes(rows, results, paper_dataset), *notes]
    return BenchmarkTable(title, columns, rows, known)


def baseline_of(method: str, methods: Sequence[str]) -> str | None:
    """Choose what a method is compared with: its plain loss if that is in the table, else the table's first method."""
    plain = loss_of(method)
    baseline = plain if plain in methods and plain != method else methods[0]
    return None if baseline == method else baseline


def comparisons(columns: Sequence[Column], rows: Sequence[TableRow]) -> list[str]:
    """Say of each method, in words, whether its MAP@R differs from its baseline's by more than chance explains."""
    found = []
    for place, column in enumerate(columns):
        for row in rows:
            cell = row.cells[place]
            if column.metric == HEADLINE and cell is not None and cell.difference is not None:
                what = f"{row.method} against {cell.baseline}, {column.title} ({column.group})"
                found.append(f"{what}: {difference_text(cell.difference)}.")
    return found


def winners(columns: Sequence[Column], rows: Sequence[TableRow]) -> list[str]:
    """Say of each column of MAP@R whether a method wins it; with two methods, `comparisons` has said that already."""
    found = []
    for place, column in enumerate(columns):
        cells = {row.method: cell for row in rows if (cell := row.cells[place]) is not None}
        best = best_of(cells) if column.metric == HEADLINE and len(cells) > 2 else None
        if best is not None and (lead := cells[best].lead) is not None:
            found.append(winner_text(best, lead, f"{column.title} ({column.group})"))
    return found


def best_of(cells: Mapping[str, Cell]) -> str | None:
    """Find the method with the highest mean; None where methods lack runs that others have, which may be easy ones."""
    best = next((method for method, cell in cells.items() if cell.is_best), None)
    if best is None or (lead := cells[best].lead) is None or len({cell.score.n for cell in cells.values()}) > 1:
        return None
    has_pairs = lead.difference is not None and lead.difference.pairs == cells[best].score.n
    return best if has_pairs else None


def table_notes(rows: Sequence[TableRow], results: Sequence[ResultRow], paper_dataset: str | None) -> list[str]:
    """Say what a reader must know before comparing with the paper."""
    notes = [SELECTED_ON_TEST] if any(row.is_marked for row in rows) else []
    compared = any(cell is not None and cell.paper is not None for row in rows for cell in row.cells)
    if not compared:
        return notes
    notes.append("In brackets: the paper's score, and the gap to it in points.")
    if paper_dataset is not None:
        notes.append(f"Compared with the paper's results on {paper.DATASETS[paper_dataset]}.")
    setups = dict.fromkeys((row.backbone, row.image_size, row.setting) for row in results)
    for backbone, image_size, setting in setups:
        theirs = paper.paper_backbone(backbone, setting)
        ours = "given features" if image_size is None else f"{backbone} at {image_size} px"
        if backbone.partition(".")[0] != theirs or image_size != paper.IMAGE_SIZE:
            notes.append(f"Here {ours}, in the paper {paper.BACKBONES[theirs]} at {paper.IMAGE_SIZE} px.")
    for setting, dim in dict.fromkeys((row.setting, row.dim) for row in results):
        if str(dim) != paper.PROTOCOLS[setting][1]:
            notes.append(
                f"{SETTING_NAMES[setting].capitalize()}: here {dim}-D, in the paper {paper.PROTOCOLS[setting][1]}-D."
            )
    return list(dict.fromkeys(notes))  # settings may differ in nothing else
