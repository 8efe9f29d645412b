"""Searches without Optuna's own log."""

import optuna
import pytest


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
