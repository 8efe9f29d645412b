"""Collect the results of a benchmark from its runs, and write its tables and figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ccp_dml.benchmark.formats import write_tables
from ccp_dml.benchmark.improvement_figure import write_figure
from ccp_dml.benchmark.protocols import ensemble_scores
from ccp_dml.benchmark.request import BenchmarkRun
from ccp_dml.benchmark.results import ResultRow, write_results
from ccp_dml.benchmark.table import build_table
from ccp_dml.config.layers import values_of
from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.plans.plan import incomplete_data
from ccp_dml.plans.rehearsal import runs_of_loss_alone
from ccp_dml.records.benchmark_folder import BenchmarkRequest
from ccp_dml.records.benchmark_table import BenchmarkTable, EvaluationSetting
from ccp_dml.records.run_folder import read_result
from ccp_dml.records.setting_groups import HOW_IT_RUNS, WHERE_DATA_ARE
from ccp_dml.reports.words import setting

ALIKE = frozenset({"train.max_steps", "train.evaluate_every", "train.patience"})
"""Keys besides those of data and network that a fair comparison has in common."""

MLRC_METRICS = tuple(reversed(SCORE_TITLES))  # as the paper lists them


def write_outcome(request: BenchmarkRequest, planned: Sequence[BenchmarkRun], folder: Path) -> BenchmarkTable:
    """Write results.csv, the tables and, where there is something to draw, the figure, from what is done so far."""
    results = collect(request, planned, folder)
    methods = list(dict.fromkeys(planned_run.method for planned_run in planned))
    config, runs = planned[0].run.config, [one.run for one in planned]
    table = build_table(
        results,
        methods,
        title=request.title,
        paper_dataset=request.paper if config.data.name != request.paper else None,
        notes=[
            *unlike_trainings(planned),
            *incomplete_data(runs),
            *runs_of_loss_alone(runs),
            *missing_runs(planned, methods),
        ],
    )
    write_results(folder, results)
    if not results:
        return table
    write_tables(folder, table)
    write_figure(folder, table)
    return table


def collect(request: BenchmarkRequest, planned: Sequence[BenchmarkRun], folder: Path) -> list[ResultRow]:
    """Make a row per score of each finished run and, for MLRC, of each ensemble."""
    rows = []
    setting: EvaluationSetting = "separated" if request.protocol == "mlrc" else "single"
    for one in finished(planned):
        result = read_result(one.run.folder)
        rows += rows_of(one, result["test"], setting, one.run.config.model.embedding_dim, folder, result)
    if request.protocol == "mlrc":
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        for method, repeat in dict.fromkeys((one.method, one.repeat) for one in planned):
            folds = [one for one in planned if (one.method, one.repeat) == (method, repeat)]
            scores = ensemble_scores(folds, device)
            if scores is not None:
                dim = sum(one.run.config.model.embedding_dim for one in folds)
                rows += rows_of(folds[0], scores, "concatenated", dim, folder, None)
    return rows


def rows_of(
    one: BenchmarkRun,
    test: dict[str, Any],
    setting: EvaluationSetting,
    dim: int,
    folder: Path,
    result: dict[str, Any] | None,
) -> list[ResultRow]:
    """Make the rows of one model's test scores, or of an ensemble's; an ensemble has no `result`."""
    config, facts = one.run.config, result or {}
    where = one.run.folder if result is not None else one.run.folder.parent
    return [
        ResultRow(
            protocol="mlrc" if setting != "single" else "conventional",
            dataset=config.data.name,
            backbone=config.model.backbone,
            image_size=None if config.model.backbone == IDENTITY else config.data.pixels[1],
            method=one.method,
            setting=setting,
            dim=dim,
            repeat=one.repeat,
            fold=None if result is None else one.fold,
            seed=facts.get("seed"),
            selected_on=config.protocol.select_on,
            metric=metric,
            value=value,
            best_step=facts.get("best_step"),
            steps=facts.get("steps"),
            folder=where.relative_to(folder).as_posix(),
        )
        for metric, value in shown_metrics(test, setting).items()
    ]


def shown_metrics(test: dict[str, Any], setting: EvaluationSetting) -> dict[str, float]:
    """Choose the scores of a setting: MLRC has P@1, P@R and MAP@R, the conventional protocol R@k instead of P@1."""
    if setting != "single":
        return {metric: test[metric] for metric in MLRC_METRICS}
    recalls = {f"recall_at_{k}": value for k, value in test["recall_at"].items()}
    return {**recalls, "r_precision": test["r_precision"], "map_at_r": test["map_at_r"]}


def finished(planned: Sequence[BenchmarkRun]) -> list[BenchmarkRun]:
    return [one for one in planned if one.run.is_done]


def unlike_trainings(planned: Sequence[BenchmarkRun]) -> list[str]:
    """Name the conditions of training in which methods differ: steps, images in a step, network, data.

    Some recipes bring a batch of their own, and a method's file may set anything.
    """
    conditions: dict[str, dict[str, list[str]]] = {}  # of what: value -> methods
    for method, config in {one.method: one.run.config for one in planned}.items():
        values = {"the number of images in a step": config.train.batch_size, **values_of(config)}
        for key, value in values.items():
            if key in ALIKE or key.startswith(("data.", "model.")) or " " in key:
                conditions.setdefault(key, {}).setdefault(setting(value), []).append(method)
    notes = []
    for key, methods in conditions.items():
        if len(methods) > 1 and key not in HOW_IT_RUNS | WHERE_DATA_ARE:
            told = "; ".join(f"{value} with {', '.join(own)}" for value, own in methods.items())
            notes.append(f"Not trained alike: {key} is {told}.")
    return notes


def missing_runs(planned: Sequence[BenchmarkRun], methods: Sequence[str]) -> list[str]:
    """Say how many runs of a method are finished where some are not."""
    notes = []
    for method in methods:
        own = [one for one in planned if one.method == method]
        if (done := len(finished(own))) < len(own):
            notes.append(f"{method}: {done} of {len(own)} runs are finished.")
    return notes
