"""The distance up to which two images are called the same, read from a certificate, and what it promises."""

from dataclasses import dataclass
from typing import Any

from ccp_dml.errors import UserError
from ccp_dml.reports.certificate_words import Certificate, confidence_text, interval_text, set_names, threshold_text
from ccp_dml.reports.words import rate


@dataclass(frozen=True)
class MatchThreshold:
    """A threshold on distances with its false-match rate on the classes that it was chosen on."""

    beta: float
    false_match_rate: float
    promise: str  # one sentence


def match_threshold(certificate: Certificate | None, false_match_rate: float | None, name: str) -> MatchThreshold:
    """Find the threshold for a rate, or the certificate's own where that is None.

    It is the largest that the certificate knows of whose rate is no higher than the one asked for. `name` is the
    model's, for messages.
    """
    if certificate is None:
        raise UserError(
            f"{name} has no certificate, so that no distance tells same from different: write one with "
            "`ccp certify RUN`, then load or export the run again."
        )
    own = certificate["threshold"]
    if own is None:
        raise UserError(f"{threshold_text(certificate)} So {name} cannot tell same from different.")
    if false_match_rate is None or false_match_rate == own["wanted"]:
        return MatchThreshold(own["beta"], own["wanted"], promise_of_own(certificate))
    if not 0 < false_match_rate <= 1:
        raise UserError(f"{false_match_rate:g} is no false-match rate: give one between 0 and 1, such as 0.01.")
    return from_curve(certificate, false_match_rate, name)


def from_curve(certificate: Certificate, false_match_rate: float, name: str) -> MatchThreshold:
    curve = certificate["sets"]["validation"]["trade_off"]
    known = [point for point in curve if point["wanted"] <= false_match_rate * (1 + 1e-9)]
    if not known:
        lowest = f"the lowest it knows is {curve[0]['wanted']:.2g}" if curve else "its curve is empty"
        raise UserError(
            f"The certificate of {name} has too few pairs to tell about a false-match rate of {false_match_rate:g}: "
            f"{lowest}; ask for a higher one, or certify with more --pairs or on more data."
        )
    reached: dict[str, Any] = max(known, key=lambda point: point["wanted"])["reached"]
    promise = (
        f"At this distance {rate(reached['false_match_rate'])} % of pairs of different classes are matched falsely "
        f"and {rate(reached['miss_rate'])} % of pairs of one class are missed, as measured on "
        f"{set_names(certificate)['validation']}."
    )
    return MatchThreshold(reached["beta"], reached["false_match_rate"], promise)


def promise_of_own(certificate: Certificate) -> str:
    own, sets = certificate["threshold"], certificate["sets"]
    measured = sets["test"]["at_threshold"]
    false, missed = (measured[kind]["by_images"] for kind in ("false_matches", "misses"))
    return (
        f"This distance was chosen on {set_names(certificate)['validation']} so that at most "
        f"{100 * own['wanted']:g} % of pairs of different classes are matched falsely; on test classes it matched "
        f"{rate(false['estimate'])} % falsely ({confidence_text(certificate)} interval {interval_text(false)}) and "
        f"missed {rate(missed['estimate'])} % of pairs of one class ({interval_text(missed)})."
    )
