"""Name the folder of a benchmark, and extend its request by what a later command adds."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccp_dml.config.recipes import is_recipe_file, parse_methods, recipe_label, shipped_recipes
from ccp_dml.errors import UserError
from ccp_dml.plans.plan import PlannedRun
from ccp_dml.records.benchmark_folder import BenchmarkRequest, read_request
from ccp_dml.records.folder_request import BENCHMARK_REQUEST


@dataclass(frozen=True)
class BenchmarkRun:
    """A planned run and its place in the benchmark."""

    method: str  # as tables name it
    repeat: int
    fold: int
    run: PlannedRun

    @property
    def coordinates(self) -> dict[str, Any]:
        return {"method": self.method, "repeat": self.repeat, "fold": self.fold}


def default_folder(request: BenchmarkRequest) -> Path:
    """Name the folder for a user who names none. The same command always gets the same folder and continues there."""
    return Path("runs") / f"{request.protocol}-{recipe_label(request.data)}"


def extend(folder: Path, wanted: BenchmarkRequest) -> BenchmarkRequest:
    """Add the methods and repeats of `wanted` to the request of `folder`; raise on any other difference.

    A comparison with the paper stays, unless `wanted` names another.
    """
    before = read_request(folder)
    if before is None:
        return wanted
    for name in ("protocol", "data"):
        BENCHMARK_REQUEST.refuse_other(folder, name, getattr(before, name), getattr(wanted, name))
    BENCHMARK_REQUEST.refuse_other_settings(folder, before.settings, wanted.settings)
    for method in before.methods:
        if method not in shipped_recipes("methods") and not is_recipe_file(method):
            raise UserError(
                f"{folder} has the method {method!r} of an earlier command, and there is no such file, seen from the "
                "current folder: restore it, or give --out another folder."
            )
    methods = tuple(dict.fromkeys(before.methods + wanted.methods))
    parse_methods(",".join(methods))  # raises for two files of the same name, which would share a folder
    paper = wanted.paper or before.paper
    return replace(wanted, methods=methods, repeats=max(before.repeats, wanted.repeats), paper=paper)
