import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.config.memory_needs import memory_needs, refuse_too_large
from ccp_dml.errors import UserError


def config(*settings, method="c2-ccp"):
    return resolve(["glyphs", method], settings).config


def test_needs_grow_with_what_is_named():
    small, large = (memory_needs(config(f"ccp.proxies_per_class={n}"), 100, of_images=True) for n in (8, 8000))
    assert large["ccp.proxies_per_class"] == 1000 * small["ccp.proxies_per_class"]
    assert large["run.evaluation_batch"] == small["run.evaluation_batch"]


def test_copies_of_proxies_count():
    def needs(*settings):
        return memory_needs(config(*settings), 100, of_images=True)

    once = needs()["ccp.proxies_per_class"]
    assert needs("ccp.proxies_by_need=true")["ccp.proxies_per_class"] == 2 * once
    assert needs("ccp.remembered_problems=5")["ccp.remembered_problems"] == once  # four copies, where training has four


def test_representatives_take_no_memory():
    assert not any(key.startswith("ccp.") for key in memory_needs(config(method="c2-profs"), 100, of_images=True))


def test_too_much_is_refused_with_the_sum_and_its_parts():
    refuse_too_large(config(), 100, of_images=True, available=8 * 10**9)
    with pytest.raises(
        UserError, match=r"at least .* GB .* has 8\.0 GB \(ccp\.pool_per_class .* ccp\.proxies_per_class"
    ):
        refuse_too_large(config("ccp.proxies_per_class=1000000"), 100, of_images=True, available=8 * 10**9)
    with pytest.raises(UserError, match=r"run\.workers"):
        refuse_too_large(config("run.workers=256"), 100, of_images=True, available=8 * 10**9)


def test_processes_hold_proxies_each_or_share_them():
    def needs(*settings, **arguments):
        found = memory_needs(config("ccp.proxies_per_class=2", *settings), 10**6, of_images=True, **arguments)
        return found["ccp.proxies_per_class"], found["ccp.pool_per_class"]

    proxies, pool = needs()
    assert proxies == 10**6 * 2 * config().model.embedding_dim * 4 * 4
    assert pool <= 1 << 28, "a large pool comes in chunks"
    each, whole_pools = needs(processes=4, on_this_machine=2)
    assert each == 2 * proxies
    assert whole_pools > 10 * pool
    shared, chunks = needs("run.proxies_over_processes=true", processes=4, on_this_machine=2)
    assert shared == proxies / 2
    assert chunks == 2 * pool
    assert needs("run.proxies_on_disk=true") == (0, pool)
