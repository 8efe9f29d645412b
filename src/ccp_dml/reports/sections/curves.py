"""The sections with curves: scores, loss and gradients over the steps, and what happened problem by problem."""

import dataclasses
from collections.abc import Sequence
from statistics import mean

from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records.run_folder import RunFolder, number, run_labels
from ccp_dml.reports.figures.page_chart import Chart, Curve, Highlight, Mark, curves_of, draw_all
from ccp_dml.reports.sections.section import Section
from ccp_dml.reports.words import validated_on

Points = list[tuple[float, float]]

PERCENT = 100.0  # scores and shares are fractions in the log
LOSS = "mean since the previous evaluation"
GRADIENT = "mean since the previous evaluation, before clipping"
RADIUS = "distance from a pool image to the nearest new proxy of its class, the largest of each class, mean of classes"
SPREAD = "distance between the proxies of a class as the loss sees them, mean over pairs and classes"
ACTIVE = "pairs that the loss learns from, in % of all, in the last step before the evaluation"
PULL = "length of the pull's gradient: lambda times the distance to the previous solution"
STALENESS = "distance between proxies and the present embeddings of the images they were taken from, mean of a sample"
PACE = "MAP@R as a fraction; the others are distances between normalised vectors, means of a sample of the proxies"


def curves(runs: Sequence[RunFolder]) -> Section | None:
    """Draw validation scores, loss, gradient norm and active pairs over the steps, with the starts of problems."""
    charts = [_all_scores_chart(runs[0])] if len(runs) == 1 else [_score_chart(runs, key) for key in SCORE_TITLES]
    charts.append(_step_chart(runs, "loss", "Training loss", LOSS, 4))
    charts.append(_step_chart(runs, "gradient_norm", "Gradient norm", GRADIENT, 3))
    for kind in ("positives", "negatives"):
        charts.append(_step_chart(runs, f"active_{kind}", f"Active {kind}", ACTIVE, 1, PERCENT))
    return _chart_section("curves", "Curves", charts)


def projections(runs: Sequence[RunFolder]) -> Section | None:
    """Draw pace, covering radius, spread of the proxies and pull to the previous solution; None for baselines."""
    of_radius = _curves(runs, [_radius_points(run) for run in runs], "covering radius")
    radius = Chart("Covering radius", "problem", RADIUS, of_radius, 3)
    staleness = _pace_chart(runs[0]) if len(runs) == 1 else _step_chart(runs, "staleness", "Staleness", STALENESS, 3)
    spread = _step_chart(runs, "proxy_spread", "Spread of proxies", SPREAD, 3)
    pull = _step_chart(runs, "pull_norm", "Pull", PULL, 5)
    return _chart_section("projections", "Projections", [staleness, radius, spread, pull])


def problems(run: RunFolder) -> Section | None:
    """List the problems; None where there was only one."""
    rows = run.problem_rows()
    if len(rows) < 2:
        return None
    has_proxies = any(row["covering_radius"] is not None for row in rows)
    return Section("problems", "Problems", "section_problems.html", {"rows": rows, "has_proxies": has_proxies})


def _chart_section(name: str, title: str, charts: Sequence[Chart]) -> Section | None:
    drawn = draw_all(charts)
    return Section(name, title, "section_charts.html", {"charts": drawn}) if drawn else None


def _all_scores_chart(run: RunFolder) -> Chart:
    points = {title: _points(run, key, PERCENT) for key, title in SCORE_TITLES.items()}
    return Chart(
        title="Validation scores",
        x_label="step",
        y_label=f"in %, on {validated_on(run)}",
        curves=curves_of(points),
        marks=_problem_starts(run, None),
        highlights=_best(run, "map_at_r", 0),
        notes={0: "before training"}
        | {row["step"]: f"problem {row['problem']}" for row in run.metrics if "problem" in row},
        decimals=1,
    )


def _score_chart(runs: Sequence[RunFolder], key: str) -> Chart:
    where = " or ".join(dict.fromkeys(map(validated_on, runs)))
    chart = _step_chart(runs, key, f"Validation {SCORE_TITLES[key]}", f"in %, on {where}", 1, PERCENT)
    highlights = [spot for style, run in enumerate(runs) for spot in _best(run, key, style)]
    return dataclasses.replace(chart, highlights=highlights)


def _step_chart(
    runs: Sequence[RunFolder], key: str, title: str, y_label: str, decimals: int, factor: float = 1.0
) -> Chart:
    """Draw one value of the log over the steps, `factor` times as large."""
    curves = _curves(runs, [_points(run, key, factor) for run in runs], title.lower())
    drawn = [curve.style for curve in curves]
    return Chart(
        title=title,
        x_label="step",
        y_label=y_label,
        curves=curves,
        marks=[mark for style in drawn for mark in _problem_starts(runs[style], style if len(runs) > 1 else None)],
        decimals=decimals,
    )


def _curves(runs: Sequence[RunFolder], points: Sequence[Points], quantity: str) -> list[Curve]:
    """Make a curve per run that has points, under its run's name; a single run's is named after the quantity."""
    labels = run_labels(runs) if len(runs) > 1 else [quantity]
    return curves_of(dict(zip(labels, points, strict=True)))


def _points(run: RunFolder, key: str, factor: float = 1.0) -> Points:
    """List a value of the log over the steps; scores begin with the network before its first step."""
    rows = run.metrics if run.start is None else [run.start, *run.metrics]
    return [(row["step"], factor * value) for row in rows if (value := number(row.get(key))) is not None]


def mean_curve(runs: Sequence[RunFolder]) -> Points:
    """Average validation MAP@R, in percent, at each step at which all `runs` were evaluated; give at least one."""
    scores = [dict(_points(run, "map_at_r", PERCENT)) for run in runs]
    common = sorted(set(scores[0]).intersection(*scores[1:]))
    return [(step, mean(own[step] for own in scores)) for step in common]


def _radius_points(run: RunFolder) -> Points:
    rows = run.problem_rows()
    return [(row["problem"], row["covering_radius"]) for row in rows if row["covering_radius"] is not None]


def _pace_chart(run: RunFolder) -> Chart:
    """Explain a run of CCP in one picture: how stale its proxies become, when they are chosen anew, what it gains."""
    points = {
        "validation MAP@R": _points(run, "map_at_r"),
        "staleness of proxies": _points(run, "staleness"),
        "covering radius": _points(run, "covering_radius"),
        "drift of embeddings": _points(run, "embedding_drift"),
        "drift of proxies": _points(run, "proxy_drift"),
    }
    has_proxies = any(found for label, found in points.items() if label != "validation MAP@R")
    return Chart(
        title="Pace",
        x_label="step",
        y_label=PACE,
        curves=curves_of(points) if has_proxies else [],
        marks=_problem_starts(run, None),
        decimals=3,
    )


def _problem_starts(run: RunFolder, style: int | None) -> list[Mark]:
    """Mark where each problem but the first starts."""
    return [Mark(start["step"], str(start["problem"]), style) for start in run.problem_starts()[1:]]


def _best(run: RunFolder, key: str, style: int) -> list[Highlight]:
    row = run.best_evaluation()
    value = number(row.get(key)) if row else None
    if row is None or value is None:
        return []
    return [Highlight(row["step"], PERCENT * value, f"{PERCENT * value:.1f} at the best step, {row['step']:,}", style)]
