"""Names in a sentence for a person."""

from collections.abc import Sequence


def listing(names: Sequence[str], limit: int = 5) -> str:
    """`a, b, c and 4 more`: the first `limit` names, and how many are left."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
