"""What a person sees of one run, and of a counted job: bars in a terminal, lines elsewhere."""

import io

import pytest
from rich.console import Console

from ccp_dml.commands import progress
from ccp_dml.commands.console import AS_IT_IS
from ccp_dml.commands.progress import CountingProgress, ProgressWatcher
from ccp_dml.config.layers import resolve

CONFIG = resolve(
    ["features", "c2"], ["train.max_steps=100", "train.classes_per_batch=4", "train.images_per_class=2"]
).config


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""

    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def console(is_terminal=False):
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=160, **AS_IT_IS)


def row(step, problem=1, score=0.25):
    return {"step": step, "problem": problem, "loss": 0.5, "map_at_r": score}


def test_a_log_file_gets_new_problems_and_otherwise_a_line_now_and_then(clock):
    shown = console()
    watcher = ProgressWatcher(shown)
    watcher.start(CONFIG, 0)
    clock.now += 2.0
    watcher.step(10)
    watcher.evaluation(row(10), best=0.25)
    watcher.evaluation(row(20), best=0.25)  # too soon
    watcher.evaluation(row(30, problem=2), best=0.5)
    clock.now += progress.QUIET_SECONDS + 1
    watcher.evaluation(row(40, problem=2), best=0.5)
    lines = shown.file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["10", "30", "40"]
    assert lines[0].endswith("loss 0.5000  MAP@R 0.2500 (best 0.2500)  problem 1  40 images/s")


def test_the_speed_leaves_evaluations_out(clock):
    watcher = ProgressWatcher(console())
    watcher.start(CONFIG, 50)  # resumed: the steps before are not of this process
    clock.now += 1.0
    watcher.step(60)
    assert watcher.speed == 10 * 8 / 1.0
    clock.now += 100.0  # an evaluation
    watcher.evaluation(row(60), best=0.25)
    clock.now += 2.0
    watcher.step(70)
    assert watcher.speed == 10 * 8 / 2.0


def test_a_terminal_gets_a_bar_that_ends_with_the_run():
    shown = console(is_terminal=True)
    watcher = ProgressWatcher(shown)
    watcher.start(CONFIG, 0)
    watcher.step(25)
    watcher.evaluation(row(25), best=0.25)
    watcher.bar.refresh()
    watcher.finishing()
    assert watcher.bar is None
    assert "step 25/100" in shown.file.getvalue()
    assert "(best 0.2500)" in shown.file.getvalue()
    assert "Scoring the test half" in shown.file.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize(("job", "title"), [("extracting", "Features"), ("reading_test", "Reading test images")])
def test_jobs_before_training_are_counted_to_their_end(is_terminal, job, title, clock):  # noqa: ARG001
    shown = console(is_terminal)
    watcher = ProgressWatcher(shown)
    for done in (1000, 2000, 3000):
        getattr(watcher, job)(done, 3000)
    assert watcher.bar is None
    text = shown.file.getvalue()
    assert (f"{title} 3,000/3,000" if is_terminal else f"{title} 3,000 of 3,000") in text


def test_notes_are_shown_as_they_are():
    shown = console()
    ProgressWatcher(shown).note("left out [bold]/1.png")
    assert shown.file.getvalue() == "left out [bold]/1.png\n"


def test_a_counted_job_is_told_now_and_then(clock):
    shown = console()
    with CountingProgress(shown, "images") as job:
        job.report("resizing", 10, 5000)
        clock.now += progress.QUIET_SECONDS + 1
        job.report("resizing", 2000, 5000)
        clock.now += progress.QUIET_SECONDS + 1
        job.report("reading", 3000, None)
    assert shown.file.getvalue().splitlines() == ["resizing: 2,000 of 5,000 images", "reading: 3,000 images"]


def test_each_job_has_one_bar_in_a_terminal():
    shown = console(is_terminal=True)
    with CountingProgress(shown, "images") as progress_bars:
        for done in (1, 2, 3):
            progress_bars.report("resizing", done, 3)
        progress_bars.report("reading", 1, 2)
        assert [(task.description, task.completed, task.total) for task in progress_bars.bar.tasks] == [
            ("resizing", 3, 3),
            ("reading", 1, 2),
        ]
