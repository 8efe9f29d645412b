import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.process_group import Processes
from ccp_dml.functional.distances import clip_normalise
from ccp_dml.functional.kcenter import greedy_k_center
from ccp_dml.proxies import (
    ClassProxies,
    draw_pool,
    pool_size,
    share_out,
)


def choose(pool, previous, per_class, *, space="raw", generator=None, **options):
    """Choose from a pool (C, b, D), or a list of its chunks, as proxies with these `options` would."""
    classes, dim = (
        (len(pool), pool.shape[2]) if isinstance(pool, torch.Tensor) else (sum(map(len, pool)), pool[0].shape[2])
    )
    return ClassProxies(classes, per_class, dim, **options).choose_from(pool, previous, space, generator)


def test_short_vectors_are_measured_as_the_loss_normalises_them():
    pool = torch.tensor([[[0.1, 0.0], [0.0, 0.1]]])  # at a right angle, deep inside the unit ball
    assert choose(pool, None, 1).covering_radius == pytest.approx(0.1 * 2**0.5)
    for given in (pool, [pool]):
        assert choose(given, None, 1, normalise="l2").covering_radius == pytest.approx(2**0.5)
    for normalise, expected in (("clip", 0.1 * 2**0.5), ("l2", 2**0.5)):
        proxies = ClassProxies(1, 2, 2, normalise=normalise)
        proxies.place(pool)
        assert proxies.spread() == pytest.approx(expected)


def test_references_are_the_proxies_class_by_class():
    proxies = ClassProxies(classes=2, per_class=3, dim=2)
    proxies.place(torch.arange(12.0).reshape(2, 3, 2))
    references, labels = proxies()
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert references.tolist() == torch.arange(12.0).reshape(6, 2).tolist()


def test_proxies_are_stored_unnormalised_and_move_in_place():
    proxies = ClassProxies(1, 1, 2)
    parameter = proxies.vectors
    proxies.place(torch.tensor([[[30.0, 40.0]]]))
    assert proxies.vectors is parameter
    assert parameter.tolist() == [[[30.0, 40.0]]]


@pytest.mark.parametrize(("b", "proxies", "expected"), [(1, 8, 8), (2, 8, 16), (7, 8, 56), (8, 8, 8), (12, 8, 12)])
def test_pool_size_follows_decision_9(b, proxies, expected):
    assert pool_size(b, proxies) == expected


def test_pool_is_drawn_without_replacement_until_a_class_is_used_up():
    labels = torch.tensor([0, 1, 0, 1, 0, 0, 1, 0])  # five of class 0, three of class 1
    rows = draw_pool(labels, 4, torch.Generator().manual_seed(0))
    assert rows.shape == (2, 4)
    assert (labels[rows] == torch.tensor([[0], [1]])).all()
    assert len(set(rows[0].tolist())) == 4
    assert set(rows[1].tolist()) == {1, 3, 6}  # all three, one of them twice


def test_pool_depends_on_the_generator_alone():
    labels = torch.arange(10).repeat(20)
    draws = [draw_pool(labels, 5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_proxies_by_need_take_a_pool_in_chunks():
    pool = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(0))
    proxies = ClassProxies(3, 2, 2, slots=4)
    whole, chunks = (
        proxies.choose_from(given, None, "raw", torch.Generator().manual_seed(1))
        for given in (pool, iter([pool[:2], pool[2:]]))
    )
    assert torch.equal(chunks.vectors, whole.vectors)
    assert torch.equal(chunks.counts, whole.counts)


def test_a_program_may_make_any_device_the_default():
    labels, pool = torch.arange(6) // 2, torch.randn(3, 4, 2)
    rows, taken = draw_pool(labels, 4, torch.Generator().manual_seed(0)), greedy_k_center(pool, None, 2)
    with torch.device("meta"):  # stands for a GPU: whatever is made there by mistake fits nothing here
        assert torch.equal(draw_pool(labels, 4, torch.Generator().manual_seed(0)), rows)
        assert torch.equal(greedy_k_center(pool, None, 2), taken)


def test_reselection_takes_the_points_farthest_from_the_previous_proxies():
    pool = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.9, 0.0], [0.0, 0.5]]])
    previous = torch.tensor([[[0.0, 0.1]]])
    chosen = choose(pool, previous, per_class=2)
    assert chosen.vectors.tolist() == [[[1.0, 0.0], [0.0, 0.5]]]


def test_covering_radius_is_measured_where_the_loss_measures():
    pool = torch.tensor([[[3.0, 0.0], [0.0, 4.0], [5.0, 0.0]]])
    chosen = choose(pool, torch.tensor([[[4.0, 0.0]]]), per_class=1)
    assert chosen.vectors.tolist() == [[[0.0, 4.0]]]
    expected = (clip_normalise(pool[0]) - torch.tensor([0.0, 1.0])).norm(dim=1).max()
    assert chosen.covering_radius == pytest.approx(float(expected))


def test_space_decides_which_point_is_far():
    pool = torch.tensor([[[9.0, 0.0], [0.0, 1.0]]])  # far along the same direction, or in another one
    previous = torch.tensor([[[1.0, 0.0]]])
    assert choose(pool, previous, 1, space="raw").vectors.tolist() == [[[9.0, 0.0]]]
    assert choose(pool, previous, 1, space="normalised").vectors.tolist() == [[[0.0, 1.0]]]


def test_spread_is_the_distance_between_the_normalised_proxies_of_a_class():
    proxies = ClassProxies(2, 2, 2)
    proxies.place(torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[0.5, 0.0], [0.1, 0.0]]]))
    assert proxies.spread() == pytest.approx((2**0.5 + 0.4) / 2)
    proxies.place(torch.tensor([[[3.0, 0.0], [4.0, 0.0]], [[0.5, 0.0], [0.5, 0.0]]]))
    assert proxies.spread() == 0  # coalesced, as far as the loss can tell


def spread_out():
    """A wide class and a narrow one, five points each on a line."""
    wide = torch.tensor([[0.0], [0.2], [0.4], [0.6], [0.8]])
    return torch.stack([wide, 0.1 * wide])


def test_by_need_the_wide_class_gets_the_proxies_of_the_narrow_one():
    pool = spread_out()
    chosen = choose(pool, None, per_class=2, slots=4)
    assert chosen.counts.tolist() == [3, 1]
    assert chosen.vectors[0, :3].flatten().tolist() == pytest.approx([0.0, 0.8, 0.4])
    assert chosen.taken[1].tolist() == [0, 0, 0, 0], "slots without a use repeat the first"
    assert chosen.covering_radius == pytest.approx((0.2 + 0.08) / 2)
    equal = choose(pool, None, per_class=2)
    assert equal.covering_radius == pytest.approx((0.4 + 0.04) / 2)
    assert equal.counts is None


def test_each_class_keeps_one_proxy_and_none_gets_more_than_there_is_room_for():
    radii = torch.tensor([[9.0, 8.0, 7.0], [3.0, 2.0, 1.0], [3.0, 2.5, 0.0]])
    assert share_out(radii, 3).tolist() == [1, 1, 1]
    assert share_out(radii, 5).tolist() == [3, 1, 1]
    assert share_out(radii, 6).tolist() == [3, 2, 1]  # of equals, the first
    assert share_out(radii, 8).tolist() == [3, 2, 3]


def test_only_slots_in_use_are_references_learn_and_are_saved():
    proxies = ClassProxies(2, 2, 1, slots=4)
    chosen = choose(spread_out(), None, per_class=2, slots=4)
    proxies.place(chosen.vectors, chosen.counts)
    references, labels = proxies()
    assert references.flatten().tolist() == pytest.approx([0.0, 0.8, 0.4, 0.0])
    assert labels.tolist() == [0, 0, 0, 1]
    assert proxies.spread() == pytest.approx((0.8 + 0.4 + 0.4) / 3)
    references.sum().backward()
    assert proxies.vectors.grad.flatten().tolist() == [1, 1, 1, 0, 1, 0, 0, 0]
    with torch.no_grad():
        proxies.vectors[:, 0] += 1  # as training does, which moves only what is in use
    assert proxies.present()[1].flatten().tolist() == [1, 1, 1, 1]
    again = ClassProxies(2, 2, 1, slots=4)
    again.load_state_dict(proxies.state_dict())
    assert again()[0].tolist() == proxies()[0].tolist()
    assert "used" not in ClassProxies(2, 2, 1).state_dict(), "checkpoints of earlier versions must fit"


def test_proxies_of_unit_length_keep_their_direction():
    proxies = ClassProxies(1, 2, 2, length="unit")
    proxies.place(torch.tensor([[[30.0, 40.0], [0.0, 0.1]]]))
    torch.testing.assert_close(proxies.vectors.detach(), torch.tensor([[[0.6, 0.8], [0.0, 1.0]]]))


def test_proxies_of_unit_length_are_measured_where_they_are():
    pool = torch.tensor([[[0.1, 0.0], [0.0, 0.1]]])
    for given in (pool, [pool]):
        chosen = choose(given, None, 2, length="unit")
        assert chosen.covering_radius == pytest.approx(0.9)  # from the sphere to where the images are


def test_one_learning_rate_turns_unit_proxies_equally_fast_whatever_the_scale():
    turned = {}
    for length in ("embedded", "unit"):
        for scale in (1.0, 20.0):
            proxies = ClassProxies(1, 1, 2, length)
            proxies.place(scale * torch.tensor([[[1.0, 0.0]]]))
            optimizer = torch.optim.Adam(proxies.parameters(), lr=0.01)
            (clip_normalise(proxies.vectors)[..., 1].sum()).backward()
            optimizer.step()
            x, y = proxies.vectors.detach().flatten().tolist()
            turned[length, scale] = -y / x
    assert turned["unit", 20.0] == pytest.approx(turned["unit", 1.0], rel=1e-5)
    assert turned["embedded", 20.0] == pytest.approx(turned["embedded", 1.0] / 20, rel=1e-2)


def test_selection_tells_which_images_were_taken():
    pool = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.9, 0.0], [0.0, 0.5]]])
    assert choose(pool, torch.tensor([[[0.0, 0.1]]]), per_class=2).taken.tolist() == [[1, 3]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            torch.tensor([3, 3, 7, 7]),
            r"0 to C-1 without a gap, and these are 2 classes between 3 and 7.*return_inverse",
        ),
        (torch.tensor([0, 0, 2, 2]), "2 classes between 0 and 2"),
        (torch.tensor([-1, 0, 1]), "3 classes between -1 and 1"),
        (torch.tensor([0.0, 1.0]), r"whole numbers \(N,\), not \(2,\) of torch.float32"),
        (torch.zeros(2, 2, dtype=torch.int64), r"not \(2, 2\)"),
        (torch.zeros(0, dtype=torch.int64), r"not \(0,\)"),
    ],
)
def test_a_pool_needs_numbered_classes(labels, message):
    with pytest.raises(UserError, match=message):
        draw_pool(labels, 2, torch.Generator())


def test_proxies_do_not_move_to_a_pool_of_other_classes():
    with pytest.raises(UserError, match=r"2 x 2 x 4 vectors .* do not fit 3 x 2 x 4 proxies"):
        ClassProxies(3, 2, 4).place(torch.zeros(2, 2, 4))


@pytest.mark.parametrize("with_previous", [False, True])
@pytest.mark.parametrize("space", ["raw", "normalised"])
def test_a_pool_in_chunks_is_chosen_from_like_a_whole_one(with_previous, space):
    draw = torch.Generator().manual_seed(3)
    pool = 2 * torch.randn(23, 6, 5, generator=draw)
    previous = torch.randn(23, 2, 5, generator=draw) if with_previous else None
    whole, chunked = (
        choose(given, previous, 3, space=space, generator=torch.Generator().manual_seed(0))
        for given in (pool, pool.split(4))
    )
    assert torch.equal(chunked.taken, whole.taken)
    assert torch.equal(chunked.vectors, whole.vectors)
    assert chunked.covering_radius == whole.covering_radius
    with pytest.raises(ValueError, match="23 classes, but there are proxies of 24"):
        ClassProxies(24, 3, 5).choose_from(iter(pool.split(4)), None)
    with pytest.raises(ValueError, match="23 classes or more, but there are proxies of 22"):
        ClassProxies(22, 3, 5).choose_from(iter(pool.split(4)), None)


class OneOf(Processes):
    """One of several processes, the others of which are not there: its sums are its own part of them."""

    def __init__(self, rank, count):
        self.rank, self.count = rank, count


def test_processes_share_the_proxies_by_ranges_of_classes():
    vectors = torch.randn(5, 2, 3)
    whole = ClassProxies(5, 2, 3)
    whole.place(vectors)
    parts = [ClassProxies(5, 2, 3, holders=OneOf(rank, 3)) for rank in range(3)]
    for part in parts:
        part.place(vectors[part.own])
    for found, expected in zip(zip(*(part() for part in parts), strict=True), whole(), strict=True):
        assert torch.equal(torch.cat(found), expected)
    positions = torch.tensor([9, 0, 4, 3, 7])
    sums = sum(part.look_up(part.vectors, positions) for part in parts)
    assert torch.equal(sums, vectors.flatten(0, 1)[positions])
    assert sum(part.spread() for part in parts) == pytest.approx(whole.spread(), rel=1e-6)
    with pytest.raises(ValueError, match="cannot be divided"):
        ClassProxies(5, 2, 3, slots=4, holders=OneOf(0, 2))


@pytest.mark.parametrize("has_previous", [False, True])
def test_each_of_several_processes_chooses_what_one_would_choose_for_its_classes(has_previous):
    pool, previous = torch.randn(11, 6, 4), torch.randn(11, 2, 4) if has_previous else None

    def seeded():
        return torch.Generator().manual_seed(5)

    whole = choose(pool, previous, 2, generator=seeded())
    for rank in range(3):
        one = OneOf(rank, 3)
        own = one.share_of(11)
        before = None if previous is None else previous[own]
        part = ClassProxies(11, 2, 4, holders=one).choose_from(iter(pool[own].split(2)), before, "raw", seeded())
        assert torch.equal(part.vectors, whole.vectors[own])
        assert torch.equal(part.taken, whole.taken[own])


def test_words_and_numbers_that_mean_nothing_are_refused():
    for wrong in ({"length": "units"}, {"normalise": "L2"}):
        with pytest.raises(ValueError, match=f"got .*{next(iter(wrong.values()))}"):
            ClassProxies(2, 2, 1, **wrong)
    for sizes in ((0, 2, 1), (2, 0, 1), (2, 2, 0)):
        with pytest.raises(ValueError, match="at least one class, one proxy of each and one dimension"):
            ClassProxies(*sizes)
    with pytest.raises(ValueError, match="1 slots do not hold the 2 proxies"):
        ClassProxies(2, 2, 1, slots=1)
    with pytest.raises(ValueError, match="need `counts`"):
        ClassProxies(2, 2, 1, slots=4).place(torch.zeros(2, 4, 1))


def test_a_single_proxy_of_a_class_is_no_distance_apart():
    assert ClassProxies(3, 1, 2).spread() == 0.0


def test_truth_values_are_no_labels():
    with pytest.raises(ValueError, match=r"whole numbers .* not .* of torch\.bool"):
        draw_pool(torch.tensor([True, False]), 1, torch.Generator())


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (torch.zeros(6, 1), r"not one of shape \(6, 1\)"),
        (torch.zeros(2, 3, 1).numpy(), "not a ndarray"),
        (list(torch.zeros(2, 3, 1)), r"not one of shape \(3, 1\)"),
        (torch.zeros(2, 3, 1), "3 images of each class, from which 4 proxies cannot be chosen"),
        (iter([torch.zeros(2, 3, 1)]), "3 images of each class, from which 4 proxies cannot be chosen"),
    ],
)
def test_what_is_no_pool_is_named(pool, message):
    with pytest.raises(ValueError, match=message):
        ClassProxies(2, 4, 1).choose_from(pool, None, "raw", torch.Generator())


@pytest.mark.parametrize("chunks", [False, True])
def test_a_pool_may_be_on_another_device_than_the_previous_proxies(chunks, monkeypatch):
    seen = []

    def stop(pool, previous, *_, **__):
        seen.append((pool.device.type, previous.device.type))
        raise StopAsyncIteration

    monkeypatch.setattr("ccp_dml.proxies.greedy_k_center", stop)  # "meta" has no numbers to choose by
    pool = torch.zeros(2, 3, 1, device="meta")
    with pytest.raises(StopAsyncIteration):
        ClassProxies(2, 2, 1).choose_from([pool] if chunks else pool, torch.zeros(2, 2, 1), "raw", torch.Generator())
    assert seen == [("meta", "meta")]


def test_labels_of_a_pool_are_a_tensor():
    with pytest.raises(UserError, match="labels must be a tensor, not list"):
        draw_pool([0, 1], 1, torch.Generator())
    with pytest.raises(UserError, match="labels must be a tensor, not list: it holds names; number them"):
        draw_pool(["wren", "owl"], 1, torch.Generator())
