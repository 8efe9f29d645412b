"""`ccp certify`."""

from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, MovedFiles, TrustCode, err, out, print_json


def certify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ccp train` wrote.")],
    as_json: Json = False,
    beta: Annotated[
        float | None,
        typer.Option(
            metavar="DISTANCE",
            help="Distance that should separate pairs of one class from others; default: the loss's own.",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            metavar="MARGIN", help="Margin on either side of beta, for Markov's bound; default: the loss's own."
        ),
    ] = None,
    false_match_rate: Annotated[
        float,
        typer.Option(
            metavar="RATE", help="Choose the distance up to which at most this share of different pairs match."
        ),
    ] = 0.01,
    pairs: Annotated[
        int,
        typer.Option(
            metavar="N", help="Independent pairs of each kind, at most; twice as many images of a set are embedded."
        ),
    ] = 2000,
    confidence: Annotated[float, typer.Option(metavar="SHARE", help="Confidence of every interval.")] = 0.95,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed for the draw of images and pairs.")] = 0,
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Say up to which distance two images are the same class, how often that is wrong, and how sure it is.

    Examples:

    - `ccp certify runs/c2-ccp`
    - `ccp certify runs/c2-ccp --false-match-rate 0.001`
    - `ccp certify runs/c2-ccp --set data.root=DIR --json`
    """
    from ccp_dml.commands.progress import ProgressWatcher
    from ccp_dml.records import layout
    from ccp_dml.reports.certificate_words import certificate_tables
    from ccp_dml.runs.certify import CertificateOptions, certify_run

    options = CertificateOptions(beta, alpha, false_match_rate, pairs, confidence, seed)
    with closing(ProgressWatcher(err)) as watcher:
        certificate = certify_run(run, options, watcher, settings or [], trust_code=trust_code)
    if as_json:
        return print_json(certificate)
    for part in certificate_tables(certificate):
        out.print(part)
    out.print(f"Written: {run / layout.CERTIFICATE}", soft_wrap=True)
    return out.print(f"Next:    ccp report {quote(str(run))}    shows it with its curves", soft_wrap=True)
