"""What a training holds in memory, counted tensor by tensor: exact, and the same on every machine."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ccp_dml.projections import IterativeProjections
from ccp_dml.trainer import Trainer


def bytes_held(network: nn.Module, projections: IterativeProjections, trainer: Trainer) -> int:
    """Between two steps: weights, gradients, moments, proxies, and the snapshots of Algorithm 1."""
    gradients = [value.grad for value in trainer.trained]
    states = (network, trainer.objective, trainer.optimizer, projections)
    return bytes_of([gradients, *(state.state_dict() for state in states)])


def bytes_kept_for_backward(trainer: Trainer) -> int:
    """What the forward pass of one step keeps for the backward pass, weights left out. Takes that step."""
    weights = {storage(value) for value in (*trainer.network.parameters(), *trainer.objective.parameters())}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        if storage(value) not in weights:
            kept[storage(value)] = value.untyped_storage().nbytes()
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        trainer.take_step()
    return sum(kept.values())


def bytes_of(value: Any) -> int:
    """All tensors in nested dictionaries and lists; those that share their memory count once."""
    return sum({storage(one): one.untyped_storage().nbytes() for one in tensors_in(value)}.values())


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)


def storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()
