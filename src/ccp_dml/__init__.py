"""Deep metric learning with chance constraints.

The parts of the method, for anybody's own training loop; the command `ccp` puts them together. `load` puts a trained
network to work, `open_index` an index.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccp_dml import losses
    from ccp_dml.evaluation import embed
    from ccp_dml.foundation.machine import keep_freed_memory
    from ccp_dml.functional.distances import clip_normalise
    from ccp_dml.functional.kcenter import covering_radius, greedy_k_center
    from ccp_dml.functional.retrieval import RetrievalScores, retrieval_scores
    from ccp_dml.objectives import BatchObjective, ProxyObjective
    from ccp_dml.pace import Pace
    from ccp_dml.projections import IterativeProjections, ProximalPull
    from ccp_dml.proxies import ClassProxies, draw_pool
    from ccp_dml.serving.search.image_search import open_index
    from ccp_dml.serving.stored_model import load

__all__ = [
    "BatchObjective",
    "ClassProxies",
    "IterativeProjections",
    "Pace",
    "ProximalPull",
    "ProxyObjective",
    "RetrievalScores",
    "clip_normalise",
    "covering_radius",
    "draw_pool",
    "embed",
    "greedy_k_center",
    "keep_freed_memory",
    "load",
    "losses",
    "open_index",
    "retrieval_scores",
]

_HOMES = {
    "BatchObjective": "objectives",
    "ClassProxies": "proxies",
    "IterativeProjections": "projections",
    "Pace": "pace",
    "ProximalPull": "projections",
    "ProxyObjective": "objectives",
    "RetrievalScores": "functional.retrieval",
    "clip_normalise": "functional.distances",
    "covering_radius": "functional.kcenter",
    "draw_pool": "proxies",
    "embed": "evaluation",
    "greedy_k_center": "functional.kcenter",
    "keep_freed_memory": "foundation.machine",
    "load": "serving.stored_model",
    "open_index": "serving.search.image_search",
    "retrieval_scores": "functional.retrieval",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds, which `ccp --help` or Tab should not."""
    if name == "losses":
        return import_module("ccp_dml.losses")
    if name not in _HOMES:
        raise AttributeError(f"module 'ccp_dml' has no attribute {name!r}")
    return getattr(import_module(f"ccp_dml.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
