import re

import pytest
import tomli_w

from ccp_dml.config.layers import known_keys, resolve
from ccp_dml.config.readers import (
    BATCH_LOSSES,
    CHOSEN_WITH,
    DATASETS,
    READERS,
    reads,
    refuse_unread,
    unread_settings,
    written_by_user,
)
from ccp_dml.config.recipes import shipped_recipes
from ccp_dml.errors import UserError
from ccp_dml.losses import LOSSES

READ_BY_EVERY_RUN = frozenset(
    {
        "data.name",
        "data.args",
        "data.classes",
        "data.augment",
        "model.backbone",
        "model.args",
        "model.embedding_dim",
        "model.normalise",
        "model.head_init",
        "model.hidden_dim",
        "loss.name",
        "loss.miner",
        "loss.miner_args",
        "train.max_steps",
        "train.evaluate_every",
        "train.patience",
        "train.min_improvement",
        "train.classes_per_batch",
        "train.images_per_class",
        "optim.lr",
        "optim.weight_decay",
        "optim.betas",
        "optim.eps",
        "optim.clip_norm",
        "ccp.mode",
        "xbm.enabled",
        "metrix.enabled",
        "protocol.select_on",
        "protocol.recall_at",
        "run.seed",
        "run.device",
        "run.precision",
        "run.workers",
        "run.cache",
        "run.evaluation_batch",
        "run.deterministic",
        "run.logger",
        "run.map_points",
        "run.checkpoint_minutes",
        "run.compile",
        "run.proxies_on_disk",
        "run.proxies_over_processes",
    }
)
"""The keys that no choice makes idle; how a run is computed counts as read."""

UNREAD = {
    "data.root=x": "glyphs c2",
    "data.path=x": "folder c2",
    "data.resize=64": "glyphs c2",
    "data.crop=64": "mnist c2",
    "data.crop_area=[0.5,1.0]": "glyphs c2",
    "data.flip=0": "mnist c2",
    "data.turn=5": "features c2",
    "data.colour=0.1": "glyphs c2",
    "data.views=4": "folder c2",
    "data.cached=true": "folder c2",
    "data.reduced_decoding=true": "glyphs c2",
    "data.skip_broken=true": "mnist c2",
    "data.duplicates=refuse": "cub c2",
    "data.drop_small_classes=true": "glyphs c2",
    "data.test_share=0.2": "cub c2",
    "data.split_column=part": "folder c2",
    "model.weights=x": "features c2",
    "model.pretrained=true": "features c2",
    "model.input_mean=[0.5,0.5,0.5]": "features c2",
    "model.input_std=[0.5,0.5,0.5]": "features c2",
    "model.pooling=gap": "features c2",
    "model.freeze_batch_norm=true": "features c2",
    "model.freeze_backbone=true": "features c2",
    "model.train_from=layer4": "features c2",
    "model.cache_features=false": "cub c2",
    "model.feature_precision=single": "cub c2",
    "optim.proxy_lr_factor=2": "cub c2-xbm",
    "optim.decay_proxies=false": "cub c2",
    "optim.proxies_by_rows=true": "cub c2",
    "train.warm_up_epochs=1": "glyphs proxy-anchor",
    "ccp.weight=1": "cub c2-proxy",
    "ccp.proxies_per_class=2": "cub c2",
    "ccp.proxies_by_need=true": "cub c2",
    "ccp.pool_per_class=2": "cub c2",
    "ccp.start_step=2": "cub proxy-anchor",
    "ccp.pull_to_start=false": "cub c2-proxy",
    "ccp.until=stall": "cub c2-proxy",
    "ccp.patience=2": "cub c2",
    "ccp.staleness=1": "cub c2-ccp",
    "ccp.check_every=1": "cub c2-ccp",
    "ccp.steps_per_problem=1": "cub c2-ccp",
    "ccp.pair_weight=1": "cub c2",
    "ccp.balance=2": "cub c2-ccp",
    "ccp.proxy_length=unit": "cub c2",
    "ccp.space=raw": "cub c2",
    "ccp.rewind=true": "cub c2",
    "ccp.remembered_problems=2": "cub c2-proxy",
    "ccp.averaged_solutions=2": "cub c2",
    "ccp.corrected_sets=2": "cub c2-proxy",
    "ccp.reset_moments=true": "cub c2-proxy",
    "xbm.memory_batches=2": "cub c2-ccp",
    "xbm.start_step=2": "cub c2",
    "metrix.weight=0.1": "cub c1-xbm",
    "metrix.alpha=1": "cub ms",
}
"""A setting, and a run that does not read it."""

READ = {
    "data.root=x": ["folder c2", "csv c2", "mnist c2", "inshop c2"],
    "data.path=x": ["csv c2", "features c2"],
    "data.resize=64": ["folder c2", "sop c2"],
    "data.augment=false": ["glyphs c2", "mnist c2", "folder c2", "features c2"],
    "data.flip=0": ["folder c2"],
    "data.test_share=0.2": ["folder c2", "csv c2", "features c2"],
    "data.split_column=part": ["csv c2"],
    "data.views=4": ["folder frozen c2"],
    "data.cached=true": ["cub c2"],
    "data.drop_small_classes=true": ["features c2"],
    "model.cache_features=false": ["cub frozen c2"],
    "optim.proxy_lr_factor=2": ["cub c2-proxy", "cub proxy-anchor", "features soft-triple"],
    "train.warm_up_epochs=1": ["folder finetune c2"],
    "ccp.weight=1": ["cub c1-ccp-s", "cub ms-profs"],
    "ccp.balance=2": ["folder top c2-proxy"],
    "ccp.until=stale": ["cub c2-ccp"],
    "ccp.rewind=true": ["cub c2-proxy"],
    "ccp.steps_per_problem=50": ["cub c2-profs"],
    "ccp.averaged_solutions=2": ["cub c2-profs"],
    "ccp.corrected_sets=2": ["cub c2-profs", "cub c2-ccp"],
    "ccp.patience=2": ["cub c2-ccp", "folder ms-ccp"],
    "xbm.start_step=2": ["cub c1-xbm"],
    "metrix.weight=0.1": ["cub ms-metrix"],
    "metrix.alpha=1": ["glyphs ms-metrix"],
    "protocol.folds=5": ["cub c2"],
}


def check(recipes, *settings):
    resolved = resolve(recipes.split(), settings)
    refuse_unread([resolved.config], written_by_user(resolved))


def test_every_key_of_the_schema_has_its_readers():
    assert set(READERS) | READ_BY_EVERY_RUN == set(known_keys()), "add a new key to READERS or READ_BY_EVERY_RUN"
    assert not set(READERS) & READ_BY_EVERY_RUN
    protocol = {"protocol.hold_out", "protocol.folds", "protocol.fold"}
    assert {setting.partition("=")[0] for setting in UNREAD} | protocol == set(READERS)


def test_what_is_known_here_is_what_there_is():
    assert set(DATASETS) == set(shipped_recipes("datasets"))
    assert set(LOSSES) == BATCH_LOSSES
    assert {key for keys in CHOSEN_WITH.values() for key in keys} <= set(known_keys())


@pytest.mark.parametrize(("setting", "recipes"), UNREAD.items())
def test_a_setting_without_effect_is_refused_with_who_would_read_it(setting, recipes):
    with pytest.raises(UserError) as caught:
        check(recipes, setting)
    told = str(caught.value)
    assert told.startswith(f"--set {setting.partition('=')[0]} would have no effect: ")
    named = set(re.findall(r"[\w+-]+", told))
    assert named & {*shipped_recipes(), "stale", "steps"}
    assert "{" not in told


@pytest.mark.parametrize(
    "key",
    [
        "optim.proxy_lr_factor",
        "ccp.proxies_per_class",
        "ccp.pool_per_class",
        "ccp.start_step",
        "ccp.patience",
        "ccp.rewind",
        "ccp.remembered_problems",
    ],
)
def test_representatives_are_no_proxies(key):
    config = resolve(["cub", "c2-profs"]).config
    assert not reads(config, key)
    (told,) = unread_settings([config], {key: f"--set {key}"})
    assert "c2-ccp" in told


def test_nothing_is_wound_back_after_a_number_of_steps():
    check("cub c2-ccp", "ccp.rewind=true")
    with pytest.raises(UserError, match=r"--set ccp\.rewind would have no effect: .* unless ccp\.until=steps"):
        check("cub c2-ccp", "ccp.until=steps", "ccp.rewind=true")


def test_settings_of_a_pace_are_read_where_it_is_chosen():
    for pace in ("behind", "stale"):
        check("cub c2-ccp", f"ccp.until={pace}", "ccp.staleness=1", "ccp.check_every=1")
    check("cub c2-ccp", "ccp.until=steps", "ccp.steps_per_problem=1")


@pytest.mark.parametrize(("setting", "recipes"), [(key, run) for key, runs in READ.items() for run in runs])
def test_a_setting_with_an_effect_passes(setting, recipes):
    check(recipes, setting)


def test_folds_are_not_read_where_the_test_half_selects():
    with pytest.raises(UserError, match=r"--set protocol\.folds would have no effect: .*protocol\.select_on=test"):
        check("cub c2", "protocol.select_on=test", "protocol.folds=5")


def test_a_key_that_one_of_several_methods_reads_passes():
    methods = [resolve(["cub", method]).config for method in ("c2", "c2-ccp")]
    refuse_unread(methods, {"ccp.weight": "--set ccp.weight"})
    refuse_unread([], {"ccp.weight": "--set ccp.weight"})
    with pytest.raises(UserError, match="no effect"):
        refuse_unread(methods[:1], {"ccp.weight": "--set ccp.weight"})


def test_what_a_recipe_sets_for_other_methods_is_no_mistake(tmp_path):
    own_data = tmp_path / "mine.toml"
    own_data.write_text('[data]\nname = "folder"\nroot = "x"\n[ccp]\nweight = 1.0\n[xbm]\nmemory_batches = 3\n')
    check(f"{own_data} c2")
    own_mode = tmp_path / "mode.toml"
    own_mode.write_text("[data]\nviews = 3\n[ccp]\npair_weight = 2.0\n")
    check(f"cub {own_mode} c2")
    for_ms = tmp_path / "for_ms.toml"
    for_ms.write_text('[losses.ms]\nccp.until = "stale"\n')
    check(f"cub {for_ms} ms")  # meant for ms-ccp, which may be named as well


def test_what_a_file_chooses_it_must_read(tmp_path):
    method = tmp_path / "method.toml"
    method.write_text('[loss]\nname = "c2"\n[ccp]\nweight = 1.0\n')
    with pytest.raises(UserError, match=rf"ccp\.weight \({re.escape(str(method))}\) would have no effect: .*c2-ccp"):
        check(f"cub {method}")
    data = tmp_path / "data.toml"
    data.write_text('[data]\nname = "glyphs"\nroot = "x"\n')
    with pytest.raises(UserError, match=r"data\.root .*the data set glyphs does not read it; the recipes folder"):
        check(f"{data} c2")


def test_what_a_later_layer_overrides_is_judged_by_that_layer(tmp_path):
    method = tmp_path / "method.toml"
    method.write_text('[loss]\nname = "c2"\n[ccp]\nweight = 1.0\n')
    with pytest.raises(UserError, match=r"^--set ccp\.weight"):
        check(f"cub {method}", "ccp.weight=2")


def test_the_configuration_that_a_run_left_is_a_recipe(tmp_path):
    saved = tmp_path / "config.toml"
    saved.write_text(tomli_w.dumps(resolve(["sop", "c2"], ["data.root=x"]).config.as_tables()))
    check(str(saved))


def test_a_data_set_of_ones_own_gets_its_files_sizes_and_share_and_nothing_of_other_readers():
    own = resolve(["folder", "c2"]).config.with_values(data={"name": "mine.py:Photos"})
    assert all(
        reads(own, f"data.{key}") for key in ("root", "path", "crop", "flip", "drop_small_classes", "test_share")
    )
    unread = ("cached", "reduced_decoding", "skip_broken", "duplicates", "split_column")
    assert not any(reads(own, f"data.{key}") for key in unread)


def test_unread_settings_can_be_told_without_refusing():
    resolved = resolve(["glyphs", "c2"], ["data.root=x", "ccp.weight=1"])
    assert len(list(unread_settings([resolved.config], written_by_user(resolved)))) == 2
