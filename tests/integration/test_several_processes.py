"""One training over two and four real processes equals the training in one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import write_features
from support.collective_cases import evaluation_and_reselection
from support.many_processes import in_processes
from support.training_cases import (
    CASES,
    DIVIDED,
    DIVIDED_CASES,
    IN_DOUBLE,
    ON_GLYPHS,
    PROXIES,
    train_all,
    train_case,
    train_divided,
)

from ccp_dml.foundation.checkpoint import load_checkpoint
from ccp_dml.functional.row_adam import TOUCHED
from ccp_dml.records import layout
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.problem_map import read_problems

PATIENT_SECONDS = 1800  # machines may be busy; only a hang reaches this


def test_evaluation_and_reselection_are_equal_to_the_last_bit_at_sizes_that_do_not_divide(tmp_path):
    alone = evaluation_and_reselection()
    for answer in in_processes(3, tmp_path, evaluation_and_reselection):
        torch.testing.assert_close(answer, alone, rtol=0, atol=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folders of the runs and what the processes found, by the number of processes. One start serves all cases."""
    root = tmp_path_factory.mktemp("several")
    features = write_features(root / "features.npz")
    found = {1: [train_all(root / "1", features)]}
    found[2] = in_processes(2, root, train_all, root / "2", features)
    found[4] = in_processes(4, root, train_all, root / "4", features, root / "2" / "stopped")
    train_case(root / "2" / "stopped", features, "c2-ccp", resume=True)  # and now in one process
    return root, found


def states_of(folder):
    """All tensors of a run's last checkpoint, by name.

    Left out are the random state, and which rows had a gradient when: a process that feels most of its proxies gives
    all of them one, many of them zeros, where one process that feels few of all gives these alone.
    """
    state = load_checkpoint(folder / layout.CHECKPOINT)
    named = {}

    def walk(prefix, value):
        if isinstance(value, torch.Tensor):
            named[prefix] = value
        for key, inner in value.items() if isinstance(value, dict) else ():
            walk(f"{prefix}/{key}", inner)

    for part in ("network", "objective", "projections"):
        walk(part, state[part])
    walk("optimizer", state["trainer"]["optimizer"]["state"])
    named = {name: value for name, value in named.items() if not name.endswith(f"/{TOUCHED}")}
    return named, Logbook.reopen(folder).rows()


def assert_equal_runs(folder, reference):
    (values, rows), (expected, expected_rows) = states_of(folder), states_of(reference)
    assert values.keys() == expected.keys()
    for name, value in values.items():
        torch.testing.assert_close(
            value, expected[name], rtol=1e-12, atol=1e-12, msg=lambda text, n=name: f"{n}: {text}"
        )
    assert any(value.dtype == torch.float64 for value in values.values())
    for row, other in zip(rows, expected_rows, strict=True):
        assert row.keys() == other.keys()
        for key in (key for key in row if not key.endswith("seconds")):
            assert row[key] == expected_number(other[key]), key


def expected_number(value):
    """What a logged value may be: numbers within 1e-11, also within the list of problems begun."""
    if isinstance(value, list):
        return [{key: expected_number(inner) for key, inner in entry.items()} for entry in value]
    return pytest.approx(value, rel=1e-11) if isinstance(value, float) else value


@pytest.mark.slow
@pytest.mark.timeout(PATIENT_SECONDS)
@pytest.mark.parametrize("case", CASES)
def test_two_and_four_processes_train_what_one_trains(trained, case):
    root, found = trained
    for count in (2, 4):
        assert_equal_runs(root / str(count) / case, root / "1" / case)
        for answers, *_ in found[count][1:]:
            torch.testing.assert_close(answers[case], found[count][0][0][case], rtol=0, atol=0)


@pytest.mark.slow
def test_a_run_that_two_processes_began_goes_on_in_one_and_in_four(trained):
    root, _ = trained
    assert_equal_runs(root / "2" / "stopped", root / "1" / "c2-ccp")
    assert_equal_runs(root / "4" / "continued", root / "1" / "c2-ccp")


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """The folder of runs whose proxies the processes share, by their number, and of the same in one process."""
    root = tmp_path_factory.mktemp("divided")
    features = write_features(root / "features.npz")
    in_processes(1, root, train_divided, root / "1", features)
    in_processes(2, root, train_divided, root / "2", features)
    in_processes(4, root, train_divided, root / "4", features, root / "2" / "stopped")
    shutil.copytree(root / "2" / "stopped", root / "1" / "again")
    train_case(root / "1" / "again", features, "triplet-ccp", resume=True, more=(DIVIDED,))
    return root


@pytest.mark.slow
@pytest.mark.timeout(PATIENT_SECONDS)
@pytest.mark.parametrize("case", DIVIDED_CASES)
def test_processes_that_share_the_proxies_train_what_one_trains(divided, case):
    for count in ("2", "4"):
        assert_equal_runs(divided / count / case, divided / "1" / case)
        maps, expected = (read_problems(divided / each / case) for each in (count, "1"))
        assert len(maps) == len(expected) == (0 if case != "stale" else len(maps))
        for found, one in zip(maps, expected, strict=True):
            for side in ("selected", "converged"):
                torch.testing.assert_close(getattr(found, side), getattr(one, side), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(found.train.embeddings, one.train.embeddings, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_the_cases_of_shared_proxies_solve_several_problems_and_look_at_their_staleness(divided):
    rows = Logbook.reopen(divided / "4" / "stale").rows()
    assert rows[-1]["problem"] > 2
    assert rows[-1]["staleness"] > 0
    assert {"proxy_spread", "active_positives", "active_negatives"} <= rows[-1].keys()
    assert len(read_problems(divided / "4" / "stale")) > 1
    assert Logbook.reopen(divided / "4" / "c2-ccp").rows()[-1]["problem"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("again", ["1/again", "4/divided again", "4/whole again"])
def test_a_run_with_shared_proxies_goes_on_with_any_number_of_processes_and_with_whole_proxies(divided, again):
    assert_equal_runs(divided / again, divided / "1" / "triplet-ccp")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "precision", "steps"), ON_GLYPHS)
def test_batches_of_images_are_identical_and_losses_agree(trained, method, precision, steps):
    """In single precision, ReLUs and hinges let last digits grow: C2 is compared while they do not, MS for longer."""
    _, found = trained
    which, tolerance = ON_GLYPHS.index((method, precision, steps)), 1e-12 if precision == "64-true" else 1e-4
    batches, losses = found[1][0][1:][which]
    assert len(set(batches)) == len(batches) == steps
    assert losses.std() > 1e-3, "nothing was learned, so nothing was compared"
    for count in (2, 4):
        for _, *glyphs in found[count]:
            own_batches, own_losses = glyphs[which]
            assert own_batches == batches
            torch.testing.assert_close(own_losses, losses, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds a process by its environment in /proc")
def test_a_killed_process_is_started_again_and_the_files_end_as_if_nothing_had_happened(tmp_path):
    features, folder = write_features(tmp_path / "features.npz"), tmp_path / "run"
    longer = ("train.max_steps=600", "train.evaluate_every=50", "train.patience=100")
    settings = [f"data.path={features}", *IN_DOUBLE, *PROXIES, *longer]
    given = [part for setting in settings for part in ("--set", setting)]
    several = ["--processes", "2", "--max-restarts", "1", "--out", str(folder)]
    command = [sys.executable, "-m", "ccp_dml", "train", "features", "c2-ccp", *given, *several]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as launcher:
        until(lambda: (folder / layout.CHECKPOINT).exists() or launcher.poll() is not None)
        os.kill(child_of_rank(launcher.pid, 1), signal.SIGKILL)
        words = launcher.communicate(timeout=250)[1]
    assert launcher.returncode == 0, words
    assert "Resuming at step" in words
    assert "Another process of this run has ended" in words
    assert words.count("Scoring the test half") == 1, "only the first process may talk"
    undisturbed = tmp_path / "undisturbed"
    train_case(undisturbed, features, "c2-ccp", more=longer)
    assert_equal_runs(folder, undisturbed)
    assert [row["step"] for row in Logbook.reopen(folder).rows()] == list(range(50, 601, 50))
    assert (folder / "result.json").exists()
    assert not list(folder.rglob("*.part"))


def until(condition, seconds=200):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def child_of_rank(parent, rank):
    """Find the process of a rank among the children of the launcher."""
    for child in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return child
    raise AssertionError(f"the launcher has no child of rank {rank}")
