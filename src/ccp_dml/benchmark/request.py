"""What a benchmark was asked to do, kept in its folder so that the same command continues it and no other does."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ccp_dml.config.recipes import parse_methods, recipe_label
from ccp_dml.plans.plan import PlannedRun
from ccp_dml.records.folder_request import FolderRecord

Protocol = Literal["mlrc", "conventional"]
RECORD = FolderRecord("benchmark", "benchmark.toml", may_grow=" (more methods or repeats may be added)")


@dataclass(frozen=True)
class Benchmark:
    """A protocol, a data set, and the methods to compare."""

    protocol: Protocol
    data: str  # a data set recipe
    methods: tuple[str, ...]  # method recipes
    repeats: int
    settings: tuple[str, ...]  # KEY=VALUE, for all runs

    def setting(self, key: str) -> str | None:
        """What the user set for `key`, as it was written; the last one counts."""
        texts = [text for text in self.settings if text.partition("=")[0].strip() == key]
        return texts[-1].partition("=")[2].strip() if texts else None


@dataclass(frozen=True)
class BenchmarkRun:
    """A planned run and its place in the benchmark."""

    method: str  # as tables name it
    repeat: int
    fold: int
    run: PlannedRun


def default_folder(benchmark: Benchmark) -> Path:
    """Always the same for the same benchmark, so that the same command continues it."""
    return Path("runs") / f"{benchmark.protocol}-{recipe_label(benchmark.data)}"


def recorded(folder: Path) -> Benchmark | None:
    """The benchmark that a folder belongs to, if any."""
    values = RECORD.read(folder)
    if values is None:
        return None
    try:
        return Benchmark(
            values["protocol"],
            values["data"],
            tuple(values["methods"]),
            int(values["repeats"]),
            tuple(values["settings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RECORD.damaged(folder, error) from None


def extend(folder: Path, wanted: Benchmark) -> Benchmark:
    """The benchmark of `folder` with the methods and repeats of `wanted` added; any other difference is an error."""
    before = recorded(folder)
    if before is None:
        return wanted
    for name in ("protocol", "data"):
        RECORD.refuse_other(folder, name, getattr(before, name), getattr(wanted, name))
    RECORD.refuse_other_settings(folder, before.settings, wanted.settings)
    methods = tuple(dict.fromkeys(before.methods + wanted.methods))
    parse_methods(",".join(methods))  # two files of the same name would share a folder
    return replace(wanted, methods=methods, repeats=max(before.repeats, wanted.repeats))


def write_down(folder: Path, benchmark: Benchmark) -> None:
    RECORD.write(
        folder,
        {
            "protocol": benchmark.protocol,
            "data": benchmark.data,
            "methods": list(benchmark.methods),
            "repeats": benchmark.repeats,
            "settings": list(benchmark.settings),
        },
    )
