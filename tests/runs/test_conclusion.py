import json
import shutil
import time
from dataclasses import replace

import pytest
import torch
from conftest import write_features
from support.made_up_runs import items

from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import Parts, TestSet
from ccp_dml.errors import UserError
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.problem_map import MapPoints, ProblemMap, write_problem
from ccp_dml.runs import conclusion
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.conclusion import build_map_pictures, few_of, few_of_test, finish_run, is_short, rehearse_end
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.scoring import load_network
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher


def test_a_run_is_finished_with_everything_that_reports_need(photo_run, tmp_path):
    folder, config = photo_run
    halves = build_data(config.data)
    parts = Parts(*classes_to_learn_and_to_select_on(config.protocol, halves), halves.test)
    network = load_network(Logbook.reopen(folder), config, halves.test)
    book = Logbook.open_new(tmp_path / "run", config, ["test"])
    book.begin()
    scores = {"map_at_r": 0.5, "precision_at_1": 0.5, "r_precision": 0.5}
    book.record({"step": 2, "problem": 1, **scores, "queries": 4, "loss": 1.0, "seconds": 1.0})
    perfect = torch.nn.functional.one_hot(halves.test.queries.labels).float()
    facts = {"validation": {**scores, "queries": 4}, "best_step": 2, "steps": 2, "problems": 1, "seed": 0}
    result = finish_run(
        config, book, network, parts, halves.test, EmbeddedTest((perfect, halves.test.queries.labels), None), facts
    )
    assert result["test"]["map_at_r"] == 1.0
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert written >= {
        "gallery.json",
        "confusion.json",
        "certificate.json",
        "classes.json",
        "report.html",
        "checksums.json",
    }


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


def test_rows_of_the_first_map_are_named_and_drawn_class_by_class(tmp_path):
    train, validation = items(torch.tensor([0, 0, 1, 1])), items(torch.tensor([0, 1]), has_pictures=False)
    write_problem(tmp_path, ProblemMap(1, points([3, 1], [1, 0]), points([0], [0]), None, None))
    found = build_map_pictures(tmp_path, train, validation)
    assert found["train"]["rows"] == [1, 3]
    assert found["train"]["names"] == ["item 101", "item 103"]  # an item's position is its row and a hundred
    assert train.source.looked_at == [101, 103], "no other image is opened"
    assert found["train"]["sheet"]["columns"] * found["train"]["sheet"]["rows"] >= 2
    assert found["validation"] == {"rows": [0], "names": ["item 100"], "sheet": None}


def parts_of(config):
    halves = build_data(config.data)
    return Parts(*classes_to_learn_and_to_select_on(config.protocol, halves), halves.test)


def config_of(features, method, *settings):
    return complete(
        resolve(
            ["features", method],
            [f"data.path={features}", "model.embedding_dim=5", "train.classes_per_batch=4", *settings],
        ).config
    )


@pytest.mark.parametrize("method", ["c2", "ms-ccp", "triplet", "proxy-nca++"])
def test_the_end_of_a_good_run_is_rehearsed_without_a_trace(features, method, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    state = torch.get_rng_state()
    config = config_of(features, method)
    rehearse_end(config, parts_of(config), Watcher())
    assert set(tmp_path.iterdir()) == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("part", ["score_embeddings", "write_report_data", "write_certificate", "write_report_of"])
def test_what_would_fail_at_the_end_fails_before_training(features, tmp_path, part, monkeypatch):
    def fails(*_):
        raise UserError("as it would after hours")

    monkeypatch.setattr(conclusion, part, fails)
    config = config_of(features, "c2", "train.max_steps=60")
    with pytest.raises(UserError, match="after hours"):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Watcher())
    assert not (tmp_path / "run").exists()


def test_a_broken_test_image_is_found_before_a_frozen_backbone_trains(photos, tmp_path, backbone_weights):
    shutil.copytree(photos, tmp_path / "photos")
    for image in (tmp_path / "photos" / "class_08").iterdir():
        image.write_bytes(b"no image")
    given = [f"data.root={tmp_path / 'photos'}", "data.resize=36", "data.crop=32", "model.backbone=small_cnn"]
    given += ["model.freeze_backbone=true", f"model.weights={backbone_weights}", f"run.cache={tmp_path / 'cache'}"]
    given += ["train.classes_per_batch=4"]
    config = complete(resolve(["folder", "c2"], given).config)
    with pytest.raises(UserError, match="class_08"):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Watcher())


class Counter(Watcher):
    def __init__(self):
        self.counted = []

    def reading_test(self, done, total):
        self.counted.append((done, total))


@pytest.mark.parametrize("skip", [False, True])
def test_every_broken_test_image_is_found_before_a_whole_network_trains(image_folder, skip):
    broken = image_folder / "class_13" / "4.png"
    broken.write_bytes(broken.read_bytes()[:150])
    settings = (f"data.root={image_folder}", "data.resize=32", "data.crop=32", f"data.skip_broken={str(skip).lower()}")
    config = complete(resolve(["folder", "scratch", "c2"], settings).config)
    parts, watcher = parts_of(config), Counter()
    if skip:
        rehearse_end(config, parts, watcher)
        return
    with pytest.raises(
        UserError, match=r"^1 of 40 test images cannot be read: .*class_13/4\.png \(.*data\.skip_broken"
    ):
        rehearse_end(config, parts, watcher)
    assert watcher.counted == [(done, 40) for done in range(41)], "reading many files takes a while"


def test_a_few_items_of_a_few_classes(tmp_path):
    config = config_of(write_features(tmp_path / "f.npz", classes=10, per_class=5), "c2")
    data = build_data(config.data).train
    few = few_of(data, [1, 4])
    assert few.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert few.class_names == (data.class_names[1], data.class_names[4])
    kept = few_of_test(TestSet(data, replace(data, positions=data.positions[5:], labels=data.labels[5:])))
    assert kept.queries.class_names == kept.gallery.class_names == data.class_names[1:4]  # the gallery has no class 0


def test_short_runs_are_not_rehearsed(features):
    assert is_short(config_of(features, "c2", "train.max_steps=10"))
    assert not is_short(config_of(features, "c2", "train.max_steps=100"))
    assert not is_short(config_of(features, "c2"))


def test_a_rehearsal_takes_no_time_to_speak_of(features):
    config = config_of(features, "c2")
    parts = parts_of(config)
    began = time.monotonic()
    rehearse_end(config, parts, Watcher())
    assert time.monotonic() - began < 5
