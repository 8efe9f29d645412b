"""From a study's coordinates to runs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ccp_dml.config.layers import resolve
from ccp_dml.plans.plan import plan_run
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.study import StudyRun


def plan_study_run(
    request: StudyRequest,
    folder: Path,
    method: str,
    coordinates: dict[str, Any],
    settings: tuple[str, ...] = (),
    repeat: int = 0,
) -> StudyRun:
    """The run at `coordinates`, which name its folder: `c2-ccp/proxies8-pool12/repeat0`.

    Repeat r has the seed `run.seed + r`, whatever the coordinates: runs are compared pair by pair.
    """
    recipes = request.recipes(method)
    seed = resolve(recipes, request.run_settings).config.run.seed + repeat
    place = "-".join(f"{name}{value}" for name, value in coordinates.items())
    name = "/".join(part for part in (method, place, f"repeat{repeat}") if part)
    run = plan_run(name, folder / name, recipes, (*request.run_settings, *settings, f"run.seed={seed}"))
    loss = method.removesuffix("-ccp").removesuffix("-proxy")
    return StudyRun({"loss": loss, "method": method, **coordinates, "repeat": repeat}, run)


def plan_variants(request: StudyRequest, folder: Path, endings: Iterable[str], repeats: int) -> list[StudyRun]:
    """Each loss in the methods that `endings` make of it; a repeat is whole before the next begins."""
    return [
        plan_study_run(request, folder, loss + ending, {}, repeat=repeat)
        for repeat in range(repeats)
        for loss in request.losses
        for ending in endings
    ]
