"""The two runs whose cost is compared."""

import pytest
from support.small_studies import SMALL_COST

from ccp_dml.studies import STUDIES


@pytest.fixture
def planned(ask, tmp_path):
    plan = STUDIES["cost"].plan(ask("cost", *SMALL_COST), tmp_path / "study")
    return {one.coordinates["method"]: one.run for one in plan.runs}
