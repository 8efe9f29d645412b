"""Two dimensions, problem by problem: what is drawn and told is what the runs recorded."""

import json
import re

import pytest
import torch

from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.plans.runner import LocalRunner
from ccp_dml.records.layout import map_file
from ccp_dml.records.problem_map import MapPoints, ProblemMap, evenly, read_problems
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.studies import STUDIES, mnist
from ccp_dml.studies.study import FinishedRun

STUDY = STUDIES["mnist"]
SMALL = (
    *("model.embedding_dim=2", "train.max_steps=40", "train.evaluate_every=2", "optim.lr=0.01"),
    *("ccp.start_step=0", "ccp.proxies_per_class=3", "ccp.pool_per_class=4"),
)


def test_without_mnist_the_way_to_it_and_the_way_around_it_are_told(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "mnist"]) == 2
    said = capsys.readouterr().err
    assert "ccp data prepare mnist --root DIR" in said
    assert "--data glyphs" in said
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_maps_needs_maps(ask, tmp_path):
    with pytest.raises(UserError, match=r"run\.map_points"):
        STUDY.plan(ask("mnist", *SMALL, "run.map_points=0"), tmp_path)


@pytest.mark.parametrize("recipe", ["study-mnist", "study-mnist-full"])
def test_recipes_are_of_two_dimensions(recipe):
    config = resolve(["glyphs", "c2-ccp", recipe]).config
    assert (config.model.embedding_dim, config.ccp.proxies_per_class, config.ccp.pool_per_class) == (2, 4, 16)


def test_samples_proxies_and_problems_are_compared(ask, tmp_path):
    plan = STUDY.plan(ask("mnist"), tmp_path)
    assert [one.run.config.ccp.mode for one in plan.runs] == ["off", "one-problem", "alternating"]


@pytest.mark.usefixtures("in_this_process")
def test_problems_are_drawn_side_by_side_and_measured(ask, tmp_path):
    request = ask("mnist", *SMALL)
    assert STUDY.train(request, tmp_path, STUDY.plan(request, tmp_path), LocalRunner(), None) == []
    found = STUDY.conclude(request, tmp_path, STUDY.plan(request, tmp_path))

    problems = read_problems(tmp_path / "c2-ccp" / "repeat0")
    assert len(problems) > 2
    rows = [row for row in found.rows if row["method"] == "c2-ccp"]
    assert [row["problem"] for row in rows] == [one.problem for one in problems]
    log = [json.loads(line) for line in (tmp_path / "c2-ccp/repeat0/metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["validation_map_at_r"] == max(x["map_at_r"] for x in log if x["problem"] == row["problem"])
    assert [row["covering_radius"] for row in found.rows if row["method"] == "c2"] == [None]

    maps, ends, curves = found.figures
    squares, circles = (
        [[group for group in panel.groups if group.symbol == symbol and group.is_outlined] for panel in maps.panels]
        for symbol in ("square", "circle")
    )
    for place, problem in enumerate(evenly(problems, mnist.MOST_MAPS)[:-1]):
        drawn = torch.tensor([[group.x, group.y] for group in squares[place]]).mT  # (C, P, 2)
        torch.testing.assert_close(drawn, problem.converged, atol=1e-4, rtol=0)
        following = next(one for one in problems if one.problem == problem.problem + 1)
        drawn = torch.tensor([[group.x, group.y] for group in circles[place]]).mT
        torch.testing.assert_close(drawn, following.selected, atol=1e-4, rtol=0)
    assert not circles[-1], "nothing follows the last problem"
    assert len(ends.panels) == 3
    assert [len(panel.lines) for panel in curves.panels] == [3, 2, 3]

    first, last = rows[0], rows[-1]
    numbers = re.findall(r"(\d\.\d+) -> (\d\.\d+)", found.paragraph)
    for key, told in zip(("validation_map_at_r", "covering_radius", "inter_class_distance"), numbers, strict=True):
        assert told == (f"{first[key]:.3f}", f"{last[key]:.3f}")


def test_the_radius_is_the_largest_distance_to_the_nearest_proxy_averaged_over_classes():
    points = torch.tensor([[0.0, 0.0], [0.3, 0.0], [0.9, 0.0], [0.0, 0.5]])
    labels = torch.tensor([0, 0, 0, 1])
    proxies = torch.tensor([[[0.1, 0.0], [1.0, 0.0]], [[0.0, 0.1], [0.0, -1.0]]])
    side = MapPoints(points, labels, torch.arange(4), ("a", "b"))
    assert mnist.map_radius(ProblemMap(1, side, side, proxies, proxies)) == pytest.approx((0.2 + 0.4) / 2)
    assert mnist.map_radius(ProblemMap(1, side, side, None, None)) is None


def test_repeats_with_maps_of_different_problems_are_one_line_in_their_order():
    runs = [
        FinishedRun({"loss": "c2", "method": "c2-ccp", "repeat": repeat}, f"c2-ccp/repeat{repeat}", None)
        for repeat in (0, 1)
    ]
    seen = {runs[0].name: (1, 3, 5), runs[1].name: (1, 2, 4)}
    solved = {
        name: [mnist.SolvedProblem(problem, 10, problem / 10, 0.5, 0.5, 1.0) for problem in problems]
        for name, problems in seen.items()
    }
    line = mnist.curve_figure("c2", runs, solved).panels[0].lines[0]
    assert list(line.x) == [1, 2, 3, 4, 5]
    assert line.y == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_a_map_that_is_gone_is_named_with_the_remedy(write_run, write_maps, tmp_path):
    run = FinishedRun({}, "c2-ccp/repeat0", RunFolder.read(write_run(tmp_path / "run")))
    best = mnist.best_problem(run)
    write_maps(run.folder.path, problems=best)
    assert len(mnist.maps_of(run)) == best
    map_file(run.folder.path, best).unlink()
    with pytest.raises(UserError, match=r"safetensors, which this study draws, is gone; restore it, or delete"):
        mnist.maps_of(run)


def test_a_curve_that_no_training_has_is_not_drawn(tmp_path):
    """None of them has come to proxies, so there is no covering radius."""
    run = FinishedRun(
        {"loss": "c2", "method": "c2-ccp", "repeat": 0}, "c2-ccp", RunFolder(tmp_path, {}, {}, [], {}, None)
    )
    solved = {"c2-ccp": [mnist.SolvedProblem(1, 20, 0.2, None, None, 0.7)]}
    figure = mnist.curve_figure("c2", [run], solved)
    assert [panel.title for panel in figure.panels] == ["MAP@R on validation images", "distance between classes"]
