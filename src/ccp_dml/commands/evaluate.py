"""`ccp evaluate`."""

from ccp_dml.commands.console import Json, Runs, out, print_json


def evaluate(runs: Runs, as_json: Json = False) -> None:
    """Score runs on the test half; several also in the mean (separated) and as an ensemble (concatenated).

    Example: `ccp evaluate runs/fold0 runs/fold1 runs/fold2 runs/fold3 --json`
    """
    from ccp_dml.experiments.scoring import evaluate_runs
    from ccp_dml.reports.tables import evaluation_table

    scores = evaluate_runs(runs)
    if as_json:
        print_json(scores)
    else:
        out.print(evaluation_table(scores))
