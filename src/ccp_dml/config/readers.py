"""Which part of a run reads which key, so that a setting without any effect is refused instead of ignored.

Recipes may set what other parts read: a data set's recipe has values for methods that a later recipe may choose. What a
person writes is meant to have an effect: with `--set`, or in a file that makes the choice itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ccp_dml.config.layers import SETTING, Resolved, flatten, known_keys
from ccp_dml.config.recipes import CCP, Layer, shipped_recipes
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code

Choice = Literal["data", "model", "method", "protocol"]

CHOSEN_WITH: dict[Choice, frozenset[str]] = {
    "data": frozenset(),
    "model": frozenset({"model.backbone", "model.freeze_backbone"}),
    "method": frozenset({"loss.name", "ccp.mode", "xbm.enabled", "metrix.enabled"}),
    "protocol": frozenset({"protocol.select_on"}),
}
"""The keys that make each choice. A file that has none of them is for several models or methods."""

BATCH_LOSSES = frozenset({"c1", "c2", "triplet", "ms"})
"""Losses without parameters of their own: nothing but the network and CCP's proxies is trained with them."""

FILES = ("folder", "csv", "cub", "cars196", "sop", "inshop")
"""Data sets that are kept as image files."""

DATASETS = (*FILES, "mnist", "glyphs", "features")
"""The data sets that are known here. What others read, their authors know."""


@dataclass(frozen=True)
class Reader:
    """Who reads a key.

    Args:
        choice: what decides whether it is read.
        reads: whether a run of this configuration reads it.
        remedy: who would read it, and what to do; {data}, {backbone}, {loss} and {ccp} stand for the run's own data
            set, backbone and loss, and for a method with CCP.
    """

    choice: Choice
    reads: Callable[[Config], bool]
    remedy: str


def of_data(*names: str) -> Reader:
    """Let only these data sets read a key."""
    others = set(DATASETS) - set(names)
    shown = f"the recipes {', '.join(names[:-1])} and {names[-1]} do"
    return Reader(
        "data", lambda config: config.data.name not in others, f"the data set {{data}} does not read it; {shown}"
    )


def of_method(reads: Callable[[Config], bool], remedy: str) -> Reader:
    return Reader("method", reads, remedy)


def is_frozen(config: Config) -> bool:
    """Tell whether some of the backbone rests, so that its features or maps are stored."""
    rests = config.model.freeze_backbone or config.model.train_from is not None
    return rests and config.model.backbone != "identity"


def has_trained_backbone(config: Config) -> bool:
    """Tell whether the backbone begins with weights that mean something; a user's own may load them by itself."""
    model = config.model
    return bool(model.pretrained or model.weights) or own_code.is_own(model.backbone, own_code.BACKBONES)


IMAGE_BACKBONE = Reader(
    "model",
    lambda config: config.model.backbone != "identity",
    "the backbone {backbone} passes vectors on as they are; take a data set of images, such as the recipe folder",
)
WITH_PROXIES = of_method(
    lambda config: config.ccp.has_proxies, "it belongs to proxies, and {method} has none; name a method such as {ccp}"
)
WITH_TRAINED_PROXIES = of_method(
    lambda config: config.ccp.has_proxies or config.loss.name not in BATCH_LOSSES,
    "{method} trains no proxies; name a method such as {ccp}",
)
WITH_CCP = of_method(
    lambda config: config.ccp.mode == "alternating",
    "it belongs to CCP (ccp.mode=alternating), and {method} is another method; name a method such as {ccp}",
)
WITH_SEVERAL_PROBLEMS = of_method(
    lambda config: config.ccp.alternates,
    "it belongs to methods that solve problem after problem, and {method} is none; name a method such as {ccp}",
)
WITH_STALENESS = of_method(
    lambda config: config.ccp.mode == "alternating" and config.ccp.until in ("behind", "stale"),
    "it is read with ccp.until=behind or stale by methods such as {ccp}",
)
WITH_MEMORY = of_method(
    lambda config: config.xbm.enabled,
    "it belongs to a memory of past batches, and {method} has none; name a method such as c2-xbm",
)
WITH_MIXTURES = of_method(
    lambda config: config.metrix.enabled,
    "it belongs to mixtures of embeddings, and {method} has none; name a method such as ms-metrix",
)
WITH_VALIDATION = Reader(
    "protocol",
    lambda config: config.protocol.select_on == "validation",
    "with protocol.select_on=test, no training class validates; leave one of the two out",
)

READERS: dict[str, Reader] = {
    "data.root": of_data(*FILES, "mnist"),
    "data.path": of_data("csv", "features"),
    "data.resize": of_data(*FILES),
    "data.crop": of_data(*FILES),
    "data.crop_area": of_data(*FILES),
    "data.flip": of_data(*FILES),
    "data.turn": of_data(*FILES),
    "data.colour": of_data(*FILES),
    "data.views": Reader(
        "model",
        lambda config: is_frozen(config) and config.model.cache_features and config.data.augment != "none",
        "views are stored of what a frozen backbone sees; add the recipe frozen, as in `{data} frozen {ccp}`, without "
        "data.augment=none and model.cache_features=false",
    ),
    "data.cached": of_data("cub", "cars196", "sop", "inshop"),
    "data.reduced_decoding": of_data(*FILES),
    "data.skip_broken": of_data(*FILES),
    "data.duplicates": of_data("folder", "csv"),
    "data.drop_small_classes": of_data(*FILES, "features"),
    "data.test_share": of_data("folder", "csv"),
    "data.split_column": Reader(
        "data", lambda config: config.data.name not in {*DATASETS} - {"csv"}, "only the recipe csv reads a table"
    ),
    "model.weights": IMAGE_BACKBONE,
    "model.pretrained": IMAGE_BACKBONE,
    "model.input_mean": IMAGE_BACKBONE,
    "model.input_std": IMAGE_BACKBONE,
    "model.pooling": IMAGE_BACKBONE,
    "model.freeze_batch_norm": IMAGE_BACKBONE,
    "model.freeze_backbone": IMAGE_BACKBONE,
    "model.train_from": IMAGE_BACKBONE,
    "model.cache_features": Reader(
        "model", is_frozen, "only a frozen backbone's features are kept; add the recipe frozen"
    ),
    "model.feature_precision": Reader(
        "model", is_frozen, "only a frozen backbone's features are rounded; add the recipe frozen"
    ),
    "train.warm_up_epochs": Reader(
        "model",
        has_trained_backbone,
        "a backbone rests while last layer and proxies get ready for its features, but those of {backbone} mean "
        "nothing yet; set model.weights, or take a mode with a pretrained one, such as finetune",
    ),
    "optim.proxy_lr_factor": WITH_TRAINED_PROXIES,
    "optim.decay_proxies": WITH_TRAINED_PROXIES,
    "optim.proxies_by_rows": WITH_TRAINED_PROXIES,
    "ccp.weight": WITH_SEVERAL_PROBLEMS,
    "ccp.proxies_per_class": WITH_PROXIES,
    "ccp.proxies_by_need": WITH_PROXIES,
    "ccp.pool_per_class": WITH_PROXIES,
    "ccp.start_step": WITH_PROXIES,
    "ccp.pull_to_start": WITH_CCP,
    "ccp.until": WITH_SEVERAL_PROBLEMS,
    "ccp.patience": of_method(
        lambda config: config.ccp.mode == "alternating" and config.ccp.until != "steps",
        "it ends the problems of methods such as {ccp} unless ccp.until=steps does; name one, without that setting",
    ),
    "ccp.staleness": WITH_STALENESS,
    "ccp.check_every": WITH_STALENESS,
    "ccp.steps_per_problem": of_method(
        lambda config: config.ccp.alternates and config.ccp.until == "steps",
        "it is read with ccp.until=steps by methods such as {ccp}",
    ),
    "ccp.pair_weight": WITH_PROXIES,
    "ccp.balance": of_method(
        lambda config: config.ccp.has_proxies and config.ccp.pair_weight == "balanced",
        "it is read with ccp.pair_weight=balanced by methods such as {ccp}",
    ),
    "ccp.proxy_length": WITH_PROXIES,
    "ccp.space": WITH_PROXIES,
    "ccp.rewind": of_method(
        lambda config: config.ccp.has_proxies and (config.ccp.mode == "one-problem" or config.ccp.until != "steps"),
        "problems that end after a number of steps have no best weights to go back to; it is read by methods such as "
        "{ccp} unless ccp.until=steps",
    ),
    "ccp.remembered_problems": WITH_CCP,
    "ccp.averaged_solutions": WITH_SEVERAL_PROBLEMS,
    "ccp.corrected_sets": WITH_SEVERAL_PROBLEMS,
    "ccp.reset_moments": WITH_CCP,
    "xbm.memory_batches": WITH_MEMORY,
    "xbm.start_step": WITH_MEMORY,
    "metrix.weight": WITH_MIXTURES,
    "metrix.alpha": WITH_MIXTURES,
    "protocol.hold_out": WITH_VALIDATION,
    "protocol.folds": WITH_VALIDATION,
    "protocol.fold": WITH_VALIDATION,
}
"""Keys that some runs read and others do not. The test lists all others: a new key must stand here or there."""


def reads(config: Config, key: str) -> bool:
    """Tell whether a run of this configuration reads `key`."""
    return key not in READERS or READERS[key].reads(config)


def refuse_unread(configs: Sequence[Config], written: Mapping[str, str]) -> None:
    """Raise for the first key in `written` (key -> origin) that none of `configs`, the runs it is given to, reads."""
    for sentence in unread_settings(configs, written):
        raise UserError(f"{sentence}. Otherwise leave it out.")


def unread_settings(configs: Sequence[Config], written: Mapping[str, str]) -> Iterator[str]:
    """Say of each key in `written` that none of `configs` reads who would read it."""
    for key, origin in written.items():
        if configs and not any(reads(config, key) for config in configs):
            subject = origin if origin.startswith(SETTING) else f"{key} ({origin})"
            yield f"{subject} would have no effect: {READERS[key].remedy.format(**_names(configs[0]))}"


def _names(config: Config) -> dict[str, str]:
    """Give the words that a remedy may use."""
    loss, methods = config.loss.name, shipped_recipes("methods")
    kind = {
        "off": "",
        "one-problem": " with proxies chosen once",
        "alternating": " with CCP",
        "representatives": " with representatives",
    }[config.ccp.mode]
    if config.xbm.enabled:
        kind = " with a memory"
    elif config.metrix.enabled:
        kind = " with mixtures"
    return {
        "data": config.data.name,
        "backbone": config.model.backbone,
        "loss": loss,
        "method": loss + kind,
        "ccp": loss + CCP if loss + CCP in methods else "c2" + CCP,
    }


def written_by_user(resolved: Resolved) -> dict[str, str]:
    """List the keys that a person wrote for this very run, with their origins: by `--set`, or in a file of theirs."""
    written: dict[str, str] = {}
    for layer in resolved.layers:
        keys = [key for key, _ in flatten(layer.tables)]
        if layer.origin.startswith(SETTING):
            written |= dict.fromkeys(keys, layer.origin)
        elif layer.origin not in shipped_recipes() and not is_saved_configuration(layer):
            written |= {key: layer.origin for key in keys if key in READERS and _chooses(keys, READERS[key].choice)}
    return {key: origin for key, origin in written.items() if resolved.origins.get(key) == origin}


def _chooses(keys: Sequence[str], choice: Choice) -> bool:
    """Tell whether a file with these keys makes the choice by itself, so that it is not for several."""
    return choice == "data" or not CHOSEN_WITH[choice].isdisjoint(keys)


def is_saved_configuration(layer: Layer) -> bool:
    """Recognise the config.toml of a run, which spells out every key, read or not."""
    return len(list(flatten(layer.tables))) > len(known_keys()) / 2
