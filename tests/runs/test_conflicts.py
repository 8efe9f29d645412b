"""Settings that contradict each other, the loss or the data are refused, each with a remedy."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.config.schema import DataConfig
from ccp_dml.data.features import load_features
from ccp_dml.errors import UserError
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import build_objective
from ccp_dml.runs.conflicts import refuse_staleness_without_radius
from ccp_dml.runs.training import refuse_untrainable

PROXY_LOSSES = ("proxy-anchor", "proxy-nca++", "soft-triple", "hpl-pa", "pml:ArcFaceLoss", "pml:ProxyNCALoss")
REPRESENTED = ("ccp.mode=representatives", "ccp.until=steps")
DIVIDED = "run.proxies_over_processes=true"


class Four(Processes):
    count = 4


def build(*settings, method=None, classes=10, processes=ALONE):
    recipes = [] if method is None else ["features", method]
    config = complete(resolve(recipes, ["model.embedding_dim=6", *settings]).config)
    return build_objective(config, classes, processes=processes)


@pytest.mark.parametrize("name", PROXY_LOSSES)
@pytest.mark.parametrize("setting", ["ccp.mode=alternating", "ccp.mode=one-problem", "xbm.enabled=true"])
def test_proxies_of_a_loss_do_not_go_together_with_references(name, setting):
    with pytest.raises(UserError, match=name.replace("+", r"\+")):
        build(f"loss.name={name}", setting)


@pytest.mark.parametrize("setting", ["ccp.mode=alternating", "xbm.enabled=true"])
def test_a_loss_of_the_library_without_references_is_refused(setting):
    with pytest.raises(UserError, match="'pml:FastAPLoss': FastAPLoss cannot be measured against references"):
        build("loss.name=pml:FastAPLoss", setting)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ccp.until=stall", r"ccp\.until=stall ends a problem at any step; set ccp\.until=steps"),
        ("ccp.until=stale", r"ccp\.until=stale ends a problem at any step; set ccp\.until=steps"),
        ("train.images_per_class=1", r"train\.images_per_class=1 .*; set it to 2 or more"),
        ("xbm.enabled=true", r"xbm\.enabled are both set: .*; leave one of them out"),
        ("loss.name=proxy-anchor", r"'proxy-anchor' .* never with representatives.*choose a pair loss such as c2"),
        ("loss.name=pml:ArcFaceLoss", r"'pml:ArcFaceLoss' .* never with representatives"),
        ("run.proxies_over_processes=true", r"needs proxies that CCP reselects"),
        ("optim.proxies_by_rows=true", r"needs proxies that CCP reselects"),
    ],
)
def test_what_does_not_go_together_with_representatives_is_refused(setting, words):
    with pytest.raises(UserError, match=words):
        build(*REPRESENTED, setting)


def test_a_memory_and_proxies_at_once_are_refused():
    with pytest.raises(UserError, match="either a memory or proxies"):
        build("xbm.enabled=true", "ccp.mode=alternating")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["loss.name=ms", "ccp.mode=one-problem"], "metrix.enabled and ccp.mode=one-problem are both set"),
        (["loss.name=ms", "ccp.mode=representatives", "ccp.until=steps"], "ccp.mode=representatives are both set"),
        (["loss.name=ms", "xbm.enabled=true"], "metrix.enabled and xbm.enabled=true are both set"),
        (["loss.name=triplet"], "loss.name = 'triplet' does not know what a reference costs that is partly positive"),
        (["loss.name=proxy-anchor"], "loss.name = 'proxy-anchor' does not know"),
        (["loss.name=pml:CircleLoss"], "loss.name = 'pml:CircleLoss' does not know"),
    ],
)
def test_mixtures_that_nobody_can_use_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        build("metrix.enabled=true", *settings)


@pytest.mark.parametrize("pool", [1, 8])
def test_staleness_needs_a_covering_radius(pool):
    settings = ("ccp.mode=alternating", "ccp.until=stale", "ccp.proxies_per_class=8", f"ccp.pool_per_class={pool}")
    with pytest.raises(
        UserError, match=rf"ccp\.until=stale.*ccp\.pool_per_class, which is {pool} and makes a pool of 8"
    ):
        build(*settings)
    build(*settings, "ccp.pool_per_class=9")


def test_proxies_are_not_balanced_against_a_batch_without_pairs():
    settings = ("ccp.mode=alternating", "ccp.pair_weight=balanced")
    with pytest.raises(UserError, match=r"train\.images_per_class=1 none of these is of one class; set it to 2"):
        build(*settings, "train.images_per_class=1")
    build(*settings, "train.images_per_class=2")


@pytest.mark.parametrize("settings", [("model.normalise=l2",), ("loss.normalise=none",)])
def test_proxies_stay_where_embeddings_are(settings):
    network = "l2" if settings[0].startswith("model") else "clip"
    with pytest.raises(UserError, match=rf"different places .* set loss\.normalise={network}"):
        build("ccp.mode=alternating", *settings)
    build(*settings)  # without proxies there is nothing that the network does not normalise
    build("ccp.mode=alternating", "model.normalise=l2", "loss.normalise=l2")
    build("ccp.mode=alternating", "model.normalise=l2", "loss.name=pml:TripletMarginLoss")


@pytest.mark.parametrize("method", ["c2", "triplet", "ms-metrix"])
def test_a_batch_without_a_pair_of_one_class_is_refused(method):
    with pytest.raises(
        UserError, match=r"^train\.images_per_class=1 .* the loss (c2|triplet|ms) .*set it to 2 or more\.$"
    ):
        build_objective(resolve(["glyphs", method], ["train.images_per_class=1"]).config, classes=16)
    for alone in ("c2-xbm", "c2-ccp", "proxy-anchor"):  # which compare with more than the batch
        build_objective(resolve(["glyphs", alone], ["train.images_per_class=1"]).config, classes=16)


@pytest.mark.parametrize(
    ("settings", "method", "message"),
    [
        ((), "c2", r"needs proxies that CCP reselects"),
        ((), "proxy-anchor", r"needs proxies that CCP reselects"),
        (("loss.name=pml:ContrastiveLoss",), "c2-ccp", r"'pml:ContrastiveLoss' .* choose one of c1, c2, ms, triplet"),
        (("ccp.proxies_by_need=true",), "c2-ccp", r"ccp\.proxies_by_need=false"),
        (("run.precision=16-mixed",), "c2-ccp", r"use bf16-mixed"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_any_number_of_processes(settings, method, message):
    with pytest.raises(UserError, match=message):
        build(DIVIDED, *settings, method=method)


def test_there_must_be_a_class_for_each_process():
    with pytest.raises(UserError, match="4 processes share 3 classes; start fewer"):
        build(DIVIDED, method="c2-ccp", processes=Four(), classes=3)


def test_staleness_needs_images_that_are_no_proxies(features):
    halves = load_features(features)
    images = int(halves.train.labels.bincount().max())

    def settings(count):
        pace = ["ccp.until=stale", f"ccp.proxies_per_class={count}", f"ccp.pool_per_class={count + 1}"]
        small = [f"data.path={features}", "protocol.folds=2", "train.classes_per_batch=4"]
        return complete(resolve(["features", "c2-ccp"], [*small, *pace]).config)

    refuse_staleness_without_radius(settings(images - 1), images)
    refuse_staleness_without_radius(settings(images).model_copy(update={"data": DataConfig(name="folder")}), images)
    with pytest.raises(UserError, match=rf"no class has more than {images} images, which never vary, and ccp\.proxies"):
        refuse_untrainable(settings(images), halves.train)
