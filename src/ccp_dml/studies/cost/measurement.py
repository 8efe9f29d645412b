"""Measure trainings: time them in turns, in one process, so that a busy machine slows all alike; count their memory."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from time import monotonic
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ccp_dml.plans.plan import PlannedRun
from ccp_dml.projections import IterativeProjections
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.assembly import TrainingRun
from ccp_dml.runs.devices import build_fabric, wait
from ccp_dml.runs.watcher import Watcher
from ccp_dml.studies.workbench import Workbench
from ccp_dml.trainer import Trainer

STEP_PARTS = ("batch", "forward", "loss", "backward", "pull", "optimiser")
"""In the order of `Trainer.take_step`; see `ends_of_parts`."""

Samples = dict[str, list[float]]  # quantity -> one value per round


class LapTimer:
    """Adds up the seconds of named parts that follow each other: `begin()`, then `lap(name)` at the end of each.

    Args:
        wait: called before the clock is read, as work may go on behind the caller's back, on a GPU for instance.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait
        self.seconds: dict[str, float] = {}
        self._last = 0.0

    def begin(self) -> None:
        """Start the first part now."""
        self._last = self._now()

    def lap(self, name: str) -> None:
        """End the part `name`, and start the next one."""
        now = self._now()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    def _now(self) -> float:
        self.wait()
        return monotonic()


class TimedTraining:
    """The real training of a planned run, in the middle of a problem that has proxies and a pull if it ever has them.

    Args:
        run: its folder stays untouched.
        window: steps that are timed at once.
    """

    def __init__(self, run: PlannedRun, bench: Workbench, window: int) -> None:
        config = run.config.with_values(train={"evaluate_every": window, "max_steps": None})
        parts = bench.parts(run.config)
        fabric = build_fabric(config.run.device, config.run.precision_outside_training)
        self.window, self.wait = window, partial(wait, fabric.device)
        self.network = bench.first_network(run)
        training = TrainingRun(
            config, fabric, self.network, parts.learned, parts.validation, Logbook(run.folder), Watcher()
        )
        self.projections, self.trainer = training.projections, training.trainer
        self.samples: Samples = {}
        self.solve_problem()
        for _ in range(2):  # the third problem is like all after it: there are proxies and weights before it
            self.projections.move_anchors()
            self.projections.reselect()
            self.solve_problem()

    def solve_problem(self) -> None:
        """Solve a problem as shortly as can be: one window of steps, and a made-up score that improves."""
        self.projections.pose_problem()
        self.trainer.train_until_evaluation()
        self.projections.observe(float(self.projections.problem))

    def time_window(self) -> None:
        """Time whole steps, then, in further steps, their parts: reading a clock in between makes a GPU wait."""
        self.record("step", self.seconds(self.trainer.train_until_evaluation) / self.window)
        timer = LapTimer(self.wait)
        with ends_of_parts(self.trainer, timer.lap):
            timer.begin()
            self.trainer.train_until_evaluation()
        for name in STEP_PARTS:
            if name == "pull" and self.trainer.pull is None:
                continue  # nothing happened
            self.record(name, timer.seconds[name] / self.window)

    def time_evaluation(self) -> None:
        """Time an evaluation and, with proxies, a reselection."""
        self.record("evaluation", self.seconds(self.trainer.evaluate))
        if self.projections.proxies is not None:
            self.record("reselection", self.seconds(self.projections.reselect))

    def measure_memory(self) -> None:
        """Count the bytes held between steps, and those kept for a backward pass."""
        self.record("kept for backward", bytes_kept_for_backward(self.trainer))
        self.record("state", bytes_held(self.network, self.projections, self.trainer))

    def seconds(self, act: Callable[[], object]) -> float:
        self.wait()
        started = monotonic()
        act()
        self.wait()
        return monotonic() - started

    def record(self, quantity: str, value: float) -> None:
        self.samples.setdefault(quantity, []).append(value)


def time_in_turns(
    runs: Mapping[str, PlannedRun], bench: Workbench, rounds: int, window: int, evaluations: int
) -> dict[str, Samples]:
    """Time all runs round by round; who goes first in one round goes last in the next. Samples by the run's name."""
    trainings = {name: TimedTraining(run, bench, window) for name, run in runs.items()}
    in_turn = list(trainings.values())
    for turns, act in ((rounds, TimedTraining.time_window), (evaluations, TimedTraining.time_evaluation)):
        for _ in range(turns):
            for training in in_turn:
                act(training)
            in_turn.reverse()
    for training in in_turn:
        training.measure_memory()
    return {name: training.samples for name, training in trainings.items()}


@contextmanager
def ends_of_parts(trainer: Trainer, lap: Callable[[str], None]) -> Iterator[None]:
    """Call `lap` with the name of each part of a step when it ends: when the last call that belongs to it returns."""
    precision = trainer.fabric.strategy.precision
    last_calls: list[tuple[str, Any, str]] = [
        ("batch", trainer, "next_batch"),
        ("backward", precision, "unscale_gradients"),
        ("optimiser", trainer.optimizer, "step"),
    ]
    if trainer.pull is not None:
        last_calls.append(("pull", trainer.pull, "add_gradient"))
    with ExitStack() as undo:
        for part, module in (("forward", trainer.network), ("loss", trainer.objective)):
            handle = module.register_forward_hook(lambda *_, part=part: lap(part))
            undo.callback(handle.remove)
        for part, owner, method in last_calls:
            setattr(owner, method, followed_by(getattr(owner, method), lap, part))
            undo.callback(delattr, owner, method)  # the class's method shows through again
        yield


def followed_by(method: Callable[..., Any], lap: Callable[[str], None], part: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        lap(part)
        return result

    return call


def bytes_held(network: nn.Module, projections: IterativeProjections, trainer: Trainer) -> int:
    """Count the bytes between two steps: weights, gradients, moments, proxies, and the snapshots of Algorithm 1."""
    gradients = [value.grad for value in trainer.trained]
    states = (network, trainer.objective, trainer.optimizer, projections)
    return bytes_of([gradients, *(state.state_dict() for state in states)])


def bytes_kept_for_backward(trainer: Trainer) -> int:
    """Take one step, and count the bytes that its forward pass keeps for the backward pass, without weights."""
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
    """Count the bytes of all tensors in nested dictionaries and lists; shared memory counts once."""
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
