"""Look up the paper's results by the names that this package uses."""

import csv
from functools import cache
from importlib import resources

from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records.benchmark_table import EvaluationSetting

METHODS = {
    "c1": "C1",
    "c1-xbm": "C1-XBM",
    "c1-ccp": "C1-CCP",
    "c2": "C2",
    "c2-xbm": "C2-XBM",
    "c2-ccp": "C2-CCP",
    "ms": "MS",
    "ms-metrix": "MS+Metrix",
    "ms-ccp": "MS-CCP",
    "triplet": "Triplet",
    "triplet-ccp": "Triplet-CCP",
    "proxy-anchor": "ProxyAnchor",
    "proxy-nca++": "ProxyNCA++",
    "soft-triple": "SoftTriple",
    "hpl-pa": "HPL-PA",
}
"""Method recipe -> the paper's name. Of methods in two sizes it is the large one, as the recipes are; but SoftTriple on
SOP and In-shop has the 4 centres of MLRC's tables ("S") here, and the conventional tables have the large one."""

DATASETS = {"cub": "CUB", "cars196": "Cars196", "sop": "SOP", "inshop": "In-shop"}
BACKBONES = {"bn_inception": "BN-Inception", "resnet50": "ResNet50"}
PROTOCOLS: dict[EvaluationSetting, tuple[str, str]] = {
    "separated": ("MLRC-separated", "128"),
    "concatenated": ("MLRC-concatenated", "512"),
    "single": ("conventional", "512"),
}
"""Setting -> the paper's name of the protocol and the dimension of its embeddings."""

METRICS = {**{title: name for name, title in SCORE_TITLES.items()}, "R@1": "recall_at_1"}
"""The paper's names of scores -> ours."""

BACKBONE = "bn_inception"
IMAGE_SIZE = 227

Key = tuple[str, str, str, str, str, str]  # protocol, dim, dataset, backbone, method, metric


@cache
def table() -> dict[Key, float]:
    """Read every score of the paper, as a fraction."""
    with (resources.files("ccp_dml") / "benchmark" / "paper_results.csv").open(encoding="utf-8") as file:
        return {
            (row["protocol"], row["dim"], row["dataset"], row["backbone"], row["method"], METRICS[row["metric"]]): (
                float(row["value"]) / 100
            )
            for row in csv.DictReader(file)
            if row["value"] and row["metric"] in METRICS
        }


def paper_backbone(backbone: str, setting: EvaluationSetting) -> str:
    """Choose the backbone of the paper to compare with: the same where the paper has it, otherwise its usual one."""
    architecture = backbone.partition(".")[0]
    same = setting == "single" and architecture in BACKBONES
    return architecture if same else BACKBONE


def paper_score(setting: EvaluationSetting, dataset: str, backbone: str, method: str, metric: str) -> float | None:
    """Look up a score, as a fraction; None where the paper has none. `dataset` and `method` are recipe names."""
    if dataset not in DATASETS or method not in METHODS:
        return None
    protocol, dim = PROTOCOLS[setting]
    name = BACKBONES[paper_backbone(backbone, setting)]
    return table().get((protocol, dim, DATASETS[dataset], name, METHODS[method], metric))
