from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from ccp_dml.data.sampler import ClassBalancedBatches, Decks
from ccp_dml.errors import UserError


def labels_of_sizes(sizes: list[int]) -> torch.Tensor:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


class OneDeck:
    def __init__(self, cards, generator):
        self.decks = Decks(torch.tensor(cards), torch.tensor([len(cards)]), generator)

    def deal(self, count):
        return self.decks.deal(0, count)


def rest_of_epoch(sampler: ClassBalancedBatches) -> Iterator[torch.Tensor]:
    epoch = sampler.epoch
    while sampler.epoch == epoch:
        rows = sampler.batch(epoch, sampler.position)
        sampler.advance()
        yield rows


def rows_of(sampler: ClassBalancedBatches) -> list[list[int]]:
    return [rows.tolist() for rows in rest_of_epoch(sampler)]


def test_deck_deals_every_card_once_before_any_comes_again():
    deck = OneDeck([10, 11, 12, 13, 14, 15, 16], torch.Generator().manual_seed(0))
    dealt = [card for _ in range(7) for card in deck.deal(3)]
    for end in range(1, 22):
        counts = Counter(dealt[:end])
        assert max(counts.values()) - min(counts[card] for card in range(10, 17)) <= 1
    assert Counter(dealt) == dict.fromkeys(range(10, 17), 3)


def test_deck_hands_that_span_two_decks_hold_no_card_twice():
    deck = OneDeck(list(range(5)), torch.Generator().manual_seed(1))
    for _ in range(200):
        assert len(set(deck.deal(4))) == 4


def test_deck_smaller_than_a_hand_repeats_evenly():
    deck = OneDeck([0, 1, 2], torch.Generator().manual_seed(0))
    for _ in range(30):
        counts = Counter(deck.deal(4))
        assert set(counts) == {0, 1, 2}
        assert max(counts.values()) == 2


def test_batches_are_classes_by_images():
    labels = labels_of_sizes([9, 7, 8, 12, 6])
    sampler = ClassBalancedBatches(labels, classes_per_batch=3, images_per_class=4, seed=0)
    for rows in rest_of_epoch(sampler):
        assert rows.shape == (12,)
        assert len(set(rows.tolist())) == 12
        by_class = labels[rows].view(3, 4)
        assert (by_class == by_class[:, :1]).all()
        assert len(by_class[:, 0].unique()) == 3


def test_length_is_about_one_pass_and_at_least_one_batch():
    assert len(ClassBalancedBatches(labels_of_sizes([10, 10, 9]), 2, 3, seed=0)) == 29 // 6
    assert len(ClassBalancedBatches(labels_of_sizes([1, 1, 1]), 3, 4, seed=0)) == 1


def test_classes_come_equally_often_within_an_epoch():
    labels = labels_of_sizes([40] * 7)
    counts: Counter[int] = Counter()
    for rows in rest_of_epoch(ClassBalancedBatches(labels, 3, 2, seed=5)):
        counts.update(labels[rows][::2].tolist())
        assert max(counts.values()) - min(counts[c] for c in range(7)) <= 1
    assert sum(counts.values()) == 46 * 3


def test_images_come_without_replacement_until_the_class_is_used_up():
    labels = labels_of_sizes([12, 12])
    sampler = ClassBalancedBatches(labels, 2, 3, seed=3)
    assert len(sampler) == 4
    seen = [row for rows in rows_of(sampler) for row in rows]
    assert sorted(seen) == list(range(24))


def test_epochs_differ_and_depend_on_seed_and_epoch_alone():
    labels = labels_of_sizes([8] * 6)
    sampler = ClassBalancedBatches(labels, 3, 2, seed=1)
    first, second = rows_of(sampler), rows_of(sampler)
    assert first != second
    again = ClassBalancedBatches(labels, 3, 2, seed=1)
    again.load_state_dict({"epoch": 1, "position": 0})
    assert rows_of(again) == second
    assert rows_of(ClassBalancedBatches(labels, 3, 2, seed=2)) != first


def test_global_random_state_is_neither_read_nor_changed():
    labels = labels_of_sizes([8] * 6)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = rows_of(ClassBalancedBatches(labels, 3, 2, seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert rows_of(ClassBalancedBatches(labels, 3, 2, seed=1)) == first


@pytest.mark.parametrize("stop", [0, 3, 8])
def test_restored_sampler_goes_on_with_the_batch_that_would_have_come(stop):
    labels = labels_of_sizes([8] * 6)
    sampler = ClassBalancedBatches(labels, 3, 2, seed=1)
    assert len(sampler) == 8
    expected = rows_of(sampler) + rows_of(sampler)

    interrupted = ClassBalancedBatches(labels, 3, 2, seed=1)
    for _ in range(stop):
        interrupted.advance()
    state = interrupted.state_dict()
    assert state == {"epoch": stop // 8, "position": stop % 8}

    restored = ClassBalancedBatches(labels, 3, 2, seed=1)
    restored.load_state_dict(state)
    assert rows_of(restored) == expected[stop : 8 if stop < 8 else 16]


def test_small_classes_repeat_images_and_are_reported():
    labels = torch.tensor([4, 4, 4, 4, 7, 9, 9, 9])
    sampler = ClassBalancedBatches(labels, 3, 4, seed=0)
    assert sampler.small_classes == {7: 1, 9: 3}
    (rows,) = rows_of(sampler)
    assert Counter(labels[rows].tolist()) == {4: 4, 7: 4, 9: 4}
    assert {5, 6, 7} < set(rows)
    assert rows.count(4) == 4


def test_ranks_share_out_whole_classes_of_the_same_global_batch():
    labels = labels_of_sizes([8] * 8)
    whole = ClassBalancedBatches(labels, 4, 3, seed=1)
    parts = [ClassBalancedBatches(labels, 4, 3, seed=1, rank=rank, world_size=2) for rank in range(2)]
    assert len(parts[0]) == len(whole)
    for rows, left, right in zip(*map(rest_of_epoch, (whole, *parts)), strict=True):
        assert torch.equal(torch.cat([left, right]), rows)
        assert not set(labels[left].tolist()) & set(labels[right].tolist())


def test_ranks_share_rows_where_classes_do_not_divide():
    whole = ClassBalancedBatches(labels_of_sizes([8] * 8), 4, 3, seed=1).batch(0, 0)
    parts = [ClassBalancedBatches(labels_of_sizes([8] * 8), 4, 3, seed=1, rank=rank, world_size=6) for rank in range(6)]
    assert torch.equal(torch.cat([part.batch(0, 0) for part in parts]), whole)


def test_a_batch_that_ranks_cannot_share_is_an_error():
    with pytest.raises(UserError, match=r"`classes_per_batch`=4 times `images_per_class`=3 .* among 5 processes"):
        ClassBalancedBatches(labels_of_sizes([8] * 8), 4, 3, seed=1, rank=0, world_size=5)


def test_too_few_classes_are_an_error_that_names_the_setting():
    with pytest.raises(UserError, match=r"`classes_per_batch`=8 .* only 5: lower it to 5"):
        ClassBalancedBatches(labels_of_sizes([8] * 5), 8, 4, seed=0)


class Deck:
    """One deck of cards, the plain way."""

    def __init__(self, cards, generator):
        self.cards, self.generator, self.left = cards, generator, []

    def deal(self, count):
        hand = self.left[-count:]
        del self.left[-count:]
        while missing := count - len(hand):
            fresh = [self.cards[i] for i in torch.randperm(len(self.cards), generator=self.generator).tolist()]
            dealt = sorted(fresh, key=set(hand).__contains__)[:missing]
            hand += dealt
            self.left = [card for card in fresh if card not in set(dealt)]
        return hand


def test_many_decks_in_one_array_deal_like_so_many_decks():
    sizes = torch.tensor([1, 5, 2, 7])
    cards = torch.randperm(15, generator=torch.Generator().manual_seed(3))
    together = Decks(cards, sizes, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    apart = [Deck(some.tolist(), generator) for some in cards.split(sizes.tolist())]
    draw = torch.Generator().manual_seed(1)
    for _ in range(200):
        deck, count = (int(torch.randint(least, most, (), generator=draw)) for least, most in ((0, 4), (1, 10)))
        assert together.deal(deck, count) == apart[deck].deal(count)


@pytest.mark.parametrize(
    ("labels", "classes", "images", "told"),
    [
        (torch.arange(6), 0, 2, "`classes_per_batch`=0"),
        (torch.arange(6), 2, -1, "`images_per_class`=-1"),
        (torch.arange(6).view(3, 2), 2, 2, r"shape \(3, 2\)"),
        (torch.arange(0), 1, 1, r"shape \(0,\)"),
    ],
)
def test_batches_of_nothing_are_refused(labels, classes, images, told):
    with pytest.raises(ValueError, match=told):
        ClassBalancedBatches(labels, classes, images, seed=0)
