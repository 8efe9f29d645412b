"""`ccp index`: make an index, keep it up to date, push it to a vector engine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccp_dml.commands.console import (
    Device,
    Group,
    Json,
    ModelOption,
    MovedFiles,
    TrustCode,
    err,
    out,
    print_json,
    take_termination_as_interrupt,
    warn,
)
from ccp_dml.errors import UserError, listing

if TYPE_CHECKING:
    from ccp_dml.serving.listed_images import ListedImage
    from ccp_dml.serving.search.index_plan import Changes
    from ccp_dml.serving.search.index_writer import Report

DEFAULT = "build"
KEPT = "What was indexed before stays as it was; the rest was left out."


class WithDefault(Group):
    """Takes `ccp index MODEL IMAGES...` as `ccp index build MODEL IMAGES...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("help", "--help", "-h"):
            meant = get_close_matches(args[0], self.commands, 1)
            if meant and not os.path.exists(args[0]):
                raise UserError(f"There is no model {args[0]}; did you mean `ccp index {meant[0]}`?")
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


index_app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    help="Make a searchable index: `ccp index MODEL IMAGES... --out DIR`; refresh, remove, show or push one.",
)

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="A folder that `ccp index` wrote.")]


@index_app.command(DEFAULT)
def build(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run's folder, or an exported model.")],
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES...", help="Folders, files, patterns in quotes, CSV tables, or .npz files of `ccp embed`."
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="The index's folder.")],
    approximate: Annotated[
        str | None,
        typer.Option(
            "--approximate", metavar="hnsw|ivf", help="For more than a few hundred thousand images: faster, not exact."
        ),
    ] = None,
    device: Device = "auto",
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Embed images and store them for search, or add them to an index that is there already.

    In a folder, subfolders are labels; in a CSV file, the columns `path` and `label`, and all others are attributes.
    Vectors that `ccp embed` wrote with the same model are taken as they are, unless an image has changed since.
    Interrupted or killed, the same command goes on where it stopped.

    Examples:

    - `ccp index runs/birds photos --out birds.index`
    - `ccp index runs/birds table.csv --out birds.index`
    - `ccp index birds-model photos --out birds.index --approximate hnsw`
    """
    from ccp_dml.serving.exports.vectors_file import read_vectors
    from ccp_dml.serving.listed_images import each_once, list_images
    from ccp_dml.serving.search.approximate import KINDS
    from ccp_dml.serving.search.index_writer import add_images
    from ccp_dml.serving.stored_model import load

    kind = next((known for known in KINDS if known == approximate), None)
    if approximate is not None and kind is None:
        raise UserError(f"--approximate {approximate} is unknown; give {' or '.join(KINDS)}.")
    warn_of_unread(images)
    listed = list_images([given for given in images if not given.endswith(".npz")])
    network = load(model, device, settings=settings or [], trust_code=trust_code)
    if network.transform is None:
        raise UserError(f"{model} was trained on vectors, not on images; index images with a run that was.")
    stored = [read_vectors(Path(given), network) for given in images if given.endswith(".npz")]
    older = {image.path: image for image in each_once(image for vectors in stored for image in vectors.images)}
    # What is listed now, labels included, wins over what a file of vectors knew.
    newer = {image.path: older.get(image.path, image).amended(image) for image in listed}
    listed = list((older | newer).values())
    known = {path: entry for vectors in stored for path, entry in vectors.by_path().items()}
    _warn_of_unlabelled(images, listed)
    with counting_images("embedding", f"{folder} is as it was before, and ") as progress:
        changes = add_images(folder, network, model, listed, kind, progress, known)
    _print_changes(folder, changes)
    out.print(f"Next:   ccp search {quote(str(folder))} QUERY.jpg", soft_wrap=True)
    out.print(f"        ccp serve {quote(str(folder))}    opens the search page", soft_wrap=True)


@index_app.command()
def refresh(
    folder: Folder,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Remove images whose file is gone.")] = False,
    model: ModelOption = None,
    device: Device = "auto",
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Look at every indexed file again, and embed those that have changed.

    Examples:

    - `ccp index refresh birds.index`
    - `ccp index refresh birds.index --drop-missing`
    - `ccp index refresh birds.index --model birds-model`
    """
    from ccp_dml.serving.search import index_writer
    from ccp_dml.serving.search.image_search import load_pinned
    from ccp_dml.serving.search.index_store import read_manifest

    pinned = read_manifest(folder).model
    network = load_pinned(pinned, model, str(folder), device, settings=settings or [], trust_code=trust_code)
    with counting_images("embedding", f"{folder} is as it was before, and ") as progress:
        changes = index_writer.refresh(folder, network, drop_missing, progress, model)
    _print_changes(folder, changes)
    if changes.missing and not drop_missing:
        warn(
            "If they have moved, index them where they are now, which does not embed them again; "
            f"`ccp index refresh {quote(str(folder))} --drop-missing` forgets them."
        )


@index_app.command()
def remove(
    folder: Folder,
    images: Annotated[
        list[Path] | None, typer.Argument(metavar="[IMAGES]...", help="Files or folders to remove.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Remove all images for which this holds, such as 'year < 2010'."),
    ] = None,
) -> None:
    """Remove images from an index; the files stay.

    Given both, it removes the images that are named, and also all that satisfy the condition.

    Examples:

    - `ccp index remove birds.index photos/wren`
    - `ccp index remove birds.index --where 'year < 2010'`
    - `ccp index remove birds.index photos/a.jpg photos/b.jpg`
    """
    from ccp_dml.serving.search.index import SearchIndex
    from ccp_dml.serving.search.index_writer import remove_images

    if not images and where is None:
        raise UserError("Say what to remove: files or folders, or a condition with --where.")
    for note in [] if where is None else SearchIndex.open(folder).notes_on(where):
        warn(note)
    _print_changes(folder, remove_images(folder, images or [], where))


@index_app.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """Say what an index holds, of which model, and which images are missing.

    Examples:

    - `ccp index show birds.index`
    - `ccp index show birds.index --json`
    - `ccp index show backup/birds.index`
    """
    from ccp_dml.serving.search.index import SearchIndex

    index = SearchIndex.open(folder)
    missing, labels = index.missing_images(), index.label_counts()
    facts: dict[str, Any] = {
        "images": index.count,
        "dimensions": index.model.dim,
        "model": index.model.model_dump(),
        "labels": labels,
        "attributes": list(index.attribute_values()),
        "approximate": None if (how := index.manifest.approximation) is None else how.model_dump(),
        "missing": missing,
    }
    if as_json:
        return print_json(facts)
    lines = [
        f"{folder}: {index.count:,} images of {len(labels):,} classes, {index.model.dim} numbers each.",
        f"Model: {index.model.name} ({index.model.digest[:8]}), at {index.model.path}",
    ]
    lines += [f"Attributes: {', '.join(facts['attributes'])}"] if facts["attributes"] else []
    if how is not None:
        lines.append(f"Approximate search ({how.kind}): finds {how.recall_at_10:.1%} of the 10 nearest.")
    lines += [f"{len(missing)} images are missing: {listing(missing)}"] if missing else []
    for line in lines:
        out.print(line, soft_wrap=True)
    return None


@index_app.command()
def push(
    folder: Folder,
    address: Annotated[
        str,
        typer.Argument(metavar="URI", help="http://HOST:19530[#NAME], or FILE.db[#NAME] for an embedded engine."),
    ],
) -> None:
    """Copy an index into Milvus, where many machines can search it; a second push sends only what has changed.

    A cluster's token is read from MILVUS_TOKEN. Afterwards, `ccp search URI` and `ccp serve URI` search there.

    Examples:

    - `ccp index push birds.index http://localhost:19530`
    - `ccp index push birds.index milvus.db`
    - `ccp index push birds.index http://localhost:19530#birds`
    """
    from ccp_dml.serving.search import vector_engine
    from ccp_dml.serving.search.index import SearchIndex

    if not vector_engine.is_address(address):
        raise UserError(f"{address} is no address; give http://HOST:19530, or FILE.db for an embedded engine.")
    index = SearchIndex.open(folder)
    with counting_images("pushing") as progress:
        done = vector_engine.push(index, address, progress)
    if done.went_on:
        out.print("Finished a push that had been cut off.")
    out.print(
        f"{done.place}: {index.count:,} images ({done.sent:,} sent, {done.deleted:,} deleted).\n"
        f"Next:   ccp search '{done.place}' QUERY.jpg",
        soft_wrap=True,
    )


@contextmanager
def counting_images(doing: str, until_done: str = "") -> Iterator["Report"]:
    """Show a progress bar, and say what Ctrl-C or `kill` leave: `until_done`, and something to go on with."""
    from ccp_dml.commands.progress import CountingProgress

    take_termination_as_interrupt()
    try:
        with CountingProgress(err, unit="images") as progress:
            yield lambda done, total: progress.report(doing, done, total)
    except KeyboardInterrupt:
        warn(f"Interrupted; {until_done}the same command goes on where this one stopped.")
        raise


def _print_changes(folder: Path, changes: "Changes") -> None:
    from ccp_dml.reports.words import counted
    from ccp_dml.serving.search.approximate import LEAST_VECTORS
    from ccp_dml.serving.search.index_store import read_manifest

    manifest = read_manifest(folder)
    parts = {
        "added": changes.added,
        "embedded again": changes.embedded_again,
        "moved": changes.moved,
        "relabelled": changes.relabelled,
        "removed": changes.removed,
        "unchanged": changes.unchanged,
    }
    said = ", ".join(f"{number:,} {what}" for what, number in parts.items() if number) or "nothing changed"
    lines = [f"Went on after {changes.resumed:,} images of an earlier command."] if changes.resumed else []
    lines += [f"Read {changes.read:,} vectors instead of computing them."] if changes.read else []
    lines.append(f"{folder}: {counted(manifest.count, 'image')} ({said}).")
    if (how := manifest.approximation) is not None:
        lines.append(
            f"Approximate search ({how.kind}) finds {how.recall_at_10:.1%} of the 10 nearest, as measured on "
            f"{how.sample} queries; candidates are ranked exactly."
        )
    if changes.exact_again:
        lines.append(f"Search is exact again: approximate search is for {LEAST_VECTORS:,} images and more.")
    for line in lines:
        out.print(line, soft_wrap=True)
    if changes.missing and changes.removed:
        warn(f"Forgotten, as the files are missing: {listing(changes.missing)}.")
    elif changes.missing:
        verb = "is" if len(changes.missing) == 1 else "are"
        warn(f"{counted(len(changes.missing), 'file')} {verb} missing: {listing(changes.missing)}. {KEPT}")
    if changes.broken:
        shown = listing([f"{path} ({reason})" for path, reason in changes.broken])
        warn(f"{counted(len(changes.broken), 'file')} cannot be read: {shown}. {KEPT}")


def warn_of_unread(given: list[str]) -> None:
    """Say which pictures below folders are left out because nothing here reads their format."""
    from ccp_dml.data.files.class_folders import unread_below, unread_text

    if unread := unread_below(given):
        warn(f"Left out {unread_text(unread)}.")


def _warn_of_unlabelled(given: list[str], listed: "list[ListedImage]") -> None:
    """Say which images have no label because they lie in the folder that was given, not in one below it."""
    from ccp_dml.serving.listed_images import absolute

    folders = {absolute(Path(one)) for one in given if os.path.isdir(os.path.expanduser(one))}
    bare = [image.path.parent for image in listed if image.label is None and image.path.parent in folders]
    if bare:
        shown = listing([str(parent) for parent in dict.fromkeys(bare)])
        warn(
            f"Images without a label: {len(bare):,}, in {shown} itself, as only its subfolders are labels. To take its "
            "own name as label, name the folder above it."
        )
