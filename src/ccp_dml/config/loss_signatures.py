"""Read names, summaries and arguments of the shipped losses from their source text.

Importing a loss imports torch, which takes seconds; `ccp config` and `ccp list` only need to know what there is. A test
holds what is read here to what Python sees.
"""

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from importlib import resources

TYPES = {"float": float, "int": int, "bool": bool, "str": str}
TABLES = ("LOSSES", "PROXY_LOSSES")

FILLED_BY_THE_RUN = frozenset({"classes", "dim", "seed", "steps_per_epoch"})
"""Arguments of constructors that the data decide and nobody sets."""


@dataclass(frozen=True)
class LossSignature:
    """What can be known of a loss without importing it."""

    summary: str  # the first line of its docstring
    parameters: dict[str, inspect.Parameter]  # that a configuration may set


@cache
def shipped_losses() -> dict[str, LossSignature]:
    """Read every loss of the package, by its name in a configuration."""
    folder = resources.files("ccp_dml") / "losses"
    trees = {
        file.name: ast.parse(file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name.endswith(".py")
    }
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    return {name: _signature(classes[found]) for name, found in _names(trees["__init__.py"])}


def _names(tree: ast.Module) -> list[tuple[str, str]]:
    """List the entries of the tables of losses: name and class."""
    entries: list[tuple[str, str]] = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in TABLES:
            assert isinstance(node.value, ast.Dict)
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant)
                assert isinstance(value, ast.Name)
                entries.append((str(key.value), value.id))
    return entries


def _signature(node: ast.ClassDef) -> LossSignature:
    constructor = next(part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__")
    given, named = constructor.args.args[1:], constructor.args.kwonlyargs  # without self
    defaults = [None] * (len(given) - len(constructor.args.defaults)) + list(constructor.args.defaults)
    both = [*zip(given, defaults, strict=True), *zip(named, constructor.args.kw_defaults, strict=True)]
    parameters = {
        argument.arg: inspect.Parameter(
            argument.arg,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is None else ast.literal_eval(default),
            annotation=_type(argument.annotation),
        )
        for argument, default in both
        if argument.arg not in FILLED_BY_THE_RUN
    }
    return LossSignature((ast.get_docstring(node) or "").split("\n", 1)[0], parameters)


def _type(node: ast.expr | None) -> object:
    """Turn an annotation such as `int | None` into the type it names."""
    match node:
        case ast.Name(id=name):
            return TYPES[name]
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _type(left) | _type(right)  # type: ignore[operator]
    raise TypeError(f"a loss has an argument of type {ast.unparse(node) if node else 'none'}: add it to TYPES")
