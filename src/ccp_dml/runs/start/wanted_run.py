"""Turn what was typed into the configuration of a run, and say what has no effect or was left open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ccp_dml.config.layers import Resolved, resolve
from ccp_dml.config.readers import method_note, refuse_disorder, refuse_unread, refuse_without_data, written_by_user
from ccp_dml.config.schema import Config, DataConfig
from ccp_dml.data.labelled import DataHalves
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code
from ccp_dml.runs.datasets import with_sizes
from ccp_dml.runs.loss_arguments import complete
from ccp_dml.runs.start.final import final_config
from ccp_dml.runs.start.fitting import FITTED, fit_to_data

LoadData = Callable[[DataConfig], DataHalves]

OWN_DATA = ("folder", "csv")
"""Recipes of one's own images, which leave open how to train on them."""


@dataclass(frozen=True)
class WantedRun:
    """A configuration as it will be kept, and what to say about it."""

    config: Config
    notes: tuple[str, ...] = ()


def wanted_run(
    recipes: Sequence[str],
    settings: Sequence[str],
    seed: int | None,
    load_data: LoadData,
    final: Path | None = None,
) -> WantedRun:
    """Resolve what was typed, and fit to the data what was not; with `final`, take what that run has found.

    Raises where a recipe or a setting would have no effect, or another than was meant.
    """
    refuse_disorder(recipes)
    if final is not None:
        return WantedRun(complete(final_config(final, recipes, settings, seed)))
    resolved = resolve(recipes, settings, seed)
    refuse_without_data(resolved, recipes, settings)
    written = written_by_user(resolved)
    config = complete(resolved.config)
    refuse_unread([config], written)
    refuse_without_mode(resolved)
    config = config.model_copy(update={"data": with_sizes(config.data)})
    notes = [method_note(resolved)]
    if config.data.name in FITTED:
        config, fitted = fit_to_data(config, load_data(config.data), written)
        notes += fitted
    return WantedRun(config, tuple(filter(None, notes)))


def refuse_without_mode(resolved: Resolved) -> None:
    """Raise if the backbone of one's own data would start from random weights because nobody said how to train."""
    model, data = resolved.config.model, resolved.config.data.name
    named_by = resolved.origins.get("model.backbone")
    is_open = named_by in OWN_DATA or (named_by is None and own_code.is_own(data, own_code.DATASETS))
    if is_open and not (model.pretrained or model.weights):
        example = data if data in OWN_DATA else "folder"
        raise UserError(
            f"Say how to train with a mode, as in `ccp train {example} frozen c2-ccp` or `--data {example},frozen`: "
            "`frozen` trains a head on a pretrained network "
            "in minutes; `top` its last stages, too; `finetune` all of it; `scratch` a small network from nothing. Or "
            "set model.weights=FILE or model.pretrained=true. See docs/modes.md."
        )
