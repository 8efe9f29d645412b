"""Group the settings by what they decide: what a run computes, how, where, on which images, and how it is scored.

A resumed or scored run may change some groups and no others; two runs are the same where the others agree.
"""

from collections.abc import Mapping
from typing import Any

from ccp_dml.config.layers import values_of
from ccp_dml.config.schema import Config
from ccp_dml.foundation.digests import digest
from ccp_dml.records import code_copies

HOW_IT_RUNS = frozenset(
    {"run.workers", "run.device", "run.evaluation_batch", "run.cache", "run.logger", "run.checkpoint_minutes"}
    | {"run.proxies_on_disk", "run.proxies_over_processes"}
)
"""Keys that do not change a result: a finished run stays valid when they differ."""

HOW_IT_IS_SCORED = frozenset({"protocol.recall_at"})
"""Keys that matter to the test scores alone."""

MAY_CHANGE = HOW_IT_RUNS | HOW_IT_IS_SCORED | {"train.max_steps", "data.duplicates", "run.map_points"}
"""Keys that a resumed run may set anew: how long it trains, on which machine, where it logs, what it draws, and how it
is scored. None of them changes what a step computes."""

WHERE_DATA_ARE = frozenset({"data.root", "data.path"})
"""Keys that a resumed run may set anew, too: data may move, and a digest tells whether they are still the same."""

WHAT_IS_TRAINED = ("data.name", "loss.name", "ccp.mode", "model.backbone")
"""Keys that are named before others where two configurations differ: the others follow from them."""

WHERE_FILES_ARE = WHERE_DATA_ARE | {"model.weights"}

WHAT_IS_TESTED = (
    *("data.name", "data.root", "data.path", "data.classes", "data.skip_broken", "data.drop_small_classes"),
    *("data.test_share", "data.split_column"),
)
"""Keys that decide which images are in the test half; other keys of the data decide how training sees images."""

MAY_DIFFER_IN_SCORING = (
    WHERE_FILES_ARE | HOW_IT_IS_SCORED | {"run.cache", "run.device", "run.evaluation_batch", "run.workers"}
)
"""Keys that may be set when a finished run is scored: files move, machines differ, and questions change."""

ADDED_LATER = {
    "model.feature_precision": "half",
    "ccp.pull_to_start": True,
    "ccp.balance": 3.0,
    "ccp.corrected_sets": 0,
    "metrix.enabled": False,
    "metrix.weight": 0.4,
    "metrix.alpha": 2.0,
}
"""Keys that earlier versions did not have, with what they did: runs of these versions keep their digests."""


def without_later(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was added later and has the value that earlier versions worked with, or one that nobody reads."""
    unread = {"ccp.balance"} if tables.get("ccp.pair_weight") != "balanced" else set()
    return {key: value for key, value in tables.items() if key not in unread and ADDED_LATER.get(key, ...) != value}


def settings_digest(config: Config) -> str:
    """Digest the settings that decide what a run computes; where files are is left out, their content is pinned."""
    tables = values_of(config)
    tables |= {key: code_copies.name_of_copy(tables[key], key) for key in code_copies.GROUPS if key in tables}
    tables = without_later(tables)
    return digest(*(f"{key}={tables[key]!r}" for key in sorted(tables.keys() - MAY_CHANGE - WHERE_FILES_ARE)))
