"""`ccp compare`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Device, Json, MovedFiles, TrustCode, out, print_json


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.jpg", help="An image.")],
    second: Annotated[Path, typer.Argument(metavar="B.jpg", help="Another image.")],
    model: Annotated[Path, typer.Option("--model", metavar="RUN", help="The folder of a run, or of `ccp export`.")],
    false_match_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Share of different pairs that may be called the same, such as 0.001; default: the certificate's.",
        ),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Say whether two images show the same class, and how sure that is.

    Examples:

    - `ccp compare a.jpg b.jpg --model runs/birds`
    - `ccp compare a.jpg b.jpg --model birds-model --false-match-rate 0.001`
    - `ccp compare a.jpg b.jpg --model runs/birds --json`
    """
    from ccp_dml.serving.stored_model import load

    verdict = load(model, device, settings=settings or [], trust_code=trust_code).same(first, second, false_match_rate)
    if as_json:
        return print_json(asdict(verdict))
    word, sign = ("The same", "within") if verdict.same else ("Different", "beyond")
    return out.print(
        f"{word}: the distance {verdict.distance:.4g} is {sign} the threshold {verdict.threshold:.4g}. "
        f"{verdict.promise}",
        soft_wrap=True,
    )
