"""`ccp search`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ccp_dml.commands.console import Device, Json, ModelOption, MovedFiles, TrustCode, out, print_json, warn
from ccp_dml.errors import UserError

if TYPE_CHECKING:
    from ccp_dml.serving.search.gallery import Gallery, Hit


def search(
    index: Annotated[str, typer.Argument(metavar="INDEX|URI", help="An index's folder, or where it was pushed to.")],
    query: Annotated[Path, typer.Argument(metavar="IMAGE", help="The picture to search with.")],
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many images to show.", min=1)] = 10,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help="""Search only images for which this holds: 'species = "wren" and year > 2010'."""
        ),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            metavar="FALSE_MATCH_RATE",
            help="Show only images of the same class, with at most this rate of false matches, such as 0.01.",
        ),
    ] = None,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with pictures.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Let --html replace a file that this program has not written.")
    ] = False,
    model: ModelOption = None,
    device: Device = "auto",
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Find the indexed images that are nearest to a picture.

    Examples:

    - `ccp search birds.index query.jpg`
    - `ccp search birds.index query.jpg -k 20 --within 0.01 --html found.html`
    - `ccp search birds.index query.jpg --where 'species = "wren"' --json`
    """
    from ccp_dml.serving.search.gallery import is_gone
    from ccp_dml.serving.search.image_search import ImageSearch, load_pinned
    from ccp_dml.serving.search.vector_engine import open_gallery
    from ccp_dml.serving.web.results_page import write_results_page

    gallery = open_gallery(index)
    if not query.is_file():
        what = "is a folder" if query.is_dir() else "does not exist"
        raise UserError(f"{query} {what}: give a picture to search with.")
    if html is not None:
        from ccp_dml.reports.page import page_file

        page_file(html, force=force, option="--html")
    if gallery.warning is not None:
        warn(gallery.warning)
    network = load_pinned(gallery.model, model, index, device, settings=settings or [], trust_code=trust_code)
    threshold = None if within is None else network.match_threshold(within)
    (hits,) = ImageSearch(gallery, network).search([query], k, where=where, within=within)
    for note in [] if where is None else gallery.notes_on(where):
        warn(note)
    if threshold is not None and len(hits) == k < gallery.count:
        warn(f"All {k} results lie within the distance; there may be more of them: ask with a larger -k.")
    if html is not None:
        write_results_page(html, query, hits, gallery.name, None if threshold is None else threshold.promise)
    if as_json:
        found: dict[str, Any] = {"results": [as_result(hit) for hit in hits]}
        if threshold is not None:
            found |= {"threshold": threshold.beta, "promise": threshold.promise}
        return print_json(found)
    _print_hits(gallery, hits)
    if threshold is not None:
        out.print(f"Up to the distance {threshold.beta:.4g}: {threshold.promise}", soft_wrap=True)
    missing = [hit.item.path for hit in hits if is_gone(hit.item.path)]
    if missing:
        warn(f"{len(missing)} of these images have moved or are gone: `ccp index refresh` lists all such.")
    if html is not None:
        out.print(f"Page: {html}", soft_wrap=True)
    return None


def as_result(hit: "Hit") -> dict[str, Any]:
    item = hit.item
    result: dict[str, Any] = {"path": item.path, "label": item.label, "distance": hit.distance, "id": item.id}
    return result | ({"attributes": item.attributes} if item.attributes else {})


def _print_hits(gallery: "Gallery", hits: "list[Hit]") -> None:
    if not hits:
        out.print(f"Nothing in {gallery.name} fits.")
        return
    from ccp_dml.commands.serving.terminal_pictures import can_show_pictures, terminal_picture

    pictures = can_show_pictures(out)
    attributes = sorted({name for hit in hits for name in hit.item.attributes})
    table = Table(title=f"{len(hits)} nearest of {gallery.count:,} in {gallery.name}", title_justify="left")
    table.add_column("", justify="right")
    if pictures:
        table.add_column("")
    table.add_column("distance", justify="right")
    for column in ("label", *attributes, "path"):
        table.add_column(Text(column), overflow="fold")
    for place, hit in enumerate(hits, start=1):
        cells: list[Any] = [str(place)]
        if pictures:
            cells.append(terminal_picture(Path(hit.item.path)))
        cells.append(f"{hit.distance:.4f}")
        texts = (hit.item.label or "", *(str(hit.item.attributes.get(name, "")) for name in attributes))
        table.add_row(*cells, *map(Text, (*texts, seen_from_here(hit.item.path))))  # names are text, not markup
    out.print(table)


def seen_from_here(path: str) -> str:
    """Shorten the path of a file below the present folder, as a person would type it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
