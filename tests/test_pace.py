import pytest
import torch

from ccp_dml.pace import Drift, Pace, Patience, measure_drift


def test_used_up_after_limit_evaluations_without_improvement():
    patience = Patience(limit=3)
    seen = []
    for score in (0.1, 0.2, 0.2, 0.15, 0.19):
        patience.observe(score)
        seen.append(patience.used_up)
    assert seen == [False, False, False, False, True]


def test_gains_below_the_minimum_do_not_reset_the_count_but_are_still_the_best():
    patience = Patience(limit=3, min_improvement=1e-5)
    assert patience.observe(0.5)
    assert patience.observe(0.5 + 4e-6)
    assert patience.waited == 1
    assert patience.observe(0.5 + 8e-6)
    assert patience.waited == 2
    assert patience.observe(0.5 + 1.2e-5)  # adds up to more than the minimum since the count began
    assert patience.waited == 0
    assert patience.best == 0.5 + 1.2e-5


def test_a_score_that_stays_is_no_improvement_however_small_one_may_be():
    patience = Patience(limit=3, min_improvement=0.0)
    for score in (0.5, 0.5, 0.5, 0.5):
        patience.observe(score)
    assert patience.used_up


def test_without_limit_it_never_ends():
    patience = Patience(limit=None)
    for _ in range(1000):
        patience.observe(0.0)
    assert not patience.used_up


def test_restart_forgets_earlier_scores():
    patience = Patience(limit=1)
    patience.observe(0.9)
    patience.restart()
    assert patience.observe(0.1)
    assert not patience.used_up


def test_state_round_trip():
    patience = Patience(limit=3)
    for score in (0.3, 0.2):
        patience.observe(score)
    other = Patience(limit=3)
    other.load_state_dict(patience.state_dict())
    assert other == patience


@pytest.mark.parametrize(("limit", "gain"), [(-1, 0.0), (0, 0.0), (3, -1.0), (3, float("nan"))])
def test_patience_that_makes_no_sense_is_refused(limit, gain):
    with pytest.raises(ValueError, match="patience"):
        Patience(limit, gain)


def test_drift_is_measured_where_the_loss_measures():
    placed = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    proxies = torch.tensor([[0.0, 2.0], [0.0, 0.6]])
    present = torch.tensor([[0.0, 9.0], [0.0, 0.9]])
    drift = measure_drift(placed, proxies, present)
    assert drift.staleness == pytest.approx((0 + 0.3) / 2)
    assert drift.of_embeddings == pytest.approx((2**0.5 + 0.4) / 2)
    assert drift.of_proxies == pytest.approx((2**0.5 + 0.1) / 2)
    assert measure_drift(placed, proxies, present, "l2").of_proxies == pytest.approx(2**0.5 / 2)  # the second only grew


@pytest.mark.parametrize(
    ("pace", "embeddings", "proxies", "radius", "over"),
    [
        (Pace(behind=0.5), 0.6, 0.1, 1.0, True),
        (Pace(behind=0.5), 0.6, 0.29, 1.0, True),
        (Pace(behind=0.5), 0.6, 0.3, 1.0, False),  # half as far as their images: they keep up
        (Pace(behind=0.5), 0.5, 0.0, 1.0, False),  # nobody has moved much
        (Pace(behind=0.5), 0.5, 0.0, 0.9, True),
        (Pace(behind=0.5), 0.6, 0.0, 0.0, False),  # every image of the pool is a proxy: nothing to measure by
        (Pace(staleness=0.5), 0.6, 0.9, 1.0, True),  # stale, though they moved themselves
        (Pace(), 9.0, 0.0, 1.0, False),
    ],
)
def test_proxies_that_do_not_keep_up_with_their_images_are_left_behind(pace, embeddings, proxies, radius, over):
    drift = Drift(staleness=0.7, of_embeddings=embeddings, of_proxies=proxies)
    assert pace.wants_new_proxies(drift, radius) == over


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"check_every": 0}, {"at_least": -1}, {"staleness": 0.0}, {"behind": 0.0}]
)
def test_a_pace_that_would_never_end_or_never_begin_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pace(**wrong)
