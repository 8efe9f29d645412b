"""The section with the certificate: what can be promised of the embedding, and its trade-off curves."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports import certificate_words
from ccp_dml.reports.figures.figure import Line, Lines
from ccp_dml.reports.figures.page_chart import DrawnChart, draw
from ccp_dml.reports.sections.section import Section

ORDER = ("test", "validation", "training")  # of the curves: what matters most has the first colour


def certificate(run: RunFolder) -> Section | None:
    """Show what can be promised of the run's embedding, or how to find out; None while the run is unfinished."""
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


TradeOff = Sequence[Mapping[str, Any]]  # each: the wanted false-match rate, and what it reached

FOUND = "found in % of same-class pairs"
MISSED = "misses in % of same-class pairs"
FALSE = "false matches in % of different-class pairs, at most"


def trade_off_charts(curves: Mapping[str, TradeOff]) -> list[DrawnChart]:
    """Draw what is found (ROC) and what is missed (DET) of the same `curves`; no chart where no curve has a point."""
    panels = [
        Lines(
            "Found (ROC)",
            FALSE,
            FOUND,
            _lines({name: [(x, 100 - y) for x, y in _rates(one)] for name, one in curves.items()}),
            log_x=True,
            y_limits=(0.0, 100.0),
            decimals=None,
        ),
        Lines(
            "Missed (DET)",
            FALSE,
            MISSED,
            # Zero has no place on a logarithmic axis.
            _lines({name: [(x, y) for x, y in _rates(one) if y > 0] for name, one in curves.items()}),
            log_x=True,
            log_y=True,
            decimals=None,
        ),
    ]
    return [drawn for panel in panels if (drawn := draw(panel)) is not None]


def _rates(curve: TradeOff) -> list[tuple[float, float]]:
    """List the wanted false-match rates and the rates of misses that they cost, in percent."""
    return [(100 * point["wanted"], 100 * point["reached"]["miss_rate"]) for point in curve]


def _lines(curves: Mapping[str, Sequence[tuple[float, float]]]) -> list[Line]:
    return [
        Line(name, [x for x, _ in points], [y for _, y in points], style)
        for style, (name, points) in enumerate(curves.items())
        if points
    ]
