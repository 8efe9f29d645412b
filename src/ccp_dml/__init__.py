"""Deep metric learning with chance constraints.

The parts of the method, for anybody's own training loop; the command `ccp` puts them together.
"""

from ccp_dml import losses
from ccp_dml.evaluation import embed
from ccp_dml.functional.distances import clip_normalise
from ccp_dml.functional.kcenter import covering_radius, greedy_k_center
from ccp_dml.functional.retrieval import RetrievalScores, retrieval_scores
from ccp_dml.projections import IterativeProjections, ProximalPull
from ccp_dml.proxies import BatchObjective, ClassProxies, ProxyObjective, draw_pool

__all__ = [
    "BatchObjective",
    "ClassProxies",
    "IterativeProjections",
    "ProximalPull",
    "ProxyObjective",
    "RetrievalScores",
    "clip_normalise",
    "covering_radius",
    "draw_pool",
    "embed",
    "greedy_k_center",
    "losses",
    "retrieval_scores",
]
