"""Log a run's settings, evaluations and scores to TensorBoard, CSV, MLflow or W&B, as run.logger says."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from time import time
from typing import Any, Literal, Protocol
from uuid import uuid4

from lightning_fabric.loggers.csv_logs import CSVLogger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from ccp_dml.config.layers import values_of
from ccp_dml.config.schema import Config, LoggerName
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import write_text
from ccp_dml.records import layout
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.watcher import Watcher

Status = Literal["success", "aborted", "failed"]

BEST = "best_map_at_r"
"""Logged beside each line's own values: what runs are compared by while they go on."""


class Log(Protocol):
    """What a run logs to: a logger of Lightning Fabric, or one of those below."""

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None: ...

    def save(self) -> None: ...

    def finalize(self, status: str) -> None: ...


OpenFunction = Callable[[Path, int, dict[str, Any]], tuple[Log, bool]]
"""Opens the log of a run: in its folder, at its step, with its settings by dotted key. The flag tells whether the log
goes on, so that it holds already what the run has logged before."""


def require_logger(name: LoggerName) -> None:
    """Raise if the package behind a logger is not installed."""
    if name in ("tensorboard", "mlflow", "wandb") and find_spec(name) is None:
        raise UserError(f"run.logger = {name!r} needs a package that is not installed; run: pip install {name}")


@contextmanager
def logged(config: Config, logbook: Logbook, watcher: Watcher) -> Iterator[Watcher]:
    """Wrap a watcher so that it also logs, as run.logger says; the log is closed with how the block ended."""
    if config.run.logger == "none":
        yield watcher
        return
    require_logger(config.run.logger)
    logging = LoggingWatcher(watcher, logbook, LOGS[config.run.logger])
    try:
        yield logging
    except Exception:
        logging.close("failed")
        raise
    except BaseException:  # Ctrl-C, or the end of a worker
        logging.close("aborted")
        raise
    logging.close("success")


class LoggingWatcher(Watcher):
    """Passes everything on to another watcher, and logs it.

    The log is opened when training starts: until then the run's folder stays untouched.
    """

    def __init__(self, watcher: Watcher, logbook: Logbook, open_log: OpenFunction) -> None:
        self.watcher, self.logbook, self.open_log = watcher, logbook, open_log
        self.opened: Log | None = None

    def note(self, text: str) -> None:
        self.watcher.note(text)

    def extracting(self, done: int, total: int) -> None:
        self.watcher.extracting(done, total)

    def reading_test(self, done: int, total: int) -> None:
        self.watcher.reading_test(done, total)

    def start(self, config: Config, step: int) -> None:
        self.watcher.start(config, step)
        self.opened, goes_on = self.open_log(self.logbook.folder, step, values_of(config))
        if goes_on:
            return
        rows = self.logbook.rows() if step > 0 else []  # a resumed run may have been logged elsewhere, or nowhere
        if (start := self.logbook.start()) is not None:
            self.log(numbers(start), 0)
        for row, best in zip(rows, accumulate((row["map_at_r"] for row in rows), max), strict=True):
            self.log(numbers(row) | {BEST: best}, row["step"])

    def before_training(self, row: dict[str, Any]) -> None:
        self.watcher.before_training(row)
        self.log(numbers(row), 0)

    def step(self, step: int) -> None:
        self.watcher.step(step)

    def evaluation(self, row: dict[str, Any], best: float) -> None:
        self.watcher.evaluation(row, best)
        self.log(numbers(row) | {BEST: best}, row["step"])

    def finishing(self) -> None:
        self.watcher.finishing()

    def finished(self, result: dict[str, Any]) -> None:
        self.watcher.finished(result)
        if result["test"] is None:
            return
        recalls = {f"test/recall_at_{k}": value for k, value in result["test"]["recall_at"].items()}
        scores = {f"test/{name}": value for name, value in numbers(result["test"]).items()}
        self.log(scores | recalls, result["steps"])

    def log(self, metrics: dict[str, float], step: int) -> None:
        assert self.opened is not None, "training has not started"
        self.opened.log_metrics(metrics, step)
        self.opened.save()  # a killed run loses nothing

    def close(self, status: Status) -> None:
        if self.opened is not None:
            self.opened.finalize(status)


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """Pick the values of a line that can be drawn over steps."""
    return {name: value for name, value in row.items() if isinstance(value, int | float) and name != "step"}


def open_tensorboard(folder: Path, step: int, settings: dict[str, Any]) -> tuple[Log, bool]:
    goes_on = (folder / layout.TENSORBOARD).exists()
    # What a killed run logged after its last checkpoint comes again, and counts once.
    purge_step = step + 1 if goes_on else None
    log = TensorBoardLogger(folder, layout.TENSORBOARD, "", purge_step=purge_step)
    if not goes_on:
        log.log_hyperparams(settings, {BEST: 0.0}, 0)
    return log, goes_on


def open_csv(folder: Path, _: int, __: dict[str, Any]) -> tuple[Log, bool]:
    # Fabric's logger cannot append: the file is written anew. It takes no settings; config.toml beside it has them.
    (folder / layout.CSV_LOG / layout.CSV_LOG_FILE).unlink(missing_ok=True)
    return CSVLogger(folder, layout.CSV_LOG, "", flush_logs_every_n_steps=1), False


def open_run(
    kind: "type[MlflowLog | WandbLog]", id_file: str, folder: Path, _: int, settings: dict[str, Any]
) -> tuple[Log, bool]:
    """Open the run that the file `id_file` of the folder remembers, or a new one, which gets the settings."""
    goes_on = (folder / id_file).exists()
    log = kind(folder.as_posix(), folder / id_file)
    if not goes_on:
        log.log_settings(settings)
        log.log_metrics({BEST: 0.0}, 0)
    return log, goes_on


PROJECT = "ccp-dml"
"""Under which name runs are collected, unless MLFLOW_EXPERIMENT_NAME or WANDB_PROJECT says otherwise."""

PARAMETERS_AT_ONCE = 100
"""What an MLflow server takes in one request."""


class MlflowLog:
    """One MLflow run, which `id_file` remembers: opened again, it goes on."""

    def __init__(self, run_name: str, id_file: Path) -> None:
        mlflow: Any = import_module("mlflow")
        self._entities: Any = import_module("mlflow.entities")
        self._client = mlflow.MlflowClient()

        def create() -> str:
            experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
            run = self._client.create_run(experiment.experiment_id, run_name=run_name)
            return str(run.info.run_id)

        self._run_id = remembered_id(id_file, create)
        self._client.update_run(self._run_id, status="RUNNING")

    def log_settings(self, settings: dict[str, Any]) -> None:
        every = [self._entities.Param(name, str(value)) for name, value in settings.items()]
        for start in range(0, len(every), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run_id, params=every[start : start + PARAMETERS_AT_ONCE])

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        now = int(time() * 1000)
        every = [self._entities.Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=every)

    def save(self) -> None:
        """Do nothing: what is logged is with the server at once."""

    def finalize(self, status: str) -> None:
        states = {"success": "FINISHED", "aborted": "KILLED", "failed": "FAILED"}
        self._client.set_terminated(self._run_id, states[status])


class WandbLog:
    """One W&B run, which `id_file` remembers: opened again, it goes on."""

    def __init__(self, run_name: str, id_file: Path) -> None:
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run_name,
            id=remembered_id(id_file, lambda: uuid4().hex),
            resume="allow",
            dir=str(id_file.parent),
        )

    def log_settings(self, settings: dict[str, Any]) -> None:
        self._run.config.update(settings, allow_val_change=True)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self._run.log(metrics, step=step)

    def save(self) -> None:
        """Do nothing: W&B sends what is logged by itself."""

    def finalize(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "success" else 1)


def remembered_id(file: Path, create: Callable[[], str]) -> str:
    """Read the id in `file`; if there is none yet, make one and keep it there."""
    if not file.exists():
        write_text(file, create() + "\n")
    return file.read_text(encoding="utf-8").strip()


LOGS: dict[str, OpenFunction] = {
    "tensorboard": open_tensorboard,
    "csv": open_csv,
    "mlflow": partial(open_run, MlflowLog, layout.MLFLOW_ID),
    "wandb": partial(open_run, WandbLog, layout.WANDB_ID),
}
