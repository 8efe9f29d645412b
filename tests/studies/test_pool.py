"""The grid of proxies and pools: what is trained, and what is told of it."""

import pytest
from support.small_studies import carry_out, concluded, planned, results

from ccp_dml.errors import UserError
from ccp_dml.proxies import pool_size
from ccp_dml.studies.pool import sentence


def test_pool_is_a_grid_of_both_values(ask, tmp_path):
    plan = planned(ask("pool", "study.proxies_per_class=[2, 4]", "study.pool_per_class=[1, 3, 9]"), tmp_path)
    cells = [(one.run.config.ccp.proxies_per_class, one.run.config.ccp.pool_per_class) for one in plan.runs]
    assert cells == [(2, 1), (2, 3), (2, 9), (4, 1), (4, 3), (4, 9)]
    assert [(one.coordinates["proxies"], one.coordinates["pool"]) for one in plan.runs] == cells
    assert [pool_size(b, p) for p, b in cells] == [2, 3, 9, 4, 12, 9]  # what the figure's caption says (D9)
    assert len({one.run.folder for one in plan.runs}) == 6


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("study.pool=[1]", r"'study\.pool' \(--set study\.pool\); did you mean 'study\.pool_per_class'"),
        ("study.pool_per_class=[0]", r"study\.pool_per_class = \[0\].*greater than 0"),
        ("study.pool_per_class=[]", "at least 1 item"),
        ("study.pool_per_class=[4, 1, 4]", r"study\.pool_per_class = \[4, 1, 4\].*name each value once, not 4 twice"),
        ("study.pool_per_class=[true]", r"study\.pool_per_class = \[True\].*it must be a whole number"),
        ("study.trials=3", "'study.trials'"),
    ],
)
def test_wrong_pools_are_one_sentence(setting, message, ask, tmp_path):
    with pytest.raises(UserError, match=message):
        planned(ask("pool", setting), tmp_path)


@pytest.mark.usefixtures("in_this_process")
def test_the_grid_equals_the_results(ask, tmp_path):
    request = ask("pool", "study.proxies_per_class=[1, 3]", "study.pool_per_class=[1, 4]")
    plan = planned(request, tmp_path)
    carry_out(request, tmp_path)
    found = concluded(request, tmp_path)
    validation, test = found.figures[0].panels
    for row, proxies in enumerate((1, 3)):
        for column, pool in enumerate((1, 4)):
            (one,) = results(plan, proxies=proxies, pool=pool)
            assert validation.values[row][column] == pytest.approx(100 * one["validation"]["map_at_r"])
            assert test.values[row][column] == pytest.approx(100 * one["test"]["map_at_r"])
    best = max(found.rows, key=lambda row: row["validation_map_at_r"])
    assert f"P = {best['proxies']} and b = {best['pool']}" in found.paragraph
    assert "tells nothing about chance" in found.paragraph


class MadeUpRun:
    """As much of a finished run as the sentence looks at."""

    def __init__(self, proxies, repeat, score):
        self.coordinates, self.validation = {"proxies": proxies, "pool": 1, "repeat": repeat}, score

    def score(self, half="test"):  # noqa: ARG002
        return self.validation


def told(**scores):
    """The sentence about cells p1, p2, ... with their scores, repeat by repeat."""
    runs = [MadeUpRun(int(cell[1:]), *one) for cell, values in scores.items() for one in enumerate(values)]
    return sentence("c2", runs)


def test_a_cell_with_too_few_pairs_is_not_clearly_worse():
    assert "Against it, 1 of the other 2 cells are not clearly worse" in told(
        p1=[60.0, 61.0, 62.0], p2=[59.0, 62.0, 61.0], p3=[20.0, 21.0, 22.5]
    )
    text = told(p1=[60.0, 61.0, 62.0], p2=[20.0], p3=[20.0, 21.0, 22.5])
    assert "1 of the other 2 cells" in text
    assert "over 1 to 3 pairs is not above zero, or there are too few for one" in text


def test_a_cell_that_lacks_a_hard_repeat_is_not_the_best():
    text = told(p1=[20.0, 21.0, 10.0], p2=[19.0, 20.1])  # p2 has the higher mean, and is below p1 in both pairs
    assert "lies between 17.0 and 19.6 %. Among cells with 3 runs, it is best with P = 1 and b = 1" in text
    text = told(p1=[20.0, 21.0, 30.0], p2=[21.0, 22.1])  # p1 has all runs, and is clearly below p2 in pairs
    assert "Against it, 1 of the other 1 cells are not clearly worse" in text


def test_a_single_cell_is_compared_with_nothing():
    assert told(p1=[60.0, 61.0]).endswith("on unseen classes.")
    assert told(p1=[60.0]).endswith("on unseen classes.")
