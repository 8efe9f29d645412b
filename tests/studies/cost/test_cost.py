"""What CCP costs: what the study tells is what was measured and what the runs recorded."""

import json
import shutil
from pathlib import Path

import pytest
from support.small_studies import SMALL_COST, carry_out, concluded

from ccp_dml.errors import UserError
from ccp_dml.records import layout
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.studies.cost import cost
from ccp_dml.studies.cost.table import Quantity
from ccp_dml.studies.study import FinishedRun


@pytest.mark.usefixtures("in_this_process")
def test_the_study_tells_what_it_measured(ask, tmp_path):
    request = ask("cost", *SMALL_COST)
    notes = carry_out(request, tmp_path)
    assert len(notes) == 1
    assert carry_out(request, tmp_path) == [], "nothing is timed twice"
    found = concluded(request, tmp_path)
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


@pytest.mark.usefixtures("in_this_process")
def test_timings_of_runs_that_are_no_more_are_not_told(ask, tmp_path):
    """A run that was trained again, timings of another study, and those that name no runs are all timed anew."""
    request = ask("cost", *SMALL_COST)
    carry_out(request, tmp_path)
    file = layout.timing_file(tmp_path, "c2")
    own = json.loads(file.read_text())
    for others in ({**own, cost.RESULTS: {"c2": "1", "c2-ccp": "2"}}, {"threads": 1, "samples": own["samples"]}):
        file.write_text(json.dumps(others))
        assert concluded(request, tmp_path) is None, "these are timings of other runs"
        assert [note for note in carry_out(request, tmp_path) if note.startswith("timing")] == [
            "timing c2 and c2-ccp in turns, 3 rounds"
        ]
    shutil.rmtree(tmp_path / "c2-ccp" / "repeat0")
    assert concluded(request, tmp_path) is None
    assert any(note.startswith("timing") for note in carry_out(request, tmp_path))
    assert carry_out(request, tmp_path) == [], "nothing is timed twice"
    assert concluded(request, tmp_path) is not None


@pytest.mark.parametrize(
    "timings", ["{}", '{"samples": {}}', '{"samples": {"c2": {"step": []}, "c2-ccp": {}}}', '{"samples": [1]}']
)
def test_timings_that_were_edited_are_named_with_the_remedy(tmp_path, timings):
    file = tmp_path / "timing-c2.json"
    file.write_text(timings)
    with pytest.raises(UserError, match=r"timing-c2\.json does not hold the timings of c2 and c2-ccp .*; delete it"):
        cost.read_samples(file, ["c2", "c2-ccp"])


def test_steps_to_a_score_are_those_of_the_first_evaluation_that_reaches_it(tmp_path):
    rows = [{"step": step, "map_at_r": score} for step, score in ((5, 0.1), (10, 0.4), (15, 0.3), (20, 0.4))]
    run = RunFolder(tmp_path, {}, {}, rows, None, None)
    assert cost.steps_to_score(run, 0.4) == 10
    assert cost.steps_to_score(run, 0.2) == 10
    assert cost.steps_to_score(run, 0.5) is None


def test_a_start_without_proxies_is_no_reselection(tmp_path):
    begun = [{"problem": n, "step": 10 * n, "covering_radius": radius} for n, radius in enumerate((None, 0.3, 0.2))]
    config = {"train": {"evaluate_every": 5}}
    log = [{"step": 30, "map_at_r": 0.1, "problems_begun": begun}]
    folders = [RunFolder(tmp_path, config, {}, log[:count], {"steps": 30, "problems": 3}, None) for count in (1, 0)]
    with_ccp, alone = ([FinishedRun({}, "run", folder)] for folder in folders)
    assert cost.steps_between(with_ccp) == {"evaluation": 5, "reselection": 15}
    assert cost.steps_between(alone) == {"evaluation": 5}


def test_a_busy_machine_is_told():
    steady = {"c2": {"step": Quantity("ms", [1.0] * 4)}, "c2-ccp": {"step": Quantity("ms", [1.0, 1.1, 1.1, 1.2])}}
    shaken = {"c2": {"step": Quantity("ms", [1.0] * 4)}, "c2-ccp": {"step": Quantity("ms", [0.5, 1.0, 2.0, 3.0])}}
    assert cost.noise("c2", steady, Path("s/timing-c2.json")) == []
    (told,) = cost.noise("c2", shaken, Path("s/timing-c2.json"))
    assert "probably busy; delete s/timing-c2.json and repeat the command" in told


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
