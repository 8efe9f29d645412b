"""`ccp data prepare`, `ccp data verify` and `ccp data check`."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ccp_dml.commands.console import Group, Json, err, out, print_json, warn
from ccp_dml.errors import UserError

if TYPE_CHECKING:
    from ccp_dml.data.published.published_set import Published, Verification

data_app = typer.Typer(
    cls=Group, help="Check your own images, or bring a published data set into a folder.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="cub, cars196, sop, inshop or mnist.")]
Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="The data set's folder: data.root in training.")]


@data_app.command()
def prepare(
    name: Name,
    root: Root,
    given: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER_OR_ARCHIVE",
            help="What you have already: the original archive, the original layout, or one folder per class.",
        ),
    ] = None,
    cache: Annotated[
        int | None,
        typer.Option(
            "--cache",
            metavar="SIDE",
            min=8,
            help="Also make an image cache: every image resized once, to this short side.",
        ),
    ] = None,
    allow_incomplete: Annotated[
        bool,
        typer.Option("--allow-incomplete", help="Go on without the images that are missing; tables will say so."),
    ] = False,
    pixels: Annotated[
        bool,
        typer.Option(
            "--pixels",
            help="Store the image cache as plain pixels: five times as large, more than twice as fast, and exact.",
        ),
    ] = False,
) -> None:
    """Fetch a data set, or import what you have, and check that it is complete.

    Examples:

    - `ccp data prepare cub --root data/cub`
    - `ccp data prepare cub --root data/cub --from CUB_200_2011.tgz`
    - `ccp data prepare sop --root data/sop --cache 256 --pixels`
    """
    from ccp_dml.commands.progress import CountingProgress
    from ccp_dml.data.published.preparation import WAY_ON, Steps
    from ccp_dml.data.published.preparation import prepare as run
    from ccp_dml.data.published.published_set import refuse_incomplete
    from ccp_dml.data.published.published_set import verify as compare

    if pixels and cache is None:
        raise UserError("--pixels says how to store an image cache: give its short side, too, as with --cache 256.")
    published, root = _published(name), root.expanduser()
    with CountingProgress(err, unit="bytes") as progress:
        steps = Steps(lambda text: err.print(text, soft_wrap=True), progress.report, allow_incomplete)
        run(published, root, None if given is None else given.expanduser(), steps)
    if cache is not None:
        _build_cache(published, root, cache, pixels)
    verification = compare(published, root)
    out.print(_table(verification))
    if allow_incomplete:
        for problem in verification.problems:
            warn(f"Incomplete: {problem}.")
    else:
        refuse_incomplete(verification, str(verification.survey.base), WAY_ON)
    usage = f"ccp train {name} c2-ccp --set data.root={quote(str(root))}" + (" --set data.cached=true" if cache else "")
    usage += " --set data.skip_broken=true" if verification.survey.missing else ""
    out.print(f"Next:   {usage}", soft_wrap=True)


@data_app.command()
def verify(
    name: Name,
    root: Root,
    deep: Annotated[bool, typer.Option("--deep", help="Also decode every image.")] = False,
    as_json: Json = False,
) -> None:
    """Check a data set against its published numbers of classes and images.

    Examples:

    - `ccp data verify cub --root data/cub`
    - `ccp data verify cars196 --root data/cars --deep`
    - `ccp data verify sop --root data/sop --json`
    """
    from ccp_dml.data.published.published_set import refuse_incomplete
    from ccp_dml.data.published.published_set import verify as compare

    verification = compare(_published(name), root.expanduser(), deep)
    if as_json:
        print_json(verification.as_dict())
    else:
        out.print(_table(verification))
    refuse_incomplete(verification, str(verification.survey.base))


@data_app.command()
def check(
    source: Annotated[
        Path, typer.Argument(metavar="DIR|FILE.csv", help="A folder per class, or a table of images, .csv or .tsv.")
    ],
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="Where paths of a table start, if not beside it: data.root."),
    ] = None,
    split_column: Annotated[
        str | None,
        typer.Option(
            "--split-column",
            metavar="NAME",
            help="The column of a table that says train or test, if not split: data.split_column.",
        ),
    ] = None,
    test_share: Annotated[
        float,
        typer.Option(
            "--test-share", metavar="X", min=0, max=0.99, help="The part of the classes that tests: data.test_share."
        ),
    ] = 0.5,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that this program has not written.")] = False,
    as_json: Json = False,
) -> None:
    """Look your own images over: classes, sizes, broken files, copies, leakage between the halves.

    Exits with 2 if something was found that spoils results.

    Examples:

    - `ccp data check photos`
    - `ccp data check photos --html photos.html`
    - `ccp data check table.csv --root photos --json`
    """
    from dataclasses import asdict

    from ccp_dml.config.layers import naming_keys
    from ccp_dml.data.files.health import check_data
    from ccp_dml.foundation.files import write_text
    from ccp_dml.reports.data_health import health_page, health_sentences, health_table
    from ccp_dml.reports.page import page_file

    target = None if page is None else page_file(page, force=force, option="--html")
    with naming_keys("data"):
        health = check_data(source, None if root is None else root.expanduser(), split_column, test_share)
    if target is not None:
        write_text(target, health_page(health))
    if as_json:
        print_json({**asdict(health), "problems": health.problems})
    else:
        out.print(health_table(health))
        for sentence in health_sentences(health):
            out.print(f"- {sentence}", soft_wrap=True)
        if target is not None:
            out.print(f"Page: {target}", soft_wrap=True)
    if health.problems:
        raise UserError(f"{source}: {'; '.join(health.problems)}.")


def _published(name: str) -> "Published":
    from ccp_dml.errors import did_you_mean
    from ccp_dml.runs.datasets import PUBLISHED

    if name not in PUBLISHED:
        known = did_you_mean(name, list(PUBLISHED)) or f"; there are {', '.join(PUBLISHED)}"
        raise UserError(f"{name!r} is no published data set{known}.")
    return PUBLISHED[name]


def _build_cache(published: "Published", root: Path, side: int, pixels: bool) -> None:
    from ccp_dml.commands.progress import CountingProgress
    from ccp_dml.data.published.image_cache import build_cache

    if published.read is None:
        raise UserError(
            f"--cache {side}: {published.title} is small and read into memory, so there is nothing to cache."
        )
    with CountingProgress(err, unit="images") as progress:
        folder = build_cache(
            published.read(root),
            root,
            side,
            lambda done, total: progress.report(f"image cache {side}", done, total),
            as_pixels=pixels,
        )
    err.print(f"The image cache {folder} holds the images at a short side of {side}.", soft_wrap=True)


def _table(verification: "Verification") -> Table:
    table = Table(title=f"{verification.published.title} in {verification.survey.base}", title_justify="left")
    table.add_column("split")
    for column in ("classes", "published", "images", "published"):
        table.add_column(column, justify="right")
    for split, row in verification.as_dict()["splits"].items():
        numbers = (row["classes"], row["published_classes"], row["images"], row["published_images"])
        style = None if numbers[0::2] == numbers[1::2] else "red"
        table.add_row(split, *(f"{number:,}" for number in numbers), style=style)
    return table
