"""What recipes of data sets set besides the paper's values for losses and methods (see test_recipes)."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.runs.arguments import complete

IMAGE_SETS = ("cub", "cars196", "inshop", "sop")

RECALL_AT = {"cub": (1, 2, 4, 8), "cars196": (1, 2, 4, 8), "inshop": (1, 10, 20, 30), "sop": (1, 10, 100, 1000)}

MODES, LOSSES = ("top", "finetune", "scratch"), ("c1", "c2", "ms", "triplet")


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_classes_are_held_out_and_the_usual_recalls_reported(name):
    protocol = resolve([name]).config.protocol
    assert (protocol.hold_out, protocol.recall_at) == ("classes", RECALL_AT[name])


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
    assert (ccp.remembered_problems, ccp.averaged_solutions, ccp.corrected_sets) == (1, 1, 0)


@pytest.mark.parametrize("name", ["folder", "csv"])
def test_with_ones_own_images_the_loss_inside_the_batch_leads(name):
    ccp = resolve([name, "c2-ccp"], []).config.ccp
    assert (ccp.until, ccp.pair_weight) == ("stall", "balanced")


def test_a_network_from_scratch_gets_new_proxies_where_they_are_left_behind_and_with_ms_as_soon_as_they_are_stale():
    """Measured where proxies learn slowly, and with three seeds of MS (docs/results_characters.md)."""
    every = [(mode, loss) for mode in MODES for loss in LOSSES]
    pace = {(mode, loss): resolve(["folder", mode, f"{loss}-ccp"]).config.ccp.until for mode, loss in every}
    scratch = {("scratch", loss): "behind" for loss in LOSSES} | {("scratch", "ms"): "stale"}
    assert {key: until for key, until in pace.items() if until != "stall"} == scratch
    assert resolve(["folder", "scratch", "ms-ccp"], ["ccp.until=stall"]).config.ccp.until == "stall"


def test_only_a_network_from_scratch_is_not_pulled_to_where_it_began():
    kept = {mode: resolve(["cub", mode, "c2-ccp"], []).config.ccp.pull_to_start for mode in ("finetune", "scratch")}
    assert kept == {"finetune": True, "scratch": False}


@pytest.mark.parametrize("mode", MODES)
def test_so_it_does_in_every_mode_in_which_a_network_learns(mode):
    assert resolve(["cub", mode, "c2-ccp"], []).config.ccp.pair_weight == "balanced"
