"""Read JSON and TOML files of a folder; a damaged one is named in one sentence."""

from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError
from ccp_dml.foundation.files import from_json, from_toml
from ccp_dml.records.checksums import refuse_changed_document


def read_toml(path: Path, remedy: str = "restore it or train again") -> dict[str, Any]:
    """Read a TOML file; raise a UserError that tells `remedy` where it is damaged."""
    refuse_changed_document(path)
    try:
        return from_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid TOML ({error}); {remedy}.") from None


def read_json(path: Path, remedy: str = "restore it or train again") -> dict[str, Any] | None:
    """Read a JSON object; None where there is no such file. Raise a UserError with `remedy` where it is damaged."""
    if not path.is_file():
        return None
    try:
        value = from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:  # wrong JSON and wrong UTF-8 alike
        raise UserError(f"{path} is not valid JSON ({error}); {remedy}.") from None
    refuse_changed_document(path)
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object, not a {type(value).__name__}; {remedy}.")
    return value
