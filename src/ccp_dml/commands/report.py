"""`ccp report`."""

from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Runs, out, warn
from ccp_dml.errors import UserError


def report(
    runs: Runs,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The page; default: report.html in the run's folder, of several runs in this folder.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that this program has not written.")] = False,
) -> None:
    """Write one page that works offline: about a run, several runs side by side, or a benchmark's folder.

    Examples:

    - `ccp report runs/c2-ccp`
    - `ccp report runs/c2 runs/c2-ccp --out comparison.html`
    - `ccp report runs/mlrc-glyphs`
    """
    from ccp_dml.records import layout
    from ccp_dml.records.benchmark_folder import is_benchmark
    from ccp_dml.records.run_folder import read_runs
    from ccp_dml.reports.page import write_report
    from ccp_dml.reports.tables import comparison_table

    if any(map(is_benchmark, runs)):
        return report_benchmark(runs, out_file, force)
    target = out_file or (runs[0] / layout.REPORT if len(runs) == 1 else Path(layout.REPORT))
    page = write_report(runs, target, force=force)
    out.print(comparison_table(read_runs(runs)))
    out.print(f"Report: {page}", soft_wrap=True)
    return None


def report_benchmark(folders: list[Path], out_file: Path | None, force: bool) -> None:
    """Write the page of one benchmark, into its folder unless another place is named."""
    from ccp_dml.benchmark.formats import as_terminal
    from ccp_dml.benchmark.page import is_outdated, write_benchmark_report
    from ccp_dml.records import layout
    from ccp_dml.records.benchmark_folder import BenchmarkFolder

    if len(folders) > 1:
        raise UserError(
            "A benchmark's folder is reported on alone; give `ccp report` that folder only, or only folders of runs."
        )
    benchmark = BenchmarkFolder.read(folders[0])
    page = write_benchmark_report(benchmark, out_file or benchmark.path / layout.REPORT, force=force)
    if benchmark.table is not None:
        out.print(as_terminal(benchmark.table))
    else:
        warn(f"There is no table yet; the benchmark's command goes on, and writes it: {benchmark.command()}")
    if is_outdated(benchmark):
        warn(f"The table is older than the runs; the benchmark's command writes it anew: {benchmark.command()}")
    out.print(f"Report: {page}", soft_wrap=True)
