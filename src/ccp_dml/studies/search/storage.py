"""Where a search keeps its trials: a file of its own, or a file or database that several machines share."""

import json
import platform
import warnings
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.exc import SQLAlchemyError

from ccp_dml.config.layers import values_of
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError, first_line, without_password
from ccp_dml.foundation.digests import digest
from ccp_dml.records import layout
from ccp_dml.records.setting_groups import HOW_IT_RUNS, WHERE_FILES_ARE, without_later

VARIED = frozenset({"ccp.weight", "ccp.proxies_per_class"})
"""What trials of one search differ in."""

UNNAMED_SEED = ("run.seed", 0)
"""Earlier versions left every seed out of the name: searches with the default one keep theirs."""


@dataclass(frozen=True)
class TrialStore:
    """The trials of one search. `name` tells apart the searches that share a database."""

    folder: Path  # of the study
    address: str | None  # None: a file of its own in the folder
    name: str

    @property
    def is_shared(self) -> bool:
        return self.address is not None

    @property
    def owner(self) -> str | None:
        """Name who trains a trial: only who began it may go on with it. None if nobody shares the trials."""
        return f"{platform.node()}:{self.folder.resolve()}" if self.is_shared else None

    def exists(self) -> bool:
        """Tell whether there may be trials already, without making a file; raise if there could never be any."""
        if self.address is None:
            return (self.folder / layout.TRIALS).is_file()
        if "://" in self.address:
            return True
        file = Path(self.address)
        if file.is_dir():
            raise self._unusable(IsADirectoryError("it is a folder"))
        if not file.parent.is_dir():
            raise self._unusable(FileNotFoundError(f"there is no folder {file.parent}"))
        return file.is_file()

    def open(self) -> optuna.Study:
        """Open the search; make it if it is not there yet."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                storage = self._storage()
                self._refuse_other_search(storage)
                study = optuna.create_study(
                    storage=storage, study_name=self.name, direction="maximize", load_if_exists=True
                )
                study.get_trials(deepcopy=False)  # here, where damage to them is told in a sentence
                return study
        except UserError:
            raise
        except (SQLAlchemyError, StorageInternalError, OSError, ImportError, ValueError) as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> UserError:
        """Say why the trials cannot be read or written, and what to do about it."""
        reason = without_password(first_line(error.__cause__ or error))
        if self.address is None:
            return UserError(
                f"{self.folder / layout.TRIALS}, the trials of this search, cannot be used ({reason}); restore it from "
                "a copy, or search anew with --out another folder."
            )
        return UserError(
            f"--storage {without_password(self.address)} cannot be used ({reason}); give a file in a folder "
            "that exists, or a database URL such as postgresql://user@host/name with its driver installed."
        )

    def _refuse_other_search(self, storage: BaseStorage) -> None:
        """Raise if the folder's search is another one: a recipe may have changed, and its trials do not count here."""
        begun = [] if self.is_shared else optuna.get_all_study_names(storage)
        if begun and self.name not in begun:
            raise UserError(
                f"{self.folder} holds a search with other settings, as of a recipe that was changed; give --out "
                "another folder."
            )

    def _storage(self) -> BaseStorage:
        if self.address is None:
            return RDBStorage(f"sqlite:///{self.folder / layout.TRIALS}")
        if "://" in self.address:
            return RDBStorage(self.address)
        return JournalStorage(JournalFileBackend(self.address))


def search_name(data: str, method: str, example: Config, contents: str) -> str:
    """Name a search: the same on all machines that search the same thing, and different otherwise.

    `example` is the run of any trial, `contents` a digest of the data and weights, wherever a machine keeps them.
    """
    varied = {*VARIED, *WHERE_FILES_ARE, *HOW_IT_RUNS}
    settings = without_later(values_of(example))
    fixed = {key: value for key, value in settings.items() if key not in varied and (key, value) != UNNAMED_SEED}
    return f"ccp-search-{data}-{method}-{digest(json.dumps(fixed, sort_keys=True), contents)[:12]}"
