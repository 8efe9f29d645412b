"""Write values as text, the same on pages, in tables and on the terminal."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccp_dml.evaluation import Lead, PairedDifference
from ccp_dml.records.run_folder import RunFolder, embedded_picture
from ccp_dml.reports.figures.palette import colour_name

MISSING = "\N{EN DASH}"  # stands where there is no value
SELECTED_ON_TEST = "* selected on the test classes themselves"


def percent(value: float | None, digits: int = 1) -> str:
    """Write a fraction in percent without the sign, for example "12.3"."""
    return MISSING if value is None else f"{100 * value:.{digits}f}"


def with_sign(value: float | None) -> str:
    """Write a fraction in percent with the sign, for example "12.3 %"."""
    return MISSING if value is None else f"{percent(value)} %"


def readable(value: float) -> str:
    """Write a percentage with as many digits as make it readable: 12.3, 1.23, 0.012."""
    if value == 0 or value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.0995 else f"{value:.2g}"


def rate(value: float | None) -> str:
    """Write a fraction in percent with as many digits as make it readable."""
    return MISSING if value is None else readable(100 * value)


def duration(seconds: float | None) -> str:
    """Write a time, for example "2 min 54 s"."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def milliseconds(seconds: float | None) -> str:
    """Write a short time with three digits, for example "104 ms"."""
    return MISSING if seconds is None else f"{1000 * seconds:#.3g}".rstrip(".") + " ms"


def megabytes(size: float | None, digits: int = 0) -> str:
    """Write a number of bytes, for example "1,234 MB"; a megabyte is a million bytes."""
    return MISSING if size is None else f"{size / 1e6:,.{digits}f} MB"


def count(value: float | None) -> str:
    """Write a number of things, for example "12,345"; a mean of such numbers without its decimals."""
    return MISSING if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Write `1 problem` or `3 problems`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def decimals(value: float | None, digits: int) -> str:
    """Write a number with a fixed number of decimals."""
    return MISSING if value is None else f"{value:.{digits}f}"


def tests_on_trained(run: RunFolder) -> bool:
    """Tell whether a run learned from some of its test classes, as the split of a file may have it."""
    classes = run.classes or {}
    return bool(set(classes.get("learned") or ()) & set(classes.get("test") or ()))


def tested_on(runs: Sequence[RunFolder]) -> str:
    """Name what the test scores of runs are about: unseen classes, unless some of them also trained or selected."""

    def name(run: RunFolder) -> str:
        if run.selected_on_test:
            return "test classes"
        return "new images of classes that trained" if tests_on_trained(run) else "unseen classes"

    names = {name(run) for run in runs}
    return names.pop() if len(names) == 1 else "the test half"


def validated_on(run: RunFolder) -> str:
    """Name what chose a run's best evaluation: classes, or images of classes that train, held out, or the test half."""
    if run.selected_on_test:
        return "test classes"
    return "held-out images" if run.settings().get("protocol.hold_out") == "images" else "validation classes"


def setting(value: Any) -> str:
    """Write a value of the configuration or the environment as a person would type it."""
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def cell(value: Any) -> str:
    """Write a value of a study's table: fractions with four digits, everything else as it is."""
    if value is None:
        return MISSING
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def style_class(style: int | None) -> str:
    """Name the CSS class of a run's or a line's colour; empty for what belongs to no line."""
    return "" if style is None else colour_name(style)


def class_colour(place: int) -> str:
    """Name the CSS class of the colour that a class has on maps."""
    return colour_name(place, "classes")


def method_text(settings: Mapping[str, Any]) -> str:
    """Describe the method that dotted keys set, for example "C2 with CCP, 8 proxies per class"."""
    name, mode = str(settings.get("loss.name", "unknown loss")), settings.get("ccp.mode", "off")
    loss = name.upper() if len(name) <= 2 else name
    if mode == "representatives":
        return f"{loss} with PROFS, 1 representative per class"
    if mode != "off":
        number = settings.get("ccp.proxies_per_class")
        proxies = f"{number} {'proxy' if number == 1 else 'proxies'} per class"
        return f"{loss} with CCP, {proxies}" if mode == "alternating" else f"{loss} with {proxies}, chosen once"
    if settings.get("metrix.enabled"):
        return f"{loss} with mixtures of embeddings"
    memory = settings.get("xbm.enabled") and settings.get("xbm.memory_batches")
    return f"{loss} with a memory of {memory} batches" if memory else f"{loss} alone"


def data_text(settings: Mapping[str, Any]) -> str:
    """Name the data that dotted keys set, for example "features (birds.npz)"."""
    name, path = settings.get("data.name", "unknown data"), settings.get("data.path")
    return f"{name} ({Path(path).name})" if path else str(name)


def difference_text(difference: PairedDifference) -> str:
    """Say, in a clause, what a method has over another, and whether that is more than chance explains."""
    if difference.interval is None:
        return f"{100 * difference.mean:+.2f} points in one pair of runs, which tells nothing about chance"
    if difference.interval == (0.0, 0.0):  # as of CCP that never chose new proxies, and one proxy problem
        return f"the same scores in each of {difference.pairs} pairs of runs"
    nearest = min(100 * abs(bound) for bound in difference.interval)
    digits = next((digits for digits in range(2, 6) if round(nearest, digits)), 2) if difference.is_clear else 2
    points = f"{100 * difference.mean:+.{digits}f} points"
    low, high = (f"{100 * bound:+.{digits}f}" for bound in difference.interval)
    verdict = ("better" if difference.mean > 0 else "worse") if difference.is_clear else "no clear difference"
    return f"{points}, 95 % interval {low} to {high} (Student's t over {difference.pairs} pairs): {verdict}"


def lead_text(best: str, lead: Lead) -> str:
    """Say in a sentence what the best method has over the second, and whom else it is not clearly above."""
    what = f"{best} against {lead.second}, the second"
    if lead.difference is None:
        return f"{what}: no runs of equal fold and seed, so that nothing can be compared in pairs."
    is_told = lead.difference.interval is not None  # else nothing is known of any of them
    others = [method for method in lead.level_with if method != lead.second and is_told]
    besides = f"; nor is it clearly above {', '.join(others)}" if others else ""
    return f"{what}: {difference_text(lead.difference)}{besides}."


def winner_text(best: str, lead: Lead, where: str) -> str:
    """Say whether the best method wins: whether its lead over every other is more than paired runs differ by."""
    first = f"{best} wins in {where}." if lead.is_clear else f"No clear winner in {where}."
    return f"{first} {lead_text(best, lead)}"


FILTERS = {
    "percent": percent,
    "duration": duration,
    "count": count,
    "decimals": decimals,
    "setting": setting,
    "cell": cell,
    "picture": embedded_picture,
    "style_class": style_class,
    "class_colour": class_colour,
}
