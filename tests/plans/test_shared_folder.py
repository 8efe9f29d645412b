"""What a folder must show to several machines; here two parts of one process stand for them."""

from dataclasses import replace

import pytest

from ccp_dml.plans.shared_folder import TOKEN, probe_in


@pytest.fixture
def probe(tmp_path):
    with probe_in(tmp_path / "out") as probe:
        yield probe


def test_a_folder_that_is_shared_has_all(probe, tmp_path):
    assert probe.missing_here() is None
    assert probe.missing_of(probe.here()) is None
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_nothing_is_left_of_a_probe(tmp_path):
    with probe_in(tmp_path) as probe:
        assert probe.missing_here() is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_machine_does_not_see_is_told(probe):
    (probe.folder / TOKEN).unlink()
    assert "give --out a folder that all machines share" in probe.missing_here()


def test_another_folder_of_the_same_name_is_not_taken_for_it(probe):
    (probe.folder / TOKEN).write_text("of another disk")
    assert "give --out a folder that all machines share" in probe.missing_here()


def test_locks_that_are_not_seen_are_told(probe, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / TOKEN).write_text(probe.token)  # as if the disk showed files, but not the lock
    assert "does not see locks" in replace(probe, folder=elsewhere).missing_here()


def test_files_that_cannot_be_replaced_are_told(probe, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ccp_dml.plans.shared_folder.write_text", refused)
    assert "cannot replace files" in probe.missing_here()
    assert "Permission denied" in probe.missing_here()


def test_other_versions_and_missing_working_folders_are_told(probe, tmp_path):
    assert "install the same everywhere" in replace(probe, version="0.0.0").missing_here()
    assert "where the command was typed" in replace(probe, working_folder=tmp_path / "none").missing_here()


def test_files_of_others_that_do_not_arrive_are_told(probe):
    assert "are not seen here" in probe.missing_of("far-away")
