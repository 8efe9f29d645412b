"""`ccp embed`."""

from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Device, MovedFiles, TrustCode, out
from ccp_dml.commands.serving.index import counting_images, warn_of_unread
from ccp_dml.errors import UserError, listing


def embed(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or of `ccp export`.")],
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGES...", help="Files, folders, patterns, or CSV files with a column path."),
    ],
    file: Annotated[Path, typer.Option("--out", metavar="FILE.npz", help="Where the vectors go.")],
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that cannot be read, and name them.")
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Images at once; default: as the run was evaluated.")
    ] = None,
    device: Device = "auto",
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Turn images into vectors: an .npz file with features (N, D), paths (N,) and, where known, labels (N,).

    Labels are the names of subfolders, or the column `label` of a CSV file. Interrupted, the same command goes on where
    it stopped. `ccp train features --set data.path=FILE.npz` trains on the result.

    Examples:

    - `ccp embed runs/birds photos/ --out birds.npz`
    - `ccp embed birds-model table.csv --out birds.npz --skip-broken`
    - `ccp embed runs/birds 'photos/*.jpg' --out birds.npz --batch-size 64`
    """
    from ccp_dml.reports.words import counted
    from ccp_dml.serving.exports.vectors_file import write_vectors
    from ccp_dml.serving.listed_images import list_images
    from ccp_dml.serving.model import OnError
    from ccp_dml.serving.stored_model import load

    loaded = load(model, device, settings=settings or [], trust_code=trust_code)
    if loaded.transform is None:
        raise UserError(f"{model} was trained on vectors, not on images; embed vectors with it in Python, by ccp.load.")
    warn_of_unread(images)
    listed = list_images(images)
    with counting_images("embedding") as progress:
        on_error: OnError = "skip" if skip_broken else "raise"
        written = write_vectors(loaded, listed, file, batch_size=batch_size, on_error=on_error, report=progress)
    if written.begun_with:
        out.print(f"Went on after {written.begun_with:,} images of an earlier command.")
    if written.skipped:
        names = listing([f"{path} ({reason})" for path, reason in written.skipped], limit=20)
        out.print(f"Left out {counted(len(written.skipped), 'image')}: {names}", soft_wrap=True)
    for note in written.notes:
        out.print(note, soft_wrap=True)
    out.print(f"{written.vectors:,} vectors of {written.dim} numbers: {file}", soft_wrap=True)
