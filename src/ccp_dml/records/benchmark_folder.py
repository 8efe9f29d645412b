"""Read and write what `ccp benchmark` keeps: its request, the scores of ensembles, and the folders of its runs."""

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from ccp_dml.config.recipes import recipe_label
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import digest, file_digest
from ccp_dml.foundation.files import as_json, write_json
from ccp_dml.records import layout
from ccp_dml.records.benchmark_table import BenchmarkTable, read_table
from ccp_dml.records.documents import read_json
from ccp_dml.records.folder_request import BENCHMARK_REQUEST
from ccp_dml.records.run_folder import RunFolder, is_run

Protocol = Literal["mlrc", "conventional"]

FOLD = re.compile("fold(0|[1-9][0-9]*)")  # how many there are is known to the runs' settings alone


@dataclass(frozen=True)
class BenchmarkRequest:
    """What a benchmark was asked to do: a protocol, a data set, and the methods to compare."""

    protocol: Protocol
    data: str  # a data set recipe
    methods: tuple[str, ...]  # method recipes
    repeats: int
    settings: tuple[str, ...]  # KEY=VALUE, for all runs
    paper: str | None = None  # the paper's data set to compare with, where the recipe's own is none of them

    @property
    def title(self) -> str:
        name = self.protocol.replace("mlrc", "MLRC").replace("conventional", "Conventional")
        return f"{name} protocol on {recipe_label(self.data)}"


def is_benchmark(folder: Path) -> bool:
    """Tell whether a benchmark has begun in `folder`."""
    return (folder / layout.BENCHMARK).is_file()


def read_request(folder: Path) -> BenchmarkRequest | None:
    """Read the request of the benchmark in `folder`; None for a new folder."""
    values = BENCHMARK_REQUEST.read(folder)
    if values is None:
        return None
    try:
        return BenchmarkRequest(
            values["protocol"],
            values["data"],
            tuple(values["methods"]),
            int(values["repeats"]),
            tuple(values["settings"]),
            values.get("paper"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BENCHMARK_REQUEST.damaged(folder, error) from None


def write_request(folder: Path, request: BenchmarkRequest) -> None:
    """Write the request into the folder of its benchmark."""
    BENCHMARK_REQUEST.write(folder, {key: value for key, value in asdict(request).items() if value is not None})


def write_ensemble(folds: Sequence[Path], scores: dict[str, Any], models: Sequence[str]) -> None:
    """Write the test scores of the ensemble of `models` beside their folders `folds`."""
    seal = _ensemble_seal(folds, scores)
    write_json(folds[0].parent / layout.ENSEMBLE, {"test": scores, "models": list(models), "digest": seal})


def read_ensemble(folds: Sequence[Path]) -> dict[str, Any] | None:
    """Read the test scores of the ensemble of the runs in `folds`.

    None where there are none, or none that were computed from the results that these runs have now.
    """
    try:
        ensemble = read_json(folds[0].parent / layout.ENSEMBLE) or {}
    except UserError:  # damaged: it is computed anew
        return None
    scores = ensemble.get("test")
    is_whole = isinstance(scores, dict) and ensemble.get("digest") == _ensemble_seal(folds, scores)
    return scores if is_whole else None


def _ensemble_seal(folds: Sequence[Path], scores: dict[str, Any]) -> str:
    """Digest scores together with the results of the models that they belong to."""
    return digest(as_json(scores), *(file_digest(fold / layout.RESULT) for fold in folds))


@dataclass(frozen=True)
class BenchmarkFolder:
    """A request, its outcome and the runs behind it. There is no table before the benchmark has come to an end."""

    path: Path
    request: BenchmarkRequest
    table: BenchmarkTable | None
    figure: str | None  # a data URI
    runs: dict[str, RunFolder]  # by name, such as "c2-ccp/repeat0/fold3"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read everything that the benchmark in `path` has written so far."""
        request = read_request(path)
        if request is None:
            raise UserError(f"{path} holds no benchmark (no {layout.BENCHMARK} in it); give a benchmark's folder.")
        return cls(
            path=path,
            request=request,
            table=read_table(path),
            figure=_svg_uri(path / layout.IMPROVEMENT_SVG),
            runs={name: RunFolder.read(path / name) for name in _runs_of(request, path)},
        )

    @property
    def title(self) -> str:
        return self.table.title if self.table else self.request.title

    def methods(self) -> dict[str, list[RunFolder]]:
        """Group the runs by method, in the order of the request; methods without a run yet are left out."""
        grouped: dict[str, list[RunFolder]] = {}
        for name, run in self.runs.items():
            grouped.setdefault(name.partition("/")[0], []).append(run)
        return grouped

    def command(self) -> str:
        """Spell the command that runs the benchmark again, or continues it."""
        request = self.request
        options = ["--data", request.data, "--methods", ",".join(request.methods)]
        options += ["--repeats", str(request.repeats)]
        options += [part for setting in request.settings for part in ("--set", setting)]
        options += [] if request.paper is None else ["--paper", request.paper]
        return shlex.join(["ccp", "benchmark", request.protocol, *options, "--out", str(self.path)])


def _runs_of(request: BenchmarkRequest, path: Path) -> list[str]:
    """Name the runs of a request that have begun in `path`; copies and other folders beside them are not among them."""
    repeats = [
        f"{recipe_label(method)}/repeat{repeat}" for method in request.methods for repeat in range(request.repeats)
    ]
    if request.protocol == "conventional":
        return [name for name in repeats if is_run(path / name)]
    found = []
    for name in repeats:
        entries = (path / name).iterdir() if (path / name).is_dir() else ()
        folds = sorted(int(match[1]) for entry in entries if (match := FOLD.fullmatch(entry.name)))
        found += [run for fold in folds if is_run(path / (run := f"{name}/fold{fold}"))]
    return found


def _svg_uri(path: Path) -> str | None:
    if not path.is_file():
        return None
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
