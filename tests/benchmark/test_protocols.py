"""Which runs each protocol plans, and what MLRC's ensembles are."""

import json

import pytest
import torch

from ccp_dml.benchmark.protocols import ensemble_scores, plan_conventional, plan_mlrc
from ccp_dml.errors import UserError
from ccp_dml.functional.distances import clip_normalise
from ccp_dml.functional.retrieval import retrieval_scores
from ccp_dml.records.benchmark_folder import BenchmarkRequest
from ccp_dml.records.embeddings import EmbeddedTest, save_embedded


def mlrc(*settings, methods=("c2", "c2-ccp"), repeats=1, data="features"):
    return BenchmarkRequest("mlrc", data, methods, repeats, ("data.path=x.npz", *settings))


def test_mlrc_trains_four_models_per_method_and_repeat(tmp_path):
    planned = plan_mlrc(mlrc(repeats=2), tmp_path)
    assert [one.run.name for one in planned[:5]] == [
        "c2/repeat0/fold0",
        "c2/repeat0/fold1",
        "c2/repeat0/fold2",
        "c2/repeat0/fold3",
        "c2-ccp/repeat0/fold0",
    ]
    assert len(planned) == 16
    assert all(one.run.folder == tmp_path / one.run.name for one in planned)
    assert all(one.run.config.protocol.fold == one.fold for one in planned)
    assert all(one.run.config.protocol.select_on == "validation" for one in planned)


def test_seeds_differ_between_models_and_are_shared_by_methods(tmp_path):
    seeds = {}
    for one in plan_mlrc(mlrc("run.seed=7", repeats=2), tmp_path):
        seeds.setdefault(one.method, []).append(one.run.config.run.seed)
    assert seeds["c2"] == seeds["c2-ccp"] == list(range(7, 15))


def test_further_repeats_leave_the_first_as_they_were(tmp_path):
    once, twice = (plan_mlrc(mlrc(repeats=n), tmp_path) for n in (1, 2))
    assert twice[: len(once)] == once


def test_ablations_use_three_splits_or_one_of_them(tmp_path):
    assert [one.fold for one in plan_mlrc(mlrc("protocol.folds=3", methods=("c2",)), tmp_path)] == [0, 1, 2]
    single = plan_mlrc(mlrc("protocol.folds=3", "protocol.fold=1", methods=("c2",)), tmp_path)
    assert [one.run.name for one in single] == ["c2/repeat0/fold1"]
    with pytest.raises(UserError, match=r"protocol\.fold = 3.*choose 0 to 2"):
        plan_mlrc(mlrc("protocol.folds=3", "protocol.fold=3"), tmp_path)


def test_mlrc_never_selects_on_the_test_half(tmp_path):
    with pytest.raises(UserError, match="validation classes only"):
        plan_mlrc(mlrc("protocol.select_on=test"), tmp_path)
    cheat = tmp_path / "cheat.toml"
    cheat.write_text('[protocol]\nselect_on = "test"\n')
    with pytest.raises(UserError, match="validation classes only"):
        plan_mlrc(mlrc(methods=(str(cheat),)), tmp_path)


@pytest.mark.parametrize(
    ("backbone", "batch"), [("bn_inception", 128), ("resnet50", 96), ("resnet50.tv_in1k", 96), ("resnet18", 128)]
)
@pytest.mark.parametrize("method", ["c2-ccp", "proxy-anchor"])
def test_the_conventional_protocol_sets_size_pooling_and_batch(tmp_path, backbone, batch, method):
    benchmark = BenchmarkRequest("conventional", "cub", (method,), 2, (f"model.backbone={backbone}",))
    planned = plan_conventional(benchmark, tmp_path)
    assert [one.run.name for one in planned] == [f"{method}/repeat0", f"{method}/repeat1"]
    assert [one.run.config.run.seed for one in planned] == [0, 1]
    config = planned[0].run.config
    assert (config.model.backbone, config.model.embedding_dim, config.model.pooling) == (backbone, 512, "gap+gmp")
    assert config.train.classes_per_batch * config.train.images_per_class == batch
    assert config.train.images_per_class == 4
    assert config.protocol.select_on == "validation"


def test_the_conventional_protocol_leaves_the_network_of_a_file_as_it_is(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "cub"\n[model]\nbackbone = "resnet50.a1_in1k"\npretrained = false\n')
    config = plan_conventional(BenchmarkRequest("conventional", str(mine), ("c2",), 1, ()), tmp_path)[0].run.config
    assert (config.model.backbone, config.model.pretrained) == ("resnet50.a1_in1k", False)
    assert config.train.classes_per_batch * config.train.images_per_class == 96


def test_what_is_asked_for_wins_over_the_protocol(tmp_path):
    asked = ("model.embedding_dim=64", "protocol.select_on=test")
    config = plan_conventional(BenchmarkRequest("conventional", "cub", ("c2",), 1, asked), tmp_path)[0].run.config
    assert (config.model.embedding_dim, config.protocol.select_on) == (64, "test")


@pytest.mark.parametrize("plan", [plan_mlrc, plan_conventional])
@pytest.mark.parametrize(
    ("settings", "methods", "data", "message"),
    [
        (("ccp.mode=off",), ("c2", "c2-ccp"), "features", r"--set ccp\.mode would make another method of c2, "),
        (("loss.name=triplet",), ("c2", "ms"), "features", r"--set loss\.name would make another method of c2, "),
        ((), ("c2",), "features,c2-ccp", "c2-ccp and c2 are 2 methods, and a run has one"),
    ],
)
def test_methods_stay_what_their_names_say(plan, settings, methods, data, message, tmp_path):
    with pytest.raises(UserError, match=message):
        plan(mlrc(*settings, methods=methods, data=data), tmp_path)


def test_a_file_of_the_data_may_not_make_another_method_of_a_shipped_one(tmp_path):
    base = tmp_path / "base.toml"
    base.write_text('[ccp]\nmode = "alternating"\nweight = 0.5\n')
    with pytest.raises(UserError, match=r"ccp\.mode \(.*base\.toml\) would make another method of c2, "):
        plan_mlrc(mlrc(data=f"features,{base}"), tmp_path)
    mine = tmp_path / "mine.toml"  # an ablation: what it varies comes on top of the method that all share
    mine.write_text("[optim]\nlr = 0.5\n")
    planned = plan_mlrc(mlrc(data=f"features,{base}", methods=(str(mine),)), tmp_path)
    assert {(one.run.config.ccp.mode, one.run.config.optim.lr) for one in planned} == {("alternating", 0.5)}


def test_methods_share_settings_that_do_not_choose_them(tmp_path):
    shared = ("ccp.balance=2", "ccp.until=stale", "loss.positive_margin=0.1", "optim.lr=0.5")
    planned = plan_mlrc(mlrc(*shared), tmp_path)
    assert {one.run.config.ccp.until for one in planned} == {"stale"}
    assert {one.run.config.ccp.mode for one in planned} == {"off", "alternating"}


@pytest.mark.parametrize("plan", [plan_mlrc, plan_conventional])
@pytest.mark.parametrize(
    ("text", "key", "its", "theirs"),
    [
        ("[data]\nclasses = 9", "data.classes", "9", "unset"),
        ("[data]\ntest_share = 0.2", "data.test_share", "0.2", "0.5"),
        ("[run]\nseed = 7", "run.seed", "7", "0"),
        ("[protocol]\nfolds = 3", "protocol.folds", "3", "4"),
        ('[protocol]\nhold_out = "images"', "protocol.hold_out", "images", "classes"),
        ('[protocol]\nselect_on = "test"', "protocol.select_on", "test", "validation"),
    ],
)
def test_a_method_with_data_folds_or_seeds_of_its_own_is_refused(plan, text, key, its, theirs, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(f'extends = "c2"\n{text}\n')
    for methods in (("c2", str(other)), (str(other), "c2")):
        with pytest.raises(UserError) as error:
            plan(mlrc(methods=methods), tmp_path)
        assert f"in {other} {key} is {its}, in c2 it is {theirs}, so that" in str(error.value)
        assert f"--set {key}=VALUE" in str(error.value)


def test_methods_may_share_seeds_of_their_files_and_differ_in_how_they_see_images(tmp_path):
    names = [tmp_path / f"{name}.toml" for name in "ab"]
    for name in names:
        name.write_text('extends = "c2"\n[run]\nseed = 7\n')
    planned = plan_mlrc(mlrc(methods=tuple(map(str, names))), tmp_path)
    assert [one.run.config.run.seed for one in planned] == [7, 8, 9, 10] * 2


def embedded(seed, with_gallery=False):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(5).repeat_interleave(4)
    queries, gallery = (torch.randn(20, 3, generator=generator) + labels[:, None] for _ in range(2))
    return EmbeddedTest((queries, labels), (gallery, labels.flip(0)) if with_gallery else None)


def finish(one, seed):
    one.run.folder.mkdir(parents=True)
    (one.run.folder / "config.toml").write_text("")
    save_embedded(one.run.folder, embedded(seed))
    (one.run.folder / "result.json").write_text("{}")


def test_an_ensemble_is_all_models_normalised_side_by_side(tmp_path):
    folds = plan_mlrc(mlrc("protocol.folds=3", methods=("c2",)), tmp_path)
    finish(folds[0], 0)
    finish(folds[1], 1)
    assert ensemble_scores(folds, torch.device("cpu")) is None  # a model is missing
    finish(folds[2], 2)
    scores = ensemble_scores(folds, torch.device("cpu"))
    vectors = clip_normalise(torch.cat([clip_normalise(embedded(seed).queries[0]) for seed in range(3)], dim=1))
    expected = retrieval_scores(vectors, embedded(0).queries[1])
    assert scores["map_at_r"] == expected.map_at_r
    assert scores["map_at_r"] != retrieval_scores(*embedded(0).queries).map_at_r


def test_an_ensemble_is_computed_once_unless_its_models_or_its_file_changed(tmp_path, monkeypatch):
    folds = plan_mlrc(mlrc("protocol.folds=2", methods=("c2",)), tmp_path)
    for seed, one in enumerate(folds):
        finish(one, seed)
    scores = ensemble_scores(folds, torch.device("cpu"))
    file = tmp_path / "c2" / "repeat0" / "ensemble.json"
    file.write_text(json.dumps({"test": {"map_at_r": 2.0}}))
    assert ensemble_scores(folds, torch.device("cpu")) == scores
    (folds[1].run.folder / "result.json").write_text('{"steps": 1}')
    assert ensemble_scores(folds, torch.device("cpu")) == scores
    monkeypatch.setattr("ccp_dml.benchmark.protocols.load_embedded", lambda _: pytest.fail("it was computed before"))
    assert ensemble_scores(folds, torch.device("cpu")) == scores
