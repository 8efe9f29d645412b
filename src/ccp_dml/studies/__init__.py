"""The paper's studies, each one command: `ccp study NAME`."""

from ccp_dml.studies import alternating, batch_size, geometry, mnist, pool
from ccp_dml.studies.cost import cost
from ccp_dml.studies.search import search
from ccp_dml.studies.study import Study

STUDIES: dict[str, Study] = {
    "mnist": mnist.STUDY,
    "alternating": alternating.STUDY,
    "pool": pool.STUDY,
    "batch-size": batch_size.STUDY,
    "search": search.STUDY,
    "geometry": geometry.STUDY,
    "cost": cost.STUDY,
}
