"""A threshold read from a certificate, and what is said about it."""

import pytest
from support.stand_in_model import made_up_certificate

from ccp_dml.errors import UserError
from ccp_dml.serving.match_threshold import match_threshold


def test_without_a_rate_it_is_the_certified_one():
    certificate = made_up_certificate()
    for rate in (None, 0.01):
        found = match_threshold(certificate, rate, "birds")
        assert (found.beta, found.false_match_rate) == (0.1, 0.01)
        assert found.promise.startswith("This distance was chosen on validation classes so that at most 1 % of pairs")
        assert "on test classes it matched 1.20 % falsely (95 % interval" in found.promise


@pytest.mark.parametrize(("asked", "used"), [(0.1, 0.1), (0.12, 0.1), (1.0, 1.0), (0.001, 0.001)])
def test_another_rate_takes_the_largest_known_that_is_no_higher(asked, used):
    found = match_threshold(made_up_certificate(), asked, "birds")
    assert found.false_match_rate == pytest.approx(used)
    assert found.beta == pytest.approx(used**0.5)
    assert "as measured on validation classes" in found.promise


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(UserError, match="is no false-match rate: give one between 0 and 1"):
        match_threshold(made_up_certificate(), rate, "birds")


def test_a_rate_below_all_that_is_known_is_refused():
    with pytest.raises(UserError, match=r"of birds has too few pairs .* of 1e-06: the lowest it knows is 0.001"):
        match_threshold(made_up_certificate(), 1e-6, "birds")
    empty = made_up_certificate()
    empty["sets"]["validation"]["trade_off"] = []
    with pytest.raises(UserError, match="its curve is empty"):
        match_threshold(empty, 0.1, "birds")


def test_a_model_without_a_threshold_says_why():
    with pytest.raises(UserError, match=r"birds has no certificate, .* write one with `ccp certify RUN`"):
        match_threshold(None, None, "birds")
    without = made_up_certificate() | {"threshold": None}
    for drawn, why in ((9, "the validation images are all of one class"), (3, "ask for more --pairs")):
        without["sets"]["validation"] |= {"images": drawn, "of_images": 9}
        with pytest.raises(UserError, match=f"{why}. So birds cannot tell same from different"):
            match_threshold(without, 0.1, "birds")
