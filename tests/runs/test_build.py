"""From a configuration to the objective of a step: what is built, and what a checkpoint holds."""

import json

import pytest
import torch
from lightning_fabric import Fabric
from support.interruptions import StopAfter

from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code
from ccp_dml.losses import CrossBatchMemory, HierarchicalProxyAnchorLoss, Metrix
from ccp_dml.objectives import BatchObjective, ProxyObjective
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import (
    build_network,
    build_objective,
    build_optimizer,
    compile_backbone,
    refuse_odd_loss,
    weights_note,
)
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher
from ccp_dml.trainer import refuse_orphans

PROXY_LOSSES = ("proxy-anchor", "proxy-nca++", "soft-triple", "hpl-pa", "pml:ArcFaceLoss", "pml:ProxyNCALoss")


def config(*settings, recipes=()):
    return resolve(list(recipes), ["model.embedding_dim=6", *settings]).config


def build(*settings, classes=10, **arguments):
    return build_objective(config(*settings), classes, **arguments)


@pytest.mark.parametrize("name", PROXY_LOSSES)
def test_proxies_of_a_loss_are_built_for_the_data_and_owned_by_the_optimiser(name):
    settings = config(f"loss.name={name}", "optim.lr=0.01", "optim.proxy_lr_factor=100")
    objective, reselected = build_objective(settings, 10)
    assert reselected is None
    (proxies,) = [value for value in objective.parameters() if value.requires_grad]
    assert proxies.numel() % (10 * 6) == 0
    network = torch.nn.Linear(3, 6)
    optimizer = build_optimizer(settings, network, objective)
    refuse_orphans(network, objective, optimizer)
    (rate,) = [group["lr"] for group in optimizer.param_groups if any(value is proxies for value in group["params"])]
    assert rate == pytest.approx(1.0)
    assert any(value is proxies for value in optimizer.param_groups[1]["params"])


@pytest.mark.parametrize(("precision", "scaled"), [("32-true", False), ("bf16-mixed", False), ("16-mixed", True)])
def test_gradients_of_a_scaled_loss_can_be_unscaled_before_they_are_clipped(precision, scaled):
    """A fused optimiser insists on doing it by itself, when it is too late."""
    network, objective = torch.nn.Linear(3, 6), torch.nn.Identity()
    optimizer = build_optimizer(config(f"run.precision={precision}"), network, objective)
    assert getattr(optimizer, "_step_supports_amp_scaling", False) is not scaled


def test_a_loss_of_the_library_takes_proxies_and_a_memory():
    objective, proxies = build("loss.name=pml:CircleLoss", "ccp.mode=alternating", "ccp.proxies_per_class=2")
    assert isinstance(objective, ProxyObjective)
    assert proxies.vectors.shape == (10, 2, 6)
    objective, _ = build("loss.name=pml:NTXentLoss", "xbm.enabled=true")
    assert isinstance(objective, CrossBatchMemory)
    objective, _ = build("loss.name=pml:FastAPLoss")
    assert isinstance(objective, BatchObjective)


def test_by_need_a_class_has_room_for_twice_as_many_proxies_or_its_pool():
    alternating = ("ccp.mode=alternating", "ccp.proxies_by_need=true", "ccp.proxies_per_class=4")
    assert build(*alternating, "ccp.pool_per_class=20")[1].vectors.shape == (10, 8, 6)
    assert build(*alternating, "ccp.pool_per_class=5")[1].vectors.shape == (10, 5, 6)
    with pytest.raises(UserError, match=r"ccp\.proxies_by_need has nothing to choose among"):
        build(*alternating, "ccp.pool_per_class=4")


REPRESENTED = ("ccp.mode=representatives", "ccp.until=steps")


@pytest.mark.parametrize("name", ["c2", "ms", "pml:CircleLoss", "pml:FastAPLoss"])
def test_representatives_are_in_the_batch_and_need_no_references(name):
    objective, proxies = build(*REPRESENTED, f"loss.name={name}")
    assert isinstance(objective, BatchObjective)
    assert proxies is None


def test_the_memory_holds_so_many_batches():
    objective, _ = build(
        "xbm.enabled=true", "xbm.memory_batches=5", "train.classes_per_batch=3", "train.images_per_class=2"
    )
    assert objective.embeddings.shape == (30, 6)
    assert objective.start_step == 1000


def test_mixtures_get_their_weight_their_distribution_and_the_seed_of_the_run():
    def built(seed):
        return build("loss.name=c1", "metrix.enabled=true", "metrix.weight=0.1", "metrix.alpha=3", f"run.seed={seed}")

    objective, reselected = built(1)
    assert isinstance(objective, Metrix)
    assert (objective.weight, objective.alpha, reselected) == (0.1, 3.0, None)
    assert objective.seed == built(1)[0].seed != built(2)[0].seed


def test_epochs_become_steps():
    objective, _ = build("loss.name=hpl-pa", "loss.cluster_every=1.5", steps_per_epoch=40)
    assert isinstance(objective.loss, HierarchicalProxyAnchorLoss)
    assert objective.loss.steps_between_clusterings == 60


def test_the_seed_of_the_run_decides_the_first_proxies():
    def proxies(seed):
        return next(build("loss.name=proxy-anchor", f"run.seed={seed}")[0].parameters())

    assert torch.equal(proxies(1), proxies(1))
    assert not torch.equal(proxies(1), proxies(2))


METHODS = {
    "proxy-anchor": (),
    "proxy-nca++": (),
    "soft-triple": (),
    "hpl-pa": ("loss.cluster_every=0.05",),  # every five of the hundred steps that an epoch counts for here
    "c2-xbm": ("xbm.memory_batches=3", "xbm.start_step=6"),
    "c1-xbm": ("xbm.memory_batches=2", "xbm.start_step=2"),
    "ms-metrix": ("metrix.weight=0.7",),
    "c2": ("loss.name=pml:ArcFaceLoss",),
    "c2-profs": ("loss.name=pml:MultiSimilarityLoss", "ccp.steps_per_problem=3", "ccp.weight=0.5"),
    "c2-ccp": ("loss.name=pml:MultiSimilarityLoss", "ccp.proxies_per_class=2", "ccp.patience=1"),
}


def tiny_run(features, method):
    quick = ("train.classes_per_batch=4", "train.images_per_class=2", "train.max_steps=20", "train.evaluate_every=4")
    return complete(config(f"data.path={features}", *quick, *METHODS[method], recipes=["features", method]))


def lines(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows]


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_goes_on_exactly(method, features, tmp_path):
    settings = tiny_run(features, method)
    whole = Logbook.open_new(tmp_path / "whole", settings, ["test"])
    train(settings, whole, Watcher())
    assert [row["step"] for row in lines(whole.folder)] == [0, 4, 8, 12, 16, 20]

    broken = Logbook.open_new(tmp_path / "broken", settings, ["test"])
    for kill_at in (10, 15):
        with pytest.raises(KeyboardInterrupt):
            train(settings, broken, StopAfter(kill_at), resume=kill_at > 10)
    train(settings, broken, Watcher(), resume=True)

    assert lines(broken.folder) == lines(whole.folder)
    ours, theirs = (torch.load(book.checkpoint_file, weights_only=True)["objective"] for book in (broken, whole))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value) if isinstance(value, torch.Tensor) else str(ours[name]) == str(value)


@pytest.mark.parametrize("method", ["proxy-anchor", "proxy-nca++", "soft-triple", "hpl-pa"])
def test_proxies_move_in_training_and_are_in_the_checkpoint(method, features, tmp_path):
    settings = tiny_run(features, method)
    book = Logbook.open_new(tmp_path / "run", settings, ["test"])
    train(settings, book, Watcher())
    saved = torch.load(book.checkpoint_file, weights_only=True)["objective"]
    first, _ = build_objective(settings, classes=6)  # three quarters of the eight training classes
    moving = [name for name, value in first.named_parameters() if value.requires_grad]
    assert len(moving) == 1
    before, after = first.state_dict()[moving[0]], saved[moving[0]]
    assert before.shape == after.shape
    assert (before != after).all()
    assert (before - after).abs().mean() > 0.1  # twenty steps at a learning rate of .1


def test_the_memory_is_in_the_checkpoint(features, tmp_path):
    settings = tiny_run(features, "c2-xbm")
    book = Logbook.open_new(tmp_path / "run", settings, ["test"])
    train(settings, book, Watcher())
    saved = torch.load(book.checkpoint_file, weights_only=True)["objective"]
    assert saved["embeddings"].shape == (3 * 8, 6)
    assert saved["embeddings"].norm(dim=1).min() > 0
    assert saved["_extra_state"] == {"calls": 20, "enqueued": (20 - 6) * 8}


def test_the_command_refuses_before_it_writes(features, tmp_path, capsys):
    out = tmp_path / "run"
    settings = [f"data.path={features}", "ccp.mode=alternating", "train.classes_per_batch=4"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "features", "proxy-anchor", *options, "--out", str(out)]) == 2
    assert "proxies of its own" in capsys.readouterr().err
    assert not out.exists()


def test_proxies_follow_the_objective_to_its_device():
    fabric = Fabric(accelerator="cpu", devices=1)
    objective, _ = build("loss.name=hpl-pa")
    objective.to(fabric.device)
    places = [*objective.parameters(), *objective.buffers()]
    assert {value.device for value in places} == {fabric.device}
    meta = build("loss.name=hpl-pa")[0].to("meta")  # a device of its own kind, there on every machine
    assert {value.device.type for value in [*meta.parameters(), *meta.buffers()]} == {"meta"}


def test_proxies_of_unit_length_are_selected_where_lengths_do_not_count():
    with pytest.raises(UserError, match=r"ccp\.proxy_length=unit needs ccp\.space=normalised"):
        build("ccp.mode=alternating", "ccp.proxy_length=unit")
    _, proxies = build("ccp.mode=alternating", "ccp.proxy_length=unit", "ccp.space=normalised")
    assert proxies.length == "unit"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [((), "clip"), (("loss.normalise=l2",), "l2"), (("loss.name=pml:TripletMarginLoss",), "l2")],
)
def test_proxies_are_measured_where_the_loss_puts_them(settings, expected):
    _, proxies = build("ccp.mode=alternating", *settings)
    assert proxies.normalise == expected


def test_a_miner_goes_to_the_loss_with_its_arguments():
    name = "loss.name=pml:TripletMarginLoss"
    objective, _ = build(
        name, "loss.miner=pml:TripletMarginMiner", "loss.miner_args.margin=0.7", "ccp.mode=alternating"
    )
    assert type(objective.loss.miner).__name__ == "TripletMarginMiner"
    assert objective.loss.miner.margin == 0.7
    assert build(name)[0].loss.miner is None


def test_a_miner_of_one_s_own_is_constructed(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class First:\n"
        "    def __init__(self, n: int = 1): self.n = n\n"
        "    def __call__(self, *given): return (torch.arange(self.n),) * 2 + (torch.arange(self.n) + 2,)\n"
    )
    name = f"loss.miner={tmp_path / 'mine.py'}:First"
    objective, _ = build("loss.name=pml:TripletMarginLoss", name, "loss.miner_args.n=2")
    assert objective.loss.miner.n == 2
    with pytest.raises(UserError, match=r"loss\.miner_args\.k is no argument of the miner .*it takes \(n: int = 1\)"):
        build("loss.name=pml:TripletMarginLoss", name, "loss.miner_args.k=2")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["loss.miner=pml:TripletMarginMiner"],
            "chooses pairs for losses of pytorch-metric-learning; loss.name = 'c2'",
        ),
        (["loss.name=pml:TripletMarginLoss", "loss.miner=pml:TripletMiner"], "is no miner; did you mean .*MarginMiner"),
        (["loss.name=pml:TripletMarginLoss", "loss.miner_args.margin=1.0"], "loss.miner is not: name a miner"),
        (
            ["loss.name=pml:TripletMarginLoss", "loss.miner=pml:TripletMarginMiner", "loss.miner_args.margn=1.0"],
            "loss.miner_args.margn is no argument of the miner 'pml:TripletMarginMiner'; did you mean 'margin'",
        ),
    ],
)
def test_miners_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        build(*settings)


NETS = """
import torch
from torch import nn

class Net(nn.Module):
    num_features = 5
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(()))

class NoWidth(nn.Module): pass

class Right(Net):
    def forward(self, images): return self.scale * images.float().mean((2, 3)).repeat(1, 2)[:, :5]

class Narrow(Net):
    def forward(self, images): return images.float().mean((2, 3))

class Broken(Net):
    def forward(self, images): return images @ images.nothing
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoWidth", "NoWidth is no backbone: it needs an attribute num_features, a positive integer, not None"),
        ("Narrow", r"says num_features = 5, but gives \(1, 3\) for one image; it must give features \(1, 5\)"),
        ("Broken", r"called with torch\.uint8 .*\(line 20\) failed: AttributeError: .*nothing"),
    ],
)
def test_odd_backbones_of_one_s_own_are_refused(tmp_path, name, message):
    (tmp_path / "nets.py").write_text(NETS)
    with pytest.raises(UserError, match=message):
        build_network(config(f"model.backbone={tmp_path / 'nets.py'}:{name}").model, load_glyphs().train, 0)


LOSSES = """
import torch
from torch import nn
from ccp_dml.losses.pairs import pair_up

class Loss(nn.Module):
    calls = []
    def forward(self, embeddings, labels, ref_embeddings=None, ref_labels=None):
        return self.of(embeddings, labels, ref_embeddings, ref_labels)

class Right(Loss):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes
        self.shift = nn.Parameter(torch.rand(()))
    def of(self, embeddings, labels, references, ref_labels):
        if references is not None:
            references = references.view(self.classes, 8, -1).flatten(0, 1)  # all proxies, class by class
        Loss.calls.append((embeddings.shape, labels.tolist(), references is not None))
        return pair_up(embeddings, labels, references, ref_labels).distances().mean() + self.shift * torch.rand(())

class Vector(Loss):
    def of(self, embeddings, *_): return embeddings.sum(1)

class Number(Loss):
    def of(self, embeddings, *_): return embeddings.sum().item()

class Detached(Loss):
    def of(self, embeddings, *_): return 1 + embeddings.detach().square().sum()

class Broken(Loss):
    def of(self, embeddings, labels, *_):
        return embeddings @ labels

class BrokenBackwards(Loss):
    def of(self, embeddings, *_):
        roots = embeddings.exp()
        roots.add_(1)
        return roots.sum()

class Rootless(Loss):
    def of(self, embeddings, *_):
        return (embeddings[:, None] - embeddings).square().sum(2).sqrt().mean()

class Unreached(Loss):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.rand(()))
    def of(self, embeddings, *_): return embeddings.detach().sum() * self.shift

class BatchOnly(Loss):
    def of(self, embeddings, labels, references, _):
        return embeddings.sum() if references is None else embeddings @ references
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Vector", r"Vector gives a tensor \(32,\) for a batch of 32 embeddings; a loss gives one number"),
        ("Number", r"Number gives a float for a batch of 32 embeddings; a loss gives one number, a tensor without"),
        ("Detached", r"Detached, called with a batch of 32 embeddings: the loss has no gradient: compute it from"),
        ("Broken", r"Broken, called with a batch of 32 embeddings \(line 33\) failed: RuntimeError: size mismatch"),
        ("BrokenBackwards", r"called with a batch of 32 embeddings failed: RuntimeError: .*inplace operation"),
        (
            "Rootless",
            r"Rootless, called with a batch of 32 embeddings: its gradient holds NaN or infinity; that of a root",
        ),
        ("Unreached", r"Unreached, called with a batch of 32 embeddings: its gradient does not reach the embeddings"),
        ("BatchOnly", r"BatchOnly, called with a batch of 32 embeddings and 80 references \(line 53\) failed"),
    ],
)
def test_odd_losses_of_one_s_own_are_refused(tmp_path, name, message):
    (tmp_path / "my_losses.py").write_text(LOSSES)
    settings = config(f"loss.name={tmp_path / 'my_losses.py'}:{name}", recipes=["c2-ccp"])
    with pytest.raises(UserError, match=message):
        refuse_odd_loss(settings, 10, 100, torch.device("cpu"))


def test_a_loss_of_one_s_own_is_tried_out_with_batches_and_proxies_like_those_of_the_run(tmp_path):
    (tmp_path / "my_losses.py").write_text(LOSSES)
    settings = config(f"loss.name={tmp_path / 'my_losses.py'}:Right", recipes=["c2-ccp"])
    state = torch.get_rng_state()
    refuse_odd_loss(settings, 10, 100, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state)  # what is drawn in the trial is drawn for nothing
    calls = own_code.load(settings.loss.name, own_code.LOSSES).calls
    labels = [label for label in range(8) for _ in range(4)]
    assert calls == 2 * [((32, 6), labels, False), ((32, 6), labels, True)]
    calls.clear()
    refuse_odd_loss(config(f"loss.name={settings.loss.name}"), 10, 100, torch.device("cpu"))
    assert [with_references for *_, with_references in calls] == [False, False]
    calls.clear()


def test_a_backbone_of_one_s_own_draws_its_weights_from_the_seed(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    model = config(f"model.backbone={tmp_path / 'nets.py'}:Right").model
    one, same, other = (build_network(model, load_glyphs().train, seed).backbone.scale for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert weights_note(model) is None  # it may load weights by itself
    with pytest.raises(UserError, match=r"no pretrained weights of .*Right to fetch: set model\.pretrained=false"):
        build_network(model.model_copy(update={"pretrained": True}), None, 0)
    with pytest.raises(UserError, match=r"model\.args\.width is set, but the backbone 'small_cnn' takes no arguments"):
        build_network(config("model.backbone=small_cnn", "model.args.width=3").model, None, 0)


def test_a_compiled_backbone_computes_the_same_and_keeps_its_names():
    settings = config("model.backbone=small_cnn")
    plain, compiled = (build_network(settings.model, None, seed=0) for _ in range(2))
    compile_backbone(compiled, torch.device("cpu"), backend="eager")
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    for network in (plain, compiled):
        network(images).square().sum().backward()
    torch.testing.assert_close(compiled(images), plain(images))
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    for own, other in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    assert compiled.backbone._compiled_call_impl is not None


def test_compiling_without_a_compiler_is_refused(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        compile_backbone(build_network(config("model.backbone=small_cnn").model, None, seed=0), torch.device("cpu"))


def test_run_compile_says_where_no_backbone_runs(features, tmp_path):
    class Listener(Watcher):
        def note(self, text):
            heard.append(text)

    heard: list[str] = []
    short = [f"data.path={features}", "train.max_steps=1", "run.map_points=0", "run.compile=true"]
    settings = complete(resolve(["features", "c2"], [*short, "train.classes_per_batch=2"]).config)
    train(settings, Logbook.open_new(tmp_path / "run", settings, ["test"]), Listener())
    assert "run.compile has no effect: no backbone runs while a head on features trains." in heard


def test_run_compile_compiles_the_network_that_trains(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr("ccp_dml.runs.assembly.compile_backbone", lambda network, _: compiled.append(network))
    short = ["train.max_steps=1", "train.evaluate_every=1", "run.map_points=0", "run.compile=true"]
    settings = complete(resolve(["glyphs", "c2"], short).config)
    train(settings, Logbook.open_new(tmp_path / "run", settings, ["test"]), Watcher())
    assert len(compiled) == 1
