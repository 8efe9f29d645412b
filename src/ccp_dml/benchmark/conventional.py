"""The conventional protocol: one model per method, larger and with larger batches than MLRC's."""

from pathlib import Path

from ccp_dml.benchmark.request import Benchmark, BenchmarkRun
from ccp_dml.config.layers import resolve, shipped_recipes
from ccp_dml.config.recipes import recipe_label
from ccp_dml.plans.plan import plan_run

RECIPE = "conventional"


def plan_conventional(benchmark: Benchmark, folder: Path) -> list[BenchmarkRun]:
    """All runs, repeat by repeat. The protocol's recipe comes after the method's: it decides the batch's shape."""
    planned = []
    for repeat in range(benchmark.repeats):
        for method in benchmark.methods:
            config = resolve([benchmark.data, method], benchmark.settings).config
            name = f"{recipe_label(method)}/repeat{repeat}"
            settings = (*benchmark.settings, f"run.seed={config.run.seed + repeat}")
            recipes = (benchmark.data, method, protocol_recipe(config.model.backbone))
            run = plan_run(name, folder / name, recipes, settings)
            planned.append(BenchmarkRun(recipe_label(method), repeat, config.protocol.fold, run))
    return planned


def protocol_recipe(backbone: str) -> str:
    """The recipe with the backbone's own batch size where there is one: `conventional-resnet50`."""
    own = f"{RECIPE}-{backbone.partition('.')[0]}"
    return own if own in shipped_recipes("protocols") else RECIPE
