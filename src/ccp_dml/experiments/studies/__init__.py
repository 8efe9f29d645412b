"""The paper's studies, each one command: `ccp study NAME`."""

from ccp_dml.experiments.studies import alternating, batch_size, cost, geometry, mnist, pool, search
from ccp_dml.experiments.studies.study import Study

STUDIES: dict[str, Study] = {
    "mnist": mnist.STUDY,
    "alternating": alternating.STUDY,
    "pool": pool.STUDY,
    "batch-size": batch_size.STUDY,
    "search": search.STUDY,
    "geometry": geometry.STUDY,
    "cost": cost.STUDY,
}
