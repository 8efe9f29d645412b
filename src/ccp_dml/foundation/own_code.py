"""Load classes that a user names: `my_losses.py:LogisticLoss`, `package.module:Name`, or an installed entry point.

A name is only text until `load` runs the code behind it. Whoever reads names from a folder of unknown origin asks for
the user's consent before that; see `records.code_copies`.
"""

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation.digests import digest, file_digest

LOSSES, MINERS = "ccp_dml.losses", "ccp_dml.miners"
BACKBONES, DATASETS = "ccp_dml.backbones", "ccp_dml.datasets"
"""Groups of entry points under which installed packages offer parts by name."""

RESERVED = "pml"
"""`pml:NAME` is a loss of pytorch-metric-learning, not a module called pml."""

PREFIX = "ccp_own_"
"""How the modules are called that code files become; a digest of the file's content follows."""

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class CodeName:
    """Where a class of one's own is: in a file or in an importable module."""

    place: str  # a path that ends in .py, or a dotted module
    attribute: str

    @property
    def file(self) -> Path | None:
        return Path(self.place).expanduser() if self.place.endswith(".py") else None

    def __str__(self) -> str:
        return f"{self.place}:{self.attribute}"


def parse(name: str) -> CodeName | None:
    """Read `FILE.py:NAME` or `package.module:NAME`; None for a plain name such as `c2`."""
    place, colon, attribute = name.rpartition(":")
    if not colon or place == RESERVED or not attribute.isidentifier():
        return None
    return CodeName(place, attribute) if place.endswith(".py") or MODULE.fullmatch(place) else None


def absolute(name: str) -> str:
    """Make the path of `FILE.py:NAME` absolute, so that it means the same in every folder; other names stay."""
    code = parse(name)
    return name if code is None or code.file is None else f"{code.file.resolve()}:{code.attribute}"


def plugins(group: str) -> dict[str, EntryPoint]:
    """Find what installed packages register under `group`, such as `ccp_dml.losses`: name -> entry point."""
    return _plugins(group, tuple(sys.path))


@cache
def _plugins(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:  # noqa: ARG001 another path, other packages
    """Read what is registered, once: it takes a file of every installed package, and a run asks a dozen times."""
    return {point.name: point for point in entry_points(group=group)}


def is_own(name: str, group: str) -> bool:
    """Tell whether `name` leads to code outside of this package."""
    return parse(name) is not None or name in plugins(group)


def load(name: str, group: str, base: type | None = None) -> Callable[..., Any]:
    """Import the class or function behind `name`, once per content of its file.

    Args:
        name: code, or an entry point of `group`.
        group: the entry points to look in.
        base: what a class must be derived from; None: any callable will do.
    """
    code = _place_of(name, group)
    module = _import_file(code.file) if code.file is not None else _import_module(code.place)
    found = getattr(module, code.attribute, None)
    if found is None:
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UserError(f"{code.place} has no {code.attribute!r}{did_you_mean(code.attribute, public)}.")
    if not callable(found) or (base is not None and not (isinstance(found, type) and issubclass(found, base))):
        wanted = "a class or function" if base is None else f"a class derived from {base.__module__}.{base.__name__}"
        raise UserError(f"{code} is not {wanted} but {type(found).__name__} {found!r}.")
    result: Callable[..., Any] = found
    return result


def _place_of(name: str, group: str) -> CodeName:
    """Find where the code behind `name` is, written out or as an entry point of `group`."""
    point = plugins(group).get(name)
    code = parse(point.value if point is not None else name)
    if code is None:
        raise UserError(f"{name!r} names no code; write FILE.py:NAME or package.module:NAME.")
    return code


def code_digest(name: str, group: str) -> str:
    """Digest the file that defines `name`, which is not run for it (a module's package is)."""
    source = source_file(name, group)
    if not source.is_file():
        raise UserError(f"There is no file {source}, which {name!r} names.")
    return file_digest(source)


def digest_of_class(found: type) -> str | None:
    """Digest the file that defines a class, if that file is a user's; None for a class of this package."""
    if found.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return None
    if found.__module__.startswith(PREFIX):
        return found.__module__  # which tells the file's content as it was run
    file = getattr(sys.modules.get(found.__module__), "__file__", None)
    return None if file is None else file_digest(Path(file))


def source_file(name: str, group: str) -> Path:
    """Find the file that defines `name`, without running it."""
    code = _place_of(name, group)
    if code.file is not None:
        return code.file
    try:
        spec = importlib.util.find_spec(code.place)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise UserError(
            f"There is no module {code.place!r}; install it, or name a file: PATH/FILE.py:{code.attribute}."
        )
    return Path(spec.origin)


def _import_file(file: Path) -> Any:
    if not file.is_file():
        raise UserError(f"There is no file {file}; give the path of a Python file, as in my_losses.py:LogisticLoss.")
    # The content's digest is the module's name: one content is imported once, and a process that is started anew
    # finds its classes under the same name.
    content = file.read_bytes()
    name = f"{PREFIX}{digest(content)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(content, str(file), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise failed(str(file), str(file), error) from error
    return module


def _import_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(f"There is no module {name!r}; install it, or name a file: PATH/FILE.py:NAME.") from None
        raise failed(name, name, error) from error
    except Exception as error:
        raise failed(name, name, error) from error


def failed(what: str, file: str, error: Exception) -> UserError:
    """Say that `what`, the user's own, raised `error`, and in which line of `file`."""
    files = {file, *(str(module.__file__) for name, module in sys.modules.items() if name.startswith(PREFIX))}
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    place = f" (line {lines[-1]})" if lines else ""
    hint = ""
    if isinstance(error, ModuleNotFoundError):
        hint = "; a code file may import installed packages only, so put what it needs into the file, or install it"
    return UserError(f"{what}{place} failed: {type(error).__name__}: {error}{hint}.")
