"""What a study may say about its runs."""

from types import SimpleNamespace

import pytest

from ccp_dml.studies.spread import at, difference, in_words
from ccp_dml.studies.study import FinishedRun


def run(repeat, score, **coordinates):
    folder = SimpleNamespace(score=lambda half, metric: {"test": score, "validation": score / 2}[half])  # noqa: ARG005
    return FinishedRun({"repeat": repeat, **coordinates}, "run", folder)


def test_runs_are_compared_seed_by_seed():
    better = [run(0, 0.21), run(1, 0.33), run(2, 0.27), run(5, 0.99)]
    worse = [run(2, 0.25), run(0, 0.20), run(1, 0.30)]
    found = difference(better, worse)
    assert found.pairs == 3
    assert found.mean == pytest.approx(0.02)  # 1, 3 and 2 points, with a deviation of one point
    low, high = found.interval  # Student's t with 2 degrees of freedom: 4.3027
    assert (low, high) == pytest.approx((0.02 - 0.043027 / 3**0.5, 0.02 + 0.043027 / 3**0.5), abs=1e-5)
    assert not found.is_clear
    assert difference(better, worse, "validation").mean == pytest.approx(0.01)
    assert difference(better, [run(7, 0.1)]) is None


def test_the_words_say_how_many_runs_there_are():
    assert in_words([19.0, 21.0]) == "20.0 ± 1.4 (n = 2)"
    assert in_words([19.04]) == "19.0 (n = 1)"


def test_runs_are_found_by_their_coordinates():
    runs = [run(0, 0.1, batch=16), run(1, 0.2, batch=16), run(0, 0.3, batch=32)]
    assert at(runs, batch=16, repeat=1) == [runs[1]]
    assert at(runs, batch=64) == []
