import json
import os
import subprocess
import sys

import pytest

from ccp_dml.cli import main
from ccp_dml.commands import doctor
from ccp_dml.commands.doctor import Finding, disk, examined, files_of, versions


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "LITTLE_ROOM", 0)


def test_a_healthy_machine_is_told_so(capsys):
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for subject in ("installed", "device", "threads", "memory", "here", "cache", "weights"):
        assert f"ok  {subject}" in told


def test_more_threads_than_a_container_may_use_get_a_remedy(monkeypatch):
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2)
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    *_, found = doctor.computing()
    assert found == Finding(
        "threads", "64 threads on 2 cores; more threads than cores make torch slow: set OMP_NUM_THREADS=2", fine=False
    )


def test_downloaded_weights_are_found_where_the_user_s_cache_is(tmp_path):
    (tmp_path / "huggingface" / "hub" / "models--timm--some_net").mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    program = "from ccp_dml.commands.doctor import weights; print(weights()[0].text)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "timm--some_net" in found.stdout


def test_findings_as_json_and_a_full_disk(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "LITTLE_ROOM", 1e18)
    assert main(["doctor", "--json"]) == 2
    found = capsys.readouterr()
    assert {one["subject"] for one in json.loads(found.out) if not one["fine"]} == {"here", "cache", "temporary"}
    assert "3 of" in found.err


def test_a_folder_that_cannot_be_written_is_a_finding(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [one.fine for one in disk()] == [True, False, True]


def test_damaged_files_of_a_run_are_named(photo_run, tmp_path):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(photo_run[0], run)
    assert files_of(run)[0].fine
    content = bytearray((run / "best.safetensors").read_bytes())
    content[-1] ^= 1
    (run / "best.safetensors").write_bytes(content)
    found = files_of(run)[0]
    assert not found.fine
    assert "best.safetensors is damaged" in found.text


def test_a_check_that_fails_is_a_finding():
    def broken() -> list[Finding]:
        raise RuntimeError("no such device")

    assert examined("broken", broken) == [Finding("broken", "RuntimeError: no such device", fine=False)]


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr("ccp_dml.foundation.environment.installed", lambda name: None if name == "timm" else "1.0")
    assert not versions()[0].fine
    assert "missing: timm" in versions()[0].text


def test_a_run_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["doctor", str(tmp_path / "none")]) == 2
    told = capsys.readouterr()
    assert f"There is no run {tmp_path / 'none'}" in told.out
    assert "lambda" not in told.out + told.err
