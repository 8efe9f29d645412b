"""The two ways a run ends early, and the phrases that their messages share.

The command line turns both errors into one clear sentence. A part that knows no configuration names its own arguments
in backticks (`root`); `config.layers.naming_keys` turns them into the keys that a user sets (data.root).
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class UserError(ValueError):
    """A mistake in what the user gave us. The message names the input and the remedy."""


class NonFiniteError(ArithmeticError):
    """Training produced NaN or infinity. The message names the step and the tensor."""


def did_you_mean(name: str, candidates: Sequence[str], most: int = 2, cutoff: float = 0.6) -> str:
    """Suggest the candidates nearest to `name`: '; did you mean ...', or nothing where nothing is near.

    `cutoff` is the least similarity, from 0 (anything) to 1 (the same name).
    """
    matches = [name.lower()] if name.lower() in candidates else []
    matches = matches or get_close_matches(name, candidates, n=most, cutoff=cutoff)
    return f"; did you mean {' or '.join(map(repr, matches))}" if matches else ""


def no_tensor(name: str, value: Any) -> str:
    """Say that the argument `name` is no tensor, and how to make it one; of names, torch cannot."""
    is_named = isinstance(value, Iterable) and any(isinstance(each, str) for each in value)
    number = "it holds names; number them first, by numpy.unique(names, return_inverse=True)[1]"
    remedy = number if is_named else "torch.as_tensor makes it one"
    return f"{name} must be a tensor, not {type(value).__name__}: {remedy}"


def first_line(error: BaseException) -> str:
    """Quote the first line of an error's message, without its full stop; the error's name where it says nothing."""
    told = str(getattr(error, "message", None) or error)  # some libraries wrap their sentence in names of classes
    line = next(iter(told.splitlines()), "").rstrip(".")
    return (line if len(line) <= 300 else f"{line[:300]}...") or type(error).__name__


def is_text(name: str) -> bool:
    """Tell whether `name` can be written as UTF-8; names of files, and what is typed, may hold any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_password(text: str) -> str:
    """Hide the passwords of addresses: `postgresql://user:***@host/name`."""
    return re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", text)


def listing(names: Sequence[str], limit: int = 5) -> str:
    """List the first `limit` names and count the rest: `a, b, c and 4 more`."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
