"""`ccp evaluate`."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, Settings, TrustCode, err, out, print_json


def evaluate(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders that `ccp train` wrote; with --raw, recipes.")
    ],
    as_json: Json = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Score the backbone of the given recipes before any training, instead of runs."),
    ] = False,
    settings: Settings = None,
    trust_code: TrustCode = False,
) -> None:
    """Score runs on their test classes.

    Several runs also get their mean (separated) and the score of their ensemble (concatenated). If the data have moved
    since training, say where they are: `--set data.root=DIR`.

    Examples:

    - `ccp evaluate runs/c2-ccp --json`
    - `ccp evaluate runs/fold0 runs/fold1 runs/fold2 runs/fold3`
    - `ccp evaluate --raw cub frozen --set data.root=DIR`
    """
    from ccp_dml.reports.tables import evaluation_table

    if raw:
        from ccp_dml.config.layers import resolve
        from ccp_dml.config.readers import refuse_unread, written_by_user
        from ccp_dml.runs.scoring import score_raw_backbone

        resolved = resolve([str(recipe) for recipe in runs], settings or [])
        refuse_unread([resolved.config], written_by_user(resolved))
        scores = score_raw_backbone(resolved.config)
    else:
        from ccp_dml.commands.progress import ProgressWatcher
        from ccp_dml.runs.scoring import evaluate_runs

        with closing(ProgressWatcher(err)) as watcher:
            scores = evaluate_runs(runs, watcher, settings or [], trust_code=trust_code)
    if as_json:
        print_json(scores)
    else:
        out.print(evaluation_table(scores))
