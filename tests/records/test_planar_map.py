"""Maps of a run in one plane: where points stand, and what is known of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ccp_dml.records import layout, problem_map
from ccp_dml.records import planar_map as module
from ccp_dml.records.planar_map import MARGIN, SIZE, EmbeddingMap, embedding_map
from ccp_dml.records.problem_map import ProblemMap, write_problem
from ccp_dml.records.run_folder import RunFolder

WriteMaps = Callable[..., list[ProblemMap]]


@pytest.fixture
def run(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def drawn(folder: Path) -> EmbeddingMap:
    found = embedding_map(RunFolder.read(folder))
    assert found is not None
    return found


def places(coordinates: list[int] | None) -> torch.Tensor:
    assert coordinates is not None
    return torch.tensor(coordinates, dtype=torch.float64).view(-1, 2)


def everything(found: EmbeddingMap) -> torch.Tensor:
    parts = [part for frame in found.frames for part in (*frame.points.values(), *frame.proxies.values()) if part]
    return torch.cat([places(part) for part in parts])


def test_two_dimensions_are_drawn_as_they_are(run: Path, write_maps: WriteMaps) -> None:
    problems = write_maps(run, dim=2)
    found = drawn(run)
    assert (found.dimensions, found.share) == (2, 1.0)
    scales = []
    for frame, problem in zip(found.frames, problems, strict=True):
        order = problem.train.labels.argsort(stable=True)
        flat, true = places(frame.points["train"]), problem.train.embeddings[order].double()
        ratio = torch.pdist(flat) / torch.pdist(true)
        scales.append(float(ratio.median()))
        assert torch.allclose(torch.pdist(flat), torch.pdist(true) * ratio.median(), atol=2)  # whole units
        assert (flat[:, 0] - true[:, 0] * scales[-1]).std() < 1  # x to the right
        assert (flat[:, 1] + true[:, 1] * scales[-1]).std() < 1  # y upwards
        converged = places(frame.proxies["converged"])
        offset = (flat - true * scales[-1] * torch.tensor([1, -1])).mean(0)
        expected = problem.converged.flatten(0, 1).double() * scales[-1] * torch.tensor([1, -1]) + offset  # type: ignore[union-attr]
        assert torch.allclose(converged, expected, atol=2)
    assert max(scales) - min(scales) < 0.01 * max(scales)  # one scale for all problems


def test_circles_are_the_proxies_that_the_next_problem_starts_from(run: Path, write_maps: WriteMaps) -> None:
    problems = write_maps(run, dim=2)
    first, second, third = drawn(run).frames
    assert third.proxies["selected"] is None
    assert [frame.problem for frame in (first, second, third)] == [1, 2, 3]
    squares, circles = places(first.proxies["converged"]), places(first.proxies["selected"])
    truth = torch.cat([problems[0].converged.flatten(0, 1), problems[1].selected.flatten(0, 1)]).double()  # type: ignore[union-attr]
    flat = torch.cat([squares, circles])
    ratio = torch.pdist(flat) / torch.pdist(truth)
    assert torch.allclose(torch.pdist(flat), torch.pdist(truth) * ratio.median(), atol=2)


def test_no_circles_are_drawn_where_the_next_problem_has_no_map(run: Path, write_maps: WriteMaps) -> None:
    write_maps(run, problems=4, dim=2)
    layout.map_file(run, 2).unlink()  # as of a problem that ended before an evaluation
    circles = {frame.problem: frame.proxies["selected"] for frame in drawn(run).frames}
    assert [problem for problem, found in circles.items() if found is not None] == [3]


def test_everything_fits_the_drawing(run: Path, write_maps: WriteMaps) -> None:
    write_maps(run, problems=4)
    found = drawn(run)
    cloud = everything(found)
    assert cloud.min() >= MARGIN - 1
    assert cloud.max() <= SIZE - MARGIN + 1
    assert 0.2 < found.share < 1


def test_embeddings_that_only_grow_only_move_outwards(run: Path, write_maps: WriteMaps) -> None:
    [first] = write_maps(run, problems=1, proxies=0)
    grown = {
        side: replace(part, embeddings=3 * part.embeddings)
        for side, part in (("train", first.train), ("validation", first.validation))
    }
    write_problem(run, replace(first, problem=2, **grown))
    before, after = (places(frame.points["train"]) - SIZE / 2 for frame in drawn(run).frames)
    assert torch.allclose(after - after.mean(0), 3 * (before - before.mean(0)), atol=3)


def test_a_shift_of_everything_is_no_movement(run: Path, write_maps: WriteMaps) -> None:
    [first] = write_maps(run, problems=1)
    assert first.converged is not None
    moved = {
        side: replace(part, embeddings=part.embeddings + 50)
        for side, part in (("train", first.train), ("validation", first.validation))
    }
    write_problem(run, replace(first, problem=2, converged=first.converged + 50, **moved))
    before, after = drawn(run).frames
    assert torch.allclose(places(before.points["train"]), places(after.points["train"]), atol=1)
    assert torch.allclose(places(before.proxies["converged"]), places(after.proxies["converged"]), atol=1)


def test_points_know_their_class_name_and_picture(run: Path, write_maps: WriteMaps) -> None:
    problems = write_maps(run)
    side = drawn(run).sides["train"]
    rows = problems[0].train.labels.argsort(stable=True)
    assert side.labels == sorted(side.labels)
    assert side.labels == problems[0].train.labels[rows].tolist()
    assert side.names == [f"item {row + 100}" for row in rows.tolist()]  # by position in the source, not by row
    assert side.cells == list(range(len(rows)))
    assert side.sheet is not None
    assert side.classes == ("class 0", "class 1", "class 2", "class 3")
    assert [side.members(label) for label in range(2)] == [list(range(6)), list(range(6, 12))]


def test_without_pictures_rows_have_numbers(run: Path, write_maps: WriteMaps) -> None:
    write_maps(run, has_pictures=False)
    assert drawn(run).sides["train"].sheet is None
    (run / "map.json").unlink()  # as in a run that is still training
    side = drawn(run).sides["validation"]
    assert side.names[:2] == ["row 0", "row 3"]
    assert side.cells == [None] * 18


def test_a_sheet_from_elsewhere_is_not_fetched(run: Path, write_maps: WriteMaps) -> None:
    write_maps(run)
    text = (run / "map.json").read_text().replace("data:image/webp", "https://example.org/webp")
    (run / "map.json").write_text(text)
    assert {side.sheet is None for side in drawn(run).sides.values()} == {True}


def test_too_many_points_and_problems_are_thinned(
    run: Path, write_maps: WriteMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_map, "MOST_POINTS", 10)
    monkeypatch.setattr(module, "MOST_FRAMES", 3)
    write_maps(run, problems=7)
    found = drawn(run)
    assert [frame.problem for frame in found.frames] == [1, 4, 7]
    assert len(found.sides["train"].labels) == 10
    assert set(found.sides["train"].labels) == {0, 1, 2, 3}
    assert found.sides["train"].cells == list(range(10))
    assert all(len(frame.points["train"]) == 20 for frame in found.frames)
    assert found.frames[0].proxies["selected"] is not None  # of problem 2, which is not shown itself
