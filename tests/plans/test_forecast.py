"""How long a plan will take."""

import json
import time

import pytest
import torch

from ccp_dml.plans import forecast as forecasts
from ccp_dml.plans.forecast import Cost, forecast, measure
from ccp_dml.plans.plan import plan_run
from ccp_dml.runs.datasets import build_data
from ccp_dml.trainer import Trainer

SMALL = (
    *("data.resize=36", "data.crop=32", "train.classes_per_batch=4", "train.images_per_class=2"),
    *("model.backbone=small_cnn", "run.workers=0"),
)


@pytest.fixture
def plan(image_folder, tmp_path):
    def make(name, *settings, recipes=("folder", "c2")):
        given = [*SMALL, f"data.root={image_folder}", *settings]
        return plan_run(name, tmp_path / name, list(recipes), given)

    return make


def test_a_few_steps_are_measured(plan):
    config = plan("run").config
    cost = measure(config, build_data(config.data))
    assert cost.step > 0
    assert cost.evaluation > 0
    assert cost.once > cost.evaluation  # the test half is scored, too
    assert cost.features == 0


@pytest.mark.parametrize("method", ["c2", "c2-ccp", "proxy-anchor", "c2-xbm", "c2-profs"])
def test_whole_steps_are_measured_and_nothing_is_written(method, features, tmp_path, monkeypatch):
    """Loss, proxies and optimiser take longer than the pass through a head."""
    monkeypatch.chdir(tmp_path)
    settings = [f"data.path={features}", "train.classes_per_batch=4", "ccp.proxies_per_class=3"]
    config = plan_run("run", tmp_path / "run", ["features", method], settings).config
    taken, step = [], Trainer.take_step

    def slow(trainer):
        taken.append(trainer.objective.proxies.placed if method == "c2-ccp" else None)
        time.sleep(0.02)
        return step(trainer)

    monkeypatch.setattr(Trainer, "take_step", slow)
    before = torch.random.get_rng_state()
    cost = measure(config, build_data(config.data))
    assert cost.step >= 0.02
    assert len(taken) > 2
    assert set(taken) == ({True} if method == "c2-ccp" else {None})
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(tmp_path.glob("forecast*")) + list(tmp_path.glob("run*")) == []


def test_proxies_that_need_shares_out_are_placed_too(features, tmp_path):
    settings = [f"data.path={features}", "train.classes_per_batch=4", "ccp.proxies_by_need=true"]
    config = plan_run("run", tmp_path / "run", ["features", "c2-ccp"], settings).config
    assert measure(config, build_data(config.data)).step > 0


def test_loading_in_other_processes_is_hidden_behind_a_step_or_decides_it(plan, monkeypatch):
    config = plan("run", "run.workers=2").config
    monkeypatch.setattr(forecasts, "_seconds_of_step", lambda *_: 1.0)
    data, loaded = build_data(config.data), torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
    for loading, step in ((0.5, 1.0), (10.0, 5.0)):
        monkeypatch.setattr(forecasts, "_seconds_of_loading", lambda *_, loading=loading, **__: (loading, loaded))
        assert measure(config, data).step == step


def test_features_of_a_frozen_backbone_are_counted_apart(plan):
    config = plan("run", "model.freeze_backbone=true", "model.pretrained=true").config  # nothing is downloaded
    cost = measure(config, build_data(config.data))
    assert cost.features > 0
    assert cost.step > 0


def test_maps_below_the_stages_that_learn_are_counted_apart(plan, monkeypatch):
    settings = ("model.backbone=resnet18", "model.pretrained=true", "model.train_from=layer4", "data.views=3")
    config = plan("run", *settings).config  # nothing is downloaded
    seen = []
    monkeypatch.setattr(
        forecasts, "_seconds_of_seeing", lambda part, inputs: seen.append((part, inputs.shape[1])) or 1.0
    )
    data = build_data(config.data)
    cost = measure(config, data)
    assert [width for _, width in seen] == [3, 256]  # images below the cut, then the maps that layer4 gets
    assert cost.features > len(data.train) * 4 / 8  # one view for evaluations, three for training, 8 images at a time
    assert cost.evaluation > 0


def test_runs_that_are_left_add_up(plan, monkeypatch):
    measured = []

    def measure_once(config, _):
        measured.append(config.loss.name)
        return Cost(step=2.0, evaluation=10.0, once=30.0, features=5.0)

    monkeypatch.setattr(forecasts, "measure", measure_once)
    settings = ("train.max_steps=100", "train.evaluate_every=50")
    runs = [plan(f"c2-{fold}", *settings, f"protocol.fold={fold}", f"run.seed={fold}") for fold in range(3)]
    runs.append(plan("ms", *settings, "loss.name=ms"))
    found = forecast(runs)
    assert measured == ["c2", "ms"]
    assert found.features == 5.0  # once for all
    assert found.seconds == 4 * (100 * 2.0 + 2 * 10.0 + 30.0) + 5.0
    assert found.by_patience == 0
    runs[0].folder.mkdir()
    (runs[0].folder / "config.toml").write_text("")
    (runs[0].folder / "metrics.jsonl").write_text(json.dumps({"step": 50, "map_at_r": 0.5}) + "\n")
    assert forecast(runs[:1]).seconds == 50 * 2.0 + 10.0 + 30.0 + 5.0
    endless = forecast([plan("endless", "train.evaluate_every=50")])
    assert (endless.by_patience, endless.seconds) == (1, 1000 * 2.0 + 20 * 10.0 + 30.0 + 5.0)
