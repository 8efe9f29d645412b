"""How the proxies of very many classes are kept: visited by rows, laid into files, divided among processes.

Each process then has the proxies of its own classes, with Adam's moments and the copies that the method keeps. Its
checkpoint is the file that one process would write, with those of all classes, so that any number of processes can go
on with it: `DividedState` collects them before it is written, and cuts out a process's own when it has been read.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation.mapped import MappedFiles
from ccp_dml.functional.row_adam import TOUCHED
from ccp_dml.proxies import ClassProxies

State = dict[str, Any]

VECTORS = "proxies.vectors"  # in the state of the objective
COPIES = ("selected_proxies", "previous_proxies", "best_proxies_of_problem")
OF_ADAM = ("exp_avg", "exp_avg_sq", TOUCHED)


def files_for_proxies(config: Config, device: torch.device, folder: Path) -> MappedFiles | None:
    """Tell where proxies lie, if not in memory."""
    if not config.run.proxies_on_disk:
        return None
    if not config.optim.proxies_by_rows:
        raise UserError(
            "run.proxies_on_disk: Adam would rewrite them all in every step; set optim.proxies_by_rows=true."
        )
    if device.type != "cpu" or not hasattr(os, "posix_fallocate"):
        raise UserError("run.proxies_on_disk needs run.device=cpu on Linux; set it to false.")
    if config.ccp.remembered_problems > 1:
        raise UserError(
            "run.proxies_on_disk: proxies of earlier problems would be joined in memory; set ccp.remembered_problems=1."
        )
    return MappedFiles(folder)


class DividedState:
    """Joins and cuts the state of a run, whose tensors of proxies have one row or more per class, in their order.

    Args:
        proxies: this process's own.
        parameter: the number of `proxies.vectors` among the optimiser's parameters.
    """

    def __init__(self, proxies: ClassProxies, parameter: int) -> None:
        self.proxies, self.parameter = proxies, parameter

    def joined(self, state: State) -> State:
        """Collect the whole state in the first process; the others have to call it, too, and get one without proxies.

        The tables of all classes take the memory of the first process, outside of its GPU, or files, if proxies do.
        """
        return self._with_tables(self._with_equal_entries(state), self._join)

    def _with_equal_entries(self, state: State) -> State:
        """Let Adam's state have the same entries in all processes: some may not have had a gradient by rows yet.

        Their rows count as touched by the last step, as they do when such a gradient comes; see `RowAdam`.
        """
        optimizer = state["trainer"]["optimizer"]
        own = optimizer["state"].get(self.parameter)
        if own is None or not self.proxies.holders.largest(torch.tensor(int(TOUCHED in own))):
            return state
        rows = torch.full((self.proxies.vectors[..., 0].numel(),), int(own["step"]), dtype=torch.int32)
        filled = optimizer["state"] | {self.parameter: {TOUCHED: rows.to(self.proxies.vectors.device)} | own}
        return state | {"trainer": state["trainer"] | {"optimizer": optimizer | {"state": filled}}}

    def own_part(self, state: State, device: torch.device) -> State:
        """Copy this process's part of a whole state to its device."""
        cut = self._with_tables(state, self._cut)
        copied: State = _mapped(cut, lambda value: value.to(device, copy=True))
        return copied

    def _join(self, own: Tensor) -> Tensor | None:
        by_class = own.reshape(len(self.proxies.vectors), -1)
        whole, files = None, self.proxies.files
        if self.proxies.holders.is_first:
            shape = (self.proxies.classes, by_class.shape[1])
            whole = torch.zeros(shape, dtype=own.dtype) if files is None else files.zeros(shape, own.dtype)
        self.proxies.holders.rows_to_first(by_class, whole)
        return None if whole is None else whole.view(-1, *own.shape[1:])

    def _cut(self, whole: Tensor) -> Tensor:
        per_class = len(whole) // self.proxies.classes
        return whole[self.proxies.own.start * per_class : self.proxies.own.stop * per_class]

    def _with_tables(self, state: State, change: Callable[[Tensor], Tensor | None]) -> State:
        """Replace what holds a row or more per class."""

        def changed(part: State, names: tuple[str, ...]) -> State:
            return part | {name: change(part[name]) for name in names if part.get(name) is not None}

        optimizer = state["trainer"]["optimizer"]
        of_adam = optimizer["state"]
        if self.parameter in of_adam:
            of_adam = of_adam | {self.parameter: changed(of_adam[self.parameter], OF_ADAM)}
        return state | {
            "objective": changed(state["objective"], (VECTORS,)),
            "projections": changed(state["projections"], COPIES),
            "trainer": state["trainer"] | {"optimizer": optimizer | {"state": of_adam}},
        }


def divided_state(proxies: ClassProxies | None, optimizer: Optimizer) -> DividedState | None:
    """Tell how to join and to cut a checkpoint; None unless processes share the proxies."""
    if proxies is None or proxies.holders.count == 1:
        return None
    parameters = [value for group in optimizer.param_groups for value in group["params"]]
    return DividedState(proxies, next(n for n, value in enumerate(parameters) if value is proxies.vectors))


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change every tensor in nested dictionaries and lists."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((key, _mapped(inner, change)) for key, inner in value.items())
    return [_mapped(inner, change) for inner in value] if isinstance(value, list) else value
