"""Plan runs without training any, and see from their folders what is left to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ccp_dml.config.layers import SETTING, parse_settings, resolve
from ccp_dml.config.readers import CHOSEN_WITH, READERS, reads, refuse_unread
from ccp_dml.config.recipes import recipe_layers, refuse_disorder, shipped_recipes
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.records import layout
from ccp_dml.records.documents import read_json
from ccp_dml.records.evaluation_log import EvaluationLog
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import is_finished, is_run
from ccp_dml.records.setting_groups import HOW_IT_RUNS, WHERE_DATA_ARE
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.datasets import with_sizes
from ccp_dml.runs.start import refuse_without_mode

State = Literal["done", "partly", "open"]


@dataclass(frozen=True)
class PlannedRun:
    """One ordinary run: `command` is what a person would type to train it alone, without what it does not read."""

    name: str  # unique in its plan, for example "c2-ccp/repeat0/fold3"
    folder: Path
    recipes: tuple[str, ...]
    settings: tuple[str, ...]  # KEY=VALUE, seed and fold included
    config: Config  # what recipes and settings add up to
    is_supervised: bool = False  # after each evaluation, whoever has it trained is asked whether to go on

    @property
    def command(self) -> list[str]:
        had_effect = [text for text in self.settings if reads(self.config, text.partition("=")[0].strip())]
        options = [part for setting in had_effect for part in ("--set", setting)]
        return ["ccp", "train", *self.recipes, *options, "--out", str(self.folder)]

    @property
    def is_done(self) -> bool:
        return is_done(self.folder)

    @property
    def steps(self) -> int | None:
        """Tell the run's cost in steps, where that is known beforehand; None: patience decides."""
        return self.config.train.max_steps


@dataclass(frozen=True)
class RunState:
    """How far a run has come."""

    state: State
    step: int  # of the last evaluation


def plan_run(name: str, folder: Path, recipes: Sequence[str], settings: Sequence[str]) -> PlannedRun:
    """Resolve and check the configuration of one run."""
    resolved = resolve(recipes, settings)
    refuse_without_mode(resolved)
    config = complete(resolved.config)
    if config.protocol.hold_out == "nothing" or config.data.test_share == 0:
        raise UserError(
            "Runs are compared on test classes: leave out protocol.hold_out=nothing and data.test_share=0, with which "
            "there are none."
        )
    config = config.model_copy(update={"data": with_sizes(config.data)})
    return PlannedRun(name, folder, tuple(recipes), tuple(settings), config)


def refuse_other_method(data: str, method: str, settings: Sequence[str]) -> None:
    """Raise if anything but its own recipe says what a method is: its results would stand under a wrong name.

    A file of one's own may leave that to the layers below it, but not to settings, which hold for all methods alike.
    """
    refuse_disorder([data, method])
    origins = resolve([data, method], settings).origins
    own = {layer.origin for layer in recipe_layers(method)}
    for key in sorted(CHOSEN_WITH["method"] & origins.keys()):
        origin = origins[key]
        if origin.startswith(SETTING) or (method in shipped_recipes("methods") and origin not in own):
            subject = origin if origin.startswith(SETTING) else f"{key} ({origin})"
            raise UserError(
                f"{subject} would make another method of {method}, under the name of {method}; leave it out, and name "
                "the method that you mean: `ccp list methods`, or a TOML file of your own."
            )


def refuse_unread_settings(runs: Sequence[PlannedRun], settings: Sequence[str]) -> None:
    """Raise for a setting of the user's about data or model that none of the runs reads.

    What only other methods read is no mistake: they may join later, and then with the same settings.
    """
    keys = [key for key in parse_settings(settings) if key in READERS and READERS[key].choice in ("data", "model")]
    written = {key: f"{SETTING}{key}" for key in keys}
    refuse_unread([run.config for run in runs], written)


def state_of(folder: Path) -> RunState:
    """Find out whether the run in `folder` is done, begun, or not there."""
    if not is_run(folder):
        return RunState("open", 0)
    return RunState("done" if is_finished(folder) else "partly", EvaluationLog(folder).last_step())


def is_done(folder: Path) -> bool:
    """Tell whether there is a finished run in `folder`."""
    return is_run(folder) and is_finished(folder)


def begun(runs: Sequence[PlannedRun]) -> list[tuple[PlannedRun, Logbook]]:
    """Open the folders of those runs that have begun, or are done."""
    return [(run, Logbook.reopen(run.folder)) for run in runs if is_run(run.folder)]


def incomplete_data(runs: Sequence[PlannedRun]) -> list[str]:
    """Say how the data set of finished runs differs from what was published."""
    outlines = [read_json(run.folder / layout.OUTLINE) or {} for run in runs if is_finished(run.folder)]
    return list(dict.fromkeys(f"Incomplete data: {text}." for one in outlines for text in one.get("incomplete") or []))


def refuse_other_settings(runs: Sequence[PlannedRun]) -> None:
    """Raise if a folder holds a run with other settings than planned: its result would be shown as this one's.

    Where data are is no such setting: see `rehearsal.refuse_other_data`.
    """
    for run, logbook in begun(runs):
        logbook.refuse_other_code(run.config)
        for key, old, new in logbook.other_settings(run.config, may_differ=HOW_IT_RUNS | WHERE_DATA_ARE):
            raise UserError(
                f"{run.folder} was trained with {key} = {old!r}, not {new!r}; delete it to train it anew, or give "
                "--out another folder."
            )
