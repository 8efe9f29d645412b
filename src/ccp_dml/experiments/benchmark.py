"""What a benchmark was asked to do, kept in its folder so that the same command continues it and no other does."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tomli_w

from ccp_dml.errors import UserError
from ccp_dml.experiments.plan import HOW_IT_RUNS, PlannedRun
from ccp_dml.files import write_text
from ccp_dml.layers import flatten, nearest, parse_setting, shipped_recipes

Protocol = Literal["mlrc", "conventional"]
FILE = "benchmark.toml"


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


def parse_methods(text: str) -> tuple[str, ...]:
    """`c2,c2-ccp`: names of shipped methods, or TOML files of one's own."""
    methods = tuple(part.strip() for part in text.split(","))
    shipped = shipped_recipes("methods")
    for method in methods:
        if not method:
            raise UserError(f"--methods {text!r} has an empty name; write names separated by commas, as in c2,c2-ccp.")
        if method not in shipped and not is_recipe_file(method):
            known = nearest(method, list(shipped)) or "; `ccp list methods` names them all"
            raise UserError(f"--methods: there is no method {method!r}, shipped or as a TOML file{known}.")
    labels = [method_label(method) for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"--methods names {label!r} more than once; name each method once.")
    return methods


def parse_data(name: str) -> str:
    shipped = shipped_recipes("datasets")
    if name not in shipped and not is_recipe_file(name):
        known = nearest(name, list(shipped)) or f"; there are {', '.join(shipped)}"
        raise UserError(f"--data: there is no data set {name!r}, shipped or as a TOML file{known}.")
    return name


def is_recipe_file(name: str) -> bool:
    return name.endswith(".toml") and Path(name).is_file()


def method_label(method: str) -> str:
    """What tables and folders call a method: a file of one's own goes by its name without the ending."""
    return Path(method).stem if method.endswith(".toml") else method


def default_folder(benchmark: Benchmark) -> Path:
    """Always the same for the same benchmark, so that the same command continues it."""
    return Path("runs") / f"{benchmark.protocol}-{method_label(benchmark.data)}"


def recorded(folder: Path) -> Benchmark | None:
    """The benchmark that a folder belongs to, if any."""
    if not (folder / FILE).is_file():
        if folder.is_file() or (folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir())):
            raise UserError(f"{folder} is not empty and holds no benchmark; give --out a new or empty folder.")
        return None
    try:
        tables = tomllib.loads((folder / FILE).read_text(encoding="utf-8"))
        return Benchmark(
            tables["protocol"],
            tables["data"],
            tuple(tables["methods"]),
            int(tables["repeats"]),
            tuple(tables["settings"]),
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / FILE} is damaged ({error}); restore it, or give --out another folder.") from None


def extend(folder: Path, wanted: Benchmark) -> Benchmark:
    """The benchmark of `folder` with the methods and repeats of `wanted` added; any other difference is an error."""
    before = recorded(folder)
    if before is None:
        return wanted
    for name in ("protocol", "data"):
        if getattr(before, name) != getattr(wanted, name):
            raise other_benchmark(folder, name, getattr(before, name), getattr(wanted, name))
    old, new = by_key(before.settings), by_key(wanted.settings)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and key not in HOW_IT_RUNS:
            raise other_benchmark(folder, key, old.get(key, "its default"), new.get(key, "its default"))
    methods = tuple(dict.fromkeys(before.methods + wanted.methods))
    parse_methods(",".join(methods))  # two files of the same name would share a folder
    return replace(wanted, methods=methods, repeats=max(before.repeats, wanted.repeats))


def other_benchmark(folder: Path, key: str, before: object, after: object) -> UserError:
    return UserError(
        f"{folder} holds a benchmark with {key} = {before}, not {after}; repeat its command to continue it (more "
        "methods or repeats may be added), or give --out another folder."
    )


def by_key(settings: Sequence[str]) -> dict[str, object]:
    """Dotted keys and values; of a key that is set twice, the last one counts."""
    return {key: value for text in settings for key, value in flatten(parse_setting(text).tables)}


def write_down(folder: Path, benchmark: Benchmark) -> None:
    text = tomli_w.dumps(
        {
            "protocol": benchmark.protocol,
            "data": benchmark.data,
            "methods": list(benchmark.methods),
            "repeats": benchmark.repeats,
            "settings": list(benchmark.settings),
        }
    )
    try:
        write_text(folder / FILE, text)
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); give --out another folder.") from None
