"""MLflow and Weights & Biases behind the logger interface of Fabric, which ships neither.

Where they send what they are told is their own business: MLFLOW_TRACKING_URI, WANDB_MODE and the like.
"""

import os
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

from lightning_fabric.loggers.logger import Logger

from ccp_dml.foundation.files import write_text

PROJECT = "ccp-dml"
"""Under which name runs are collected, unless MLFLOW_EXPERIMENT_NAME or WANDB_PROJECT says otherwise."""

PARAMETERS_AT_ONCE = 100
"""What an MLflow server takes in one request."""


class MlflowLogger(Logger):
    """One MLflow run, which `id_file` remembers: opened again, it goes on."""

    def __init__(self, run_name: str, id_file: Path) -> None:
        self._mlflow: Any = import_module("mlflow")
        self._entities: Any = import_module("mlflow.entities")
        self._client = self._mlflow.MlflowClient()

        def create() -> str:
            experiment = self._mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
            run = self._client.create_run(experiment.experiment_id, run_name=run_name)
            return str(run.info.run_id)

        self._name, self._run_id = run_name, remembered_id(id_file, create)
        self._client.update_run(self._run_id, status="RUNNING")

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return self._run_id

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, metrics: dict[str, float] | None = None, step: int = 0
    ) -> None:
        every = [self._entities.Param(name, str(value)) for name, value in as_dict(params).items()]
        for start in range(0, len(every), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run_id, params=every[start : start + PARAMETERS_AT_ONCE])
        self.log_metrics(metrics or {}, step)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        now = int(time() * 1000)
        every = [self._entities.Metric(name, value, now, step or 0) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=every)

    def finalize(self, status: str) -> None:
        states = {"success": "FINISHED", "aborted": "KILLED", "failed": "FAILED"}
        self._client.set_terminated(self._run_id, states[status])


class WandbLogger(Logger):
    """One W&B run, which `id_file` remembers: opened again, it goes on."""

    def __init__(self, run_name: str, id_file: Path) -> None:
        wandb: Any = import_module("wandb")
        self._name, self._run_id = run_name, remembered_id(id_file, lambda: uuid4().hex)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run_name,
            id=self._run_id,
            resume="allow",
            dir=str(id_file.parent),
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return self._run_id

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, metrics: dict[str, float] | None = None, step: int = 0
    ) -> None:
        self._run.config.update(as_dict(params), allow_val_change=True)
        self.log_metrics(metrics or {}, step)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._run.log(metrics, step=step)

    def finalize(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "success" else 1)


def as_dict(params: dict[str, Any] | Namespace) -> dict[str, Any]:
    """Fabric's interface allows a namespace, too."""
    return vars(params) if isinstance(params, Namespace) else params


def remembered_id(file: Path, create: Callable[[], str]) -> str:
    """The id in `file`; if there is none yet, a new one that is kept there."""
    if not file.exists():
        write_text(file, create() + "\n")
    return file.read_text(encoding="utf-8").strip()
