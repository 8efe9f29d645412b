"""Training a head on features that a frozen backbone computed once."""

import errno
import os
import re

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from support.frozen_runs import QUICK, Counter, entries, save_resnet, trained, training_features

from ccp_dml.config.layers import flatten, resolve
from ccp_dml.data.loading import auto_workers, loader_processes
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import digest
from ccp_dml.models.backbones import create_backbone
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.setting_groups import ADDED_LATER, MAY_CHANGE, WHERE_FILES_ARE, settings_digest
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.frozen import FrozenFeatures, digest_of, trained_part
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher


@pytest.mark.parametrize(("method", "precision"), [("c2", "half"), ("c2", "single"), ("c2-ccp", "half")])
def test_without_augmentation_the_cache_changes_nothing(frozen_settings, tmp_path, method, precision):
    given = ("data.augment=false", f"model.feature_precision={precision}")
    cached = trained(frozen_settings(*given, method=method), tmp_path / "cached")
    live = trained(frozen_settings(*given, "model.cache_features=false", method=method), tmp_path / "live")
    assert cached[1] == live[1]
    assert cached[0]["test"] == live[0]["test"]
    assert len({row["map_at_r"] for row in cached[1]}) > 1, "nothing was learned, so nothing was compared"


@pytest.fixture
def top_settings(frozen_settings, tmp_path):
    """Configure a run that trains the upper stages of a small network on cached maps of the lower ones."""
    weights = tmp_path / "resnet.safetensors"
    save_resnet(weights, seed=5)
    own = ("model.backbone=test_resnet", f"model.weights={weights}", "model.freeze_backbone=false")
    smaller = ("train.max_steps=4", "train.evaluate_every=2", "optim.lr=1e-3")
    return lambda *more: frozen_settings(*own, *smaller, "model.train_from=layer3", *more)


@pytest.mark.parametrize("precision", ["half", "single"])
def test_top_stages_learn_the_same_from_cached_maps_as_from_images(top_settings, tmp_path, precision):
    given = ("data.augment=none", f"model.feature_precision={precision}")
    cached = trained(top_settings(*given), tmp_path / "cached")
    live = trained(top_settings(*given, "model.cache_features=false"), tmp_path / "live")
    assert cached[1] == live[1]
    assert cached[0]["test"] == live[0]["test"]
    of_top, whole = (load_file(tmp_path / name / "best.safetensors") for name in ("cached", "live"))
    assert len(of_top) < len(whole)
    assert all(torch.equal(value, whole[name]) for name, value in of_top.items())
    first = create_backbone("test_resnet", seed=5).state_dict()
    learned = {name for name, value in first.items() if not torch.equal(value, whole[f"backbone.{name}"])}
    assert learned, "nothing was learned, so nothing was compared"
    assert all(name.startswith(("network.layer3", "network.layer4")) for name in learned)


def test_maps_have_views_and_entries_of_their_own(top_settings, tmp_path):
    seen = training_features(top_settings())
    assert seen.load(torch.arange(2)).shape == (2, 48, 4, 4)
    assert len(seen.source.views) == 4
    rows = torch.arange(8)
    assert not torch.equal(seen.load(rows, rows), seen.load(rows))
    training_features(top_settings("model.train_from=layer4"))
    assert len(entries(tmp_path)) == 2


def test_views_are_what_the_backbone_sees_of_augmented_images(frozen_settings):
    config = frozen_settings()
    part = build_data(config.data).train
    seen = training_features(config)
    network = build_network(config.model, None, 0).eval()
    rows = torch.arange(len(part))
    with torch.no_grad():
        clean = network.features(part.load(rows))
    assert torch.equal(seen.load(rows), clean)
    drawn = torch.stack([seen.load(rows, rows + seed) for seed in range(40)])  # (40, N, F)
    assert torch.equal(seen.load(rows, rows + 3), drawn[3]), "the same seed must give the same views"
    for row in range(0, len(part), 9):
        views = drawn[:, row].unique(dim=0)
        assert len(views) == config.data.views
        assert not (views == clean[row]).all(dim=1).any()


def test_without_augmentation_there_is_one_view(frozen_settings):
    seen = training_features(frozen_settings("data.augment=false"))
    assert len(seen.source.views) == 1
    rows = torch.arange(4)
    assert torch.equal(seen.load(rows, rows), seen.load(rows))


def test_the_second_run_finds_what_the_first_one_computed(frozen_settings, tmp_path):
    first, second = Counter(), Counter()
    one = training_features(frozen_settings(), first)
    other = training_features(frozen_settings("run.seed=8", "optim.lr=1e-3", method="ms"), second)
    assert first.seen[-1] == (4 * 40, 4 * 40)
    assert second.seen == []
    assert np.array_equal(one.source.views, other.source.views)
    assert len(entries(tmp_path)) == 1


def test_a_process_sees_each_part_once(frozen_settings, monkeypatch):
    config, frozen = frozen_settings(), FrozenFeatures()
    halves = build_data(config.data)
    first = frozen.inputs_of(config, halves.train, Watcher(), augmented=True)
    monkeypatch.setattr("ccp_dml.records.feature_store.FeatureStore.read", lambda *_: pytest.fail("read again"))
    assert frozen.inputs_of(config, halves.train, Watcher(), augmented=True) is first


@pytest.mark.parametrize("change", ["image", "weights", "crop", "views", "pooling", "precision", "half"])
def test_whatever_changes_a_number_gets_an_entry_of_its_own(
    frozen_settings, image_folder, frozen_weights, tmp_path, change
):
    before = training_features(frozen_settings())
    if change == "image":
        pixels = np.zeros((40, 36, 3), np.uint8)
        Image.fromarray(pixels).save(image_folder / "class_00" / "0.png")
    if change == "weights":
        state = load_file(frozen_weights)
        name = next(iter(state))
        state[name].view(-1)[0] += 1e-3
        save_file(state, frozen_weights)
    more = {
        "crop": ["data.crop=30"],
        "views": ["data.views=2"],
        "pooling": ["model.pooling=gap+gmp"],
        "precision": ["run.precision=64-true"],
        "half": ["model.feature_precision=half"],
    }.get(change, [])
    after, counter = frozen_settings(*more), Counter()
    features = training_features(after, counter)
    assert counter.seen, "a stale entry was used"
    assert len(entries(tmp_path)) == 2
    if change not in ("views", "precision"):
        assert not np.array_equal(before.source.views, features.source.views)


def test_half_precision_finds_the_entries_of_earlier_versions(frozen_settings, tmp_path):
    """The name of an entry was made of these parts before there was another precision."""
    config = frozen_settings("model.feature_precision=half", "data.augment=none")
    part, network = build_data(config.data).train, build_network(config.model, None, 0)
    training_features(config)
    shape = (1, len(part), network.linear.in_features)
    made = f"{shape} 32-true one seed per row"
    assert entries(tmp_path) == [digest(digest_of(network), part.source.signature(part.positions), made)]


def test_own_images_keep_single_precision_and_the_tables_half():
    def precision(*recipes):
        return resolve([*recipes, "c2-ccp"]).config.model.feature_precision

    assert precision("folder", "frozen") == precision("csv", "frozen") == "single"
    assert precision("folder", "top") == precision("cub", "frozen") == precision("features") == "half"


def test_a_run_is_not_resumed_in_another_precision(frozen_settings, tmp_path):
    trained(frozen_settings(), tmp_path / "run")
    with pytest.raises(UserError, match=r"was started with model\.feature_precision = 'single', not 'half'"):
        Logbook.reopen(tmp_path / "run").continue_with(frozen_settings("model.feature_precision=half"))


def test_a_run_that_is_resumed_as_another_method_is_told_which_loss_it_has(frozen_settings, tmp_path):
    trained(frozen_settings(), tmp_path / "run")
    other = frozen_settings("ccp.balance=7", "loss.name=ms")
    with pytest.raises(UserError, match=r"was started with loss\.name = 'c2', not 'ms'"):
        Logbook.reopen(tmp_path / "run").continue_with(other)


def test_a_run_of_a_version_without_the_precision_is_still_known(frozen_settings, tmp_path):
    config = frozen_settings("model.feature_precision=half", "ccp.balance=3")  # as they were then
    trained(config, tmp_path / "run")
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace('feature_precision = "half"\n', ""))
    assert "feature_precision" not in file.read_text()
    assert Logbook.reopen(tmp_path / "run").config() == config
    in_single = settings_digest(frozen_settings("model.feature_precision=single", "ccp.balance=3"))
    assert in_single != settings_digest(config) == earlier_digest(config)


def earlier_digest(config):
    """Digest the settings as versions without `model.feature_precision` and its like did."""
    kept = {key: value for key, value in flatten(config.as_tables()) if key not in ADDED_LATER}
    return digest(*(f"{key}={kept[key]!r}" for key in sorted(kept.keys() - MAY_CHANGE - WHERE_FILES_ARE)))


def test_a_moved_data_set_is_still_known(frozen_settings, image_folder, tmp_path):
    training_features(frozen_settings())
    image_folder.rename(tmp_path / "elsewhere")
    counter = Counter()
    training_features(frozen_settings(f"data.root={tmp_path / 'elsewhere'}"), counter)
    assert counter.seen == []


def test_views_do_not_depend_on_how_many_images_fit_into_memory(frozen_settings, tmp_path):
    one = training_features(frozen_settings())
    other = training_features(frozen_settings("run.evaluation_batch=5", f"run.cache={tmp_path / 'other'}"))
    assert np.allclose(one.source.views, other.source.views, atol=1e-3)
    counter = Counter()
    training_features(frozen_settings("run.evaluation_batch=5"), counter)
    assert counter.seen == [], "the entry of another batch size serves as well"


def test_a_process_that_is_asked_for_other_features_does_not_give_the_old_ones(frozen_settings, tmp_path):
    frozen, counter = FrozenFeatures(), Counter()
    part = build_data(frozen_settings().data).train
    frozen.inputs_of(frozen_settings(), part, Watcher(), augmented=True)
    frozen.inputs_of(frozen_settings("run.precision=bf16-mixed"), part, counter, augmented=True)
    assert counter.seen
    in_half, in_single = (
        frozen.inputs_of(frozen_settings(f"model.feature_precision={precision}"), part, Watcher(), augmented=True)
        for precision in ("half", "single")
    )
    assert (in_half.source.views.dtype, in_single.source.views.dtype) == (np.float16, np.float32)
    frozen.inputs_of(frozen_settings(f"run.cache={tmp_path / 'other'}"), part, Watcher(), augmented=True)
    assert any((tmp_path / "other").iterdir())


def test_an_error_while_images_are_read_is_not_blamed_on_the_cache(frozen_settings, monkeypatch):
    def out_of_memory(*_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr("ccp_dml.runs.frozen.extract", out_of_memory)
    with pytest.raises(OSError, match="memory"):
        training_features(frozen_settings())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("protocol.folds=30", "protocol.folds"), ("train.classes_per_batch=99", "classes_per_batch")],
)
def test_a_mistake_surfaces_before_features_are_computed(frozen_settings, tmp_path, wrong, told):
    config = frozen_settings(wrong)
    with pytest.raises(UserError, match=told):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Watcher())
    assert not (tmp_path / "cache").exists()


def test_an_image_that_cannot_be_read(frozen_settings, image_folder):
    config = frozen_settings()
    part = build_data(config.data).train
    (image_folder / "class_00" / "0.png").unlink()
    with pytest.raises(UserError, match=r"cannot read the image .*0\.png"):
        FrozenFeatures().inputs_of(config, part, Watcher(), augmented=True)


@pytest.mark.parametrize("backbone", ["resnet18", "small_cnn"])
def test_an_untrained_backbone_is_not_frozen(image_folder, backbone):
    given = [*QUICK, f"data.root={image_folder}", f"model.backbone={backbone}"]
    with pytest.raises(UserError, match=rf"{backbone} has no trained weights.*model\.weights"):
        training_features(complete(resolve(["folder", "c2"], given).config))


def test_the_input_normalisation_is_part_of_a_backbone():
    def of(*settings):
        config = resolve(["folder", "c2"], ["model.backbone=resnet18", *settings]).config
        return digest_of(build_network(config.model, None, 0))

    other = ("model.input_mean=[0.1,0.2,0.3]", "model.input_std=[1.0,1.0,1.0]")
    assert of() == of()
    assert of() != of(*other)


def test_loader_processes_decode_images_and_are_not_started_for_features(frozen_settings):
    config = frozen_settings()
    images = build_data(config.data).train
    assert loader_processes(2, images.source) == 2
    assert loader_processes(2, training_features(config).source) == 0
    assert loader_processes(None, images.source) == auto_workers(images.source) > 0


def test_what_is_trained():
    features = resolve(["features", "c2"], ["model.freeze_backbone=true"]).config.model
    assert not features.trains_on_features, "there is no backbone to freeze"
    assert trained_part(features) == features
    images = resolve(["cub", "c2"], ["model.freeze_backbone=true", "model.weights=FILE", "model.pooling=gap+gmp"])
    head = trained_part(images.config.model)
    assert (head.backbone, head.weights, head.pooling) == ("identity", None, "gap")
    assert not resolve(["cub", "c2"]).config.model.trains_on_features
    assert not images.config.with_values(model={"cache_features": False}).model.trains_on_features


def test_items_that_were_not_seen_have_no_features(frozen_settings):
    config = frozen_settings()
    part = build_data(config.data).train
    seen = FrozenFeatures().inputs_of(config, part.of_classes([0, 1]), Watcher(), augmented=True)
    with pytest.raises(IndexError, match="not seen"):
        seen.source.load(part.positions, None)


def test_weights_in_the_users_home(frozen_settings, frozen_weights, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(frozen_weights.parent))
    at_home = training_features(frozen_settings(f"model.weights=~/{frozen_weights.name}"))
    assert np.array_equal(at_home.source.views, training_features(frozen_settings()).source.views)
    assert len(entries(tmp_path)) == 1


def test_a_file_whose_name_is_no_text(frozen_settings, image_folder, tmp_path):
    os.rename(image_folder / "class_15" / "0.png", os.fsencode(image_folder) + b"/class_15/caf\xe9.png")
    trained(frozen_settings(), tmp_path / "run")
    assert "caf\ufffd.png" in (tmp_path / "run" / "gallery.json").read_text(encoding="utf-8")
    assert (tmp_path / "run" / "report.html").exists()


def test_the_cost_of_features_is_said_before_they_are_computed(frozen_settings):
    config, told = frozen_settings(), []

    class Listener(Watcher):
        def note(self, text):
            told.append(text)

        def extracting(self, done, total):
            told.append(done == total)

    part = build_data(config.data).train
    FrozenFeatures().inputs_of(config, part, Listener(), augmented=True)
    passes = len(part) * (1 + config.data.views)
    assert re.fullmatch(
        rf"{passes:,} passes through small_cnn, about [\d.]+ .*; they are kept .*`ccp cache`\.", told[0]
    )
    assert told[-1] is True
    told.clear()
    FrozenFeatures().inputs_of(config, part, Listener(), augmented=True)
    assert told == []  # from the cache
