"""A kill, a full disk, a signal or a jump of the clock loses nothing. `make attack` does it a thousand times.

Every run of the tests sees a part of the cheap works; trainings, benchmarks and studies are slow.
"""

import itertools
import random
import signal
from functools import partial

import pytest

from attack.bad_serving import Serving
from attack.disturbances import clock_jumps_at, full_at, kill_at, kill_within_a_write, signal_at
from attack.kills import SIGNALS, disturb, series, whole_of
from attack.verdicts import BAD, CLEAR, FINE, SILENT, TRACE, in_child, judge
from attack.works import Ground, Work, fill_cache, of_tree
from ccp_dml.cli import main

CHEAP = ("records of a run", "feature cache", "ccp data prepare")
DEAR = ("ccp index", "ccp export", "ccp train", "ccp benchmark --workers 2", "ccp study")


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("ground"))


def verdicts_of(ground, name, kind, first, step, most):
    """Disturb a work in one way: the verdicts of the cases that came to something."""
    _ = ground.features, ground.archive
    work = ground.work(name)
    whole = whole_of(work, ground.folder)
    chosen = itertools.islice(series(whole, random.Random(name))[kind], first, first + step * most, step)
    return [found for how in chosen if (found := disturb(work, how, whole)) is not None]


@pytest.mark.parametrize(
    ("kind", "step"), [("kill at an event", 5), ("kill within a write", 1), ("full disk within a write", 1)]
)
@pytest.mark.parametrize("name", CHEAP)
def test_cheap_works_survive(name, kind, step, ground):
    found = verdicts_of(ground, name, kind, 1, step, 3)
    assert len(found) >= 2
    for verdict, said in found:
        assert verdict not in BAD, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first", "step"),
    [
        ("kill at an event", 3, 37),
        ("kill within a write", 0, 1),
        ("full disk at an event", 9, 23),
        ("full disk within a write", 0, 1),
        ("signal", 20, 7),
    ],
)
@pytest.mark.parametrize("name", DEAR)
def test_dear_works_survive(name, kind, first, step, ground):
    if name in ("ccp index", "ccp export"):
        _ = ground.photo_run
    for verdict, said in verdicts_of(ground, name, kind, first, step, 2):
        assert verdict not in BAD, said


def test_what_only_reads_has_no_event_to_be_killed_at(ground):
    """`ccp evaluate`, `ccp search` and answers of `ccp serve`, in a process that would die of the first event."""
    serving = Serving(ground)
    run = ground.folder / "run of vectors"
    assert run.exists() or ground.train(run) == 0
    before = of_tree(ground.folder)

    def requests() -> int:
        drawn = (serving.request(random.Random(seed), ground.folder) for seed in range(40))
        return int(any(judge(request)[0] in BAD for request in drawn))

    commands = [["evaluate", str(run), "--json"], ["search", str(serving.index), str(serving.picture)]]
    for work in (requests, *(partial(main, command) for command in commands)):

        def would_die(work=work):
            kill_at(1).prepare()
            return work()

        ended = in_child(would_die)
        assert ended.code == 0, ended
    assert of_tree(ground.folder) == before


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_end_a_work_that_goes_on_afterwards(number, ground):
    work = ground.work("records of a run")
    found = disturb(work, signal_at(5, number), whole_of(work, ground.folder))
    assert found is not None
    assert found[0] == FINE, found[1]


@pytest.mark.parametrize("seconds", [-3e8, 3e8])
def test_jumps_of_the_clock_change_nothing(seconds, ground):
    work = ground.work("records of a run")
    found = disturb(work, clock_jumps_at(4, seconds), whole_of(work, ground.folder))
    assert found == (FINE, "")


def test_a_full_disk_is_told_in_a_sentence(ground):
    work = ground.work("records of a run")
    verdict, said = disturb(work, full_at(3), whole_of(work, ground.folder))
    assert verdict == CLEAR
    assert "No space left on device" in said


def careless(out):
    """Write a file in place, as nobody should."""
    out.mkdir(exist_ok=True)
    if not (out / "text").exists():
        with (out / "text").open("w") as file:
            for _ in range(3):
                file.write("x" * 10)
                file.flush()


def test_what_a_careless_work_leaves_is_noticed(tmp_path):
    work = Work("careless", careless, of_tree)
    verdict, said = disturb(work, kill_within_a_write(15), whole_of(work, tmp_path))
    assert verdict == SILENT, said
    assert disturb(work, kill_at(99), whole_of(work, tmp_path)) is None  # it has not so many events


def test_a_work_that_cannot_go_on_is_noticed(tmp_path):
    def stubborn(out):
        out.mkdir()  # fails the second time
        (out / "text").write_text("x")

    work = Work("stubborn", stubborn, of_tree)
    verdict, said = disturb(work, kill_at(2), whole_of(work, tmp_path))
    assert verdict == TRACE
    assert "FileExistsError" in said


def test_a_child_that_does_not_end_is_stopped():
    assert in_child(signal.pause, seconds=0.5).code is None


def test_a_cache_that_is_read_back_wrong_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("ccp_dml.records.feature_store.file_digest", lambda _: "same")
    fill_cache(tmp_path)
    (file,) = tmp_path.rglob("features.f16")
    content = bytearray(file.read_bytes())
    content[-1] ^= 64
    file.write_bytes(content)
    with pytest.raises(AssertionError):
        fill_cache(tmp_path)
