"""`ccp report`."""

from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Runs, out


def report(
    runs: Runs,
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write the page.")] = None,
) -> None:
    """Write a self-contained page about one run, or comparing several.

    Example: `ccp report runs/c2 runs/c2-ccp --out comparison.html`
    """
    from ccp_dml.reports.page import write_report
    from ccp_dml.reports.run_folder import read_runs
    from ccp_dml.reports.tables import comparison_table

    target = out_file or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    page = write_report(runs, target)
    out.print(comparison_table(read_runs(runs)))
    out.print(f"Report: {page}", highlight=False, soft_wrap=True)
