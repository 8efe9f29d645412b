"""Compare the runs of a study, in numbers, words and curves: means, spreads, and pairs of runs with the same seed."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from ccp_dml.config.recipes import CCP
from ccp_dml.evaluation import PairedDifference, paired_difference, spread
from ccp_dml.reports.figures.figure import Figure, Line, Lines
from ccp_dml.reports.sections.curves import mean_curve
from ccp_dml.reports.words import difference_text, validated_on
from ccp_dml.studies.study import FinishedRun


def difference(
    better: Sequence[FinishedRun], worse: Sequence[FinishedRun], half: str = "test"
) -> PairedDifference | None:
    """Subtract MAP@R of `worse` from that of `better`, repeat by repeat; None if no repeat has both."""
    scores = [{run.coordinates["repeat"]: run.score(half) / 100 for run in runs} for runs in (better, worse)]
    return paired_difference(*scores)


def in_words(values: Sequence[float]) -> str:
    """Write mean and deviation, as in "19.2 ± 0.3 (n = 3)"."""
    found = spread(values)
    return f"{found.mean:.1f} (n = 1)" if found.sd is None else f"{found.mean:.1f} ± {found.sd:.1f} (n = {found.n})"


def at(runs: Iterable[FinishedRun], **wanted: Any) -> list[FinishedRun]:
    """Select the runs at the given coordinates."""
    return [run for run in runs if all(run.coordinates[name] == value for name, value in wanted.items())]


def mean_score(runs: Sequence[FinishedRun], half: str = "test") -> float | None:
    """Average MAP@R in percent; None without runs."""
    return mean(run.score(half) for run in runs) if runs else None


def sd_score(runs: Sequence[FinishedRun]) -> float | None:
    return spread([run.score() for run in runs]).sd if runs else None


def variants_in_words(
    loss: str, runs: Sequence[FinishedRun], variants: Mapping[str, str], where: str, rivals: Mapping[str, str]
) -> list[str]:
    """Tell MAP@R of the `variants` of a loss, and what CCP has over the `rivals` among them; both by their endings."""
    found = {ending: at(runs, method=loss + ending) for ending in variants}
    told = [
        f"{label} {in_words([run.score() for run in found[ending]])}"
        for ending, label in variants.items()
        if found[ending]
    ]
    text = [f"{loss}: MAP@R on {where} in percent is {', '.join(told)}."] if told else []
    for ending, name in rivals.items():
        gain = difference(found[CCP], found[ending])
        if gain is not None:
            text.append(f"CCP against {name}: {difference_text(gain)}.")
    return text


def in_paragraphs(sentences: Iterable[Sequence[str]]) -> str:
    """Join the sentences about each loss to a paragraph of its own."""
    return "\n\n".join(" ".join(of_loss) for of_loss in sentences if of_loss)


def curves_figure(name: str, losses: Sequence[str], variants: Mapping[str, str], runs: Sequence[FinishedRun]) -> Figure:
    """Draw how the variants of each loss get on, as far as all repeats came."""
    panels = []
    for loss in losses:
        lines = []
        for style, (ending, label) in enumerate(variants.items()):
            repeats = [run.folder for run in at(runs, method=loss + ending)]
            if repeats and (points := mean_curve(repeats)):
                lines.append(Line(label, [step for step, _ in points], [score for _, score in points], style))
        panels.append(Lines(f"{loss}: while training", "step", f"MAP@R on {validated_on(runs[0].folder)} (%)", lines))
    return Figure(name, "Score curves", "MAP@R at each evaluation, mean over repeats.", panels)
