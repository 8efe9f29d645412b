"""What a trained run leaves for its report."""

import json

import pytest
import torch
from support.made_up_runs import items

from ccp_dml.cli import main
from ccp_dml.records.problem_map import MapPoints, ProblemMap, write_problem
from ccp_dml.runs.illustrations.report_data import build_map_pictures

QUICK = (
    "train.max_steps=8",
    "train.evaluate_every=2",
    "train.classes_per_batch=3",
    "train.images_per_class=2",
    "model.embedding_dim=4",
    "ccp.patience=1",
    "protocol.folds=2",
    "run.map_points=12",
)


def trained(folder, data, *settings):
    options = [part for setting in (*QUICK, *settings) for part in ("--set", setting)]
    assert main(["train", data, "c2-ccp", "--out", str(folder), *options]) == 0
    page = (folder / "report.html").read_text()
    names = ("gallery", "confusion", "map")
    return page, [json.loads((folder / f"{name}.json").read_text()) for name in names]


def test_features_leave_names(features, tmp_path):
    page, (gallery, confusion, pictures) = trained(tmp_path / "run", "features", f"data.path={features}")
    assert gallery["queries"]
    assert len(confusion["matrix"]) == len(confusion["classes"]) > 1
    assert pictures["train"]["sheet"] is None
    assert len(pictures["train"]["rows"]) == len(pictures["train"]["names"]) == 12
    for section in ("map", "gallery", "confusion", "cost"):
        assert f'<section id="{section}"' in page
    assert page.count('<figure class="map">') == 1


def test_images_leave_pictures(image_folder, tmp_path):
    small = ("model.backbone=small_cnn", "data.resize=36", "data.crop=32", "run.workers=0")
    page, (_, confusion, pictures) = trained(tmp_path / "run", "folder", f"data.root={image_folder}", *small)
    for side in ("train", "validation"):
        assert pictures[side]["sheet"]["uri"].startswith("data:image/")
        assert json.dumps(pictures[side]["sheet"]["uri"])[1:-1] in page
    assert all(item["picture"] for pair in confusion["pairs"] for item in pair["items"])


def test_who_wants_no_maps_gets_none(features, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"map\.json"):
        trained(tmp_path / "run", "features", f"data.path={features}", "run.map_points=0")
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<section id="map"' not in page
    assert '<section id="confusion"' in page


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
