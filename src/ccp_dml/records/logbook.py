"""A run's folder while it is written: configuration, evaluations, checkpoint, best weights, result."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

import tomli_w
import torch

from ccp_dml.config.layers import differing, flatten, parse_setting, resolve
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_checkpoint, save_checkpoint, save_weights
from ccp_dml.foundation.files import write_json, write_text

MAY_CHANGE = frozenset(
    {"train.max_steps", "run.workers", "run.device", "run.evaluation_batch", "run.cache", "run.logger"}
)
"""Keys that a resumed run may set anew: they say how long, on what and before whom it runs, not what it computes."""

HOW_IT_RUNS = MAY_CHANGE - {"train.max_steps"}
"""Keys that decide nothing about a result, so that a finished run stays valid when they change."""

WHERE_FILES_ARE = frozenset({"data.root", "data.path", "model.weights"})

WHERE_AND_HOW = WHERE_FILES_ARE | {"run.cache", "run.device", "run.evaluation_batch", "run.workers"}
"""Keys that whoever scores a finished run may set: files move, and machines differ."""

PACKAGES = ("ccp-dml", "torch", "torchvision", "timm", "lightning-fabric", "pytorch-metric-learning", "numpy", "pillow")


class Logbook:
    """Writes one run's folder. Each file is either whole or not there, whenever the run is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first_page: tuple[Config, Sequence[str]] | None = None
        self.next_page: Config | None = None  # what a resumed run goes on with, where that is not what it began with
        self.pins: dict[str, str] = {}  # digests of what the run depends on and its checkpoint does not hold
        self.checkpoint_file = folder / "checkpoint.pt"
        self.metrics_file = folder / "metrics.jsonl"
        self.best_file = folder / "best.safetensors"
        self.result_file = folder / "result.json"

    @classmethod
    def open_new(cls, folder: Path, config: Config, command: Sequence[str]) -> "Logbook":
        """A logbook for a new run in a new or empty folder, which stays untouched until the run begins."""
        if folder.is_file():
            raise UserError(f"{folder} is a file; give --out a folder.")
        if (folder / "config.toml").exists():
            raise UserError(f"{folder} already holds a run; add --resume to continue it, or give --out another folder.")
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty and holds no run; give --out a new or empty folder.")
        book = cls(folder)
        book.first_page = (config, command)
        return book

    def begin(self, step: int = 0) -> None:
        """Write down what is about to run, from `step` on.

        By now everything that could be wrong with the input has been checked; up to here the folder stays as it was.
        """
        if self.first_page is None:
            return self._go_on(step)
        config, command = self.first_page
        try:
            write_json(self.folder / "environment.json", {**environment(command), **self.pins})
            write_text(self.folder / "config.toml", tomli_w.dumps(config.as_tables()))
        except OSError as error:
            raise UserError(f"{self.folder} cannot be written ({error.strerror}); give --out another folder.") from None

    def _go_on(self, step: int) -> None:
        """Drop what the resumed run will write again: lines after its checkpoint, the result of fewer steps."""
        self._forget_after(step)
        if self.next_page is not None:
            if self.next_page.train.max_steps != self.config().train.max_steps:
                self.result_file.unlink(missing_ok=True)  # or an extension that is broken off would look finished
            write_text(self.folder / "config.toml", tomli_w.dumps(self.next_page.as_tables()))

    def pin_backbone(self, digest: str | None) -> None:
        """Note which frozen backbone the run's head belongs to; raise if the run began with another."""
        if digest is not None:
            remedy = "restore the file that model.weights names (or the version that timm downloaded)"
            self._pin("frozen_backbone", digest, "The backbone's weights", remedy)

    def pin_data(self, digest: str) -> None:
        """Note which data the run is trained and scored on; raise if the run began with others."""
        self._pin("data", digest, "The data (classes, labels or features)", "restore them")

    def _pin(self, name: str, digest: str, what: str, remedy: str) -> None:
        if self.first_page is not None:
            self.pins[name] = digest
        elif self._pinned(name) != digest:
            raise UserError(
                f"{what} are not those that {self.folder} was trained with; {remedy}, or start another run."
            )

    def _pinned(self, name: str) -> str:
        """A digest of what the run began with."""
        file = self.folder / "environment.json"
        try:
            recorded: str = json.loads(file.read_text(encoding="utf-8"))[name]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{file} cannot tell what the run began with ({type(error).__name__}: {error}); restore the file, use "
                "the version of ccp-dml that began the run, or start another run."
            ) from None
        return recorded

    @classmethod
    def reopen(cls, folder: Path) -> "Logbook":
        if not (folder / "config.toml").is_file():
            raise UserError(f"{folder} holds no run (no config.toml in it); `ccp train` without --resume starts one.")
        return cls(folder)

    def config(self) -> Config:
        """The configuration that the run was started with."""
        return resolve([str(self.folder / "config.toml")]).config

    def config_here(self, settings: Sequence[str]) -> Config:
        """The same on another machine: `settings` may say where files are and how to compute, and nothing else."""
        for key in (key for text in settings for key, _ in flatten(parse_setting(text).tables)):
            if key not in WHERE_AND_HOW:
                raise UserError(
                    f"--set {key}: a run is scored with the settings it was trained with; only where files are and how "
                    f"to compute may be set: {', '.join(sorted(WHERE_AND_HOW))}."
                )
        return resolve([str(self.folder / "config.toml")], settings).config

    def continue_with(self, wanted: Config) -> Config:
        """The configuration for resuming; what the run has computed so far must still hold under it."""
        began_with = self.config()
        before, after = dict(flatten(began_with.as_tables())), dict(flatten(wanted.as_tables()))
        for key, old, new in differing(before, after, but_for=MAY_CHANGE):
            raise UserError(
                f"{self.folder} was started with {key} = {old!r}, not {new!r}; resume it with its own settings (only "
                "--resume and --out), or start another run."
            )
        self.next_page = wanted
        return wanted

    def record(self, row: dict[str, Any]) -> None:
        """Add the line of one evaluation."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """The lines recorded so far."""
        return [json.loads(line) for line in self._lines()]

    def save(self, state: dict[str, Any]) -> None:
        save_checkpoint(self.checkpoint_file, state)

    def last_state(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint; None if the run was killed before its first."""
        return load_checkpoint(self.checkpoint_file, device) if self.checkpoint_file.exists() else None

    def _forget_after(self, step: int) -> None:
        """The checkpoint is written after the line: a kill in between leaves a line that will be written again."""
        kept, last = [], 0
        for line in self._lines():
            if not line.endswith("\n") or (reached := json.loads(line)["step"]) > step:
                break
            kept.append(line)
            last = reached
        if last != step:
            raise UserError(
                f"{self.metrics_file} has lost the lines up to step {step}, where the checkpoint stands; restore the "
                "file, or start another run."
            )
        write_text(self.metrics_file, "".join(kept))

    def _lines(self) -> list[str]:
        if not self.metrics_file.exists():
            return []
        return self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        save_weights(self.best_file, weights)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result last: a folder with a result is complete."""
        write_json(self.result_file, result)

    @property
    def result(self) -> dict[str, Any] | None:
        if not self.result_file.exists():
            return None
        try:
            result: dict[str, Any] = json.loads(self.result_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(
                f"{self.result_file} is damaged ({error}); remove it, and --resume scores the run again."
            ) from None
        return result


def environment(command: Sequence[str]) -> dict[str, Any]:
    """What a reader needs to repeat the run or to understand a difference."""
    return {
        "command": shlex.join(command),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: installed(name) for name in PACKAGES},
        "cpu_threads": torch.get_num_threads(),
        "cpu_count": os.cpu_count(),
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "executable": Path(sys.executable).name,
    }


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def free_folder(recipes: Sequence[str]) -> Path:
    """`runs/glyphs-c2-ccp`, or the first free name after it, when the user names no folder."""
    name = "-".join(Path(recipe).stem if recipe.endswith(".toml") else recipe for recipe in recipes)
    candidates = (Path("runs") / (name if turn == 1 else f"{name}-{turn}") for turn in count(1))
    return next(folder for folder in candidates if not folder.exists())


SCRATCH = ".*.part"
SCRATCH_OF_THE_FIRST_PAGE = (".config.toml.*.part", ".environment.json.*.part")


def sweep(folder: Path, also: Sequence[str] = ()) -> None:
    """Remove half-written files of a run, and a folder's content that was written before its run began.

    A folder that holds anything else is not ours and stays as it is. Files named in `also` are ours, too.
    """
    if (folder / "config.toml").exists():
        if _is_environment(folder / "environment.json"):
            for scratch in folder.rglob(SCRATCH):
                scratch.unlink(missing_ok=True)
        return
    found = list(folder.iterdir()) if folder.is_dir() else []
    if all(file.name in also or _is_of_the_first_page(file) for file in found):
        for file in found:
            file.unlink(missing_ok=True)


def _is_of_the_first_page(file: Path) -> bool:
    if file.name == "environment.json":
        return _is_environment(file)
    return any(fnmatch(file.name, pattern) for pattern in SCRATCH_OF_THE_FIRST_PAGE)


def _is_environment(file: Path) -> bool:
    """Whether a run of ours wrote this environment.json: others use that name, too."""
    try:
        return "ccp-dml" in json.loads(file.read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, TypeError, KeyError):
        return False
