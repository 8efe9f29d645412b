"""The images behind a run's maps: their names and pictures, found by row."""

import torch
from support.made_up_runs import items

from ccp_dml.records.problem_map import MapPoints, ProblemMap, write_problem
from ccp_dml.runs.illustrations.map_pictures import build_map_pictures


def points(rows, labels):
    return MapPoints(torch.zeros(len(rows), 2), torch.tensor(labels), torch.tensor(rows), ("a", "b"))


def test_a_run_without_maps_has_no_pictures(tmp_path):
    data = items(torch.tensor([0, 1]))
    assert build_map_pictures(tmp_path, data, data) is None


def test_rows_of_the_first_map_are_named_and_drawn_class_by_class(tmp_path):
    train, validation = items(torch.tensor([0, 0, 1, 1])), items(torch.tensor([0, 1]), has_pictures=False)
    write_problem(tmp_path, ProblemMap(1, points([3, 1], [1, 0]), points([0], [0]), None, None))
    found = build_map_pictures(tmp_path, train, validation)
    assert found["train"]["rows"] == [1, 3]
    assert found["train"]["names"] == ["item 101", "item 103"]  # an item's position is its row and a hundred
    assert train.source.looked_at == [101, 103], "no other image is opened"
    assert found["train"]["sheet"]["columns"] * found["train"]["sheet"]["rows"] >= 2
    assert found["validation"] == {"rows": [0], "names": ["item 100"], "sheet": None}
