"""The paper's numbers under this package's names."""

import csv
from importlib import resources

import pytest

from ccp_dml.benchmark.paper import DATASETS, METHODS, METRICS, PROTOCOLS, paper_score, table
from ccp_dml.config.recipes import shipped_recipes

MLRC = ("separated", "concatenated")


def lines():
    with (resources.files("ccp_dml") / "benchmark" / "paper_results.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_score_has_one_place():
    scores = [row for row in lines() if row["value"] and row["metric"] in METRICS]
    assert len(table()) == len(scores) > 400  # no two lines share a key


@pytest.mark.parametrize(
    ("setting", "dataset", "backbone", "method", "metric", "percent"),
    [
        ("separated", "cub", "bn_inception", "c2", "map_at_r", 21.01),
        ("concatenated", "cub", "bn_inception", "c2-ccp", "map_at_r", 28.02),
        ("concatenated", "sop", "bn_inception", "c1-xbm", "precision_at_1", 78.68),
        ("separated", "inshop", "bn_inception", "c2-xbm", "r_precision", 59.78),
        ("single", "cub", "bn_inception", "c2-ccp", "recall_at_1", 69.87),
        ("single", "cub", "resnet50.tv_in1k", "c2-ccp", "recall_at_1", 71.04),
        ("separated", "cub", "tf_efficientnet_lite0", "c2", "map_at_r", 21.01),  # beside the paper's usual backbone
        ("single", "sop", "resnet50", "proxy-anchor", "recall_at_1", 80.00),
        ("single", "cub", "resnet50", "ms-metrix", "recall_at_1", 71.40),
    ],
)
def test_scores_are_found_by_our_names(setting, dataset, backbone, method, metric, percent):
    assert paper_score(setting, dataset, backbone, method, metric) == pytest.approx(percent / 100)


@pytest.mark.parametrize(
    ("setting", "dataset", "backbone", "method", "metric"),
    [
        ("separated", "features", "identity", "c2", "map_at_r"),
        ("separated", "cub", "bn_inception", "c2-proxy", "map_at_r"),
        ("separated", "cub", "bn_inception", "mine", "map_at_r"),
        ("separated", "cub", "bn_inception", "ms-metrix", "map_at_r"),
        ("single", "inshop", "bn_inception", "soft-triple", "recall_at_1"),  # printed as "-"
        ("single", "sop", "resnet50", "c1-xbm", "recall_at_1"),  # 128-D there, 512-D in the protocol
    ],
)
def test_what_the_paper_does_not_have_is_none(setting, dataset, backbone, method, metric):
    assert paper_score(setting, dataset, backbone, method, metric) is None


CONVENTIONAL_ALONE = {"ms-metrix"}
"""Methods that the paper has in the tables of the conventional protocol only."""


def test_every_method_of_the_paper_is_complete_under_mlrc():
    absent = {
        (method, dataset)
        for method in METHODS.keys() - CONVENTIONAL_ALONE
        for dataset in DATASETS
        for setting in MLRC
        for metric in ("precision_at_1", "r_precision", "map_at_r")
        if paper_score(setting, dataset, "bn_inception", method, metric) is None
    }
    assert absent == {("hpl-pa", "inshop")}  # printed as "-" there


def test_the_names_are_those_of_recipes():
    assert set(METHODS) <= set(shipped_recipes("methods"))
    assert set(DATASETS) <= set(shipped_recipes("datasets"))
    trained = {row["method"] for row in lines() if row["protocol"].startswith("MLRC")}
    assert trained == {name for method, name in METHODS.items() if method not in CONVENTIONAL_ALONE}
    assert {name for name, _ in PROTOCOLS.values()} < {row["protocol"] for row in lines()}
