"""Checks that the constructors of several losses share."""

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import NORMALISERS


def check_normalise(normalise: str) -> str:
    """`normalise` itself, if there is a normalisation of that name."""
    if normalise not in NORMALISERS:
        raise UserError(f"normalise must be one of {', '.join(NORMALISERS)}, got {normalise!r}")
    return normalise
