"""The recipes hold the paper's settings (its tables of data sets and losses), number by number."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.runs.loss_arguments import complete

IMAGE_SETS = ("cub", "cars196", "inshop", "sop")

# data set -> evaluate_every, P, b, batches in the large memory, k of R@k
SETTINGS = {
    "cub": (25, 8, 12, 25, (1, 2, 4, 8)),
    "cars196": (25, 8, 12, 25, (1, 2, 4, 8)),
    "inshop": (250, 4, 7, 400, (1, 10, 20, 30)),
    "sop": (250, 4, 7, 1400, (1, 10, 100, 1000)),
}

LOSSES = {
    "c1": {name: {"margin": 0.5} for name in IMAGE_SETS},
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
        "cub": {"alpha": 2, "beta": 40, "base": 0.5},
        "cars196": {"alpha": 14.35, "beta": 75.83, "base": 0.66},
        "inshop": {"alpha": 8.49, "beta": 57.38, "base": 0.41},
        "sop": {"alpha": 2, "beta": 40, "base": 0.5},
    },
    "proxy-anchor": {name: {"margin": 0.1, "alpha": 32} for name in IMAGE_SETS},
    "proxy-nca++": {name: {"temperature": 0.1} for name in IMAGE_SETS},
    "soft-triple": {
        "cub": {"la": 20, "gamma": 0.1, "tau": 0.2, "margin": 0.01, "centres_per_class": 10},
        "cars196": {"la": 17.69, "gamma": 19.18, "tau": 0.0669, "margin": 0.3588, "centres_per_class": 10},
        "inshop": {"la": 20, "gamma": 0.1, "tau": 0.2, "margin": 0.01, "centres_per_class": 4},
        "sop": {"la": 100, "gamma": 47.9, "tau": 0.2, "margin": 0.3145, "centres_per_class": 4},
    },
}


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_settings_of_a_data_set(name):
    config = resolve([name]).config
    evaluate_every, proxies, pool, memory, recall_at = SETTINGS[name]
    assert config.data.name == name
    assert (config.data.resize, config.data.crop) == (256, 227)
    assert config.train.evaluate_every == evaluate_every
    assert (config.ccp.proxies_per_class, config.ccp.pool_per_class, config.ccp.weight) == (proxies, pool, 2e-4)
    assert config.xbm.memory_batches == memory
    assert config.protocol.recall_at == recall_at
    assert (config.protocol.hold_out, config.protocol.folds) == ("classes", 4)
    assert config.train.classes_per_batch * config.train.images_per_class == 32
    assert (config.model.backbone, config.model.embedding_dim, config.model.pooling) == ("bn_inception", 128, "gap")


@pytest.mark.parametrize("name", IMAGE_SETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_settings_of_a_loss(name, loss):
    found = complete(resolve([name, loss]).config).loss.arguments
    wanted = LOSSES[loss][name]
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_the_small_variant_has_one_proxy_per_class(name):
    assert resolve([name, "c2-ccp-s"]).config.ccp.proxies_per_class == 1


def test_mnist():
    config = resolve(["mnist", "c2-ccp"]).config
    assert (config.model.backbone, config.model.embedding_dim) == ("resnet20v2", 2)
    assert not config.model.freeze_batch_norm
    assert (config.ccp.proxies_per_class, config.ccp.pool_per_class) == (4, 16)
    assert config.protocol.hold_out == "images"


def test_glyphs_give_c1_a_margin_that_short_vectors_do_not_meet():
    """At .5 and .6 all embeddings became one short vector, and nothing was learned (docs/results.md)."""
    assert complete(resolve(["glyphs", "c1"]).config).loss.arguments["margin"] >= 0.7


@pytest.mark.parametrize("name", [*IMAGE_SETS, "mnist"])
def test_the_paper_s_data_sets_keep_the_paper_s_pace_and_objective(name):
    ccp = resolve([name, "c2-ccp"], []).config.ccp
    assert (ccp.until, ccp.patience, ccp.pair_weight, ccp.proxy_length) == ("stall", 3, 0.1, "embedded")
    assert (ccp.remembered_problems, ccp.averaged_solutions) == (1, 1)


@pytest.mark.parametrize("name", ["folder", "csv"])
def test_ones_own_images_choose_stale_proxies_anew_and_balance_the_loss_inside_the_batch(name):
    ccp = resolve([name, "c2-ccp"], []).config.ccp
    assert (ccp.until, ccp.pair_weight) == ("stale", "balanced")
