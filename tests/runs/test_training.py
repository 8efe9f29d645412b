"""Which classes training gets to see (D27, D28), and what is refused before it says what it will do."""

import json
import subprocess
import sys
from typing import ClassVar

import pytest
import torch

from ccp_dml.config.layers import resolve
from ccp_dml.config.schema import ProtocolConfig
from ccp_dml.data.features import load_features
from ccp_dml.data.labelled import DataHalves, TestSet
from ccp_dml.errors import UserError
from ccp_dml.foundation.machine import MemoryPeak
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.datasets import classes_to_learn_and_to_select_on
from ccp_dml.runs.training import prepare_torch, train
from ccp_dml.runs.watcher import Watcher


def test_validation_classes_are_training_classes_held_out(features):
    halves = load_features(features)
    learned, validation = classes_to_learn_and_to_select_on(ProtocolConfig(folds=4, fold=1), halves)
    names = halves.train.class_names
    assert validation.queries.class_names == names[2:4]
    assert validation.gallery is None
    assert learned.class_names == names[:2] + names[4:]


def test_only_who_asks_for_it_selects_on_the_test_half(features):
    halves = load_features(features)
    learned, validation = classes_to_learn_and_to_select_on(ProtocolConfig(select_on="test"), halves)
    assert learned is halves.train
    assert validation is halves.test


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can set the mark back")
def test_the_peak_of_memory_is_not_that_of_an_earlier_run(features, tmp_path):
    large = 400_000_000
    before = MemoryPeak()
    torch.ones(large // 4)
    quick = ("train.max_steps=4", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=4")
    config = complete(resolve(["features", "c2"], [f"data.path={features}", *quick]).config)
    reached = before.read()
    result = train(config, Logbook.open_new(tmp_path / "run", config, ["ccp"]), Watcher())
    assert result["peak_memory"]["process"] < reached - large / 2


@pytest.mark.parametrize("with_gallery", [False, True])
def test_selecting_on_the_test_half_is_recorded(features, tmp_path, with_gallery):
    quick = ("train.max_steps=8", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=4")
    settings = [f"data.path={features}", "protocol.select_on=test", *quick]
    config = complete(resolve(["features", "c2"], settings).config)

    def load(data):
        halves = load_features(data.path)
        queries = halves.test.queries
        return DataHalves(halves.train, TestSet(queries, queries if with_gallery else None))

    book = Logbook.open_new(tmp_path / "run", config, ["ccp"])
    result = train(config, book, Watcher(), load_data=load)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["selected_on"] == "test"
    # What selects is what is reported; with itself as gallery, every query finds itself first.
    assert result["validation"]["map_at_r"] == pytest.approx(result["test"]["map_at_r"])
    assert (result["test"]["precision_at_1"] == 1.0) == with_gallery


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("run.device=gpu", "is no device; use auto"),
        ("run.device=cuda:99", "CUDA devices; use auto"),
        ("model.backbone=resnet5000", "there is no backbone 'resnet5000'; did you mean 'resnet50'"),
    ],
)
def test_what_is_not_there_is_told_before_anything_is_announced(features, tmp_path, setting, message):
    class Listener(Watcher):
        said: ClassVar[list[str]] = []

        def note(self, text):
            self.said.append(text)

    config = complete(resolve(["features", "c2"], [f"data.path={features}", "protocol.folds=2", setting]).config)
    with pytest.raises(UserError, match=message):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Listener())
    assert Listener.said == []


@pytest.mark.parametrize("deterministic", [True, False])
def test_torch_is_as_deterministic_as_asked_and_fills_no_memory(deterministic, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        prepare_torch(resolve(["glyphs", "c2"], [f"run.deterministic={deterministic}".lower()]).config)
        assert torch.are_deterministic_algorithms_enabled() == deterministic
        assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(before, warn_only=True)


def test_our_own_networks_train_without_what_takes_long_to_import():
    code = (
        "import sys\n"
        "from ccp_dml.models.backbones import create_backbone\n"
        "import ccp_dml.runs.training\n"
        "create_backbone('small_cnn')\n"
        "sys.exit(', '.join({'timm', 'scipy.stats', 'sklearn'} & set(sys.modules)) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
