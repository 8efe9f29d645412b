"""Results of a benchmark with two methods, and the table that they make."""

from dataclasses import replace

from ccp_dml.benchmark.results import ResultRow
from ccp_dml.benchmark.table import build_table

EXAMPLE = ResultRow(
    protocol="mlrc",
    dataset="cub",
    backbone="bn_inception",
    image_size=227,
    method="c2",
    setting="separated",
    dim=128,
    repeat=0,
    fold=0,
    seed=0,
    selected_on="validation",
    metric="map_at_r",
    value=0.2,
    best_step=50,
    steps=100,
    folder="c2/repeat0/fold0",
)


def results(**changes):
    """Four models and an ensemble of C2 and of C2-CCP."""
    rows = []
    for method, value in (("c2", 0.20), ("c2-ccp", 0.22)):
        for fold in range(4):
            rows.append(replace(EXAMPLE, method=method, fold=fold, value=value + 0.01 * fold, **changes))
        ensemble = {"setting": "concatenated", "dim": 512, "fold": None, "seed": None, "value": value + 0.06}
        rows.append(replace(EXAMPLE, method=method, **{**changes, **ensemble}))
    return rows


def built(rows=None, methods=("c2", "c2-ccp"), **options):
    return build_table(results() if rows is None else rows, methods, title="MLRC on cub", **options)
