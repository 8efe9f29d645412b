"""`ccp evaluate`."""

from contextlib import closing
from typing import Annotated

import typer

from ccp_dml.commands.console import Cache, Json, Runs, Settings, err, out, print_json
from ccp_dml.errors import UserError


def evaluate(
    runs: Runs,
    as_json: Json = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Score the untrained backbone of the given recipes instead of runs.")
    ] = False,
    settings: Settings = None,
    cache: Cache = None,
) -> None:
    """Score runs on the test half; several also in the mean (separated) and as an ensemble (concatenated).

    Examples: `ccp evaluate runs/fold0 runs/fold1 runs/fold2 runs/fold3 --json`,
    `ccp evaluate --raw cub --set data.root=DIR --set model.backbone=resnet50 --set model.pretrained=true`
    """
    from ccp_dml.reports.tables import evaluation_table

    if raw:
        from ccp_dml.experiments.raw_backbone import score_raw_backbone
        from ccp_dml.layers import resolve

        scores = score_raw_backbone(resolve([str(recipe) for recipe in runs], settings or []).config)
    else:
        from ccp_dml.experiments.scoring import evaluate_runs
        from ccp_dml.progress import ProgressWatcher

        if settings:
            raise UserError("--set belongs to --raw; a run is scored with the settings it was trained with.")
        with closing(ProgressWatcher(err)) as watcher:
            scores = evaluate_runs(runs, watcher, cache)
    if as_json:
        print_json(scores)
    else:
        out.print(evaluation_table(scores))
