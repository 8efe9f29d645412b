"""Training a head on features that a frozen backbone computed once."""

import errno
import json
import os
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.data.loading import auto_workers, loader_processes
from ccp_dml.errors import UserError
from ccp_dml.foundation.locks import lock
from ccp_dml.models.backbones import create_backbone
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.feature_store import FeatureStore
from ccp_dml.runs.frozen import FrozenFeatures, digest_of, extract, trained_part, trains_on_features
from ccp_dml.runs.loss_arguments import complete
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

QUICK = (
    "data.resize=36",
    "data.crop=32",
    "data.views=3",
    "model.backbone=small_cnn",
    "model.embedding_dim=6",
    "model.freeze_backbone=true",
    "train.max_steps=12",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "train.images_per_class=2",
    "optim.lr=1e-2",
    "ccp.patience=1",
    "ccp.proxies_per_class=2",
    "run.evaluation_batch=16",
    "run.workers=0",
)


class Counter(Watcher):
    """Remembers how much was extracted, and breaks off where it is told to."""

    def __init__(self, breaks_at=None):
        self.seen, self.breaks_at = [], breaks_at

    def extracting(self, done, total):
        self.seen.append((done, total))
        if self.breaks_at is not None and done >= self.breaks_at:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("ccp_dml.data.loading.BLOCK", 16)
    monkeypatch.setattr("ccp_dml.runs.frozen.BLOCK", 16)


@pytest.fixture
def weights(tmp_path):
    file = tmp_path / "weights.safetensors"
    save_file(create_backbone("small_cnn", seed=5).state_dict(), file)
    return file


@pytest.fixture
def settings(image_folder, weights, tmp_path):
    def configure(*more, method="c2-ccp"):
        given = [f"data.root={image_folder}", f"model.weights={weights}", f"run.cache={tmp_path / 'cache'}"]
        return complete(resolve(["folder", method], [*QUICK, *given, *more]).config)

    return configure


def entries(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_dir())


def training_features(config, watcher=None):
    part = build_data(config.data).train
    return FrozenFeatures().inputs_of(config, part, watcher or Watcher(), augmented=True)


def trained(config, folder):
    result = train(config, Logbook.open_new(folder, config, ["test"]), Watcher())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return result, [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows]


@pytest.mark.parametrize("method", ["c2", "c2-ccp"])
def test_without_augmentation_the_cache_changes_nothing(settings, tmp_path, method):
    cached = trained(settings("data.augment=false", method=method), tmp_path / "cached")
    live = trained(settings("data.augment=false", "model.cache_features=false", method=method), tmp_path / "live")
    assert cached[1] == live[1]
    assert cached[0]["test"] == live[0]["test"]
    assert len({row["map_at_r"] for row in cached[1]}) > 1, "nothing was learned, so nothing was compared"


def test_only_the_head_is_saved_and_it_scores_as_it_was_scored(settings, tmp_path, capsys):
    result, _ = trained(settings(), tmp_path / "run")
    assert set(load_file(tmp_path / "run" / "best.safetensors")) == {"linear.weight"}
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["map_at_r"] == result["test"]["map_at_r"]
    certificate = (tmp_path / "run" / "certificate.json").read_bytes()
    assert main(["certify", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "certificate.json").read_bytes() == certificate, "another network was certified"


def test_views_are_what_the_backbone_sees_of_augmented_images(settings):
    config = settings()
    part = build_data(config.data).train
    seen = training_features(config)
    network = build_network(config.model, None, 0).eval()
    rows = torch.arange(len(part))
    with torch.no_grad():
        clean = network.features(part.load(rows))
    assert torch.equal(seen.load(rows), clean)
    drawn = torch.stack([seen.load(rows, seed) for seed in range(40)])  # (40, N, F)
    assert torch.equal(seen.load(rows, 3), drawn[3]), "the same seed must give the same views"
    for row in range(0, len(part), 9):
        views = drawn[:, row].unique(dim=0)
        assert len(views) == config.data.views
        assert not (views == clean[row]).all(dim=1).any()


def test_without_augmentation_there_is_one_view(settings):
    seen = training_features(settings("data.augment=false"))
    assert len(seen.source.views) == 1
    rows = torch.arange(4)
    assert torch.equal(seen.load(rows, 1), seen.load(rows))


def test_the_second_run_finds_what_the_first_one_computed(settings, tmp_path):
    first, second = Counter(), Counter()
    one = training_features(settings(), first)
    other = training_features(settings("run.seed=8", "optim.lr=1e-3", method="ms"), second)
    assert first.seen[-1] == (4 * 40, 4 * 40)
    assert second.seen == []
    assert np.array_equal(one.source.views, other.source.views)
    assert len(entries(tmp_path)) == 1


def test_a_process_sees_each_part_once(settings, monkeypatch):
    config, frozen = settings(), FrozenFeatures()
    halves = build_data(config.data)
    first = frozen.inputs_of(config, halves.train, Watcher(), augmented=True)
    monkeypatch.setattr("ccp_dml.runs.feature_store.FeatureStore.read", lambda *_: pytest.fail("read again"))
    assert frozen.inputs_of(config, halves.train, Watcher(), augmented=True) is first


@pytest.mark.parametrize("change", ["image", "weights", "crop", "views", "pooling", "precision"])
def test_whatever_changes_a_number_gets_an_entry_of_its_own(settings, image_folder, weights, tmp_path, change):
    before = training_features(settings())
    if change == "image":
        pixels = np.zeros((40, 36, 3), np.uint8)
        Image.fromarray(pixels).save(image_folder / "class_00" / "0.png")
    if change == "weights":
        state = load_file(weights)
        name = next(iter(state))
        state[name].view(-1)[0] += 1e-3
        save_file(state, weights)
    more = {
        "crop": ["data.crop=30"],
        "views": ["data.views=2"],
        "pooling": ["model.pooling=gap+gmp"],
        "precision": ["run.precision=64-true"],
    }.get(change, [])
    after, counter = settings(*more), Counter()
    features = training_features(after, counter)
    assert counter.seen, "a stale entry was used"
    assert len(entries(tmp_path)) == 2
    if change not in ("views", "precision"):
        assert not np.array_equal(before.source.views, features.source.views)


def test_a_moved_data_set_is_still_known(settings, image_folder, tmp_path):
    training_features(settings())
    image_folder.rename(tmp_path / "elsewhere")
    counter = Counter()
    training_features(settings(f"data.root={tmp_path / 'elsewhere'}"), counter)
    assert counter.seen == []


def test_views_do_not_depend_on_how_many_images_fit_into_memory(settings, tmp_path):
    one = training_features(settings())
    other = training_features(settings("run.evaluation_batch=5", f"run.cache={tmp_path / 'other'}"))
    assert np.allclose(one.source.views, other.source.views, atol=1e-3)
    counter = Counter()
    training_features(settings("run.evaluation_batch=5"), counter)
    assert counter.seen == [], "the entry of another batch size serves as well"


def test_a_process_that_is_asked_for_other_features_does_not_give_the_old_ones(settings, tmp_path):
    frozen, counter = FrozenFeatures(), Counter()
    part = build_data(settings().data).train
    frozen.inputs_of(settings(), part, Watcher(), augmented=True)
    frozen.inputs_of(settings("run.precision=bf16-mixed"), part, counter, augmented=True)
    assert counter.seen
    frozen.inputs_of(settings(f"run.cache={tmp_path / 'other'}"), part, Watcher(), augmented=True)
    assert any((tmp_path / "other").iterdir())


@pytest.mark.parametrize("breaks_at", [1, 40, 41, 100, 160])
def test_what_a_killed_extraction_computed_is_kept(settings, tmp_path, breaks_at):
    whole = training_features(settings(f"run.cache={tmp_path / 'whole'}"))
    with pytest.raises(KeyboardInterrupt):
        training_features(settings(), Counter(breaks_at))
    (part,) = entries(tmp_path)
    assert part.endswith(".part")
    file = tmp_path / "cache" / part / "features.f16"
    row = whole.source.views[0, 0].nbytes
    if breaks_at < 160:
        file.write_bytes(file.read_bytes() + bytes(3 * row) + b"torn")  # a block that was being written
    counter = Counter()
    resumed = training_features(settings(), counter)
    assert np.array_equal(resumed.source.views, whole.source.views)
    done = next(done for done in (16, 32, 40, 56, 72, 80, 96, 112, 120, 136, 152, 160) if done >= breaks_at)
    left = [entry for entry in (16, 32, 40, 56, 72, 80, 96, 112, 120, 136, 152, 160) if entry > done]
    assert [seen for seen, _ in counter.seen] == left
    assert entries(tmp_path) == [part.removesuffix(".part")]


def test_what_another_version_began_is_begun_anew(settings, tmp_path):
    whole = training_features(settings(f"run.cache={tmp_path / 'whole'}"))
    with pytest.raises(KeyboardInterrupt):
        training_features(settings(), Counter(40))
    (part,) = (tmp_path / "cache").glob("*.part")
    (part / "entry.json").write_text(json.dumps({"format": 99}))
    file = part / "features.f16"
    file.write_bytes(bytes(file.stat().st_size))
    assert np.array_equal(training_features(settings()).source.views, whole.source.views)


def test_an_entry_of_the_wrong_size_is_not_called_complete(settings, tmp_path, monkeypatch):
    def intrude(writer, features):
        with (writer.part / "features.f16").open("ab") as file:
            file.write(features.tobytes() + features[:1].tobytes())

    monkeypatch.setattr("ccp_dml.runs.feature_store.Writer.append", intrude)
    with pytest.raises(UserError, match="another process wrote to it"):
        training_features(settings())
    assert entries(tmp_path)[0].endswith(".part")


def test_an_error_while_images_are_read_is_not_blamed_on_the_cache(settings, monkeypatch):
    def out_of_memory(*_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr("ccp_dml.runs.frozen.extract", out_of_memory)
    with pytest.raises(OSError, match="memory"):
        training_features(settings())


def test_a_full_disk_is_a_clear_error_and_loses_nothing(settings, monkeypatch):
    blocks = []

    def fill_up(descriptor):
        blocks.append(descriptor)
        if len(blocks) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("ccp_dml.runs.feature_store.os.fsync", fill_up)
        with pytest.raises(UserError, match=r"No space left on device.*run\.cache"):
            training_features(settings())
    counter = Counter()
    training_features(settings(), counter)
    assert counter.seen[0][0] > 16, "what was there before the disk was full is computed again"


def test_a_cache_folder_that_cannot_be_written(settings, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cache.*cannot be written.*run\.cache"):
        training_features(settings())


def test_an_entry_of_another_version_is_not_read(settings, tmp_path):
    training_features(settings())
    (entry,) = entries(tmp_path)
    header = tmp_path / "cache" / entry / "entry.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "format": 99}))
    with pytest.raises(UserError, match=r"another version.*ccp cache \w{8} --clear --folder"):
        training_features(settings())


@pytest.mark.parametrize("damage", ["shorter", "one byte", "gone", "headless"])
def test_a_damaged_entry_is_not_read_and_can_be_cleared(settings, tmp_path, damage):
    training_features(settings())
    (entry,) = entries(tmp_path)
    file = tmp_path / "cache" / entry / "features.f16"
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    if damage in ("gone", "headless"):
        (file if damage == "gone" else file.with_name("entry.json")).unlink()
    else:
        file.write_bytes(content if damage == "one byte" else content[:-2])
    with pytest.raises(UserError, match=r"is damaged, its content.*ccp cache \w{8} --clear --folder"):
        training_features(settings())
    assert main(["cache", entry[:8], "--clear", "--folder", str(tmp_path / "cache")]) == 0
    training_features(settings())


def test_swapped_weights_neither_resume_nor_score_a_run(settings, weights, tmp_path, capsys):
    trained(settings(), tmp_path / "run")
    state = load_file(weights)
    save_file({name: value + 0.01 for name, value in state.items()}, weights)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()}
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "backbone's weights are not those" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "run" / "result.json").unlink()
    before.pop(tmp_path / "run" / "result.json")
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 2
    assert "backbone's weights are not those" in " ".join(capsys.readouterr().err.split())
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()} == before


def test_a_benchmark_does_not_mix_two_backbones(image_folder, weights, tmp_path, capsys):
    arguments = benchmark_arguments(image_folder, weights, tmp_path)
    assert main([*arguments, "--methods", "c2"]) == 0
    state = load_file(weights)
    save_file({name: value + 0.01 for name, value in state.items()}, weights)
    capsys.readouterr()
    assert main([*arguments, "--methods", "c2,c2-ccp"]) == 2
    assert "backbone's weights are not those" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "bench" / "c2-ccp").exists()


def test_a_run_without_a_record_of_its_backbone(settings, tmp_path, capsys):
    trained(settings(), tmp_path / "run")
    (tmp_path / "run" / "environment.json").unlink()
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "environment.json cannot tell what the run began with" in " ".join(capsys.readouterr().err.split())


def test_scores_of_a_run_whose_cache_is_out_of_reach(settings, tmp_path, capsys):
    result, _ = trained(settings(), tmp_path / "run")
    (tmp_path / "cache").rename(tmp_path / "away")
    (tmp_path / "cache").write_text("in the way")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "set run.cache" in " ".join(capsys.readouterr().err.split())
    elsewhere = ["--set", f"run.cache={tmp_path / 'elsewhere'}", "--json"]
    assert main(["evaluate", str(tmp_path / "run"), *elsewhere]) == 0
    assert json.loads(capsys.readouterr().out)["map_at_r"] == result["test"]["map_at_r"]
    assert main(["certify", str(tmp_path / "run"), *elsewhere]) == 0
    assert len(list((tmp_path / "elsewhere").glob("*[!.lock]"))) >= 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("protocol.folds=30", "protocol.folds"), ("train.classes_per_batch=99", "classes_per_batch")],
)
def test_a_mistake_surfaces_before_features_are_computed(settings, tmp_path, wrong, told):
    config = settings(wrong)
    with pytest.raises(UserError, match=told):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Watcher())
    assert not (tmp_path / "cache").exists()


def test_interrupted_while_features_are_computed(image_folder, weights, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    given = [*QUICK, f"data.root={image_folder}", f"model.weights={weights}", f"run.cache={tmp_path / 'cache'}"]
    options = [part for setting in given for part in ("--set", setting)]
    command = ["train", "folder", "c2", *options, "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patched:
        patched.setattr("ccp_dml.runs.frozen.extract", interrupted)
        assert main(command) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert main(command) == 0


def test_an_image_that_cannot_be_read(settings, image_folder):
    config = settings()
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
        return digest_of(
            build_network(resolve(["folder", "c2"], ["model.backbone=resnet18", *settings]).config.model, None, 0)
        )

    other = ("model.input_mean=[0.1,0.2,0.3]", "model.input_std=[1.0,1.0,1.0]")
    assert of() == of()
    assert of() != of(*other)


def test_features_too_large_for_half_precision(settings, weights):
    state = load_file(weights)
    save_file({name: value * 1e7 for name, value in state.items()}, weights)
    with pytest.raises(UserError, match="half precision"):
        training_features(settings())


def test_loader_processes_decode_images_and_are_not_started_for_features(settings):
    config = settings()
    images = build_data(config.data).train
    assert loader_processes(2, images.source) == 2
    assert loader_processes(2, training_features(config).source) == 0
    assert loader_processes(None, images.source) == auto_workers(images.source) > 0


def test_what_is_trained():
    features = resolve(["features", "c2"], ["model.freeze_backbone=true"]).config.model
    assert not trains_on_features(features), "there is no backbone to freeze"
    assert trained_part(features) == features
    images = resolve(["cub", "c2"], ["model.freeze_backbone=true", "model.weights=FILE", "model.pooling=gap+gmp"])
    head = trained_part(images.config.model)
    assert (head.backbone, head.weights, head.pooling) == ("identity", None, "gap")
    assert not trains_on_features(resolve(["cub", "c2"]).config.model)
    assert not trains_on_features(images.config.model.model_copy(update={"cache_features": False}))


def test_cache_command(settings, tmp_path, capsys):
    training_features(settings())
    with pytest.raises(KeyboardInterrupt):
        training_features(settings("data.crop=30"), Counter(breaks_at=16))
    folder = ["--folder", str(tmp_path / "cache")]
    assert main(["cache", *folder, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["entries"]
    assert {entry["state"] for entry in shown} == {"complete", "unfinished"}
    assert {entry["images"] for entry in shown} == {40}
    assert main(["cache", *folder]) == 0
    assert "small_cnn" in capsys.readouterr().out
    unfinished = next(entry["key"] for entry in shown if entry["state"] == "unfinished")
    assert main(["cache", unfinished[:6], "--clear", *folder]) == 0
    assert len(entries(tmp_path)) == 1
    assert main(["cache", "zzz", "--clear", *folder]) == 2
    assert "begins with 'zzz'" in capsys.readouterr().err
    assert main(["cache", "", "--clear", *folder]) == 2
    assert "KEY is empty" in capsys.readouterr().err
    assert main(["cache", "--clear", *folder]) == 0
    assert entries(tmp_path) == []
    assert main(["cache", "--folder", str(tmp_path / "nowhere")]) == 2


def test_an_entry_that_another_process_removed_is_no_error(settings, tmp_path):
    training_features(settings())
    store = FeatureStore(tmp_path / "cache")
    (entry,) = store.entries()
    store.remove(entry)
    store.remove(entry)
    assert store.entries() == []


def test_items_that_were_not_seen_have_no_features(settings):
    config = settings()
    part = build_data(config.data).train
    seen = FrozenFeatures().inputs_of(config, part.of_classes([0, 1]), Watcher(), augmented=True)
    with pytest.raises(IndexError, match="not seen"):
        seen.source.load(part.positions, None)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("c1", {"margin": 0.2}),
        ("c2", {"positive_margin": 0.5, "negative_margin": 1.2}),
        ("ms", {"alpha": 2.0, "beta": 40.0, "base": 0.3}),
        ("triplet", {"margin": 0.0961}),
        ("proxy-anchor", {"margin": 0.9, "alpha": 8.0}),
        ("hpl-pa", {"margin": 0.9, "alpha": 8.0}),
        ("proxy-nca++", {"temperature": 0.2}),
        ("soft-triple", {"la": 10.0, "gamma": 0.1, "tau": 0.2, "margin": 0.1}),
    ],
)
def test_images_and_ready_features_get_the_loss_arguments_of_the_results(method, arguments):
    for recipes in (["features", method], ["cub", "frozen", method]):
        given = resolve(recipes).config.loss.arguments
        assert {key: given[key] for key in arguments} == arguments


def test_clearing_the_cache_touches_nothing_else(settings, tmp_path):
    training_features(settings())
    (tmp_path / "cache" / "thesis").mkdir()
    (tmp_path / "cache" / ("0" * 32)).mkdir()  # named like an entry, but none
    assert main(["cache", "--clear", "--folder", str(tmp_path / "cache")]) == 0
    assert entries(tmp_path) == ["0" * 32, "thesis"]


def benchmark_arguments(image_folder, weights, tmp_path):
    given = [*QUICK, f"data.root={image_folder}", f"model.weights={weights}", f"run.cache={tmp_path / 'cache'}"]
    options = [part for setting in (*given, "protocol.folds=2", "train.max_steps=4") for part in ("--set", setting)]
    return ["benchmark", "mlrc", "--data", "folder,frozen", *options, "--out", str(tmp_path / "bench"), "--json"]


def test_a_benchmark_computes_features_before_its_workers_start(image_folder, weights, tmp_path, capsys, monkeypatch):
    seen_here = []

    def counted(config, network, part, *more):
        seen_here.append(len(part))
        return extract(config, network, part, *more)

    monkeypatch.undo()  # workers have blocks of the usual size
    monkeypatch.setattr("ccp_dml.runs.frozen.extract", counted)
    arguments = benchmark_arguments(image_folder, weights, tmp_path)
    assert main([*arguments, "--methods", "c2,c2-ccp", "--workers", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in shown["table"]} == {"c2", "c2-ccp"}
    assert len(entries(tmp_path)) == 2, "one for training, one for the test"
    assert len(seen_here) == 2, "workers, which are other processes, computed features"
    assert len(list((tmp_path / "bench").rglob("result.json"))) == 4


def test_a_part_that_is_longer_than_the_whole_is_begun_anew(settings, tmp_path):
    whole = training_features(settings(f"run.cache={tmp_path / 'whole'}"))
    with pytest.raises(KeyboardInterrupt):
        training_features(settings(), Counter(40))
    (part,) = (tmp_path / "cache").glob("*.part")
    with (part / "features.f16").open("ab") as file:
        file.write(bytes(whole.source.views.nbytes))
    assert np.array_equal(training_features(settings()).source.views, whole.source.views)


def test_who_waits_for_another_process_says_so(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("ccp_dml.runs.feature_store.SECONDS_FOR_ANOTHER_PROCESS", 10.0)  # not for ever
    with pytest.raises(KeyboardInterrupt):
        training_features(settings(), Counter(40))
    (part,) = (tmp_path / "cache").glob("*.part")
    holder, notes = ExitStack(), []
    holder.enter_context(lock(tmp_path / "cache" / f".{part.name.removesuffix('.part')}.lock", "taken"))

    class Waiting(Watcher):
        def note(self, text):
            notes.append(text)
            holder.close()

    training_features(settings(), Waiting())
    assert notes == ["Another process computes these features; waiting for it."]


def test_weights_in_the_users_home(settings, weights, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(weights.parent))
    at_home = training_features(settings(f"model.weights=~/{weights.name}"))
    assert np.array_equal(at_home.source.views, training_features(settings()).source.views)
    assert len(entries(tmp_path)) == 1


def test_a_file_whose_name_is_no_text(settings, image_folder, tmp_path):
    os.rename(image_folder / "class_15" / "0.png", os.fsencode(image_folder) + b"/class_15/caf\xe9.png")
    trained(settings(), tmp_path / "run")
    assert "caf\ufffd.png" in (tmp_path / "run" / "gallery.json").read_text(encoding="utf-8")
    assert (tmp_path / "run" / "report.html").exists()
