"""A run's folder as training leaves it, read back and checked, so that reports need neither data nor model."""

import json
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ccp_dml.config.layers import flatten
from ccp_dml.errors import UserError

Row = dict[str, Any]
CLASSES = "classes.json"


@dataclass(frozen=True)
class RunFolder:
    """What one run recorded. An unfinished run has no result; older runs lack what was not written at their time."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[Row]  # one per evaluation, in the order of training
    result: dict[str, Any] | None
    gallery: dict[str, Any] | None
    map_pictures: dict[str, Any] | None = None
    confusion: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    classes: dict[str, Any] | None = None  # names of those it learned from, was selected on and was tested on

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what there is; a run that was interrupted has no `result.json` and is told by `finished`."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; give the folder that `ccp train --out` wrote.")
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} holds no run (no config.toml in it); give a folder that `ccp train` wrote.")
        result = _json_object(path / "result.json")
        gallery = _json_object(path / "gallery.json")
        if gallery is not None and not isinstance(gallery.get("queries"), list):
            raise UserError(f"{path / 'gallery.json'} lists no queries; delete it, or train again.")
        certificate = _json_object(path / "certificate.json")
        if certificate is not None and not isinstance(certificate.get("sets"), dict):
            raise UserError(f"{path / 'certificate.json'} certifies no sets; delete it, then `ccp certify {path}`.")
        return cls(
            path=path,
            config=_toml(path / "config.toml"),
            environment=_json_object(path / "environment.json") or {},
            metrics=_json_lines(path / "metrics.jsonl", may_be_torn=result is None),
            result=result,
            gallery=gallery,
            map_pictures=_json_object(path / "map.json"),
            confusion=_json_object(path / "confusion.json"),
            certificate=certificate,
            classes=_json_object(path / CLASSES),
        )

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def settings(self) -> dict[str, Any]:
        """The configuration under dotted keys such as `loss.name`."""
        return dict(flatten(self.config))

    def score(self, half: str, metric: str) -> float | None:
        """A final score, `half` being "test" or "validation"; None for an unfinished run."""
        return number(((self.result or {}).get(half) or {}).get(metric))

    def best_evaluation(self) -> Row | None:
        """The evaluation that was selected; while a run is unfinished, the best one so far."""
        best_step = (self.result or {}).get("best_step")
        selected = [row for row in self.metrics if row["step"] == best_step]
        scored = [row for row in self.metrics if number(row.get("map_at_r")) is not None]
        return selected[0] if selected else max(scored, key=lambda row: row["map_at_r"], default=None)

    def count(self, key: str) -> int | None:
        """`steps` or `problems`, from the result or, while there is none, from the last evaluation."""
        if self.result is not None and key in self.result:
            return self.result[key]
        return self.metrics[-1].get(key.removesuffix("s")) if self.metrics else None

    def seconds(self) -> float | None:
        """How long training took: the clock of the last evaluation."""
        last = self.metrics[-1].get("seconds") if self.metrics else None
        return number((self.result or {}).get("seconds", last))


def read_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """The runs in the order given, each once."""
    if not paths:
        raise UserError("No run to report on; give at least one folder that `ccp train` wrote.")
    unique: dict[Path, Path] = {}
    for path in paths:
        unique.setdefault(Path(path).resolve(), Path(path))
    return [RunFolder.read(path) for path in unique.values()]


def run_labels(runs: Sequence[RunFolder]) -> list[str]:
    """The shortest endings of the runs' paths that tell them apart."""
    parts = [run.path.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        labels = [os.sep.join(part[-length:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    raise ValueError("the same run is given twice")


def number(value: Any) -> float | None:
    """`value` as a finite float; None for anything that cannot be drawn or compared."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML ({error}); restore it or train again.") from None


def _json_object(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # wrong JSON and wrong UTF-8 alike
        raise UserError(f"{path} is not valid JSON ({error}); restore it or train again.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object, not a {type(value).__name__}; restore it or train again.")
    return value


def _json_lines(path: Path, may_be_torn: bool) -> list[Row]:
    """`may_be_torn`: the run may be writing right now, so a last line without its end is left out."""
    if not path.is_file():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for line_number, line in enumerate(lines, start=1):
        if may_be_torn and not line.endswith("\n"):
            break
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise UserError(
                f"{path}, line {line_number} is damaged (not a JSON object with a whole number `step`); "
                "delete that line or resume the run."
            )
        rows.append(row)
    return rows
