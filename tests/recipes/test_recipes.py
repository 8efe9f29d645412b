"""Every method of the paper on every data set of the paper is a pair of shipped recipes with the paper's values.

The numbers stand here once more, as the paper prints them; nothing is read from the recipes that is not compared.
"""

from itertools import product

import pytest

from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.config.recipes import shipped_recipes
from ccp_dml.losses import CrossBatchMemory, Metrix
from ccp_dml.objectives import BatchObjective, ProxyObjective
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import build_objective

DATASETS = ("cub", "cars196", "inshop", "sop")

PAIR_LOSSES = {
    "c1": {key: {"margin": 0.5} for key in DATASETS},
    "c2": {
        "cub": {"positive_margin": 0.0, "negative_margin": 0.3841},
        "cars196": {"positive_margin": 0.2652, "negative_margin": 0.5409},
        "inshop": {"positive_margin": 0.2858, "negative_margin": 0.5130},
        "sop": {"positive_margin": 0.2858, "negative_margin": 0.5130},
    },
    "triplet": {
        "cub": {"margin": 0.0961},
        "cars196": {"margin": 0.1190},
        "inshop": {"margin": 0.0451},
        "sop": {"margin": 0.0451},
    },
    "ms": {
        "cub": {"alpha": 2.0, "beta": 40.0, "base": 0.5},
        "cars196": {"alpha": 14.35, "beta": 75.83, "base": 0.66},
        "inshop": {"alpha": 8.49, "beta": 57.38, "base": 0.41},
        "sop": {"alpha": 2.0, "beta": 40.0, "base": 0.5},
    },
}
PROXY_LOSSES = {
    "proxy-anchor": {key: {"margin": 0.1, "alpha": 32.0} for key in DATASETS},
    "proxy-nca++": {key: {"temperature": 0.1} for key in DATASETS},
    "soft-triple": {
        "cub": {"la": 20.0, "gamma": 0.1, "tau": 0.2, "margin": 0.01, "centres_per_class": 10},
        "cars196": {"la": 17.69, "gamma": 19.18, "tau": 0.0669, "margin": 0.3588, "centres_per_class": 10},
        "inshop": {"la": 20.0, "gamma": 0.1, "tau": 0.2, "margin": 0.01, "centres_per_class": 4},
        "sop": {"la": 100.0, "gamma": 47.9, "tau": 0.2, "margin": 0.3145, "centres_per_class": 4},
    },
    "hpl-pa": {key: {"margin": 0.1, "alpha": 32.0} for key in DATASETS},
}
PROXIES_AND_POOL = {"cub": (8, 12), "cars196": (8, 12), "inshop": (4, 7), "sop": (4, 7)}
MEMORY_BATCHES = {"cub": 25, "cars196": 25, "inshop": 400, "sop": 1400}
EVALUATE_EVERY = {"cub": 25, "cars196": 25, "inshop": 250, "sop": 250}

PLAIN = tuple(PAIR_LOSSES)
ONE_PROBLEM = tuple(f"{loss}-proxy" for loss in PAIR_LOSSES)
CCP = tuple(f"{loss}-ccp" for loss in PAIR_LOSSES)
CCP_SMALL = tuple(f"{loss}-ccp-s" for loss in PAIR_LOSSES)
XBM = ("c1-xbm", "c2-xbm")
METRIX = ("ms-metrix",)
PROFS = tuple(f"{loss}-profs" for loss in PAIR_LOSSES)
METHODS = (*PLAIN, *ONE_PROBLEM, *CCP, *CCP_SMALL, *XBM, *METRIX, *PROFS, *PROXY_LOSSES)


def pairs(*methods):
    return pytest.mark.parametrize(("data", "method"), list(product(DATASETS, methods)))


def settings(data, method):
    return complete(resolve([data, method]).config)


def test_all_methods_and_data_sets_of_the_paper_are_there():
    assert set(shipped_recipes("methods")) == set(METHODS)
    assert set(DATASETS) <= set(shipped_recipes("datasets"))
    assert len(set(product(DATASETS, METHODS))) == 108


@pairs(*METHODS)
def test_what_all_methods_share(data, method):
    config = settings(data, method)
    assert config.data.name == data
    assert (config.data.resize, config.data.crop) == (256, 227)
    assert (config.model.backbone, config.model.embedding_dim, config.model.pooling) == ("bn_inception", 128, "gap")
    assert config.model.freeze_batch_norm
    assert config.train.classes_per_batch * config.train.images_per_class == 32
    assert (config.train.evaluate_every, config.train.patience) == (EVALUATE_EVERY[data], 60)
    assert (config.optim.lr, config.optim.weight_decay, config.optim.clip_norm) == (1e-5, 1e-4, 10.0)
    assert (config.optim.betas, config.optim.eps) == ((0.9, 0.999), 1e-8)
    assert config.protocol.folds == 4


@pairs(*PLAIN, *ONE_PROBLEM, *CCP, *CCP_SMALL, *XBM, *METRIX, *PROFS)
def test_pair_losses(data, method):
    config = settings(data, method)
    loss = method.split("-")[0]
    assert config.loss.name == loss
    expected = PAIR_LOSSES[loss][data]
    assert {name: config.loss.arguments[name] for name in expected} == expected
    assert config.loss.arguments["normalise"] == "clip"
    assert (config.train.classes_per_batch, config.train.images_per_class) == (8, 4)
    assert (config.train.warm_up_epochs, config.optim.proxy_lr_factor) == (0.0, 1.0)


@pairs(*PROXY_LOSSES)
def test_losses_with_proxies_of_their_own(data, method):
    config = settings(data, method)
    assert config.loss.name == method
    expected = PROXY_LOSSES[method][data]
    assert {name: config.loss.arguments[name] for name in expected} == expected
    assert (config.train.classes_per_batch, config.train.images_per_class) == (32, 1)
    assert (config.train.warm_up_epochs, config.optim.proxy_lr_factor) == (1.0, 100.0)
    assert (config.ccp.mode, config.xbm.enabled) == ("off", False)
    assert isinstance(build_objective(config, classes=40)[0], BatchObjective)


@pairs(*PLAIN)
def test_plain_losses_have_no_proxies_and_no_memory(data, method):
    config = settings(data, method)
    assert (config.ccp.mode, config.xbm.enabled, config.metrix.enabled) == ("off", False, False)
    assert isinstance(build_objective(config, classes=40)[0], BatchObjective)


@pairs(*ONE_PROBLEM, *CCP, *CCP_SMALL)
def test_proxy_problems(data, method):
    config = settings(data, method)
    proxies, pool = PROXIES_AND_POOL[data]
    if method in CCP_SMALL:
        proxies = 1
    assert config.ccp.mode == ("one-problem" if method in ONE_PROBLEM else "alternating")
    assert (config.ccp.proxies_per_class, config.ccp.pool_per_class) == (proxies, pool)
    assert (config.ccp.weight, config.ccp.patience, config.ccp.pair_weight) == (2e-4, 3, 0.1)
    assert not config.xbm.enabled
    assert config.ccp.balance == (3 if method.startswith("ms-") else 1)  # read where pair_weight is "balanced"
    objective, reselected = build_objective(config, classes=40)
    assert isinstance(objective, ProxyObjective)
    assert objective.balance == config.ccp.balance
    assert reselected.vectors.shape == (40, proxies, 128)


@pairs(*XBM)
def test_memories(data, method):
    config = settings(data, method)
    assert config.xbm.enabled
    assert (config.xbm.memory_batches, config.xbm.start_step) == (MEMORY_BATCHES[data], 1000)
    assert config.ccp.mode == "off"
    objective, _ = build_objective(config, classes=40)
    assert isinstance(objective, CrossBatchMemory)
    assert objective.embeddings.shape == (MEMORY_BATCHES[data] * 32, 128)


@pairs(*PROFS)
def test_representatives(data, method):
    config = settings(data, method)
    assert (config.ccp.mode, config.ccp.until, config.ccp.steps_per_problem) == ("representatives", "steps", "epoch")
    assert config.ccp.weight == 2e-4
    objective, reselected = build_objective(config, classes=40)
    assert isinstance(objective, BatchObjective)
    assert reselected is None


@pytest.mark.parametrize("mode", ["frozen", "top", "finetune", "scratch"])
def test_modes_leave_representatives_their_pace(mode):
    config = resolve(["folder", mode, "c2-profs"]).config
    assert (config.ccp.mode, config.ccp.until, config.ccp.steps_per_problem) == ("representatives", "steps", "epoch")


@pairs(*METRIX)
def test_mixtures(data, method):
    config = settings(data, method)
    assert (config.metrix.enabled, config.metrix.weight, config.metrix.alpha) == (True, 0.4, 2.0)
    assert (config.ccp.mode, config.xbm.enabled) == ("off", False)
    objective, reselected = build_objective(config, classes=40)
    assert isinstance(objective, Metrix)
    assert (objective.weight, objective.alpha, reselected) == (0.4, 2.0, None)
    assert objective.loss.beta == PAIR_LOSSES["ms"][data]["beta"]


def test_every_recipe_says_what_it_is_in_its_first_line(capsys):
    for name, file in shipped_recipes().items():
        first = file.read_text(encoding="utf-8").split("\n", 1)[0]
        assert first.startswith("# "), name
        assert len(first) > 20, name
    assert main(["list", "methods"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in listed} == set(METHODS)


def test_list_of_losses_names_ours_and_the_library_s(capsys):
    assert main(["list", "losses"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"c1", "c2", "ms", "triplet", "proxy-anchor", "proxy-nca++", "soft-triple", "hpl-pa"} <= set(names)
    assert {"pml:CircleLoss", "pml:FastAPLoss", "pml:ArcFaceLoss"} <= set(names)


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


@pytest.mark.parametrize("mode", ["top", "finetune"])
def test_proxies_turn_as_fast_whatever_the_network_s_own_rate(mode: str) -> None:
    """They are as long as embeddings: at a rate near the network's they would hardly turn, and soon be out of date."""
    frozen, config = (resolve(["folder", name, "ms-ccp"], []).config for name in ("frozen", mode))
    rates = [found.optim.lr * found.optim.proxy_lr_factor for found in (frozen, config)]
    assert config.optim.lr < frozen.optim.lr / 10
    assert rates[1] == pytest.approx(rates[0], rel=0.2)
