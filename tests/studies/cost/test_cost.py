"""What CCP costs: measured on real trainings in turns, without a trace in their folders. No test depends on times."""

import pytest
import torch
from torch import nn

from ccp_dml.plans.runner import PlanWatcher
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.studies import STUDIES
from ccp_dml.studies.cost import cost, measurement
from ccp_dml.studies.cost.measurement import STEP_PARTS, TimedTraining, bytes_of, time_in_turns
from ccp_dml.studies.cost.table import Quantity, quantity_rows
from ccp_dml.studies.workbench import Workbench

STUDY = STUDIES["cost"]
SMALL = (
    *("model.head_init=xavier", "study.rounds=3", "study.steps=2", "study.evaluations=2"),
    *("train.max_steps=24", "ccp.proxies_per_class=3", "ccp.pool_per_class=4", "ccp.start_step=0"),
)


class Notes(PlanWatcher):
    """Remembers what goes on beside the runs."""

    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


def carry_out(request, folder):
    """Train and measure; what was told of the measuring."""
    watcher = Notes()
    assert STUDY.train(request, folder, STUDY.plan(request, folder), 1, watcher) == []
    return watcher.texts


@pytest.fixture
def planned(ask, tmp_path):
    plan = STUDY.plan(ask("cost", *SMALL), tmp_path / "study")
    return {one.coordinates["method"]: one.run for one in plan.runs}


def test_ratios_are_taken_pair_by_pair():
    slow, fast = Quantity("ms", [2.0, 30.0, 4.0]), Quantity("ms", [1.0, 10.0, 4.0])
    assert slow.ratios_to(fast) == [2.0, 3.0, 1.0]
    assert slow.ratio_in_words(fast) == "2.00 times as long (half of the ratios between 1.50 and 2.50)"
    assert Quantity("steps", [7.0]).quartiles == (7.0, 7.0, 7.0)


def test_rows_tell_shares_of_the_time_and_ratios_to_the_first_method():
    table = {
        "c2": {
            "step": Quantity("ms", [5.0]),
            "forward": Quantity("ms", [3.0], is_part=True),
            "loss": Quantity("ms", [1.0], is_part=True),
        },
        "c2-ccp": {
            "forward": Quantity("ms", [6.0], is_part=True),
            "reselection": Quantity("ms", [2.0], is_part=True),
        },
    }
    rows = {(row["method"], row["quantity"]): row for row in quantity_rows("c2", table)}
    assert rows["c2", "forward"]["share_of_time"] == 0.75
    assert rows["c2", "step"]["share_of_time"] is None
    assert rows["c2-ccp", "forward"]["ratio"] == 2.0
    assert rows["c2-ccp", "reselection"]["ratio"] is None


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


@pytest.mark.usefixtures("in_this_process")
def test_the_study_tells_what_it_measured(ask, tmp_path):
    request = ask("cost", *SMALL)
    notes = carry_out(request, tmp_path)
    assert len(notes) == 1
    assert carry_out(request, tmp_path) == [], "nothing is timed twice"
    found = STUDY.conclude(request, tmp_path, STUDY.plan(request, tmp_path))
    rows = {(row["method"], row["quantity"]): row for row in found.rows}
    for method in ("c2", "c2-ccp"):
        shares = [row["share_of_time"] for (own, _), row in rows.items() if own == method and row["share_of_time"]]
        assert sum(shares) == pytest.approx(1.0)
        assert rows[method, "step"]["samples"] == 3
        run = RunFolder.read(tmp_path / method / "repeat0")
        assert rows[method, "steps to the best evaluation"]["median"] == run.result["best_step"]
    assert rows["c2-ccp", "one reselection"]["samples"] == 2
    gap = RunFolder.read(tmp_path / "c2-ccp/repeat0").result
    assert rows["c2-ccp", "reselection"]["median"] == pytest.approx(
        rows["c2-ccp", "one reselection"]["median"] * gap["problems"] / gap["steps"]
    )
    assert f"{rows['c2-ccp', 'step']['ratio']:.2f} times as long" in found.paragraph
    assert [figure.name for figure in found.figures] == ["parts", "rounds", "convergence"]


def test_steps_to_a_score_are_those_of_the_first_evaluation_that_reaches_it(tmp_path):
    rows = [{"step": step, "map_at_r": score} for step, score in ((5, 0.1), (10, 0.4), (15, 0.3), (20, 0.4))]
    run = RunFolder(tmp_path, {}, {}, rows, None, None)
    assert cost.steps_to_score(run, 0.4) == 10
    assert cost.steps_to_score(run, 0.2) == 10
    assert cost.steps_to_score(run, 0.5) is None


def test_a_busy_machine_is_told():
    steady = {"c2": {"step": Quantity("ms", [1.0] * 4)}, "c2-ccp": {"step": Quantity("ms", [1.0, 1.1, 1.1, 1.2])}}
    shaken = {"c2": {"step": Quantity("ms", [1.0] * 4)}, "c2-ccp": {"step": Quantity("ms", [0.5, 1.0, 2.0, 3.0])}}
    assert cost.noise("c2", steady) == []
    assert "busy" in cost.noise("c2", shaken)[0]


class Recorded:
    """As much of a finished run as convergence looks at."""

    def __init__(self, method, repeat, curve):
        self.coordinates = {"loss": "c2", "method": method, "repeat": repeat}
        self.folder = self
        self.metrics = [{"step": step, "map_at_r": score} for step, score in curve.items()]
        best = max(self.metrics, key=lambda row: row["map_at_r"])
        self.result, self.best = {"best_step": best["step"]}, best["map_at_r"]

    def score(self, half, metric):
        assert (half, metric) == ("validation", "map_at_r")
        return self.best


def test_steps_to_convergence_are_compared_within_a_repeat():
    runs = [
        Recorded("c2", 0, {100: 0.29, 200: 0.1}),
        Recorded("c2", 1, {900: 0.2, 1000: 0.3}),
        Recorded("c2", 2, {500: 0.3}),  # its partner failed
        Recorded("c2-ccp", 0, {100: 0.1, 200: 0.2}),  # never as good
        Recorded("c2-ccp", 1, {800: 0.1, 900: 0.35}),
    ]
    found = cost.steps_to_convergence("c2", runs)
    assert found["steps to the best evaluation"] == {"c2": [100, 1000], "c2-ccp": [200, 900]}
    assert found["steps to the best score without CCP"] == {"c2": [1000], "c2-ccp": [900]}
