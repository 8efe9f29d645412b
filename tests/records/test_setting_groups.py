"""Settings that were added later leave the digests of earlier runs as they were."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.records.setting_groups import ADDED_LATER, settings_digest


@pytest.mark.parametrize(("key", "as_before"), ADDED_LATER.items())
def test_a_setting_that_was_added_later_counts_where_it_departs_from_what_earlier_versions_did(key, as_before):
    config = resolve(["cub", "frozen", "ms-ccp"], ["ccp.pair_weight=balanced"]).config
    section, name = key.split(".")
    table = getattr(config, section)
    assert getattr(table, name) == as_before
    other = {"half": "single", True: False, False: True, 0.4: 0.5, 2.0: 3.0, 3.0: 1.0}[as_before]
    changed = config.model_copy(update={section: table.model_copy(update={name: other})})
    assert settings_digest(changed) != settings_digest(config)


def test_a_balance_that_nobody_reads_does_not_count():
    digests = {settings_digest(resolve(["cub", "c2-ccp"], [f"ccp.balance={value}"]).config) for value in (1, 3)}
    assert len(digests) == 1


def test_settings_have_the_digest_that_versions_without_the_later_ones_gave_them():
    """As it was written into runs then: a key that is missing in ADDED_LATER would make them strangers."""
    assert settings_digest(resolve(["glyphs", "c2-ccp"], []).config) == "579a2378cd15059b624a71f44a39f833"
