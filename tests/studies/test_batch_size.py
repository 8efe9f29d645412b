"""Batch sizes with and without CCP: what is trained, and what is told of it."""

import pytest
from support.small_studies import concluded, planned, results

from ccp_dml.errors import UserError
from ccp_dml.plans.runner import LocalRunner, execute
from ccp_dml.studies.batch_size import BatchSizeOptions
from ccp_dml.studies.request import StudyRequest


def test_batch_size_varies_the_classes_and_keeps_the_images_of_a_class(ask, tmp_path):
    plan = planned(ask("batch-size", "study.batch_sizes=[16, 128]"), tmp_path)
    shapes = [(one.run.config.train.classes_per_batch, one.run.config.train.images_per_class) for one in plan.runs]
    assert shapes == [(4, 4), (4, 4), (32, 4), (32, 4)]
    assert [one.coordinates["method"] for one in plan.runs] == ["c2", "c2-ccp"] * 2


def test_the_papers_batch_sizes():
    full = StudyRequest("batch-size", "cub", ("c2",), True, ())
    assert full.options(BatchSizeOptions).batch_sizes == (16, 32, 64, 128)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("[18]", "18 does not hold .* multiples of 4"),
        ("[4]", "at least two whole classes"),
        ("[16, 16]", "name each value once, not 16 twice"),
    ],
)
def test_wrong_batch_sizes_are_one_sentence(sizes, message, ask, tmp_path):
    with pytest.raises(UserError, match=message):
        planned(ask("batch-size", f"study.batch_sizes={sizes}"), tmp_path)


@pytest.mark.usefixtures("in_this_process")
def test_a_study_that_is_not_finished_concludes_from_what_there_is(ask, tmp_path):
    request = ask("batch-size", "study.batch_sizes=[8, 12]")
    plan = planned(request, tmp_path)
    assert concluded(request, tmp_path) is None
    first = [one.run for one in plan.runs if one.coordinates != plan.runs[-1].coordinates]
    execute(first, LocalRunner())
    found = concluded(request, tmp_path)
    assert found.notes == ["1 of 4 runs are not finished; the same command goes on."]
    steps = [one["steps"] for one in results(plan, method="c2")]
    assert "From 8 to 12 images in a batch: without CCP " in found.paragraph
    assert steps[0] == steps[1], "so that larger batches saw more images"
    assert f"the runs saw {8 * steps[0]} images in batches of 8 and {12 * steps[1]} in those of 12." in found.paragraph
    without, with_ccp = found.figures[0].panels[0].lines
    assert (without.x, with_ccp.x) == ([8, 12], [8])
    assert without.y == pytest.approx([100 * one["test"]["map_at_r"] for one in results(plan, method="c2")])
    gain = 100 * (found.rows[1]["test_map_at_r"] - found.rows[0]["test_map_at_r"])
    assert f"at 8, {gain:+.2f} points in one pair of runs, which tells nothing about chance" in found.paragraph
