"""Deep metric learning with chance constraints.

The parts of the method, for anybody's own training loop; the command `ccp` puts them together. `load` puts a trained
network to work.
"""

from typing import TYPE_CHECKING, Any

from ccp_dml import losses
from ccp_dml.evaluation import embed
from ccp_dml.functional.distances import clip_normalise
from ccp_dml.functional.kcenter import covering_radius, greedy_k_center
from ccp_dml.functional.retrieval import RetrievalScores, retrieval_scores
from ccp_dml.projections import IterativeProjections, ProximalPull
from ccp_dml.proxies import BatchObjective, ClassProxies, ProxyObjective, draw_pool

if TYPE_CHECKING:
    from ccp_dml.serving.stored_model import load as load

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
    "load",
    "losses",
    "retrieval_scores",
]


def __getattr__(name: str) -> Any:
    """Import `load` when it is asked for: it needs timm and Lightning, which someone's own loop may do without."""
    if name == "load":
        from ccp_dml.serving.stored_model import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
