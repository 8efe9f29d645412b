"""The certificate on the page."""

import shlex

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports import certificate_text
from ccp_dml.reports.figures.trade_off import trade_off_charts
from ccp_dml.reports.sections.overview import Section

ORDER = ("test", "validation", "training")  # of the curves: what matters most has the first colour


def certificate(run: RunFolder) -> Section | None:
    """What can be promised of the run's embedding, or how to find out; None while the run is unfinished."""
    if not run.finished:
        return None
    found = run.certificate
    content = {"command": shlex.join(["ccp", "certify", str(run.path)]), "found": found is not None}
    if found is not None:
        names = certificate_text.set_names(found)
        content |= {
            "constraint": certificate_text.constraint_text(found),
            "threshold": certificate_text.threshold_text(found),
            "violations": list(certificate_text.violation_rows(found)),
            "coverings": list(certificate_text.covering_rows(found)),
            "notes": certificate_text.notes(found),
            "charts": trade_off_charts({names[key]: found["sets"][key]["trade_off"] for key in ORDER}),
        }
    return Section("certificate", "Certificate", "section_certificate.html", content)
