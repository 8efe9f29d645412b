"""Measuring: real trainings in turns, without a trace in their folders. No test depends on times."""

import pytest
import torch
from torch import nn

from ccp_dml.studies.cost import measurement
from ccp_dml.studies.cost.measurement import STEP_PARTS, LapTimer, TimedTraining, bytes_of, time_in_turns
from ccp_dml.studies.workbench import Workbench


def test_laps_of_the_same_name_add_up(monkeypatch):
    times = iter([10.0, 12.0, 12.5, 15.5])
    monkeypatch.setattr(measurement, "monotonic", lambda: next(times))
    timer = LapTimer(lambda: None)
    timer.begin()
    for name in ("forward", "loss", "forward"):
        timer.lap(name)
    assert timer.seconds == {"forward": 5.0, "loss": 0.5}


def test_laps_wait_for_work_behind_the_caller_before_they_read_the_clock(monkeypatch):
    calls = []
    monkeypatch.setattr(measurement, "monotonic", lambda: calls.append("clock") or 0.0)
    timer = LapTimer(lambda: calls.append("wait"))
    timer.begin()
    timer.lap("forward")
    assert calls == ["wait", "clock"] * 2


def test_the_steps_that_are_timed_have_proxies_and_pull_when_the_method_has_them(planned):
    bench = Workbench()
    plain, ccp = (TimedTraining(planned[name], bench, window=2) for name in ("c2", "c2-ccp"))
    assert ccp.projections.proxies.placed
    assert ccp.projections.previous_proxies is not None
    assert float(ccp.projections.pull.norm()) > 0, "the weights have left their anchor"
    assert plain.projections.proxies is None
    for training in (plain, ccp):
        before = training.trainer.step
        training.time_window()
        assert training.trainer.step == before + 4, "a window for the whole, a window for the parts"
        nothing = {"pull"} if training is plain else set()
        assert set(training.samples) == {"step", *STEP_PARTS} - nothing
        training.time_evaluation()
    assert "reselection" in ccp.samples
    assert "reselection" not in plain.samples


def test_each_part_of_a_step_ends_after_its_own_work_and_before_the_next(planned):
    trainer, said = TimedTraining(planned["c2-ccp"], Workbench(), window=1).trainer, []
    add_gradient = trainer.pull.add_gradient
    trainer.pull.add_gradient = lambda: said.append("pulled") or add_gradient()
    hooks = [
        trainer.network.register_forward_hook(lambda *_: said.append("embedded")),
        trainer.objective.register_forward_hook(lambda *_: said.append("compared")),
        trainer.trained[0].register_hook(lambda _: said.append("differentiated")),
        trainer.optimizer.optimizer.register_step_post_hook(lambda *_: said.append("moved")),
    ]
    with measurement.ends_of_parts(trainer, lambda part: said.append(part.upper())):
        trainer.take_step()
    assert said == [
        *("BATCH", "embedded", "FORWARD", "compared", "LOSS", "differentiated", "BACKWARD"),
        *("pulled", "PULL", "moved", "OPTIMISER"),
    ]
    for hook in hooks:
        hook.remove()
    said.clear()
    trainer.take_step()
    assert not any(word.isupper() for word in said), "nothing is timed any more"


def test_trainings_take_turns_and_leave_their_folders_alone(planned, monkeypatch):
    turns = []
    monkeypatch.setattr(TimedTraining, "time_window", lambda self: turns.append(self.projections.proxies is not None))
    monkeypatch.setattr(TimedTraining, "time_evaluation", lambda _: None)
    time_in_turns(planned, Workbench(), rounds=3, window=1, evaluations=1)
    assert turns == [False, True, True, False, False, True]
    assert not any(run.folder.exists() for run in planned.values())


def test_ccp_holds_its_proxies_and_the_weights_that_pull(planned):
    bench = Workbench()
    trainings = [TimedTraining(planned[name], bench, window=1) for name in ("c2", "c2-ccp")]
    for training in trainings:
        training.measure_memory()
    weights = sum(value.nbytes for value in trainings[0].network.state_dict().values())
    proxies = trainings[1].projections.proxies.vectors.nbytes
    plain, ccp = (training.samples["state"][0] for training in trainings)
    # Weights, gradients, two moments of Adam and the best snapshot; Adam counts steps in a number per parameter.
    assert plain == pytest.approx(5 * weights, abs=64)
    # Proxies with gradient and moments, as selected, as the best and as the previous ones; the images they were chosen
    # from; the weights that pull.
    images = trainings[1].projections.selected_images.nbytes
    assert ccp - plain == pytest.approx(weights + 7 * proxies + images, abs=64)


def test_shared_memory_counts_once():
    value = torch.zeros(100)
    assert bytes_of({"a": value, "b": [value[:50], (torch.zeros(10), 3, None)]}) == 440


def test_kept_for_backward_are_activations_and_not_weights(planned):
    training = TimedTraining(planned["c2"], Workbench(), window=1)
    linear = nn.Linear(12, 5)

    class Kept:
        network, objective = linear, nn.Identity()

        def take_step(self):
            inputs = torch.ones(4, 12)
            linear(inputs).pow(2).sum().backward()

    assert measurement.bytes_kept_for_backward(Kept()) == 4 * 12 * 4 + 4 * 5 * 4  # the inputs, and what is squared
    assert measurement.bytes_kept_for_backward(training.trainer) > 0
