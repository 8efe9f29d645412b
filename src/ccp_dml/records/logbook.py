"""Write the folder of one run: open it or resume it, log evaluations, keep checkpoint and best weights, finish it."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import tomli_w
import torch

from ccp_dml.config.layers import SETTING, differing, parse_settings, resolve, values_of
from ccp_dml.config.readers import refuse_unread
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from ccp_dml.foundation.digests import digest
from ccp_dml.foundation.environment import environment
from ccp_dml.foundation.files import as_json, write_json, write_text
from ccp_dml.foundation.seals import DamagedError, check_safetensors
from ccp_dml.records import code_copies, layout
from ccp_dml.records.documents import forget_checksums, read_json, write_checksums
from ccp_dml.records.evaluation_log import EvaluationLog, Row
from ccp_dml.records.ownership import Ownership
from ccp_dml.records.run_folder import require_run
from ccp_dml.records.setting_groups import (
    HOW_IT_RUNS,
    MAY_CHANGE,
    MAY_DIFFER_IN_SCORING,
    WHAT_IS_TRAINED,
    WHERE_DATA_ARE,
    WHERE_FILES_ARE,
    settings_digest,
)

SETTINGS = "settings"  # the digest of the settings, among what environment.json records
OWNER, LOG_DIGEST = "belongs_to", "log_digest"  # what a checkpoint holds besides the state

FIRST_WEIGHTS = "first_weights"
"""Entry of environment.json: digest of the pretrained weights that are trained; earlier versions did not record it."""

CODE = "code"
"""Entry of environment.json: digests of the user's own code, by key."""


class Logbook:
    """Writes the folder of one run. Whenever the run is killed, each file is either whole or not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.new_run: tuple[Config, Sequence[str]] | None = None  # configuration and command; None: the run exists
        self.new_config: Config | None = None  # what a resumed run goes on with, where it differs from before
        self.new_command: Sequence[str] | None = None  # the one that asked for it
        self.outline: dict[str, Any] = {}  # what the run is about to do, for advice and pages
        self.pins: dict[str, str] = {}  # digests of what the run depends on and its checkpoint does not hold
        self.ownership: Ownership | None = None  # None: nobody else can have been given this run
        self.evaluations = EvaluationLog(folder)
        self._settings: str | None = None  # their digest, once it is known
        self.log_digest: str | None = None  # of the evaluations up to the checkpoint that was read
        self.notes: list[str] = []  # what a resumed run's user should know
        self.checkpoint_file = folder / layout.CHECKPOINT
        self.previous_checkpoint_file = folder / layout.PREVIOUS_CHECKPOINT
        self.best_file = folder / layout.BEST_WEIGHTS
        self.result_file = folder / layout.RESULT
        self.config_file = folder / layout.CONFIG
        self.environment_file = folder / layout.ENVIRONMENT

    @classmethod
    def open_new(cls, folder: Path, config: Config, command: Sequence[str]) -> "Logbook":
        """Prepare a new run in a new or empty folder. The folder stays untouched until `begin`."""
        if folder.is_file():
            raise UserError(f"{folder} is a file; give --out a folder.")
        if (folder / layout.CONFIG).exists():
            raise UserError(f"{folder} already holds a run; add --resume to continue it, or give --out another folder.")
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty and holds no run; give --out a new or empty folder.")
        book = cls(folder)
        book.new_run = (config, command)
        return book

    @classmethod
    def reopen(cls, folder: Path) -> "Logbook":
        """Open the folder of a run that has begun."""
        require_run(folder)
        return cls(folder)

    def begin(self, step: int = 0) -> None:
        """Write environment and configuration of a new run, or prepare the folder of a resumed one to go on at `step`.

        Call it when the input has been checked: until then the folder stays as it was.
        """
        self.require_ownership()
        if self.new_run is None:
            self._go_on(step)
        else:
            self._begin_anew(*self.new_run)
        write_json(self.folder / layout.OUTLINE, self.outline)

    def _begin_anew(self, config: Config, command: Sequence[str]) -> None:
        try:
            own: dict[str, Any] = {SETTINGS: settings_digest(config)}
            if code := code_copies.digests_of(config):
                own[CODE] = code
            write_json(self.environment_file, {**environment(command), **self.pins, **own})
            code_copies.write_copies(self.folder, config)
            write_text(self.config_file, tomli_w.dumps(config.as_tables()))
        except OSError as error:
            raise UserError(f"{self.folder} cannot be written ({error.strerror}); give --out another folder.") from None

    def _go_on(self, step: int) -> None:
        """Drop what the resumed run will write again: lines after its checkpoint, the result of fewer steps."""
        self.evaluations.forget_after(step, self.log_digest)
        forget_checksums(self.folder)
        if self.new_config is not None:
            if any(self.other_settings(self.new_config, may_differ=HOW_IT_RUNS | WHERE_FILES_ARE)):
                self.result_file.unlink(missing_ok=True)  # else the longer run would look finished when it is killed
            if self.new_command is not None:  # the first one would repeat a shorter run
                write_json(self.environment_file, {**self._began_with(), "command": shlex.join(self.new_command)})
            write_text(self.config_file, tomli_w.dumps(self.new_config.as_tables()))

    def pin_backbone(self, digest: str | None) -> None:
        """Record which frozen backbone the run's head belongs to; raise if the run began with another."""
        if digest is not None:
            remedy = "restore the file that model.weights names (or the version that timm downloaded)"
            self._pin("frozen_backbone", digest, "The backbone's weights", remedy)

    def pin_first_weights(self, digest: str) -> None:
        """Record which pretrained weights training begins with; raise if the run began with others.

        Training needs them until there is a checkpoint, and the score of the raw backbone needs them at the end.
        """
        if self.new_run is not None or FIRST_WEIGHTS in self._began_with():
            self._pin(FIRST_WEIGHTS, digest, "The pretrained weights", "restore the file that model.weights names")
        elif self.new_config is not None and self.new_config.model.weights != self.config().model.weights:
            self.notes.append(
                f"An earlier version began {self.folder}, and did not record its pretrained weights: training goes on "
                "from the checkpoint, and what is scored as the raw backbone is the file that model.weights names now."
            )

    def pin_data(self, digest: str) -> None:
        """Record which data the run is trained and scored on; raise if the run began with others."""
        self._pin("data", digest, "The data (classes, labels or features)", "restore them")

    def record_precision(self, precision: str) -> None:
        """Keep the precision that a measurement chose, so that a resumed run goes on in it."""
        self.pins["precision"] = precision

    def recorded_precision(self) -> str | None:
        """Read the precision that was measured when the run began; None for a new run."""
        return self._pinned("precision") if self.new_run is None else None

    def _pin(self, name: str, digest: str, what: str, remedy: str) -> None:
        if self.new_run is None and self._pinned(name) != digest:
            raise UserError(
                f"{what} are not those that {self.folder} was trained with; {remedy}, or start another run."
            )
        self.pins[name] = digest

    def _pinned(self, name: str) -> str:
        """Read a digest that was recorded when the run began."""
        found = self._began_with()
        if name not in found:
            raise UserError(
                f"{self.environment_file} cannot tell what the run began with ({name} is missing); restore the file, "
                "use the version of ccp-dml that began the run, or start another run."
            )
        return str(found[name])

    def _began_with(self) -> dict[str, Any]:
        """Read what was recorded when the run began; empty where the file is gone."""
        return read_json(self.environment_file) or {}

    def config(self) -> Config:
        """Read the configuration that the run was started with; raise if it was changed since."""
        config = resolve([str(self.config_file)]).config
        began_with = self._began_with().get(SETTINGS)  # older versions did not record it
        if began_with not in (None, settings_digest(config)):
            raise UserError(
                f"{self.config_file} is not what the run began with: settings of its training have changed; restore "
                "it, or start another run."
            )
        return config

    def config_to_resume(self, settings: Sequence[str] = (), *, trust_code: bool = False) -> Config:
        """Read the configuration to go on with; code of the user's own runs as it was copied, and with consent only.

        `settings` take the place of the run's own. A file of code that is still where it was, but changed, is refused:
        a user who resumes may mean the one or the other.
        """
        config = resolve([str(self.config_file)], settings).config
        if config != self.config():  # not when a command that changed something is repeated
            refuse_unread([config], {key: f"{SETTING}{key}" for key in parse_settings(settings)})
            self.refuse_other_settings(config)
            began_with = shlex.split(self._began_with().get("command", ""))
            self.new_config = config
            self.new_command = [*began_with, *(part for one in settings for part in ("--set", one))]
        resumed = self._with_code(config, code_copies.GROUPS, trust_code)
        code_copies.refuse_changed_code(self.folder, config, self.code_digests(), if_there=True)
        return resumed

    def _with_code(self, config: Config, keys: Collection[str], trust_code: bool) -> Config:
        return code_copies.with_copies(self.folder, config, self.code_digests(), keys, trust_code=trust_code)

    def code_digests(self) -> dict[str, str]:
        """Read the digests of the user's own code that the run began with."""
        return self._began_with().get(CODE) or {}

    def refuse_other_code(self, wanted: Config) -> None:
        """Raise if `wanted` names code that is not the code that the run began with."""
        code_copies.refuse_changed_code(self.folder, wanted, self.code_digests())

    def config_here(self, settings: Sequence[str], code: Sequence[str] = (), *, trust_code: bool = False) -> Config:
        """Read the configuration for scoring the run here.

        `settings` may tell where files are and how to compute, and nothing else. `code` are the keys whose code will be
        run, if they name any: with `trust_code` only, see `code_copies.with_copies`.
        """
        for key in parse_settings(settings):
            if key not in MAY_DIFFER_IN_SCORING:
                raise UserError(
                    f"--set {key}: a run is scored with the settings it was trained with; only where files are, how to "
                    f"compute and what to score may be set: {', '.join(sorted(MAY_DIFFER_IN_SCORING))}."
                )
        self.config()
        return self._with_code(resolve([str(self.config_file)], settings).config, code, trust_code)

    def continue_with(self, wanted: Config, command: Sequence[str] | None = None) -> Config:
        """Resume with the configuration `wanted`; raise if the run would have computed something else under it.

        `command`, where it is given, is from then on what repeats the run.
        """
        self.refuse_other_code(wanted)
        self.refuse_other_settings(wanted)
        self.new_config, self.new_command = wanted, command
        return wanted

    def refuse_other_settings(self, wanted: Config) -> None:
        """Raise if `wanted` differs from what the run began with in a setting that a resumed run may not change."""
        files = WHERE_FILES_ARE if self._tells_weights(wanted) else WHERE_DATA_ARE
        for key, old, new in self.other_settings(wanted, may_differ=MAY_CHANGE | files):
            if key == "model.weights" and old is not None and new is not None:
                raise UserError(
                    f"{self.folder} was started with {key} = {old!r}, and has neither a checkpoint nor a record of "
                    "what that file held (an earlier version began it): put the file back, or start another run."
                )
            raise UserError(
                f"{self.folder} was started with {key} = {old!r}, not {new!r}; resume it with its own settings (only "
                "--resume and --out), or start another run."
            )

    def other_settings(self, wanted: Config, may_differ: Collection[str]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the keys that `wanted` sets otherwise than the run, with both values; what is trained comes first.

        The file of a user's own code may have moved: `refuse_other_code` compares what it holds.
        """
        changes = differing(values_of(self.config()), values_of(wanted), but_for=may_differ)
        for key, old, new in sorted(changes, key=lambda change: change[0] not in WHAT_IS_TRAINED):
            if key not in code_copies.GROUPS or not code_copies.same_class(old, new):
                yield key, old, new

    def _tells_weights(self, wanted: Config) -> bool:
        """Tell whether the file of pretrained weights may have moved.

        It may where a digest tells what it held, or a checkpoint has what training has made of it.
        """
        if wanted.model.freeze_backbone and wanted.model.trains_on_features:
            return True  # `pin_backbone` compares all of them
        if wanted.model.weights is None or self.config().model.weights is None:
            return False
        has_checkpoint = self.checkpoint_file.exists() or self.previous_checkpoint_file.exists()
        return has_checkpoint or FIRST_WEIGHTS in self._began_with()

    def require_ownership(self) -> None:
        """Raise if the run was given to another machine meanwhile: nothing may be written any more."""
        if self.ownership is not None:
            self.ownership.require()

    def record(self, row: Row) -> None:
        """Add the line of one evaluation."""
        self.require_ownership()
        self.evaluations.append(row)

    def start(self) -> Row | None:
        """Read how the network scored before its first step; None if that was not recorded."""
        return self.evaluations.start()

    def rows(self) -> list[Row]:
        """Read the evaluations of training recorded so far."""
        return self.evaluations.rows(may_be_torn=False)

    def save(self, state: dict[str, Any]) -> None:
        """Write the checkpoint that a resumed run starts from, and keep the one before it."""
        self.require_ownership()
        state = {**state, OWNER: self._owner(), LOG_DIGEST: self.evaluations.digest()}
        save_checkpoint(self.checkpoint_file, state, before=self.previous_checkpoint_file)

    def last_state(self, device: torch.device, *, mapped: bool = False) -> dict[str, Any] | None:
        """Read the last checkpoint; where it is damaged, the one before; None if the run was killed before its first.

        A run that starts from the one before computes the same steps again, and comes to the same result. For `mapped`,
        see `load_checkpoint`.
        """
        newest, before = self.checkpoint_file, self.previous_checkpoint_file
        if not newest.exists() and not before.exists():
            return None
        try:
            state = load_checkpoint(newest if newest.exists() else before, device, mapped=mapped)
        except DamagedError as error:
            if not before.exists():
                raise UserError(f"{error} There is no earlier one; start again in a new --out.") from None
            state = load_checkpoint(before, device, mapped=mapped)
            self.notes.append(f"{error} The checkpoint before it is taken; the result will be the same.")
        owner, self.log_digest = state.pop(OWNER, None), state.pop(LOG_DIGEST, None)
        if owner is None:
            self.notes.append(f"The checkpoint in {self.folder} has no checksum: an earlier version wrote it.")
        elif owner != self._owner():
            raise UserError(
                f"The checkpoint in {self.folder} belongs to another run: to other settings, another seed or other "
                "data; restore the run's own, or start another run."
            )
        return state

    def _owner(self) -> str:
        """Digest what a checkpoint belongs to: settings, seed, data and frozen backbone."""
        if self._settings is None:
            self._settings = settings_digest(self.new_run[0] if self.new_run is not None else self.config())
        return digest(self._settings, *(self.pins.get(name, "") for name in ("data", "frozen_backbone")))

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        """Write the weights of the best evaluation so far."""
        self.require_ownership()
        save_weights(self.best_file, weights)

    def best_weights(self) -> dict[str, torch.Tensor]:
        """Read the weights of the best evaluation; note where they have no checksum."""
        try:
            if not check_safetensors(self.best_file):
                self.notes.append(f"{self.best_file} has no checksum: an earlier version wrote it.")
            return load_weights(self.best_file)
        except DamagedError as error:
            raise UserError(
                f"{error} `ccp train --resume --out {shlex.quote(str(self.folder))}` writes it again from the "
                "checkpoint."
            ) from None

    def best_is_intact(self) -> bool:
        """Tell whether the best weights are there, and are what was written."""
        try:
            check_safetensors(self.best_file)
        except (OSError, DamagedError):
            return False
        return True

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result. It comes last: a folder with a result is complete."""
        self.require_ownership()
        write_checksums(self.folder, as_json(result))
        write_json(self.result_file, result)

    @property
    def result(self) -> dict[str, Any] | None:
        """Read the result; None while the run is unfinished."""
        return read_json(self.result_file, remedy="remove it, and --resume scores the run again")
