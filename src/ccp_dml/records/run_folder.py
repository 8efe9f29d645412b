"""Read the folder of a run as training leaves it, so that reports need neither data nor model."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Self

from ccp_dml.config.layers import flatten
from ccp_dml.errors import UserError
from ccp_dml.records import layout
from ccp_dml.records.documents import read_json, read_toml
from ccp_dml.records.evaluation_log import EvaluationLog, Row

_OF_MANY_RUNS = (("benchmark", layout.BENCHMARK, layout.REPORT), ("study", layout.STUDY, layout.STUDY_PAGE))
"""What else a folder may hold, the file that says so, and its page."""


@dataclass(frozen=True)
class RunFolder:
    """What one run recorded. An unfinished run has no result; runs of older versions lack files that came later."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[Row]  # one per evaluation, in the order of training; that of step 0 is `start`
    result: dict[str, Any] | None
    gallery: dict[str, Any] | None
    map_pictures: dict[str, Any] | None = None
    confusion: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    classes: dict[str, Any] | None = None  # names of those it learned from, was selected on and was tested on
    outline: dict[str, Any] | None = None  # what the run was about to do
    start: Row | None = None  # the validation scores of the network before its first step

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read all files of a run. One that was interrupted has no result; `finished` tells."""
        path = Path(path)
        require_run(path)
        result = read_json(path / layout.RESULT)
        gallery = read_json(path / layout.GALLERY)
        if gallery is not None and not isinstance(gallery.get("queries"), list):
            raise UserError(f"{path / layout.GALLERY} lists no queries; delete it, or train again.")
        certificate = read_json(path / layout.CERTIFICATE)
        if certificate is not None and not isinstance(certificate.get("sets"), dict):
            raise UserError(
                f"{path / layout.CERTIFICATE} certifies no sets; delete it, then `ccp certify {quote(str(path))}`."
            )
        return cls(
            path=path,
            config=read_toml(path / layout.CONFIG),
            environment=read_json(path / layout.ENVIRONMENT) or {},
            metrics=EvaluationLog(path).rows(may_be_torn=result is None),
            result=result,
            gallery=gallery,
            map_pictures=read_json(path / layout.MAP_PICTURES),
            confusion=read_json(path / layout.CONFUSION),
            certificate=certificate,
            classes=read_json(path / layout.CLASSES),
            outline=read_json(path / layout.OUTLINE),
            start=EvaluationLog(path).start(),
        )

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def settings(self) -> dict[str, Any]:
        """List the configuration under dotted keys such as `loss.name`."""
        return dict(flatten(self.config))

    @property
    def selected_on_test(self) -> bool:
        """Tell whether the test classes themselves chose the best evaluation, which every table must say (D28)."""
        return bool(self.settings().get("protocol.select_on") == "test")

    def score(self, half: str, metric: str) -> float | None:
        """Look up a final score of "test" or "validation", or before training of "raw" or "start"; None: not there."""
        return number(((self.result or {}).get(half) or {}).get(metric))

    def incomplete(self) -> list[str]:
        """List how the run's data set differs from what was published; empty if it does not."""
        return list((self.outline or {}).get("incomplete") or [])

    def best_evaluation(self) -> Row | None:
        """Find the evaluation that was selected; while a run is unfinished, the best one so far."""
        best_step = (self.result or {}).get("best_step")
        selected = [row for row in self.metrics if row["step"] == best_step]
        scored = [row for row in self.metrics if number(row.get("map_at_r")) is not None]
        return selected[0] if selected else max(scored, key=lambda row: row["map_at_r"], default=None)

    def count(self, key: str) -> int | None:
        """Count `steps` or `problems`: from the result or, while there is none, from the last evaluation."""
        if self.result is not None and key in self.result:
            return self.result[key]
        return self.metrics[-1].get(key.removesuffix("s")) if self.metrics else None

    def seconds(self) -> float | None:
        """Tell how long training took, or has taken until the last evaluation."""
        last = self.metrics[-1].get("seconds") if self.metrics else None
        return number((self.result or {}).get("seconds", last))

    def problem_rows(self) -> list[Row]:
        """Summarise each problem, in the order of training; one that ended before an evaluation has no score."""
        if not self.metrics:
            return []
        grouped: dict[int, list[Row]] = {}
        for row in self.metrics:
            grouped.setdefault(row.get("problem", 1), []).append(row)
        starts = self.problem_starts()
        ends = [start["step"] for start in starts[1:]] + [self.metrics[-1]["step"]]
        rows = []
        for start, end in zip(starts, ends, strict=True):
            evaluations = grouped.get(start["problem"], [])
            last = evaluations[-1] if evaluations else {}
            known = [score for row in evaluations if (score := number(row.get("map_at_r"))) is not None]
            rows.append(
                {
                    "problem": start["problem"],
                    "steps": end - start["step"],
                    "evaluations": len(evaluations),
                    "map_at_r": max(known, default=None),
                    "covering_radius": number(start["covering_radius"]),
                    "staleness": number(last.get("staleness")),
                    "pull_norm": number(last.get("pull_norm")),
                }
            )
        return rows

    def problem_starts(self) -> list[Row]:
        """List `problem`, `step` and `covering_radius` of each problem's start.

        Baselines log none: their one problem begins with the run. Nor do runs of older versions, whose problems end
        with an evaluation.
        """
        begun: list[Row] = [start for row in self.metrics for start in row.get("problems_begun", [])]
        if begun:
            return begun
        first_rows: dict[int, Row] = {}
        last_step = 0
        for row in self.metrics:
            start = {"problem": row.get("problem", 1), "step": last_step, "covering_radius": row.get("covering_radius")}
            first_rows.setdefault(start["problem"], start)
            last_step = row["step"]
        return list(first_rows.values())


def is_run(folder: Path) -> bool:
    """Tell whether a run has begun in `folder`."""
    return (folder / layout.CONFIG).is_file()


def require_run(folder: Path) -> None:
    """Raise if no run has begun in `folder`; say what there is instead, and where its runs are."""
    if is_run(folder):
        return
    if not folder.is_dir():
        raise UserError(f"There is no run {folder}; give a folder that `ccp train` wrote.")
    for noun, request, name in _OF_MANY_RUNS:
        if (folder / request).is_file():
            page = f" ({folder / name})" if (folder / name).is_file() else ""
            example = min((file.parent for file in folder.rglob(layout.CONFIG)), default=None)
            remedy = "none of its runs has begun" if example is None else f"give one of its runs, such as {example}"
            raise UserError(f"{folder} holds a {noun}{page}, not a single run; {remedy}.")
    raise UserError(f"{folder} holds no run (no {layout.CONFIG} in it); give a folder that `ccp train` wrote.")


def is_finished(folder: Path) -> bool:
    """Tell whether the run in `folder` has its result."""
    return (folder / layout.RESULT).is_file()


def read_result(folder: Path) -> dict[str, Any]:
    """Read the result alone of a finished run."""
    result = read_json(folder / layout.RESULT)
    if result is None:
        raise UserError(f"{folder} is not finished; continue it with `ccp train --resume --out {quote(str(folder))}`.")
    return result


def read_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """Read runs in the order given, each once."""
    if not paths:
        raise UserError("No run to report on; give at least one folder that `ccp train` wrote.")
    unique: dict[Path, Path] = {}
    for path in paths:
        unique.setdefault(Path(path).resolve(), Path(path))
    return [RunFolder.read(path) for path in unique.values()]


def run_labels(runs: Sequence[RunFolder]) -> list[str]:
    """Label runs by the shortest endings of their paths that tell them apart."""
    parts = [run.path.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        labels = [os.sep.join(part[-length:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    raise ValueError("the same run is given twice")


def number(value: Any) -> float | None:
    """Return `value` as a finite float; None for anything that cannot be drawn or compared."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def embedded_picture(uri: Any) -> str | None:
    """Return the picture if `uri` holds it; None for an address: pages ask the network for nothing."""
    return uri if isinstance(uri, str) and uri.startswith("data:image/") else None
