"""The section with the certificate: what can be promised of the embedding, and its trade-off curves."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports import certificate_words
from ccp_dml.reports.figures.page_chart import Chart, DrawnChart, curves_of, draw_all
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
    rates = {
        name: [(100 * point["wanted"], 100 * point["reached"]["miss_rate"]) for point in curve]
        for name, curve in curves.items()
    }
    found = {name: [(x, 100 - y) for x, y in points] for name, points in rates.items()}
    # Zero has no place on a logarithmic axis.
    missed = {name: [(x, y) for x, y in points if y > 0] for name, points in rates.items()}
    return draw_all(
        [
            Chart("Found (ROC)", FALSE, FOUND, curves_of(found), None, log_x=True, y_limits=(0.0, 100.0)),
            Chart("Missed (DET)", FALSE, MISSED, curves_of(missed), None, log_x=True, log_y=True),
        ]
    )
