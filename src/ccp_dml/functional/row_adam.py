"""Adam that visits only the rows of a parameter that move, and gives what Adam gives.

Of a million proxies a step gives gradients to a few hundred. Adam moves the others, too, as their first moment fades:
with the gradient g_t (0 where there is none) and the step t counted from 1,

    m_t = b1 m_(t-1) + (1 - b1) g_t            v_t = b2 v_(t-1) + (1 - b2) g_t^2
    w_t = w_(t-1) - lr / (1 - b1^t)  m_t / (sqrt(v_t / (1 - b2^t)) + eps)

j steps after its last gradient a row has m = b1^j m', v = b2^j v' and moves less each time. When b1^j is below the
precision of its numbers (j > J; 343 steps of float64 with b1 = 0.9, 152 of float32) it has come to rest, and stays
where it is until it gets a gradient again. Its moments go on fading, by factors that need not be applied before then:
after k steps at rest, m = b1^k m and v = b2^k v in one go. So a step costs as much as there are rows with a gradient
in the last J steps, and everybody may read any row at any time: it is where Adam has it.

torch's `SparseAdam` is another algorithm: there, a row without a gradient neither moves nor forgets.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ROWS_AT_ONCE = 1 << 16
TOUCHED = "touched"  # in the state of a parameter: the step of each row's last gradient; 0: it never had one


class RowAdam(torch.optim.Adam):
    """Adam for parameters whose gradients are sparse by rows; with dense gradients it is Adam.

    A parameter (..., D) counts as rows of D numbers. Its gradient may be sparse in all dimensions but the last; see
    `row_gradients`. Gradients that are dense now and then are right, and cost what Adam costs. There is no weight
    decay: it would move every row in every step. `zeros_like` makes the moments of such parameters, for instance in
    files.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        *,
        fused: bool = False,
        zeros_like: Callable[[Tensor], Tensor] = torch.zeros_like,
    ) -> None:
        self.zeros_like = zeros_like
        super().__init__(params, lr=lr, betas=betas, eps=eps, fused=fused)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "zeros_like": self.zeros_like}  # torch copies what it knows of alone

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step for all parameters that have a gradient."""
        by_rows = [
            (group, value)
            for group in self.param_groups
            for value in group["params"]
            if value.grad is not None and (value.grad.is_sparse or TOUCHED in self.state[value])
        ]
        gradients = [value.grad for _, value in by_rows]
        for _, value in by_rows:
            value.grad = None  # so that Adam passes over it
        loss = super().step(closure)
        for (group, value), gradient in zip(by_rows, gradients, strict=True):
            value.grad = gradient
            self._step_rows(value, gradient, group["lr"], group["betas"], group["eps"])
        return loss

    def _step_rows(self, value: Tensor, gradient: Tensor, lr: float, betas: tuple[float, float], eps: float) -> None:
        rows, gradients = rows_of(gradient)
        state = self.state[value]
        if TOUCHED not in state:
            self._begin(value, state)
        state["step"] += 1
        step, touched, rest = int(state["step"]), state[TOUCHED], steps_until_rest(betas[0], value.dtype)
        weights, first, second = (
            each.view(-1, value.shape[-1]) for each in (value, state["exp_avg"], state["exp_avg_sq"])
        )

        rested = (step - 1 - rest - touched[rows]).clamp_(min=0).to(value.dtype).unsqueeze(1)  # (U, 1)
        first[rows] *= betas[0] ** rested
        second[rows] *= betas[1] ** rested
        touched[rows] = step
        moving = ((touched > 0) & (touched >= step - rest)).nonzero().squeeze(1)  # ascending, `rows` among them
        places = torch.searchsorted(moving, rows)
        size = lr / (1 - betas[0] ** step)
        root_of_bias = math.sqrt(1 - betas[1] ** step)
        for start in range(0, len(moving), _ROWS_AT_ONCE):
            some = moving[start : start + _ROWS_AT_ONCE]
            m, v = first[some].mul_(betas[0]), second[some].mul_(betas[1])
            here = (places >= start) & (places < start + len(some))
            at, given = places[here] - start, gradients[here]
            m.index_add_(0, at, given, alpha=1 - betas[0])
            v.index_add_(0, at, given.square(), alpha=1 - betas[1])
            first[some], second[some] = m, v
            weights.index_add_(0, some, m.div_(v.sqrt_().div_(root_of_bias).add_(eps)), alpha=-size)

    def _begin(self, value: Tensor, state: dict[str, Any]) -> None:
        """Set up the moments; dense steps that came before count as gradients of all rows."""
        rows = value.numel() // value.shape[-1]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = self.zeros_like(value), self.zeros_like(value)
        state[TOUCHED] = torch.full((rows,), int(state["step"]), dtype=torch.int32, device=value.device)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for value, state in self.state.items():
            if TOUCHED in state:  # torch makes every part of a state a number like the parameter's, in memory
                state[TOUCHED] = state[TOUCHED].to(torch.int32)
                for moment in ("exp_avg", "exp_avg_sq"):
                    state[moment] = self.zeros_like(value).copy_(state[moment])


def steps_until_rest(fading: float, dtype: torch.dtype) -> int:
    """Count the steps after which a first moment has faded below the precision of the numbers it moves."""
    return 0 if fading == 0 else math.ceil(math.log(torch.finfo(dtype).eps) / math.log(fading))


def rows_of(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Read a gradient (..., D) as numbers of rows (U,), ascending, and their gradients (U, D)."""
    if not gradient.is_sparse:
        rows = gradient.reshape(-1, gradient.shape[-1])
        return torch.arange(len(rows), device=gradient.device), rows
    gradient = gradient.coalesce()
    if gradient.sparse_dim() != gradient.dim() - 1:
        raise ValueError(f"a gradient must be sparse in all dimensions but the last, got {gradient.sparse_dim()}")
    rows = gradient.indices()[0]
    for dimension in range(1, gradient.sparse_dim()):
        rows = rows * gradient.shape[dimension] + gradient.indices()[dimension]
    return rows, gradient.values()
