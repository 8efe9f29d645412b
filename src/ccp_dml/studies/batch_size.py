"""Does CCP make up for small batches? A loss with and without CCP over batch sizes."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from pydantic import Field

from ccp_dml.config.recipes import ALONE, CCP
from ccp_dml.errors import UserError
from ccp_dml.reports.figures.figure import Figure, Line, Lines
from ccp_dml.reports.words import difference_text
from ccp_dml.studies.request import StudyRequest, Varied
from ccp_dml.studies.spread import at, difference, in_paragraphs, mean_score, sd_score
from ccp_dml.studies.study import (
    Conclusion,
    FinishedRun,
    Repeats,
    Study,
    StudyPlan,
    plan_all,
    result_row,
)

VARIANTS = {ALONE: "without CCP", CCP: "with CCP"}


class BatchSizeOptions(Repeats):
    batch_sizes: Varied
    images_per_class: int = Field(4, ge=1)


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    options = request.options(BatchSizeOptions)
    images = options.images_per_class
    for size in options.batch_sizes:
        if size % images or size < 2 * images:
            raise UserError(
                f"study.batch_sizes: a batch of {size} does not hold at least two whole classes of {images} images; "
                f"choose multiples of {images}."
            )
    points = [
        ({"batch": size}, (f"train.classes_per_batch={size // images}", f"train.images_per_class={images}"))
        for size in options.batch_sizes
    ]
    return plan_all(request, folder, options.repeats, VARIANTS, points)


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion:
    sizes = sorted({run.coordinates["batch"] for run in runs})
    panels = [
        Lines(
            title=loss,
            x_label="images in a batch",
            y_label="MAP@R on unseen classes (%)",
            lines=[
                line
                for style, (ending, label) in enumerate(VARIANTS.items())
                if (line := score_line(label, at(runs, method=loss + ending), style)).x
            ],
            x_ticks=sizes,
            log_x=True,
            has_markers=True,
        )
        for loss in request.losses
    ]
    return Conclusion(
        rows=[result_row(run, folder) for run in runs],
        figures=[Figure("batch-size", "Batch size", "Mean over repeats; bars: standard deviation.", panels)],
        paragraph=in_paragraphs(sentences(loss, runs, sizes) for loss in request.losses),
    )


def score_line(label: str, runs: Sequence[FinishedRun], style: int) -> Line:
    sizes = sorted({run.coordinates["batch"] for run in runs})
    means = [mean_score(at(runs, batch=size)) or 0.0 for size in sizes]
    return Line(label, sizes, means, style, [sd_score(at(runs, batch=size)) or 0.0 for size in sizes])


def sentences(loss: str, runs: Sequence[FinishedRun], sizes: Sequence[int]) -> list[str]:
    """Say what CCP adds at each batch size, and what each variant gains from the largest batch."""
    gains = []
    for size in sizes:
        gain = difference(at(runs, method=loss + CCP, batch=size), at(runs, method=loss, batch=size))
        if gain is not None:
            gains.append(f"at {size}, {difference_text(gain)}")
    growth = []
    for ending, label in VARIANTS.items():
        small, large = (at(runs, method=loss + ending, batch=size) for size in (sizes[0], sizes[-1]))
        grown = difference(large, small) if len(sizes) > 1 else None
        if grown is not None:
            growth.append(f"{label} {difference_text(grown)}")
    parts = [f"{loss}: what CCP adds to MAP@R on unseen classes: " + "; ".join(gains) + "."] if gains else []
    if growth:
        parts.append(f"From {sizes[0]} to {sizes[-1]} images in a batch: {'; '.join(growth)}.")
        few, many = (images_seen(at(runs, loss=loss, batch=size)) for size in (sizes[0], sizes[-1]))
        if few != many:
            parts.append(
                f"The size of batches is not all that differs: the runs saw {few:,.0f} images in batches of {sizes[0]} "
                f"and {many:,.0f} in those of {sizes[-1]}."
            )
    return parts


def images_seen(runs: Sequence[FinishedRun]) -> float:
    """Count the images that a run was trained on, each as often as it was in a batch; the mean of `runs`."""
    return mean((run.folder.count("steps") or 0) * run.coordinates["batch"] for run in runs)


STUDY = Study("Does CCP make up for small batches? A loss with and without CCP over batch sizes", plan, conclude)
