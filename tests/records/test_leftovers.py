"""What a killed process leaves in a run's folder is swept, and nothing that is not its own."""

import json

import pytest

from ccp_dml.records.leftovers import sweep

ENVIRONMENT = json.dumps({"packages": {"ccp-dml": "0.1.0"}})


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_started_run_is_kept_but_for_half_written_files(tmp_path):
    kept = {"config.toml", "environment.json", "log.txt", "checkpoint.pt", "problems/001.safetensors"}
    (tmp_path / "problems").mkdir()
    for name in (*kept, ".checkpoint.pt.abc.part", "problems/.001.safetensors.abc.part"):
        (tmp_path / name).write_text("")
    (tmp_path / "environment.json").write_text(ENVIRONMENT)
    sweep(tmp_path)
    assert files(tmp_path) == kept


def test_another_programs_config_makes_no_run(tmp_path):
    for name in ("config.toml", "environment.json", ".film.mp4.part"):
        (tmp_path / name).write_text("{}")
    before = files(tmp_path)
    sweep(tmp_path)
    assert files(tmp_path) == before


def test_what_was_written_before_a_run_began_goes(tmp_path):
    (tmp_path / "environment.json").write_text(ENVIRONMENT)
    (tmp_path / ".config.toml.abc.part").write_text("half")
    sweep(tmp_path)
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", "mine"),
        ("log.txt", "mine"),
        ("environment.json", "{}"),
        ("environment.json", "no JSON"),
        (".film.mp4.part", "half"),
    ],
)
def test_a_folder_with_anything_else_in_it_is_not_touched(tmp_path, name, content):
    (tmp_path / "environment.json").write_text(ENVIRONMENT)
    (tmp_path / name).write_text(content)
    before = files(tmp_path)
    sweep(tmp_path)
    assert files(tmp_path) == before


def test_a_workers_log_is_its_own(tmp_path):
    (tmp_path / "log.txt").write_text("")
    sweep(tmp_path, also=("log.txt",))
    assert files(tmp_path) == set()


def test_there_may_be_no_folder(tmp_path):
    sweep(tmp_path / "none")
    assert not (tmp_path / "none").exists()
