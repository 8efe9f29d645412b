"""The section with advice: what a run's numbers mean, and which setting to change."""

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.advice import advise_run
from ccp_dml.reports.sections.overview import Section


def advice(run: RunFolder) -> Section | None:
    """List the advice that a run's numbers give; None where there is none."""
    found = advise_run(run)
    return Section("advice", "Advice", "section_advice.html", {"advice": found}) if found else None
