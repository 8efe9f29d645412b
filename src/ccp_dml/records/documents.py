"""Read and write the documents of a folder: JSON and TOML files, which are for people and other programs, too.

A damaged one is named in one sentence. Those of a finished run have checksums, by which a changed digit in a result or
a log is noticed when it is read. Tensor files carry theirs inside (`foundation.seals`); of documents, they stand beside
them, in one file. So does that of the test embeddings: another run's would be whole, and yet wrong in an ensemble.
Pages have none: they are made from the rest.
"""

from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import content_digest, file_digest
from ccp_dml.foundation.files import from_json, from_toml, write_json, write_text
from ccp_dml.records import layout

COVERED = (
    layout.CONFIG,
    layout.ENVIRONMENT,
    layout.METRICS,
    layout.CLASSES,
    layout.GALLERY,
    layout.CONFUSION,
    layout.MAP_PICTURES,
    layout.CERTIFICATE,
)

Checksums = dict[str, list[str]]  # of each file, what it may be: two while it is being replaced


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


def write_checksums(run: Path, result: str) -> None:
    """Write the checksums of the documents in the folder `run`, and of the `result` that is about to be written."""
    names = (*COVERED, layout.TEST_EMBEDDINGS)
    known = {name: [file_digest(run / name)] for name in names if (run / name).is_file()}
    write_json(run / layout.CHECKSUMS, {**known, layout.RESULT: [content_digest(result.encode())]})


def replace_document(path: Path, text: str) -> None:
    """Write a document anew and its checksum with it; a kill in between leaves the two in agreement."""
    known = _read_checksums(path.parent)
    if known is None:
        return write_text(path, text)
    before = known.get(path.name, [])
    write_json(path.parent / layout.CHECKSUMS, {**known, path.name: [*before, content_digest(text.encode())]})
    write_text(path, text)
    write_json(path.parent / layout.CHECKSUMS, {**known, path.name: [content_digest(text.encode())]})
    return None


def refuse_changed_document(path: Path) -> None:
    """Raise if a document is not what its run wrote; say nothing of runs without checksums and of unknown files."""
    known = _read_checksums(path.parent)
    if known is None or path.name not in (*COVERED, layout.RESULT, *known):
        return
    if path.name not in known or not path.is_file() or file_digest(path) not in known[path.name]:
        raise UserError(
            f"{path} is not what the run wrote (its checksum differs, or it is gone); restore it or train again, or "
            f"delete {layout.CHECKSUMS} beside it if the change is meant."
        )


def forget_checksums(run: Path) -> None:
    """Remove the checksums of a run that goes on."""
    (run / layout.CHECKSUMS).unlink(missing_ok=True)


def _read_checksums(run: Path) -> Checksums | None:
    file = run / layout.CHECKSUMS
    if not file.is_file():
        return None
    try:
        found = from_json(file.read_text(encoding="utf-8"))
        return {str(name): [str(one) for one in several] for name, several in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise UserError(f"{file} is damaged; delete it, and the run's documents are read without a check.") from None
