"""What a configuration says about the pace of problems."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.projections import Pace
from ccp_dml.runs.assembly import pace_of


@pytest.mark.parametrize(
    ("settings", "steps", "staleness"),
    [
        ([], None, None),
        (["ccp.until=stale", "ccp.staleness=0.5"], None, 0.5),
        (["ccp.until=steps", "ccp.steps_per_problem=70"], 70, None),
    ],
    ids=["the paper", "stale", "steps"],
)
def test_a_problem_is_ended_by_what_the_setting_names(settings, steps, staleness):
    settings = [*settings, "train.classes_per_batch=10", "train.images_per_class=4", "ccp.check_every=5"]
    config = resolve(["cub", "c2-ccp"], settings).config
    pace = pace_of(config, classes=75)
    assert pace == Pace(steps, staleness, at_least=23, check_every=5)  # 75 classes x 12 images, 40 of them a step
