"""The two ways a run ends early. The command line turns both into one clear sentence."""

from collections.abc import Sequence


class UserError(Exception):
    """A mistake in what the user gave us. The message names the input and the remedy."""


class NonFiniteError(Exception):
    """Training produced NaN or infinity. The message names the step, the tensor and what to try."""


def listing(names: Sequence[str], limit: int = 5) -> str:
    """`a, b, c and 4 more`: the first `limit` names, and how many are left."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
