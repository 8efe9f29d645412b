"""Losses against references of which each process has a part, against the same in one process."""

import pytest
import torch
from support.collective_cases import losses_against_divided_proxies
from support.many_processes import in_processes

from ccp_dml.foundation.process_group import Processes
from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss

CASES = {
    "c1": CosineContrastiveLoss(0.3),
    "c2": ContrastiveLoss(0.1, 0.9),
    "ms": MultiSimilarityLoss(2.0, 10.0, 0.3),
    "ms, large exponents": MultiSimilarityLoss(200.0, 4000.0, 0.1),
    "triplet": TripletLoss(0.2),
    "triplet, proxies as anchors": TripletLoss(0.2, references_as_anchors=True),
    "nothing active": ContrastiveLoss(0.0, 1e-9),
}


def reference_set(count, per_class, seed, classes=12):
    """A batch of 8 in four classes, and `count` references of `classes`, by `per_class` or in no order."""
    draw = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(8, 5, generator=draw, dtype=torch.float64)
    labels = torch.tensor([0, 0, 3, 3, 7, 7, 11, 11])
    references = torch.randn(count, 5, generator=draw, dtype=torch.float64)
    drawn = torch.randint(classes, (count,), generator=draw)
    return embeddings, labels, references, drawn if per_class is None else torch.arange(count) // per_class


SETS = {
    "proxies": reference_set(24, 2, 1),
    "a class in several parts": reference_set(31, None, 2),
    "a part without positives": reference_set(36, 3, 3),
    "so many that the near ones are searched for": reference_set(30_000, 3, 4),
}


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """What each of three processes finds, by the name of the set."""
    folder, losses = tmp_path_factory.mktemp("divided"), list(CASES.values())
    return {
        name: in_processes(3, folder, losses_against_divided_proxies, losses, references)
        for name, references in SETS.items()
    }


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("case", CASES)
def test_loss_gradients_and_activity_are_those_of_one_process(divided, name, case):
    number = list(CASES).index(case)
    (alone,) = losses_against_divided_proxies([CASES[case]], SETS[name])
    value, of_embeddings, of_references, activity = alone
    found = [answers[number] for answers in divided[name]]
    for answer in found:
        assert_equal_in_twelve_digits(answer[0], value)
        assert_equal_in_twelve_digits(answer[1], of_embeddings)
        assert vars(answer[3]) == pytest.approx(vars(activity), rel=1e-12)
        assert torch.equal(answer[1], found[0][1]), "the processes must go on with the same gradient"
    assert_equal_in_twelve_digits(torch.cat([answer[2] for answer in found]), of_references)


def assert_equal_in_twelve_digits(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()) + 1e-300)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_that_is_its_own_reference_set_is_nobody_elses(case):
    """Every process computes it alone: the holders are not there, and would be asked in vain."""
    embeddings, labels, *_ = SETS["proxies"]
    several = Processes()
    several.count, several.total, several.largest = 3, None, None
    assert torch.equal(CASES[case](embeddings, labels, holders=several), CASES[case](embeddings, labels))


def test_the_cases_feel_their_references():
    for name, references in SETS.items():
        for case, answer in zip(CASES, losses_against_divided_proxies(CASES.values(), references), strict=True):
            assert case == "nothing active" or answer[2].any(), (name, case)
