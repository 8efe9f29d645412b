"""The grid of proxies and pools: what is trained, and what is told of it."""

import pytest
from support.small_studies import carry_out, concluded, planned, results

from ccp_dml.errors import UserError
from ccp_dml.proxies import pool_size


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
