"""A stopwatch adds up what it measures."""

import pytest

from ccp_dml.foundation import stopwatch


def test_blocks_add_up_and_what_lies_between_does_not(monkeypatch):
    times = iter([10.0, 12.0, 100.0, 100.5])
    monkeypatch.setattr(stopwatch, "monotonic", lambda: next(times))
    clock = stopwatch.Stopwatch()
    with clock:
        pass
    with pytest.raises(RuntimeError), clock:
        raise RuntimeError
    assert clock.seconds == 2.5


def test_laps_of_the_same_name_add_up_and_begin_forgets(monkeypatch):
    times = iter([10.0, 12.0, 12.5, 15.5, 100.0, 101.0])
    monkeypatch.setattr(stopwatch, "monotonic", lambda: next(times))
    timer = stopwatch.LapTimer()
    timer.begin()
    for name in ("forward", "loss", "forward"):
        timer.lap(name)
    assert timer.seconds == {"forward": 5.0, "loss": 0.5}
    timer.begin()
    timer.lap("loss")
    assert timer.seconds == {"loss": 1.0}


def test_laps_wait_for_work_behind_the_caller_before_they_read_the_clock(monkeypatch):
    calls = []
    monkeypatch.setattr(stopwatch, "monotonic", lambda: calls.append("clock") or 0.0)
    timer = stopwatch.LapTimer(wait=lambda: calls.append("wait"))
    timer.begin()
    timer.lap("forward")
    assert calls == ["wait", "clock"] * 2
