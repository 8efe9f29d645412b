"""How many proxies, out of how large a pool? CCP over a grid of P and b."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from ccp_dml.config.recipes import CCP
from ccp_dml.reports.figures.figure import Figure, HeatMap
from ccp_dml.studies.request import StudyRequest, Varied
from ccp_dml.studies.spread import at, difference, in_paragraphs, in_words, mean_score
from ccp_dml.studies.study import (
    Conclusion,
    FinishedRun,
    Repeats,
    Study,
    StudyPlan,
    plan_all,
    result_row,
)

CAPTION = (
    "Mean over repeats. With b = 1 the P proxies are drawn at random; with 1 < b < P the pool holds b times P images "
    "of a class; otherwise b."
)


class PoolOptions(Repeats):
    proxies_per_class: Varied
    pool_per_class: Varied


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    options = request.options(PoolOptions)
    grid = [
        ({"proxies": proxies, "pool": pool}, (f"ccp.proxies_per_class={proxies}", f"ccp.pool_per_class={pool}"))
        for proxies in options.proxies_per_class
        for pool in options.pool_per_class
    ]
    return plan_all(request, folder, options.repeats, [CCP], grid)


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion:
    options = request.options(PoolOptions)
    by_loss = {loss: own for loss in request.losses if (own := at(runs, loss=loss))}
    return Conclusion(
        rows=[result_row(run, folder) for run in runs],
        figures=[grid_figure(loss, own, options) for loss, own in by_loss.items()],
        paragraph=in_paragraphs([sentence(loss, own)] for loss, own in by_loss.items()),
    )


def grid_figure(loss: str, runs: Sequence[FinishedRun], options: PoolOptions) -> Figure:
    """Draw two maps: the scores that may choose P and b, and those that tell how good the choice is."""
    panels = [
        HeatMap(
            title=f"{half} classes",
            x_label="b, images per class in the pool",
            y_label="P, proxies per class",
            value_label="MAP@R (%)",
            columns=[str(pool) for pool in options.pool_per_class],
            rows=[str(proxies) for proxies in options.proxies_per_class],
            values=[
                [mean_score(at(runs, proxies=proxies, pool=pool), half) for pool in options.pool_per_class]
                for proxies in options.proxies_per_class
            ],
        )
        for half in ("validation", "test")
    ]
    return Figure(f"pool-{loss}", f"{loss + CCP} over P and b", CAPTION, panels)


def sentence(loss: str, runs: Sequence[FinishedRun]) -> str:
    """Name the best cell by validation, and say how much cells differ and how much of that may be chance.

    A cell that lacks runs is not named the best: those that it lacks may be the hard ones.
    """
    cells: dict[tuple[int, int], list[FinishedRun]] = {}
    for run in runs:
        cells.setdefault((run.coordinates["proxies"], run.coordinates["pool"]), []).append(run)
    means = {cell: mean(run.score("validation") for run in found) for cell, found in cells.items()}
    most = max(map(len, cells.values()))
    whole = [cell for cell, found in cells.items() if len(found) == most]
    proxies, pool = best = max(whole, key=lambda cell: means[cell])
    text = (
        f"{loss + CCP}: over {len(cells)} cells, validation MAP@R lies between {min(means.values()):.1f} and "
        f"{max(means.values()):.1f} %. "
        + ("It" if len(whole) == len(cells) else f"Among cells with {most} runs, it")
        + f" is best with P = {proxies} and b = {pool}, which gives "
        f"{in_words([run.score() for run in cells[best]])} % on unseen classes."
    )
    others = [difference(cells[best], found, "validation") for cell, found in cells.items() if cell != best]
    if not others:
        return text
    if len(cells[best]) == 1:
        return f"{text} One run per cell tells nothing about chance: repeat the study with --repeats 3 before choosing."
    unclear = [gap for gap in others if gap is None or not gap.is_clear or gap.mean < 0]
    pairs = sorted({0 if gap is None else gap.pairs for gap in others})
    counted = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else f"{pairs[0]}"
    lonely = ", or there are too few for one" if pairs[0] < 2 else ""
    return (
        f"{text} Against it, {len(unclear)} of the other {len(others)} cells are not clearly worse "
        f"(the 95 % interval over {counted} pairs is not above zero{lonely})."
    )


STUDY = Study("How many proxies out of how large a pool? CCP over a grid of P and b", plan, conclude)
