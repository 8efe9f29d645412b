"""The paper: deep metric learning as iterated projections onto chance-constraint sets (Algorithm 1).

How the paper's lines and equations map to this file:

| paper | here |
|---|---|
| theta, rho | the network's weights, `ClassProxies.vectors` |
| theta_prev, rho_prev | `ProximalPull.anchor`, `IterativeProjections.previous_proxies` |
| pool of b images per class (Algorithm 1) | the `embed_pool` callable |
| greedy k-center (Algorithm 2) | `proxies.select_proxies` |
| lambda/2 ||theta - theta_prev||^2 (the projection's regulariser) | `ProximalPull`, whose gradient joins the loss's |
| minimise over theta, rho until validation MAP@R stalls | the `solve` callable, normally `Trainer.solve` |
| while not converged | `IterativeProjections.run` |

A baseline is the same loop with one problem that never ends by itself: no proxies (or one fixed set) and no pull.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.foundation.randomness import generator
from ccp_dml.foundation.stopwatch import Stopwatch
from ccp_dml.functional.gradients import add_to_gradients
from ccp_dml.proxies import ClassProxies, Space, select_proxies


@dataclass
class Patience:
    """Used up after `limit` evaluations in a row without a gain of at least `min_improvement`; None waits for ever."""

    limit: int | None
    min_improvement: float = 1e-5
    best: float = -inf
    to_beat: float = -inf
    waited: int = 0

    def observe(self, score: float) -> bool:
        """Count one evaluation; True if it is the best so far, be it by ever so little."""
        if score >= self.to_beat + self.min_improvement:
            self.to_beat, self.waited = score, 0
        else:
            self.waited += 1
        is_best = score > self.best
        self.best = max(self.best, score)
        return is_best

    @property
    def used_up(self) -> bool:
        return self.limit is not None and self.waited >= self.limit

    def restart(self) -> None:
        """Begin anew, as for the next problem: earlier scores no longer count."""
        self.best, self.to_beat, self.waited = -inf, -inf, 0

    def state_dict(self) -> dict[str, Any]:
        state = asdict(self)
        return {name: state[name] for name in ("best", "to_beat", "waited")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.to_beat, self.waited = state["best"], state["to_beat"], state["waited"]


Snapshot = dict[str, Tensor]


def snapshot(module: nn.Module) -> Snapshot:
    """A copy of a module's state that further training does not touch."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class ProximalPull:
    """The lambda term: an attraction of the network's weights towards the previous problem's solution (D1).

    Before the first problem is solved there is nothing to stay near, and the pull does nothing (D2).

    Args:
        network: its trainable parameters are pulled; the proxies are not part of it.
        weight: lambda.
    """

    def __init__(self, network: nn.Module, weight: float) -> None:
        self.weight = weight
        self.parameters = {name: value for name, value in network.named_parameters() if value.requires_grad}
        self.anchor: Snapshot = {}

    def move_anchor(self, weights: Snapshot) -> None:
        """Let the pull point to `weights` (theta_prev), a snapshot of the network, from now on."""
        self.anchor = {name: weights[name] for name in self.parameters}

    def add_gradient(self) -> None:
        """Add lambda (theta - theta_prev) to the gradients. Call it between `backward` and `step`."""
        if self.anchor:
            add_to_gradients(list(self.parameters.values()), self.offsets(), self.weight)

    @torch.no_grad()
    def norm(self) -> Tensor:
        """The length of the pull's gradient, lambda ||theta - theta_prev||."""
        if not self.anchor:
            return torch.zeros(())
        return self.weight * torch.linalg.vector_norm(torch.stack(torch._foreach_norm(self.offsets())))

    @torch.no_grad()
    def offsets(self) -> tuple[Tensor, ...]:
        """theta - theta_prev, parameter by parameter."""
        return torch._foreach_sub(list(self.parameters.values()), [self.anchor[name] for name in self.parameters])


class IterativeProjections:
    """Algorithm 1: solve one proxy problem after the other, each pulled towards the solution of the one before.

    Args:
        network: the embedding network; its best weights are remembered per problem and for the whole run.
        solve: trains the current problem: `while projections.problem_open: ...; projections.observe(score)`.
        proxies: the class proxies, trained together with the network. None: a baseline without proxies.
        pull: the lambda term. None: nothing pulls.
        embed_pool: called with the problem's number, it gives the pool's un-normalised embeddings (C, b, D).
        patience: evaluations without improvement that end a problem; None: there is only one problem.
        run_patience: evaluations without improvement that end the run.
        max_evaluations: the run ends after so many evaluations in any case.
        start_evaluations: if not 0, the first problem is solved without proxies and ends after so many evaluations at
            the latest. A network trained from scratch needs it: its first embeddings say nothing about classes, and
            proxies chosen among them lead nowhere.
        rewind: start each problem from the best weights of the previous one instead of the last ones (D10).
        space: where k-center measures distances (D6).
        seed: for the very first pick of the first selection (D5).
        after_reselection: called when the proxies have been moved, for instance to reset their Adam moments (D12).
        after_problem: called when a problem has ended, while its best weights and proxies are still at hand; for the
            problem that a run was stopped at, again when the run goes on.
    """

    def __init__(
        self,
        network: nn.Module,
        solve: Callable[["IterativeProjections"], None],
        *,
        proxies: ClassProxies | None = None,
        pull: ProximalPull | None = None,
        embed_pool: Callable[[int], Tensor] | None = None,
        patience: int | None = 3,
        run_patience: int | None = 60,
        max_evaluations: int | None = None,
        start_evaluations: int = 0,
        min_improvement: float = 1e-5,
        rewind: bool = False,
        space: Space = "raw",
        seed: int = 0,
        after_reselection: Callable[[], None] | None = None,
        after_problem: Callable[[], None] | None = None,
    ) -> None:
        if (proxies is None) != (embed_pool is None):
            raise ValueError("proxies and embed_pool belong together: give both, or neither")
        self.network, self.solve = network, solve
        self.proxies, self.pull, self.embed_pool = proxies, pull, embed_pool
        self.rewind, self.space, self.seed = rewind, space, seed
        self.after_reselection, self.after_problem = after_reselection, after_problem
        self.max_evaluations, self.start_evaluations = max_evaluations, start_evaluations
        self.problem_patience = Patience(patience, min_improvement)
        self.run_patience = Patience(run_patience, min_improvement)

        self.problem = 0  # the number of the current problem; 0: none has been posed yet
        self.evaluations = 0
        self.covering_radius: float | None = None  # of the current proxies over the pool they were chosen from
        self.reselection_clock = Stopwatch()
        self.selected_proxies: Tensor | None = None  # where the current problem's proxies started
        self.previous_proxies: Tensor | None = None
        self.best_of_problem: Snapshot = {}
        self.best_proxies_of_problem: Tensor | None = None
        self.best_of_run: Snapshot = {}

    def run(self) -> Snapshot:
        """Project until the run's patience is used up; the network's weights at the best evaluation."""
        while not self.finished:
            if not self.problem_open:  # a resumed run may come back into the middle of a problem
                self.conclude_problem()
                self.move_anchors()
                with self.reselection_clock:
                    self.reselect()
                self.pose_problem()
            self.solve(self)
        self.conclude_problem()
        return self.best_of_run

    def conclude_problem(self) -> None:
        """Announce the problem just solved, if there is one."""
        if self.problem > 0 and self.after_problem is not None:
            self.after_problem()

    def move_anchors(self) -> None:
        """theta_prev <- theta and rho_prev <- rho, the best of the problem just solved."""
        if not self.best_of_problem:
            return
        if self.pull is not None:
            self.pull.move_anchor(self.best_of_problem)
        self.previous_proxies = self.best_proxies_of_problem
        if self.rewind:
            self.network.load_state_dict(self.best_of_problem)

    def reselect(self) -> None:
        """Draw and embed a pool, and move the proxies to its points farthest from one another and from rho_prev."""
        if self.proxies is None or self.embed_pool is None or self.starting:
            return
        selection = select_proxies(
            self.embed_pool(self.problem + 1),
            self.previous_proxies,
            self.proxies.per_class,
            space=self.space,
            generator=generator(self.seed, "first pick"),
        )
        self.proxies.place(selection.vectors)
        self.selected_proxies = selection.vectors
        self.covering_radius = selection.covering_radius
        if self.after_reselection is not None:
            self.after_reselection()

    def pose_problem(self) -> None:
        self.problem += 1
        self.problem_patience.restart()

    @property
    def starting(self) -> bool:
        """Whether the problem about to be posed is the one without proxies."""
        return self.problem == 0 and self.start_evaluations > 0

    @property
    def problem_open(self) -> bool:
        """Whether the current problem wants more training."""
        waiting = self.proxies is not None and not self.proxies.placed
        start_is_over = waiting and self.evaluations >= self.start_evaluations
        return self.problem > 0 and not (self.problem_patience.used_up or start_is_over or self.finished)

    @property
    def finished(self) -> bool:
        out_of_budget = self.max_evaluations is not None and self.evaluations >= self.max_evaluations
        return self.run_patience.used_up or out_of_budget

    def observe(self, score: float) -> bool:
        """Take a validation score, which decides at once (D11); True if it is the best of the run.

        The weights of the best evaluation are remembered, of the problem for the next anchor, of the run for the end.
        """
        self.evaluations += 1
        if self.problem_patience.observe(score):
            self.best_of_problem = snapshot(self.network)
            if self.proxies is not None and self.proxies.placed:
                self.best_proxies_of_problem = self.proxies.vectors.detach().clone()
        best_of_run = self.run_patience.observe(score)
        if best_of_run:
            self.best_of_run = self.best_of_problem  # the best of a run is the best of its problem: no second copy
        return best_of_run

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly, but for the network's and the proxies' current weights."""
        return {
            "problem": self.problem,
            "evaluations": self.evaluations,
            "covering_radius": self.covering_radius,
            "reselection_seconds": self.reselection_clock.seconds,
            "selected_proxies": self.selected_proxies,
            "problem_patience": self.problem_patience.state_dict(),
            "run_patience": self.run_patience.state_dict(),
            "anchor": {} if self.pull is None else self.pull.anchor,
            "previous_proxies": self.previous_proxies,
            "best_of_problem": self.best_of_problem,
            "best_proxies_of_problem": self.best_proxies_of_problem,
            "best_of_run": self.best_of_run,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.problem, self.evaluations = state["problem"], state["evaluations"]
        self.covering_radius = state["covering_radius"]
        self.reselection_clock.seconds = state["reselection_seconds"]
        self.selected_proxies = state["selected_proxies"]
        self.problem_patience.load_state_dict(state["problem_patience"])
        self.run_patience.load_state_dict(state["run_patience"])
        if self.pull is not None:
            self.pull.anchor = state["anchor"]
        self.previous_proxies = state["previous_proxies"]
        self.best_of_problem = state["best_of_problem"]
        self.best_proxies_of_problem = state["best_proxies_of_problem"]
        self.best_of_run = state["best_of_run"]
