"""Who represents a class in which batch, as the sampler hands them out and as loaders prepare them."""

from collections import Counter

import pytest
import torch

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import TrainingBatches
from ccp_dml.data.representatives import Representatives
from ccp_dml.data.sampler import ClassBalancedBatches

SIZES = [9, 7, 8, 12, 6, 1]
LENGTH = 5  # batches of a problem; an epoch has 3 of 12, so that problems begin anywhere in it


def shuffled_labels() -> torch.Tensor:
    """Labels that do not begin at 0, have a gap and come in no order."""
    labels = torch.repeat_interleave(torch.tensor([3, 4, 7, 8, 9, 20]), torch.tensor(SIZES))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


LABELS = shuffled_labels()


def sampler_of(seed: int = 1, rank: int = 0, world_size: int = 1, *, represented: bool = True) -> ClassBalancedBatches:
    representatives = Representatives(LABELS, LENGTH, seed) if represented else None
    return ClassBalancedBatches(LABELS, 3, 4, 0, rank, world_size, representatives)


def first_batches(sampler: ClassBalancedBatches, count: int) -> list[torch.Tensor]:
    return [sampler.batch(number // len(sampler), number % len(sampler)) for number in range(count)]


def leaders(rows: torch.Tensor) -> dict[int, int]:
    """The first row of each class in a batch, by label."""
    first = rows.view(3, 4)[:, 0]
    return dict(zip(LABELS[first].tolist(), first.tolist(), strict=True))


def test_a_class_is_led_by_the_same_image_in_all_batches_of_a_problem_and_by_another_in_the_next():
    batches = first_batches(sampler_of(), 12 * LENGTH)
    seen: dict[tuple[int, int], set[int]] = {}
    for number, rows in enumerate(batches):
        for label, row in leaders(rows).items():
            seen.setdefault((number // LENGTH, label), set()).add(row)
    assert all(len(rows) == 1 for rows in seen.values())
    compared = 0
    for (problem, label), rows in seen.items():
        if label != 20 and (problem + 1, label) in seen:  # that class has one image only
            assert rows != seen[problem + 1, label]
            compared += 1
    assert compared > 20


def test_the_rows_told_for_a_problem_are_those_that_lead_its_batches():
    found, everybody = Representatives(LABELS, LENGTH, seed=1), torch.arange(6)
    assert [found.problem_of(batch) for batch in (0, 4, 5, 9, 10)] == [1, 1, 2, 2, 3]
    for number, rows in enumerate(first_batches(sampler_of(), 40)):
        chosen = found.rows_of(everybody, found.problem_of(number))
        assert leaders(rows).items() <= dict(zip(LABELS[chosen].tolist(), chosen.tolist(), strict=True)).items()


def test_every_image_represents_its_class_once_before_any_does_again():
    found = Representatives(LABELS, LENGTH, seed=1)
    for place, (label, size) in enumerate(zip([3, 4, 7, 8, 9, 20], SIZES, strict=True)):
        rows = [int(found.rows_of(torch.tensor([place]), problem)) for problem in range(1, 2 * size + 1)]
        assert Counter(rows) == dict.fromkeys((label == LABELS).nonzero().flatten().tolist(), 2)
        assert rows[:size] == rows[size:]


def test_a_batch_keeps_its_classes_and_all_of_its_images_but_one_per_class():
    plain = first_batches(sampler_of(represented=False), 40)
    for rows, dealt in zip(first_batches(sampler_of(), 40), plain, strict=True):
        assert torch.equal(LABELS[rows], LABELS[dealt])
        for hand, before in zip(rows.view(3, 4).tolist(), dealt.view(3, 4).tolist(), strict=True):
            if LABELS[hand[0]] != 20:
                assert len(set(hand)) == 4, "a representative that was dealt anyway must not come twice"
            expected = set(before) if hand[0] in before else {hand[0], *before[1:]}
            assert set(hand) == expected


def test_others_still_come_about_equally_often():
    counts = Counter(
        row for rows in first_batches(sampler_of(), 3000) for row in rows.view(3, 4)[:, 1:].flatten().tolist()
    )
    for label, size in zip([3, 4, 7, 8, 9], SIZES, strict=False):
        of_class = [counts[row] for row in (label == LABELS).nonzero().flatten().tolist()]
        assert len(of_class) == size
        assert max(of_class) < 1.2 * min(of_class)


def test_seed_and_batch_number_decide_alone():
    batches = first_batches(sampler_of(), 30)
    backwards = sampler_of()
    again = [backwards.batch(number // len(backwards), number % len(backwards)) for number in reversed(range(30))]
    assert all(map(torch.equal, reversed(again), batches))
    assert not all(map(torch.equal, first_batches(sampler_of(seed=2), 30), batches))
    plain = sampler_of(represented=False)
    before = plain.batch(0, 0).clone()
    plain.representatives = Representatives(LABELS, LENGTH, 1)
    plain.batch(0, 0)
    plain.representatives = None
    assert torch.equal(plain.batch(0, 0), before), "what was planned must not be changed"


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_ranks_share_the_same_global_batch(world_size):
    """With six ranks the images of a class are on two of them."""
    whole = first_batches(sampler_of(), 20)
    parts = [first_batches(sampler_of(rank=rank, world_size=world_size), 20) for rank in range(world_size)]
    assert all(torch.equal(torch.cat(joined), rows) for *joined, rows in zip(*parts, whole, strict=True))


def loaded(count: int, workers: int, start: int = 0) -> list[list[int]]:
    """The rows of batches as a loader hands them out."""
    source = FeatureRows(torch.arange(len(LABELS)).float().unsqueeze(1))
    data = LabelledSet(source, torch.arange(len(LABELS)), LABELS, tuple(map(str, range(21))))
    sampler = sampler_of()
    batches = TrainingBatches(data, sampler, 0, workers)
    batches.load_state_dict({"epoch": start // len(sampler), "position": start % len(sampler)})
    found = [next(batches)[0].flatten().long().tolist() for _ in range(count)]
    batches.close()
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", [0, LENGTH - 1, LENGTH, 3 * LENGTH + 2])
def test_loaders_that_work_ahead_and_resumed_ones_change_representatives_at_the_same_batch(workers, start):
    expected = [rows.tolist() for rows in first_batches(sampler_of(), start + 2 * LENGTH)]
    assert loaded(2 * LENGTH, workers, start) == expected[start:]
