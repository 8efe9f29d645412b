"""The sections about a run as a whole."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.page import render
from ccp_dml.reports.sections import overview


@pytest.fixture
def run(write_run: Callable[..., Path], tmp_path: Path) -> RunFolder:
    return RunFolder.read(write_run(tmp_path / "my run"))


def changed(run: RunFolder, **tables: dict[str, Any]) -> RunFolder:
    """The run with other values in some tables of its configuration."""
    return replace(run, config={**run.config, **{name: {**run.config[name], **more} for name, more in tables.items()}})


def test_data_and_network_are_named(run: RunFolder) -> None:
    assert overview.summary(run).content["data"] == "glyphs"
    features = changed(run, data={"name": "features", "path": "/data/x.npz"})
    assert overview.summary(features).content["data"] == "features (x.npz)"
    assert overview.network_text(run) == "small_cnn, 64-D embedding"


def test_scores_and_recalls_stand_in_their_columns(run: RunFolder) -> None:
    section = overview.scores(run)
    assert section.content["titles"] == ["MAP@R", "P@R", "P@1", "R@1", "R@2"]
    validation, test = section.content["rows"]
    assert test["scores"][0] == run.result["test"]["map_at_r"]
    assert (validation["recalls"], test["recalls"]) == ([None, None], [0.75, 0.8])
    assert (validation["queries"], test["queries"]) == (1200, 4800)
    assert overview.scores(replace(run, result=None)) is None


def test_the_configuration_has_a_block_per_table(run: RunFolder) -> None:
    blocks = overview.configuration(run).content["blocks"]
    assert blocks["optim"] == {"lr": 1e-3, "betas": [0.9, 0.999]}
    assert set(blocks) == set(run.config)


def test_a_run_is_repeated_by_its_command_or_by_its_configuration(run: RunFolder) -> None:
    def command(environment: dict[str, Any]) -> str:
        return overview.reproduction(replace(run, environment=environment)).content["command"]

    assert command({"command": ["ccp", "train", "a b"]}) == "ccp train 'a b'"
    assert command({"command": "ccp train cub"}) == "ccp train cub"
    again = run.path.with_name("my run-again")
    assert command({}) == f"ccp train '{run.path / 'config.toml'}' --out '{again}'"
    assert overview.environment(replace(run, environment={})) is None


def test_the_page_lists_advice_where_there_is_some(run: RunFolder) -> None:
    assert overview.advice(run) is None
    assert 'id="advice"' not in render([run])
    advised = replace(run, outline={"validation_classes": 2})
    section = overview.advice(advised)
    assert section is not None
    assert [one.id for one in section.content["advice"]] == ["few-validation-classes"]
    page = render([advised])
    assert 'id="advice-few-validation-classes"' in page
    assert "<code>data.root</code>" in page
