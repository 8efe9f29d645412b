"""The certificate on the page."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports import certificate_words
from ccp_dml.reports.certificate_words import share
from ccp_dml.reports.figures.charts import Chart, DrawnChart, DrawnPoint, Scale, Series, TableRow, Tick
from ccp_dml.reports.sections.overview import Section

ORDER = ("test", "validation", "training")  # of the curves: what matters most has the first colour


def certificate(run: RunFolder) -> Section | None:
    """What can be promised of the run's embedding, or how to find out; None while the run is unfinished."""
    if not run.finished:
        return None
    found = run.certificate
    content = {"command": shlex.join(["ccp", "certify", str(run.path)]), "found": found is not None}
    if found is not None:
        names = certificate_words.set_names(found)
        content |= {
            "constraint": certificate_words.constraint_text(found),
            "threshold": certificate_words.threshold_text(found),
            "violations": list(certificate_words.violation_rows(found)),
            "coverings": list(certificate_words.covering_rows(found)),
            "notes": certificate_words.notes(found),
            "charts": trade_off_charts({names[key]: found["sets"][key]["trade_off"] for key in ORDER}),
        }
    return Section("certificate", "Certificate", "section_certificate.html", content)


Point = Mapping[str, Any]  # the wanted false-match rate, and what it reached: beta, false_match_rate, miss_rate

DET = "misses in % of same-class pairs"
ROC = "found in % of same-class pairs"
X = "false matches in % of different-class pairs, at most"


def trade_off_charts(curves: Mapping[str, Sequence[Point]]) -> list[DrawnChart]:
    """Both views of the same `curves` by name; none where no curve has a point."""
    found = {name: [(x, 1 - y) for x, y in _points(points)] for name, points in curves.items()}
    # Zero has no place on a logarithmic axis.
    missed = {name: [(x, y) for x, y in _points(points) if y > 0] for name, points in curves.items()}
    charts = [
        _drawn(Chart("Found (ROC)", X, ROC, _series(found)), _linear(0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        _drawn(Chart("Missed (DET)", X, DET, _series(missed)), None, None),
    ]
    return [chart for chart in charts if chart is not None]


def _points(points: Sequence[Point]) -> list[tuple[float, float]]:
    return [(point["wanted"], point["reached"]["miss_rate"]) for point in points]


def _series(curves: Mapping[str, Sequence[tuple[float, float]]]) -> list[Series]:
    return [Series(name, points, style) for style, (name, points) in enumerate(curves.items()) if points]


def _drawn(chart: Chart, bottom: Scale | None, y_ticks: Sequence[float] | None) -> DrawnChart | None:
    """The geometry of `chart`, whose x axis is logarithmic, and its y axis where it is given no scale."""
    points = [point for line in chart.series for point in line.points]
    if not points:
        return None
    left, x_ticks = _logarithmic([x for x, _ in points])
    if bottom is None or y_ticks is None:
        bottom, y_ticks = _logarithmic([y for _, y in points])
    by_x = [dict(line.points) for line in chart.series]
    rows = [
        TableRow(
            left(x),
            share(x),
            [
                DrawnPoint(left(x), bottom(values[x]), share(values[x]), line.style) if x in values else None
                for line, values in zip(chart.series, by_x, strict=True)
            ],
        )
        for x in sorted({x for x, _ in points})
    ]
    return DrawnChart(
        chart=chart,
        lines=[" ".join(f"{left(x)},{round(100 - bottom(y), 2)}" for x, y in line.points) for line in chart.series],
        x_ticks=[Tick(left(x), share(x)) for x in x_ticks],
        y_ticks=[Tick(bottom(y), share(y)) for y in y_ticks],
        marks=[],
        highlights=[],
        rows=rows,
    )


def _logarithmic(values: Sequence[float]) -> tuple[Scale, list[float]]:
    """A scale whose ends are powers of ten around `values`, and a tick at every power of ten."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    high = max(high, low + 1)
    place: Callable[[float], float] = _linear(low, high)
    return lambda value: place(math.log10(value)), [10.0**power for power in range(low, high + 1)]


def _linear(low: float, high: float) -> Scale:
    return lambda value: round(100 * (value - low) / (high - low), 2)
