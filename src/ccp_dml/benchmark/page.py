"""The HTML report of a whole benchmark: one page over all its runs, each of which has a page of its own."""

from pathlib import Path

from ccp_dml.benchmark import sections
from ccp_dml.benchmark.folder import BenchmarkFolder
from ccp_dml.foundation.files import write_text
from ccp_dml.reports.page import fill, page_file, present


def write_benchmark_report(benchmark: BenchmarkFolder, out: Path) -> Path:
    """Write the report to the file `out`, whole or not at all; the file's path."""
    out = page_file(out)
    parts = present(
        sections.outcome(benchmark),
        sections.curves(benchmark),
        sections.cost(benchmark),
        sections.runs(benchmark, out),
        sections.reproduction(benchmark),
    )
    write_text(out, fill(benchmark.title, "Benchmark", parts))
    return out
