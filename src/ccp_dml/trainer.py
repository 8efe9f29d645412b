"""One training loop for every method: take steps, evaluate, report, until the current problem is solved."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from ccp_dml.errors import NonFiniteError, UserError
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.foundation.randomness import drawing_alike
from ccp_dml.foundation.stopwatch import Stopwatch
from ccp_dml.functional.distances import at_least_float32
from ccp_dml.functional.gradients import add_to_gradients
from ccp_dml.functional.retrieval import RetrievalScores
from ccp_dml.functional.row_gradients import clip_gradients
from ccp_dml.losses.activity import MeasuredPairs, PairActivity, pair_activity, recorded_pairs

LEAST_SCALE = 1.0
"""In 16-mixed, a gradient that overflows at a smaller scale is broken: no scale will help, and no step be taken."""


class Problem(Protocol):
    """What the trainer must know of the problem it solves; see `IterativeProjections`."""

    @property
    def problem_open(self) -> bool: ...

    def count_step(self) -> None: ...

    def observe(self, score: float) -> bool: ...


class Pull(Protocol):
    def add_gradient(self) -> None: ...


class Batches(Protocol):
    """An endless stream of (inputs, labels) that can be saved and restored."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation found, for the run's log."""

    previous_step: int  # of the evaluation before; 0 for the first
    step: int
    scores: RetrievalScores
    loss: float  # mean over the steps since the previous evaluation
    gradient_norm: float | None  # likewise, before clipping; None: a scaler skipped all of them
    is_best: bool
    seconds: float  # of training so far, interruptions left out
    evaluation_seconds: float  # what evaluations took of them
    activity: PairActivity | None = None  # of the last step; None: the loss has no pairs


class Trainer:
    """Trains a network and an objective together. `take_step` shows every term of the gradient.

    Args:
        fabric: brings device, precision and strategy.
        network: embeds a batch; already set up by `fabric`.
        objective: `objective(embeddings, labels) -> loss`; may own parameters, proxies for instance.
        optimizer: must own every trainable parameter of network and objective; already set up by `fabric`.
        batches: endless training batches.
        evaluate: gives validation scores of the current network.
        pull: adds the lambda term to the gradients; None for baselines.
        evaluate_every: steps between evaluations.
        max_steps: the last window before an evaluation is cut so that training ends here; None: no limit.
        weight_decay: coupled L2 decay of `decayed` (D13).
        decayed: the parameters that decay; see `decaying_parameters`.
        clip_norm: largest global norm of the gradient (D15).
        warm_up_steps: for so many steps at first, the parameters `resting` are not trained.
        resting: normally the backbone's, so that the last layer and the proxies get ready first.
        processes: those that train together. Each embeds its own part of a batch, and then goes on with the whole.
        divided: parameters of which each process trains a part of its own; the others are the same in all.
        after_step: called with the number of steps taken, for progress displays.
        after_evaluation: called when the problem has seen the score, for logs and checkpoints.
    """

    def __init__(
        self,
        fabric: Fabric,
        network: nn.Module,
        objective: nn.Module,
        optimizer: Optimizer,
        batches: Batches,
        evaluate: Callable[[], RetrievalScores],
        *,
        pull: Pull | None = None,
        evaluate_every: int = 25,
        max_steps: int | None = None,
        weight_decay: float = 1e-4,
        decayed: Sequence[nn.Parameter] = (),
        clip_norm: float = 10.0,
        warm_up_steps: int = 0,
        resting: Sequence[nn.Parameter] = (),
        processes: Processes = ALONE,
        divided: Sequence[nn.Parameter] = (),
        after_step: Callable[[int], None] | None = None,
        after_evaluation: Callable[[Evaluation], None] | None = None,
    ) -> None:
        self.fabric, self.network, self.objective, self.optimizer = fabric, network, objective, optimizer
        self.inner_network = getattr(network, "module", network)  # Fabric's wrapper does not know what mode this is in
        self.inner_optimizer = getattr(optimizer, "optimizer", optimizer)  # for whom a scaler counts what it unscales
        self.batches, self.evaluate, self.pull = batches, evaluate, pull
        self.evaluate_every, self.max_steps = evaluate_every, max_steps
        self.weight_decay, self.decayed, self.clip_norm = weight_decay, list(decayed), clip_norm
        self.warm_up_steps, self.resting = warm_up_steps, list(resting)
        self.processes, self.after_step, self.after_evaluation = processes, after_step, after_evaluation
        self.step = 0
        self.evaluated_step = 0  # the step of the last evaluation
        self.measured: list[Tensor] = []  # per step since then: largest embedding entry, loss, gradient norm
        self.seconds_before = 0.0  # spent before the run was interrupted
        self.started = monotonic()
        self.evaluation_clock = Stopwatch()
        self.divided, apart = list(divided), {id(value) for value in divided}
        trained = (value for value in (*network.parameters(), *objective.parameters()) if value.requires_grad)
        self.trained = [value for value in trained if id(value) not in apart]  # in all processes alike
        self._stream: Iterator[tuple[Tensor, Tensor]] | None = None
        refuse_orphans(network, objective, optimizer)

    def solve(self, problem: Problem) -> None:
        """Train the current problem until it ends: after an evaluation, or between two where its pace says so."""
        while problem.problem_open:
            previous_step = self.evaluated_step
            window = self.train_until_evaluation(problem)
            if window is None:
                return
            with self.evaluation_clock:
                scores = self.evaluate()
            is_best = problem.observe(scores.map_at_r)
            if self.after_evaluation is not None:
                loss, gradient_norm, activity = window
                times = (self.seconds, self.evaluation_clock.seconds)
                self.after_evaluation(
                    Evaluation(previous_step, self.step, scores, loss, gradient_norm, is_best, *times, activity)
                )

    @property
    def seconds(self) -> float:
        return self.seconds_before + monotonic() - self.started

    def train_until_evaluation(
        self, problem: Problem | None = None
    ) -> tuple[float, float | None, PairActivity | None] | None:
        """Take the steps up to the next evaluation; return mean loss, mean gradient norm, and the last step's pairs.

        None if `problem` ends before: the next problem then takes the steps that are left of the window. What each step
        measured stays on the device until the window ends: a step never waits for the device.
        """
        last = self.evaluated_step + self.evaluate_every
        last = last if self.max_steps is None else min(last, self.max_steps)
        record: list[MeasuredPairs] = []
        while self.step < last:
            if not self.inner_network.training:  # an evaluation, or a look at the proxies' staleness, leaves it so
                self.network.train()
            with recorded_pairs() if self.step == last - 1 else nullcontext(record) as record:
                self.measured.append(self.take_step())
            self.step += 1
            if self.after_step is not None:
                self.after_step(self.step)
            if problem is not None:
                problem.count_step()
                if self.step < last and not problem.problem_open:
                    return None
        history = torch.stack(self.measured).cpu()  # (window, 3): embeddings, loss, gradient norm
        self.refuse_non_finite(history, self.evaluated_step)
        self.measured, self.evaluated_step = [], self.step
        norms = history[:, 2][history[:, 2].isfinite()]  # the others are of steps that a scaler skipped
        return float(history[:, 1].mean()), float(norms.mean()) if len(norms) else None, pair_activity(record)

    def take_step(self) -> Tensor:
        """Take one step of the optimiser; measure (3,): largest embedding entry, loss and gradient norm."""
        inputs, labels = self.next_batch()
        embeddings, labels = self.processes.gather(self.network(inputs)), self.processes.gather(labels)
        # An objective may take gradients by itself, to balance its terms for instance. In mixed precision, Fabric lets
        # nobody but `fabric.backward` take those of what the network gives; of a view of it, anybody may.
        embeddings = embeddings.view_as(embeddings)
        alone = self.processes.count == 1
        with nullcontext() if alone else drawing_alike(self.fabric.device, "loss", self.step):  # of one batch, one loss
            loss = with_gradient(self.objective(embeddings, labels), embeddings)
        for group in self.inner_optimizer.param_groups:
            for value in group["params"]:
                value.grad = None  # as `zero_grad` does, which takes as long as a small layer
        self.fabric.backward(loss)
        self.fabric.strategy.precision.unscale_gradients(self.inner_optimizer)  # only in 16-mixed
        if self.step < self.warm_up_steps:
            for value in self.resting:
                value.grad = None
        if self.pull is not None:
            self.pull.add_gradient()
        add_to_gradients(self.decayed, self.decayed, self.weight_decay)
        norm = clip_gradients(
            self.trained, self.clip_norm, self.divided, self.processes.total if self.divided else None
        )
        self.optimizer.step()
        return torch.stack(
            [at_least_float32(value) for value in (embeddings.detach().abs().amax(), loss.detach(), norm)]
        )

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Take the next batch to the device, without waiting for it to arrive."""
        if self._stream is None:
            self._stream = iter(self.batches)
        inputs, labels = next(self._stream)
        device = self.fabric.device
        return inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    def refuse_non_finite(self, history: Tensor, first: int) -> None:
        """Stop at the first step whose embeddings, loss or gradient were not finite."""
        finite = torch.isfinite(history)
        scale = self.fabric.strategy.precision.state_dict().get("scale")
        if scale is not None and scale >= LEAST_SCALE:
            finite[:, 2] = True  # the scaler meets overflowing gradients by skipping the step
        if finite.all():
            return
        row = int((~finite.all(dim=1)).int().argmax())
        what = ("embeddings are", "loss is", "gradient norm is")[int((~finite[row]).int().argmax())]
        embeddings, loss, norm = history[row].tolist()
        raise NonFiniteError(
            f"Step {first + row + 1}: the {what} not finite (largest embedding entry {embeddings:.4g}, "
            f"loss {loss:.4g}, gradient norm {norm:.4g})."
        )

    def state_dict(self) -> dict[str, Any]:
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "evaluation_seconds": self.evaluation_clock.seconds,
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state_dict(),
        }
        scale = self.fabric.strategy.precision.state_dict()  # of gradients, in 16-mixed; empty otherwise
        return state | {"scale": scale} if scale else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = self.evaluated_step = state["step"]
        self.measured = []
        self.seconds_before, self.started = state["seconds"], monotonic()
        self.evaluation_clock.seconds = state["evaluation_seconds"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["batches"])
        if "scale" in state:
            self.fabric.strategy.precision.load_state_dict(state["scale"])
        self._stream = None


def with_gradient(loss: Tensor, embeddings: Tensor) -> Tensor:
    """Give a plain zero, which a loss may return where it finds no pairs, a gradient of zeros; refuse other constants.

    Only a constant is looked at: of any other loss, the device is not waited for.
    """
    if loss.grad_fn is not None:
        return loss
    if loss != 0:
        raise UserError(
            "the loss has no gradient: compute it from the embeddings, without detach, item or NumPy in between."
        )
    return loss.detach() + 0 * embeddings.sum()


def decaying_parameters(*modules: nn.Module) -> list[nn.Parameter]:
    """List the trainable weights, biases and proxies, but nothing that belongs to a normalisation layer (D13).

    A weight that several layers share stands there once.
    """
    found = {
        id(value): value
        for module in modules
        for part in module.modules()
        if not is_normalisation(part)
        for value in part.parameters(recurse=False)
        if value.requires_grad
    }
    return list(found.values())


def is_normalisation(part: nn.Module) -> bool:
    """Recognise a normalisation layer by its name (BatchNorm2d, RMSNorm, ...): libraries bring many of their own."""
    name = type(part).__name__
    return "Norm" in name and not name.startswith("Normal")


def refuse_orphans(network: nn.Module, objective: nn.Module, optimizer: Optimizer) -> None:
    """Raise if a trainable parameter has no optimiser: a loss with forgotten proxies would train to nonsense."""
    owned = {id(value) for group in optimizer.param_groups for value in group["params"]}
    for part, module in (("network", network), ("objective", objective)):
        for name, value in module.named_parameters():
            if value.requires_grad and id(value) not in owned:
                raise ValueError(
                    f"the optimiser does not own the {part}'s trainable parameter {name!r}; add it to a group"
                )
