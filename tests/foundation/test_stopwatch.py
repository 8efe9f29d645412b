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
