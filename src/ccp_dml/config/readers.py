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
"""The data sets that come with the package."""


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


def of_data(*names: str, own: bool = True) -> Reader:
    """Let only these data sets read a key, and perhaps those of a user's own."""
    shown = (
        f"the recipes {', '.join(names[:-1])} and {names[-1]} do" if len(names) > 1 else f"the recipe {names[0]} does"
    )
    return Reader(
        "data",
        lambda config: config.data.name in names or (own and config.data.name not in DATASETS),
        f"the data set {{data}} does not read it; {shown}",
    )


def read_by(keys: str, reader: Reader) -> dict[str, Reader]:
    """Let one reader read several keys."""
    return dict.fromkeys(keys.split(), reader)


def by_method(keys: str, reads: Callable[[Config], bool], remedy: str) -> dict[str, Reader]:
    """Let some methods read several keys."""
    return read_by(keys, Reader("method", reads, remedy))


READERS: dict[str, Reader] = {
    **read_by("data.root", of_data(*FILES, "mnist")),
    **read_by("data.path", of_data("csv", "features")),
    **read_by("data.resize data.crop data.crop_area data.flip data.turn data.colour", of_data(*FILES)),
    **read_by("data.reduced_decoding data.skip_broken", of_data(*FILES, own=False)),
    **read_by("data.cached", of_data("cub", "cars196", "sop", "inshop", own=False)),
    **read_by("data.duplicates", of_data("folder", "csv", own=False)),
    **read_by("data.test_share", of_data("folder", "csv", "features")),
    **read_by("data.drop_small_classes", of_data(*FILES, "features")),
    **read_by("data.split_column", of_data("csv", own=False)),
    "data.views": Reader(
        "model",
        lambda config: config.model.trains_on_features and config.data.augment != "none",
        "views are stored of what a frozen backbone sees; add the recipe frozen, as in `{data} frozen {ccp}`, without "
        "data.augment=none and model.cache_features=false",
    ),
    **read_by(
        "model.weights model.pretrained model.input_mean model.input_std model.pooling model.freeze_batch_norm "
        "model.freeze_backbone model.train_from",
        Reader(
            "model",
            lambda config: config.model.backbone != "identity",
            "the backbone {backbone} passes vectors on as they are; take a data set of images, such as the recipe "
            "folder",
        ),
    ),
    **read_by(
        "model.cache_features model.feature_precision",
        Reader(
            "model",
            lambda config: config.model.is_frozen,
            "only a frozen backbone's features are kept; add the recipe frozen",
        ),
    ),
    "train.warm_up_epochs": Reader(
        "model",
        lambda config: config.model.has_trained_backbone,
        "a backbone rests while last layer and proxies get ready for its features, but those of {backbone} mean "
        "nothing yet; set model.weights, or take a mode with a pretrained one, such as finetune",
    ),
    **by_method(
        "optim.proxy_lr_factor optim.decay_proxies optim.proxies_by_rows",
        lambda config: config.ccp.has_proxies or config.loss.name not in BATCH_LOSSES,
        "{method} trains no proxies; name a method such as {ccp}",
    ),
    **by_method(
        "ccp.proxies_per_class ccp.proxies_by_need ccp.pool_per_class ccp.start_step ccp.pair_weight ccp.proxy_length "
        "ccp.space",
        lambda config: config.ccp.has_proxies,
        "it belongs to proxies, and {method} has none; name a method such as {ccp}",
    ),
    **by_method(
        "ccp.weight ccp.until ccp.averaged_solutions ccp.corrected_sets",
        lambda config: config.ccp.alternates,
        "it belongs to methods that solve problem after problem, and {method} is none; name a method such as {ccp}",
    ),
    **by_method(
        "ccp.pull_to_start ccp.remembered_problems ccp.reset_moments",
        lambda config: config.ccp.mode == "alternating",
        "it belongs to CCP (ccp.mode=alternating), and {method} is another method; name a method such as {ccp}",
    ),
    **by_method(
        "ccp.patience",
        lambda config: config.ccp.mode == "alternating" and config.ccp.until != "steps",
        "it ends the problems of methods such as {ccp} unless ccp.until=steps does; name one, without that setting",
    ),
    **by_method(
        "ccp.staleness ccp.check_every",
        lambda config: config.ccp.mode == "alternating" and config.ccp.until in ("behind", "stale"),
        "it is read with ccp.until=behind or stale by methods such as {ccp}",
    ),
    **by_method(
        "ccp.steps_per_problem",
        lambda config: config.ccp.alternates and config.ccp.until == "steps",
        "it is read with ccp.until=steps by methods such as {ccp}",
    ),
    **by_method(
        "ccp.balance",
        lambda config: config.ccp.has_proxies and config.ccp.pair_weight == "balanced",
        "it is read with ccp.pair_weight=balanced by methods such as {ccp}",
    ),
    **by_method(
        "ccp.rewind",
        lambda config: config.ccp.has_proxies and (config.ccp.mode == "one-problem" or config.ccp.until != "steps"),
        "problems that end after a number of steps have no best weights to go back to; it is read by methods such as "
        "{ccp} unless ccp.until=steps",
    ),
    **by_method(
        "xbm.memory_batches xbm.start_step",
        lambda config: config.xbm.enabled,
        "it belongs to a memory of past batches, and {method} has none; name a method such as c2-xbm",
    ),
    **by_method(
        "metrix.weight metrix.alpha",
        lambda config: config.metrix.enabled,
        "it belongs to mixtures of embeddings, and {method} has none; name a method such as ms-metrix",
    ),
    **read_by(
        "protocol.hold_out protocol.folds protocol.fold",
        Reader(
            "protocol",
            lambda config: config.protocol.select_on == "validation",
            "with protocol.select_on=test, no training class validates; leave one of the two out",
        ),
    ),
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
    keys_of = {layer.origin: [key for key, _ in flatten(layer.tables)] for layer in resolved.layers}

    def is_for_this_run(key: str, origin: str) -> bool:
        keys = keys_of[origin]
        is_of_file = key in keys and key in READERS and _chooses(keys, READERS[key].choice)
        return origin.startswith(SETTING) or is_of_file

    return {key: origin for key, origin in set_by_user(resolved).items() if is_for_this_run(key, origin)}


def set_by_user(resolved: Resolved) -> dict[str, str]:
    """List the keys whose values a person wrote, for this run or for several, with their origins."""
    shipped = shipped_recipes()
    own = {one.origin for one in resolved.layers if one.origin not in shipped and not is_saved_configuration(one)}
    return {key: origin for key, origin in resolved.origins.items() if origin in own}


def _chooses(keys: Sequence[str], choice: Choice) -> bool:
    """Tell whether a file with these keys makes the choice by itself, so that it is not for several."""
    return choice == "data" or not CHOSEN_WITH[choice].isdisjoint(keys)


def is_saved_configuration(layer: Layer) -> bool:
    """Recognise the config.toml of a run, which spells out every key, read or not."""
    return len(list(flatten(layer.tables))) > len(known_keys()) / 2
