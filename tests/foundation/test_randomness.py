import torch

from ccp_dml.foundation.randomness import derive_seed, generator, seeds_of_rows


def test_every_purpose_has_a_stream_of_its_own():
    keys = ((7, "pool", 3), (7, "batch", 3), (7, "pool", 4), (8, "pool", 3), (7, "pool"))
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_stay_what_they_were_in_earlier_versions():
    assert derive_seed(0, "sampler") == 8947162672327404457


def test_rows_have_seeds_of_their_own_whoever_asks():
    seeds = seeds_of_rows(1000, 1, "batch", 3)
    assert torch.equal(seeds, seeds_of_rows(1000, 1, "batch", 3))
    assert len(seeds.unique()) == 1000
    assert not torch.isin(seeds, seeds_of_rows(1000, 1, "batch", 4)).any()


def test_a_generator_gives_the_same_numbers_again_and_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    first, second = (torch.rand(5, generator=generator(1, "x")) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())
