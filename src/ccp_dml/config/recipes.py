"""Find, name and read recipes: shipped ones by name, TOML files of one's own by path.

A method's name is its loss and a suffix: `c2` alone, `c2-proxy`, `c2-ccp`, `c2-ccp-s`, `c2-xbm`,
`ms-metrix`, `c2-profs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from os.path import isdir, isfile  # of a name that no disk could hold, pathlib would raise
from pathlib import Path
from shlex import quote
from typing import Any

from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation.files import from_toml

Tables = dict[str, Any]

RECIPE_KINDS = ("datasets", "modes", "methods", "protocols", "studies")

EXTENDS = "extends"
"""A key that only recipes have: the recipe whose values this one starts from."""

STUDY = "study"
"""Another table that only recipes have: what a study varies. Its runs are not concerned."""


ALONE, PROXY, CCP, SMALL_CCP, XBM, METRIX, PROFS = "", "-proxy", "-ccp", "-ccp-s", "-xbm", "-metrix", "-profs"
"""What a method's name adds to its loss's: nothing, a proxy problem, CCP large and small, a memory, mixtures, PROFS."""


@dataclass(frozen=True)
class Layer:
    """Some settings and where they were written."""

    origin: str
    tables: Tables


def shipped_recipes(*kinds: str) -> dict[str, Traversable]:
    """Find the package's recipes of the given kinds, by default of all: name -> file."""
    folder = resources.files("ccp_dml") / "recipes"
    return {
        file.name.removesuffix(".toml"): file
        for kind in kinds or RECIPE_KINDS
        for file in sorted((folder / kind).iterdir(), key=lambda entry: entry.name.removesuffix(".toml"))
        if file.name.endswith(".toml")
    }


def recipe_layers(names: str, extended_by: tuple[str, ...] = ()) -> list[Layer]:
    """Read the layers of `cub`, or of several recipes that stand for one, `cub,frozen`.

    What a recipe extends goes first; `extended_by` are the recipes that led here.
    """
    layers: list[Layer] = []
    for name in names.split(","):
        way = (*extended_by, name)
        if name in extended_by:
            raise UserError(f"The recipe {name} extends itself ({' -> '.join(way)}); remove one `{EXTENDS}`.")
        layer = read_recipe(name)
        base = layer.tables.pop(EXTENDS, None)
        layers += [*([] if base is None else recipe_layers(str(base), way)), layer]
    return layers


def read_recipe(name: str) -> Layer:
    """Read a shipped recipe by name, or a TOML file by path."""
    shipped = shipped_recipes()
    file: Traversable | Path | None = shipped.get(name)
    if file is None:
        file = Path(name)
        refuse_data(file)
        if not isfile(file):
            refuse_setting(name)
            known = did_you_mean(name, list(shipped)) or "; `ccp list recipes` names them all"
            raise UserError(f"There is no recipe {name!r}, shipped or as a TOML file{known}.")
    try:
        return Layer(name, from_toml(file.read_text(encoding="utf-8")))
    except ValueError as error:  # no TOML, no UTF-8, a number of 5,000 digits, 1,000 brackets
        raise UserError(f"{name} is not a TOML file that can be read: {error}.") from None


def refuse_setting(name: str) -> None:
    """Raise for a setting that stands where a recipe belongs, because `--set` was forgotten."""
    key, equals, value = name.partition("=")
    if equals and "." in key:
        raise UserError(f"{name} is a setting, not a recipe; write --set {key}={quote(value)}")


def refuse_data(path: Path) -> None:
    """Raise for images, tables and vectors that stand where a recipe belongs; say how they are named instead."""
    readers = {".csv": ("csv MODE METHOD", "data.path"), ".npz": ("features METHOD", "data.path")}
    reader = ("folder MODE METHOD", "data.root") if isdir(path) else readers.get(path.suffix.lower())
    if reader is not None and (isdir(path) or isfile(path)):
        line, key = reader
        kind = "a folder" if isdir(path) else "a file of data"
        raise UserError(
            f"{path} is {kind}, not a recipe; train on it with: ccp train {line} --set {key}={quote(str(path))}"
        )


ORDER = {"datasets": "data set", "modes": "mode", "methods": "method", "protocols": "protocol"}
"""How recipes are layered: `cub frozen c2-ccp conventional`. What comes later overrides what comes earlier."""
VECTORS = "features"  # the data set that needs no mode


def refuse_disorder(recipes: Sequence[str]) -> None:
    """Raise for two shipped recipes of a kind, and for an order in which one would undo the other's choice."""
    names = [name for recipe in recipes for name in recipe.split(",")]
    kinds = {name: kind for kind in ORDER for name in shipped_recipes(kind)}
    known = [name for name in names if name in kinds]
    for kind, noun in ORDER.items():
        if len(same := [name for name in known if kinds[name] == kind]) > 1:
            raise UserError(
                f"{' and '.join(same)} are {len(same)} {noun}s, and a run has one; leave out all but one of them."
            )
    if VECTORS in known and (mode := next((name for name in known if kinds[name] == "modes"), None)) is not None:
        raise UserError(
            f"{VECTORS} {mode}: a mode says how much of an image network learns, and ready-made vectors have none; "
            f"leave out {mode}."
        )
    ordered = sorted(known, key=lambda name: list(ORDER).index(kinds[name]))
    if known != ordered:
        right = iter(ordered)
        order = " ".join(next(right) if name in kinds else name for name in names)
        raise UserError(
            f"{' '.join(names)}: the order is {', '.join(ORDER.values())}, because later recipes override earlier "
            f"ones; write {order}."
        )


def loss_of(method: str) -> str:
    """Name the loss of a method: `c2` of `c2-ccp-s`."""
    for suffix in (SMALL_CCP, CCP, PROXY, XBM, METRIX, PROFS):  # the longest that ends alike comes first
        if method.endswith(suffix):
            return method.removesuffix(suffix)
    return method


def parse_methods(text: str) -> tuple[str, ...]:
    """Parse `c2,c2-ccp`: names of shipped methods, or TOML files of one's own."""
    methods = tuple(part.strip() for part in text.split(","))
    shipped = shipped_recipes("methods")
    for method in methods:
        if not method:
            raise UserError(f"--methods {text!r} has an empty name; write names separated by commas, as in c2,c2-ccp.")
        if method not in shipped and not is_recipe_file(method):
            known = did_you_mean(method, list(shipped)) or "; `ccp list methods` names them all"
            raise UserError(f"--methods: there is no method {method!r}, shipped or as a TOML file{known}.")
    labels = [recipe_label(method) for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"--methods names {label!r} more than once; name each method once.")
    return methods


def parse_data(names: str) -> str:
    """Check `cub`, or `cub,frozen`: a data set, and perhaps recipes that are layered onto it."""
    first, *others = names.split(",")
    shipped = shipped_recipes("datasets")
    if first not in shipped and not is_recipe_file(first):
        known = did_you_mean(first, list(shipped)) or f"; there are {', '.join(shipped)}"
        raise UserError(f"--data: there is no data set {first!r}, shipped or as a TOML file{known}.")
    for name in others:
        read_recipe(name)
    return names


def parse_losses(text: str) -> tuple[str, ...]:
    """Parse `c2,ms`: losses that exist as methods alone, with proxies and with CCP."""
    losses = tuple(part.strip() for part in text.split(","))
    known = [loss_of(name) for name in shipped_recipes("methods") if name.endswith(CCP)]
    for loss in losses:
        if loss not in known:
            raise UserError(f"--loss: there is no loss {loss!r} with CCP; there are {', '.join(known)}.")
        if losses.count(loss) > 1:
            raise UserError(f"--loss names {loss!r} more than once; name each loss once.")
    return losses


def is_recipe_file(name: str) -> bool:
    return name.endswith(".toml") and isfile(name)


def recipe_label(recipe: str) -> str:
    """Name a recipe in tables and folders; a file goes by its name without the ending."""
    return "-".join(Path(name).stem if name.endswith(".toml") else name for name in recipe.split(","))
