"""A run with a loss, a backbone and a data set of the user's own: trained, resumed, scored, exported, loaded."""

import os

import numpy as np
import pytest

import ccp_dml as ccp
from ccp_dml.cli import main
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code

CODE = """
import numpy as np
import torch
from torch import nn

from ccp_dml.losses import ContrastiveLoss


class Loss(nn.Module):
    def __init__(self, margin: float = 0.4):
        super().__init__()
        self.loss = ContrastiveLoss(0.0, margin)

    def forward(self, embeddings, labels, ref_embeddings=None, ref_labels=None):
        return self.loss(embeddings, labels, ref_embeddings, ref_labels)


class Net(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.num_features = width
        self.conv = nn.Conv2d(3, width, 3, stride=2)

    def forward(self, images):
        return torch.relu(self.conv(images.float() / 255))


class Blobs:
    def __init__(self, classes: int = 8):
        draw = np.random.default_rng(0)
        self.targets = np.arange(classes).repeat(4)
        colours = draw.integers(0, 255, (classes, 1, 1, 3))[self.targets]
        self.images = colours + draw.integers(0, 20, (4 * classes, 16, 16, 3))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        return self.images[i].clip(0, 255).astype(np.uint8), self.targets[i]
"""
SETTINGS = (
    *("loss.name=mine.py:Loss", "loss.margin=0.3", "model.backbone=mine.py:Net", "model.args.width=6"),
    *("data.name=mine.py:Blobs", "data.resize=16", "data.crop=14", "model.embedding_dim=4", "run.workers=0"),
    *("train.evaluate_every=1", "train.classes_per_batch=2", "train.images_per_class=2"),
    *("protocol.folds=2", "run.map_points=0"),
)


def train(*more, steps=2):
    settings = [part for one in (*SETTINGS, f"train.max_steps={steps}") for part in ("--set", one)]
    return main(["train", "c2-ccp", *settings, "--out", "run", *more])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the code and a run that was trained with it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(CODE)
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert train() == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def test_folders_are_scored_and_exported_with_consent_only(place, capsys):
    for command in (["evaluate", "run"], ["certify", "run"], ["export", "run", "--out", "model"]):
        assert main(command) == 2
        assert "add --trust-code" in " ".join(capsys.readouterr().err.split())
        assert main([*command, "--trust-code"]) == 0
    assert "trust_code=True" in (place / "model" / "README.md").read_text()


@pytest.mark.parametrize("folder", ["run", "model"])
def test_a_model_is_loaded_with_consent_or_with_the_class(folder, monkeypatch):
    if folder == "model" and not os.path.exists(folder):
        assert main(["export", "run", "--out", "model", "--trust-code"]) == 0
    with monkeypatch.context() as patched:
        patched.setattr(own_code, "load", lambda *_: pytest.fail("code was run"))
        with pytest.raises(UserError, match="not run without your consent"):
            ccp.load(folder)
    namespace = {}
    exec(CODE, namespace)
    images = np.random.default_rng(0).integers(0, 255, (3, 20, 20, 3), dtype=np.uint8)
    trusted, given = ccp.load(folder, trust_code=True), ccp.load(folder, backbone=namespace["Net"])
    assert np.array_equal(trusted.embed(images), given.embed(images))
    assert trusted.digest == given.digest


def test_a_run_goes_on_with_its_own_code_and_no_other(place, capsys):
    file = place / "mine.py"
    (place / "run" / "result.json").unlink(missing_ok=True)
    assert main(["train", "--resume", "--out", "run"]) == 2
    assert "add --trust-code" in " ".join(capsys.readouterr().err.split())
    file.write_text(CODE + "\n# changed\n")
    for command in (lambda: main(["train", "--resume", "--out", "run", "--trust-code"]), lambda: train("--resume")):
        assert command() == 2
        assert "is not the code that run began with; restore it" in " ".join(capsys.readouterr().err.split())
    file.unlink()  # the copy is enough
    assert main(["train", "--resume", "--out", "run", "--trust-code"]) == 0
    file.write_text(CODE)
    assert train("--resume", steps=3) == 0  # named by the user, so that no other consent is needed
    longer = ["train", "--resume", "--out", "run", "--set", "train.max_steps=4"]
    assert main(longer) == 2  # named by the folder
    assert main([*longer, "--trust-code"]) == 0
    assert f'"{file}:Loss"' in (place / "run" / "config.toml").read_text(), "not that of the copy"


def test_the_way_on_after_a_crash_has_the_consent_that_it_needs(capsys, monkeypatch):
    def crash(*_):
        raise RuntimeError("of a driver")

    monkeypatch.setattr("ccp_dml.trainer.Trainer.train_until_evaluation", crash)
    assert train("--out", "crashed") == 1
    assert "Continue with: ccp train --resume --out crashed --trust-code" in capsys.readouterr().err
