"""The HTML report of a whole benchmark: one page over all its runs, each of which has a page of its own."""

from pathlib import Path

from ccp_dml.files import write_text
from ccp_dml.reports import benchmark_sections
from ccp_dml.reports.benchmark_folder import BenchmarkFolder
from ccp_dml.reports.page import fill, page_file, present


def write_benchmark_report(benchmark: BenchmarkFolder, out: Path) -> Path:
    """Write the report to the file `out`, whole or not at all; the file's path."""
    out = page_file(out)
    parts = present(
        benchmark_sections.outcome(benchmark),
        benchmark_sections.curves(benchmark),
        benchmark_sections.cost(benchmark),
        benchmark_sections.runs(benchmark, out),
        benchmark_sections.reproduction(benchmark),
    )
    write_text(out, fill(benchmark.title, "Benchmark", parts))
    return out
