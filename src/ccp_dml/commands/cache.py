"""`ccp cache`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ccp_dml.commands.console import Json, out, print_json
from ccp_dml.errors import UserError

if TYPE_CHECKING:
    from ccp_dml.records.feature_store import CachedFeatures


def cache(
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Only entries whose name begins with this.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the entries shown; without KEY, all.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="The feature cache that run.cache names; default: the user's."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show or clear the feature cache: what frozen backbones have computed.

    What is cleared is computed again when a run needs it. Images resized once by `ccp data prepare --cache` lie in the
    folder of their data set instead.

    Examples:

    - `ccp cache`
    - `ccp cache --clear`
    - `ccp cache 3f2a --clear`
    """
    from ccp_dml.records.feature_store import FeatureStore
    from ccp_dml.reports.words import megabytes

    if folder is not None and not folder.is_dir():
        raise UserError(f"--folder: there is no folder {folder}; give the one that run.cache names.")
    if key == "":
        raise UserError("KEY is empty; leave it out to mean all entries.")
    store = FeatureStore(folder)
    entries = [entry for entry in store.entries() if key is None or entry.key.startswith(key)]
    if key is not None and not entries:
        raise UserError(f"{store.root} has no entry whose name begins with {key!r}; `ccp cache` lists them.")
    if clear:
        for entry in entries:
            store.remove(entry)
    if as_json:
        return print_json({"folder": str(store.root), "cleared": clear, "entries": list(map(values, entries))})
    if clear:
        freed = sum(entry.size for entry in entries)
        return out.print(f"Removed {len(entries)} entries, {megabytes(freed, 1)}, from {store.root}.")
    return show(entries, store.root)


def show(entries: "list[CachedFeatures]", root: Path) -> None:
    from ccp_dml.reports.words import megabytes

    if not entries:
        return out.print(f"The feature cache {root} is empty.", soft_wrap=True)
    table = Table(title=f"feature cache {root}: {megabytes(sum(entry.size for entry in entries), 1)}")
    for title in ("entry", "data", "backbone", "images", "views", "size", "state"):
        table.add_column(title, justify="right" if title in ("images", "views", "size") else "left")
    for entry in entries:
        described = [str(entry.description.get(name, "?")) for name in ("data", "backbone", "images", "views")]
        table.add_row(entry.key[:8], *described, megabytes(entry.size, 1), state(entry))
    return out.print(table)


def values(entry: "CachedFeatures") -> dict[str, Any]:
    return {"key": entry.key, "size": entry.size, "state": state(entry), **entry.description}


def state(entry: "CachedFeatures") -> str:
    from ccp_dml.records.feature_store import FORMAT

    if entry.description.get("format") != FORMAT:
        return "of another version"
    return "complete" if entry.is_complete else "unfinished"
