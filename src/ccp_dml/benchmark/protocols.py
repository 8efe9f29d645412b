"""Plan the runs of the two protocols, MLRC and conventional, and score the ensembles of MLRC.

MLRC trains a model per fold of the training classes, and reports the mean of their scores and one ensemble of them. The
conventional protocol trains one model on all training classes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ccp_dml.benchmark.request import BenchmarkRun
from ccp_dml.config.layers import parse_settings, resolve, values_of
from ccp_dml.config.recipes import recipe_label, shipped_recipes
from ccp_dml.errors import UserError
from ccp_dml.plans.plan import is_done, plan_run, refuse_other_method
from ccp_dml.records.benchmark_folder import BenchmarkRequest, read_ensemble, write_ensemble
from ccp_dml.records.embeddings import EmbeddedTest, load_embedded
from ccp_dml.records.setting_groups import WHAT_IS_TESTED
from ccp_dml.runs.scoring import concatenate, score_embeddings

HOW_IT_IS_SELECTED = ("protocol.folds", "protocol.fold", "protocol.hold_out", "protocol.select_on")
SHARED = (*WHAT_IS_TESTED, *HOW_IT_IS_SELECTED, "run.seed")
"""Keys that all methods have in common: tables compare them in pairs of equal data, fold, selection and seed."""


def refuse_other_pairs(request: BenchmarkRequest) -> None:
    """Raise if methods would be tested on different classes, or trained with different folds, selection or seeds."""
    found = {}
    for method in request.methods:
        settings = values_of(resolve([request.data, method], request.settings).config)
        found[method] = {key: settings.get(key, "unset") for key in SHARED}
    first, *others = found
    for method in others:
        own, other = (method, first) if method.endswith(".toml") else (first, method)  # shipped ones set none of these
        for key in SHARED:
            if found[own][key] != found[other][key]:
                raise UserError(
                    f"--methods: in {own} {key} is {found[own][key]}, in {other} it is {found[other][key]}, so that "
                    "their runs are no pairs of equal data, fold, selection and seed; take it out of the method's "
                    f"file, and give it to all methods with --set {key}=VALUE if it is meant."
                )


def plan_mlrc(request: BenchmarkRequest, folder: Path) -> list[BenchmarkRun]:
    """Plan all runs, repeat by repeat, so that every method has some result early."""
    refuse_other_pairs(request)
    return [
        planned
        for repeat in range(request.repeats)
        for method in request.methods
        for planned in plan_folds(request, folder, method, repeat)
    ]


def plan_folds(request: BenchmarkRequest, folder: Path, method: str, repeat: int) -> list[BenchmarkRun]:
    """Plan the models of one method and repeat.

    Each has a seed of its own, as an ensemble gains from models that started differently; methods share these seeds.
    """
    refuse_other_method(request.data, method, request.settings)
    config = resolve([request.data, method], request.settings).config
    if config.protocol.select_on == "test":
        raise UserError(
            "protocol.select_on = 'test': the MLRC protocol selects on validation classes only; leave it out, or run "
            "`ccp benchmark conventional`."
        )
    # A user who sets the fold wants that one alone, as ablations with a single split do.
    one_fold = "protocol.fold" in parse_settings(request.settings)
    planned = []
    for fold in [config.protocol.fold] if one_fold else range(config.protocol.folds):
        name = f"{recipe_label(method)}/repeat{repeat}/fold{fold}"
        seed = config.run.seed + repeat * config.protocol.folds + fold
        settings = (*request.settings, f"protocol.fold={fold}", f"run.seed={seed}")
        run = plan_run(name, folder / name, (request.data, method), settings)
        planned.append(BenchmarkRun(recipe_label(method), repeat, fold, run))
    return planned


def ensemble_scores(folds: Sequence[BenchmarkRun], device: torch.device) -> dict[str, Any] | None:
    """Score the concatenated models of one method and repeat (D26), once; None while one is missing."""
    config, folders = folds[0].run.config, [fold.run.folder for fold in folds]
    if len(folds) < config.protocol.folds or not all(map(is_done, folders)):
        return None
    scores = read_ensemble(folders)
    if scores is None:
        embedded = [to_device(load_embedded(folder), device) for folder in folders]
        scores = score_embeddings(concatenate(embedded), config.protocol.recall_at)
        write_ensemble(folders, scores, [fold.run.name for fold in folds])
    return scores


def to_device(test: EmbeddedTest, device: torch.device) -> EmbeddedTest:
    (queries, labels), references = test.queries, test.references
    moved = None if references is None else (references[0].to(device), references[1].to(device))
    return EmbeddedTest((queries.to(device), labels.to(device)), moved)


RECIPE = "conventional"


def plan_conventional(request: BenchmarkRequest, folder: Path) -> list[BenchmarkRun]:
    """Plan all runs, repeat by repeat. The protocol's recipe comes after the method's: it decides the batch's shape."""
    refuse_other_pairs(request)
    planned = []
    for repeat in range(request.repeats):
        for method in request.methods:
            refuse_other_method(request.data, method, request.settings)
            config = resolve([request.data, method], request.settings).config
            name = f"{recipe_label(method)}/repeat{repeat}"
            settings = (*request.settings, f"run.seed={config.run.seed + repeat}")
            recipes = (request.data, method, protocol_recipe(config.model.backbone))
            run = plan_run(name, folder / name, recipes, settings)
            planned.append(BenchmarkRun(recipe_label(method), repeat, config.protocol.fold, run))
    return planned


def protocol_recipe(backbone: str) -> str:
    """Name the protocol's recipe for a backbone: `conventional-resnet50` where there is one, else `conventional`."""
    own = f"{RECIPE}-{backbone.partition('.')[0]}"
    return own if own in shipped_recipes("protocols") else RECIPE
