"""The paper: deep metric learning as iterated projections onto chance-constraint sets (Algorithm 1).

How the paper's lines and equations map to this file:

| paper | here |
|---|---|
| theta, rho | the network's weights, `ClassProxies.vectors` |
| theta_prev, rho_prev | `ProximalPull.anchor`, `IterativeProjections.previous_proxies` |
| pool of b images per class (Algorithm 1) | the `embed_pool` callable |
| greedy k-center (Algorithm 2) | `ClassProxies.choose_from` |
| `lambda/2 ||theta - theta_prev||^2` (the projection's regulariser) | `ProximalPull`, whose gradient joins the loss's |
| minimise over theta, rho until validation MAP@R stalls | the `solve` callable, normally `Trainer.solve`; `Patience` |
| while not converged | `IterativeProjections.run` |

A baseline is the same loop with one problem that never ends by itself: no proxies (or one fixed set) and no pull.
PROFS, the method before CCP, is the same loop with the pull and without proxies: in the batches of a problem, an image
of each class represents it, and a problem ends after a number of steps (`data/representatives.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ccp_dml.errors import NonFiniteError
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.foundation.randomness import generator
from ccp_dml.foundation.stopwatch import Stopwatch
from ccp_dml.functional.gradients import add_to_gradients, common_norm
from ccp_dml.pace import Drift, Pace, Patience, measure_drift
from ccp_dml.proxies import ClassProxies, Space

Snapshot = dict[str, Any]  # weights by name; a module's extra state may be anything


class IterativeProjections:
    """Algorithm 1: solve one proxy problem after the other, each pulled towards the solution of the one before.

    Args:
        network: the embedding network; its best weights are remembered per problem and for the whole run.
        solve: trains the current problem: `while projections.problem_open: ...; projections.observe(score)`.
        proxies: the class proxies, trained together with the network. None: a baseline without proxies, or PROFS.
        pull: the lambda term. None: nothing pulls.
        embed_pool: called with the problem's number, it gives the pool's un-normalised embeddings (C, b, D), or chunks
            of it; see `ClassProxies.choose_from`.
        space: where k-center measures distances (D6).
        seed: for the very first pick of the first selection (D5).
        patience: evaluations without improvement that end a problem; None: they never do.
        run_patience: evaluations without improvement that end the run.
        min_improvement: what a score must gain to count as improved (D3).
        max_evaluations: the run ends after so many evaluations in any case.
        rewind: start each problem from the best weights of the previous one instead of the last ones (D10), unless its
            pace has ended it.
        pace: what ends a problem besides `patience`; a loop that has one calls `count_step` after each step.
        embed_origins: called with the problem's number and the pool images taken (C, P), it gives a sample of the
            proxies as positions (n,) in C*P, and the un-normalised embeddings (n, D) of their images now. None: nobody
            measures how stale proxies are.
        start_evaluations: if not 0, the first problem is solved without proxies and ends after so many evaluations,
            whatever they find. A network trained from scratch needs it: its first embeddings say nothing about
            classes, and proxies chosen among them lead nowhere. As long as `waits_for_proxies`, proxies are zeros,
            which a loop must leave out of its loss, as `ProxyObjective` does.
        pull_to_start: whether the weights that this first problem ends with pull at the next one, and are averaged. A
            network that has just begun to learn from scratch is no solution to stay near.
        remembered: the proxies of so many earlier problems keep new ones at a distance; 1 as in the paper.
        averaged: each problem starts from the mean of so many last solutions, and is pulled towards it; 1 as in the
            paper: the last solution alone.
        keep_last: let every evaluation count as the best so far: nothing is selected, and the last weights are the
            run's. For a training whose scores mean nothing, because nothing is held out.
        processes: those that train together; they share the work of a selection, and end a problem together.
        after_reselection: called when the proxies have been moved, for instance to reset their Adam moments (D12).
        after_problem: called when a problem has ended, while its best weights and proxies are still at hand; for the
            problem that a run was stopped at, again when the run goes on.
    """

    def __init__(
        self,
        network: nn.Module,
        solve: Callable[[IterativeProjections], None],
        *,
        # Algorithms 1 and 2
        proxies: ClassProxies | None = None,
        pull: ProximalPull | None = None,
        embed_pool: Callable[[int], Tensor | Iterator[Tensor]] | None = None,
        space: Space = "raw",
        seed: int = 0,
        patience: int | None = 3,
        run_patience: int | None = 60,
        min_improvement: float = 1e-5,
        max_evaluations: int | None = None,
        # what the paper does not do; the defaults leave it out
        rewind: bool = False,
        pace: Pace | None = None,
        embed_origins: Callable[[int, Tensor], tuple[Tensor, Tensor]] | None = None,
        start_evaluations: int = 0,
        pull_to_start: bool = True,
        remembered: int = 1,
        averaged: int = 1,
        keep_last: bool = False,
        # who works, and who is told
        processes: Processes = ALONE,
        after_reselection: Callable[[], None] | None = None,
        after_problem: Callable[[], None] | None = None,
    ) -> None:
        if space not in get_args(Space):
            raise ValueError(f"space must be one of {', '.join(get_args(Space))}, got {space!r}")
        if (proxies is None) != (embed_pool is None):
            raise ValueError("proxies and embed_pool belong together: give both, or neither")
        if pull is not None:
            refuse_pull_of_another(network, pull)
        pace = Pace() if pace is None else pace
        if pace.watches_proxies and embed_origins is None:
            raise ValueError("a pace that watches proxies needs embed_origins, which shows their images again")
        self.network, self.solve, self.proxies, self.pull = network, solve, proxies, pull
        self.embed_pool, self.space, self.seed = embed_pool, space, seed
        self.problem_patience = Patience(patience, min_improvement)
        self.run_patience = Patience(run_patience, min_improvement)
        self.max_evaluations, self.rewind = max_evaluations, rewind
        self.pace, self.embed_origins = pace, embed_origins
        self.start_evaluations, self.pull_to_start = start_evaluations, pull_to_start
        self.remembered, self.averaged, self.keep_last = remembered, averaged, keep_last
        self.processes, self.after_reselection, self.after_problem = processes, after_reselection, after_problem

        self.problem = 0  # the number of the current problem; 0: none has been posed yet
        self.evaluations = 0
        self.steps = 0  # as far as they are counted
        self.starts: list[ProblemStart] = []  # of every problem so far
        self.covering_radius: float | None = None  # of the current proxies over the pool they were chosen from
        self.drift: Drift | None = None  # as last measured in the current problem
        self.reselection_clock = Stopwatch()
        self.selected_proxies: Tensor | None = None  # where the current problem's proxies started
        self.selected_images: Tensor | None = None  # (C, P), which of the pool's images they are
        self.previous_proxies: Tensor | None = None  # (C, P, D) per problem remembered, the latest first
        self.solutions: list[Snapshot] = []  # the last ones, as many as are averaged; empty unless these are several
        self.best_of_problem: Snapshot = {}
        self.best_proxies_of_problem: Tensor | None = None
        self.best_of_run: Snapshot = {}

    def run(self) -> Snapshot:
        """Project until the run's patience is used up; return the network's weights at the best evaluation."""
        while not self.finished:
            if not self.problem_open:  # a resumed run may come back into the middle of a problem
                self.conclude_problem()
                self.move_anchors()
                with self.reselection_clock:
                    self.reselect()
                self.pose_problem()
            evaluated = self.evaluations
            self.solve(self)
            if self.problem_open and self.evaluations == evaluated:
                raise ValueError(
                    "`solve` returned without `observe`: it must train until an evaluation, or problem_open ends"
                )
        self.conclude_problem()
        return self.best_of_run

    def conclude_problem(self) -> None:
        """Announce the problem just solved, if there is one and it lasted until an evaluation."""
        if self.best_of_problem and self.after_problem is not None:
            self.after_problem()

    def move_anchors(self) -> None:
        """Set theta_prev <- theta and rho_prev <- rho: the problem's best, or its last where its pace has ended it."""
        if self.problem == 0:
            return
        if self.at_its_pace:
            solution, proxies = snapshot(self.network), self._present_proxies()
        else:
            solution, proxies = self.best_of_problem, self.best_proxies_of_problem
            if self.rewind:
                self.network.load_state_dict(solution)
        if self.pull_to_start or not self.waits_for_proxies:
            if self.averaged > 1:
                self.solutions = [*self.solutions, solution][-self.averaged :]
                solution = mean_weights(self.solutions)
                self.network.load_state_dict(solution)
            if self.pull is not None:
                self.pull.move_anchor(solution)
        if proxies is not None:
            if self.remembered > 1 and self.previous_proxies is not None:
                kept = self.previous_proxies[:, : (self.remembered - 1) * proxies.shape[1]]
                proxies = torch.cat([proxies, kept], dim=1)
            self.previous_proxies = proxies

    def reselect(self) -> None:
        """Draw and embed a pool, and move the proxies to its points farthest from one another and from rho_prev."""
        is_start = self.problem == 0 and self.start_evaluations > 0  # the problem without proxies
        if self.proxies is None or self.embed_pool is None or is_start:
            return
        pool, draw = self.embed_pool(self.problem + 1), generator(self.seed, "first pick")
        selection = self.proxies.choose_from(pool, self.previous_proxies, self.space, draw, self.processes)
        self.proxies.place(selection.vectors, selection.counts)
        self.selected_proxies = self._present_proxies()
        self.selected_images = selection.taken
        self.covering_radius = selection.covering_radius
        if self.after_reselection is not None:
            self.after_reselection()

    def pose_problem(self) -> None:
        self.problem += 1
        self.starts.append(ProblemStart(self.problem, self.steps, self.covering_radius))
        self.problem_patience.restart()
        self.drift = None
        self.best_of_problem, self.best_proxies_of_problem = {}, None

    @property
    def waits_for_proxies(self) -> bool:
        """Tell whether the current problem is solved without the proxies that later ones have."""
        return self.proxies is not None and not self.proxies.placed

    @property
    def problem_open(self) -> bool:
        """Tell whether the current problem wants more training."""
        if self.waits_for_proxies:  # patience is for proxies: those of CCP and of one proxy problem come at one step
            over = self.evaluations >= self.start_evaluations
        else:
            over = self.problem_patience.used_up or self.at_its_pace
        return self.problem > 0 and not over and not self.finished

    @property
    def steps_of_problem(self) -> int:
        """Count the steps since the current problem began."""
        return self.steps - self.starts[-1].step

    @property
    def at_its_pace(self) -> bool:
        """Tell whether the current problem ends because its pace says so, not because validation has stalled."""
        if self.problem == 0 or self.waits_for_proxies or self.problem_patience.used_up:
            return False
        pace = self.pace
        if pace.steps is not None and self.steps_of_problem >= pace.steps:
            return True
        if self.drift is None or self.covering_radius is None or self.steps_of_problem < pace.at_least:
            return False
        return pace.wants_new_proxies(self.drift, self.covering_radius)

    @property
    def finished(self) -> bool:
        out_of_budget = self.max_evaluations is not None and self.evaluations >= self.max_evaluations
        return self.run_patience.used_up or out_of_budget

    def count_step(self) -> None:
        """Take note of a training step, and look at the proxies where the pace asks for it."""
        self.steps += 1
        waited = self.steps_of_problem - self.pace.at_least
        if self.pace.watches_proxies and waited >= 0 and waited % self.pace.check_every == 0:
            self.look_at_proxies()

    def look_at_proxies(self) -> None:
        """Measure how far proxies and network have moved since the selection, on a sample of the proxies."""
        placed, images = self.selected_proxies, self.selected_images
        if self.proxies is None or self.embed_origins is None or placed is None or images is None:
            return
        sample, present = self.embed_origins(self.problem, images)
        sample, present = sample.to(placed.device), present.to(placed.device)
        now = self.proxies.vectors if self.proxies.slots is None else self.proxies.present()
        at_first, at_last = self.proxies.look_up(placed, sample), self.proxies.look_up(now, sample)
        self.drift = self.processes.same(measure_drift(at_first, at_last, present, self.proxies.normalise))

    def _present_proxies(self) -> Tensor | None:
        """Copy the proxies, so that further training does not change the copy; None as long as there are none."""
        if self.proxies is None or self.waits_for_proxies:
            return None
        return self.proxies.present()

    def observe(self, score: float) -> bool:
        """Take a validation score, which decides at once (D11); True if it is the best of the run.

        The weights of the best evaluation are remembered, of the problem for the next anchor, of the run for the end.
        """
        score = float(score)  # a number of NumPy would end up in checkpoints, which are read without unpickling
        if not math.isfinite(score):
            what = "NaN" if math.isnan(score) else "infinite"
            raise NonFiniteError(f"Evaluation {self.evaluations + 1}: the validation score is {what}.")
        paced = self.pace.steps is not None or self.pace.watches_proxies
        if paced and self.steps == 0:
            raise ValueError("the pace ends problems by their steps: call `count_step` after each step")
        self.evaluations += 1
        self.look_at_proxies()
        if self.problem_patience.observe(score) or self.keep_last:
            self.best_of_problem = snapshot(self.network)
            self.best_proxies_of_problem = self._present_proxies()
        best_of_run = self.run_patience.observe(score) or self.keep_last
        if best_of_run:
            self.best_of_run = self.best_of_problem  # the best of a run is the best of its problem: no second copy
        return best_of_run

    def state_dict(self) -> dict[str, Any]:
        """Collect everything needed to go on exactly, but for the network's and the proxies' current weights."""
        return {
            "problem": self.problem,
            "evaluations": self.evaluations,
            "steps": self.steps,
            "starts": [asdict(start) for start in self.starts],
            "drift": None if self.drift is None else asdict(self.drift),
            "covering_radius": self.covering_radius,
            "reselection_seconds": self.reselection_clock.seconds,
            "selected_proxies": self.selected_proxies,
            "selected_images": self.selected_images,
            "problem_patience": self.problem_patience.state_dict(),
            "run_patience": self.run_patience.state_dict(),
            "anchor": {} if self.pull is None else self.pull.anchor,
            "corrections": [] if self.pull is None else self.pull.corrections,
            "previous_proxies": self.previous_proxies,
            "solutions": self.solutions,
            "best_of_problem": self.best_of_problem,
            "best_proxies_of_problem": self.best_proxies_of_problem,
            "best_of_run": self.best_of_run,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, wherever it was read to: what training needs moves to the devices of the network."""
        self.problem, self.evaluations = state["problem"], state["evaluations"]
        self.steps, self.starts = state["steps"], [ProblemStart(**start) for start in state["starts"]]
        self.drift = None if state["drift"] is None else Drift(**state["drift"])
        self.covering_radius = state["covering_radius"]
        self.reselection_clock.seconds = state["reselection_seconds"]
        self.selected_proxies = self._beside_proxies(state["selected_proxies"])
        self.selected_images = self._beside_proxies(state["selected_images"])
        self.problem_patience.load_state_dict(state["problem_patience"])
        self.run_patience.load_state_dict(state["run_patience"])
        if self.pull is not None:
            self.pull.anchor = beside(self.network, state["anchor"])
            self.pull.corrections = [beside(self.network, taken_away) for taken_away in state["corrections"]]
        self.previous_proxies = self._beside_proxies(state["previous_proxies"])
        self.solutions = [beside(self.network, solution) for solution in state["solutions"]]
        self.best_of_problem = beside(self.network, state["best_of_problem"])
        self.best_proxies_of_problem = self._beside_proxies(state["best_proxies_of_problem"])
        self.best_of_run = state["best_of_run"]

    def _beside_proxies(self, table: Tensor | None) -> Tensor | None:
        """Move a table that belongs to the proxies to their device."""
        return table if table is None or self.proxies is None else table.to(self.proxies.vectors.device)


class ProximalPull:
    """The lambda term: an attraction of the network's weights towards the previous problem's solution (D1).

    Before the first problem is solved there is nothing to stay near, and the pull does nothing (D2).

    Args:
        network: its weights that are trainable when a problem begins are pulled; the proxies are not part of it.
        weight: lambda.
        corrected_sets: Dykstra's correction, as if problems went round so many sets: what the last projection onto a
            set took away is added when its turn comes again. 0 as in the paper: none.
    """

    def __init__(self, network: nn.Module, weight: float, *, corrected_sets: int = 0) -> None:
        if not 0 <= weight < math.inf:
            raise ValueError(f"the weight of the pull (lambda) is a number from 0 on, got {weight}")
        self.weight, self.corrected_sets = weight, corrected_sets
        self.parameters = dict(network.named_parameters())
        self.anchor: Snapshot = {}
        self.corrections: list[Snapshot] = []  # of the last round, the oldest first

    @torch.no_grad()
    def move_anchor(self, weights: Snapshot) -> None:
        """Let the pull point to `weights` (theta_prev), a state of the network on any device, from now on."""
        learning = {name: value for name, value in self.parameters.items() if value.requires_grad}
        if missing := [name for name in learning if name not in weights]:
            raise ValueError(
                f"these weights lack {missing[0]!r}: give a state of the network that the pull was made of; "
                "torch.compile and DataParallel give weights other names"
            )
        solution = {name: weights[name].to(value.device) for name, value in learning.items()}
        for name, value in learning.items():
            if solution[name].data_ptr() == value.data_ptr():  # what trains on would take the anchor along
                solution[name] = solution[name].clone()
        if self.corrected_sets > 0 and self.anchor:
            taken_away = {name: self.anchor.get(name, value) - value for name, value in solution.items()}
            self.corrections = [*self.corrections, taken_away][-self.corrected_sets :]
            if len(self.corrections) == self.corrected_sets:  # the oldest belongs to the set whose turn it is
                solution = {name: value + self.corrections[0].get(name, 0) for name, value in solution.items()}
        self.anchor = solution

    def add_gradient(self) -> None:
        """Add lambda (theta - theta_prev) to the gradients.

        Call it between `backward` and `step`; where a `GradScaler` scales the loss, after its `unscale_`.
        """
        if self.anchor:
            add_to_gradients([self.parameters[name] for name in self.anchor], self.offsets(), self.weight)

    def norm(self) -> Tensor:
        """Measure the length of the pull's gradient, lambda ||theta - theta_prev||."""
        return self.weight * common_norm(self.offsets() if self.anchor else ())

    @torch.no_grad()
    def offsets(self) -> tuple[Tensor, ...]:
        """Subtract theta_prev from theta, parameter by parameter."""
        return torch._foreach_sub([self.parameters[name] for name in self.anchor], list(self.anchor.values()))


def refuse_pull_of_another(network: nn.Module, pull: ProximalPull) -> None:
    """Raise unless `pull` pulls at the weights of `network`, under its names: a wrapper gives them other names."""
    own = dict(network.named_parameters(remove_duplicate=False))
    for name, value in pull.parameters.items():
        if own.get(name) is not value:
            raise ValueError(
                f"the pull has the weight {name!r}, which is none of this network's ({', '.join([*own][:2])}, ...): "
                "make both of the same network, before or after torch.compile or DataParallel has wrapped it"
            )


@dataclass(frozen=True)
class ProblemStart:
    """When a problem began."""

    problem: int
    step: int
    covering_radius: float | None  # of its proxies over the pool they were chosen from; None: it has no proxies


def mean_weights(solutions: Sequence[Snapshot]) -> Snapshot:
    """Average snapshots weight by weight; what is not a floating-point number, such as a counter, is the last one's."""

    def mean(name: str, last: Any) -> Any:
        is_weight = isinstance(last, Tensor) and last.is_floating_point()
        return torch.stack([solution[name] for solution in solutions]).mean(0) if is_weight else last

    return {name: mean(name, last) for name, last in solutions[-1].items()}


def snapshot(module: nn.Module) -> Snapshot:
    """Copy a module's state, so that further training does not change the copy."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else deepcopy(value)
        for name, value in module.state_dict().items()
    }


def beside(module: nn.Module, weights: Snapshot) -> Snapshot:
    """Move a snapshot of a module, or a part of one, to the devices of the module's own weights."""
    own = module.state_dict()
    return {
        name: value.to(own[name].device) if isinstance(value, Tensor) and isinstance(own.get(name), Tensor) else value
        for name, value in weights.items()
    }
