"""An index by a network that was really trained, for the commands that search it."""

import json

import pytest

from ccp_dml.cli import main


@pytest.fixture(scope="session")
def birds(photo_run, photos, tmp_path_factory):
    """An index of all photos by a trained network."""
    folder = tmp_path_factory.mktemp("serving") / "birds.index"
    assert main(["index", str(photo_run[0]), str(photos), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run_json(capsys):
    """Call `ccp ... --json` and parse what it prints."""

    def run(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run
