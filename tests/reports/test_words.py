"""Values as text."""

from collections.abc import Callable
from typing import Any

import pytest

from ccp_dml.evaluation import PairedDifference
from ccp_dml.reports import words
from ccp_dml.reports.words import difference_text, rate


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (1, "100"), (0.1234, "12.3"), (0.0123, "1.23"), (0.00123, "0.12"), (1.2e-5, "0.0012")],  # noqa: RUF001
)
def test_rates_keep_the_digits_that_matter(value: float | None, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (words.percent, 0.1234, "12.3"),
        (words.with_sign, 0.1234, "12.3 %"),
        (words.duration, 59.94, "59.9 s"),
        (words.duration, 174.2, "2 min 54 s"),
        (words.duration, 7384, "2 h 3 min"),
        (words.milliseconds, 0.1042, "104 ms"),
        (words.milliseconds, 0.00123, "1.23 ms"),
        (words.megabytes, 1_234_400_000, "1,234 MB"),
        (words.count, 12345, "12,345"),
        (words.count, 1234.4, "1,234"),
        (words.setting, [0.9, "x"], '[0.9, "x"]'),
        (words.setting, "c2", "c2"),
        (words.setting, True, "true"),
    ],
)
def test_values_are_written_for_people(write: Callable[[Any], str], value: Any, text: str) -> None:
    assert write(value) == text
    assert write(None) == words.MISSING


def test_digits_and_colours_are_chosen_by_the_caller() -> None:
    assert words.percent(0.12345, 2) == "12.35"
    assert words.decimals(0.12345, 3) == "0.123"
    assert words.megabytes(1_250_000, 1) == "1.2 MB"
    assert words.style_class(None) == ""
    assert words.style_class(1) != words.style_class(2) != words.class_colour(2)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"loss.name": "c2", "ccp.mode": "alternating", "ccp.proxies_per_class": 8},
            "C2 with CCP, 8 proxies per class",
        ),
        ({"loss.name": "ms", "ccp.mode": "alternating", "ccp.proxies_per_class": 1}, "MS with CCP, 1 proxy per class"),
        (
            {"loss.name": "c2", "ccp.mode": "one-problem", "ccp.proxies_per_class": 8},
            "C2 with 8 proxies per class, chosen once",
        ),
        (
            {"loss.name": "c2", "ccp.mode": "representatives", "ccp.proxies_per_class": 8},
            "C2 with PROFS, 1 representative per class",
        ),
        ({"loss.name": "triplet", "ccp.mode": "off", "ccp.proxies_per_class": 8}, "triplet alone"),
        ({"loss.name": "c1", "xbm.enabled": True, "xbm.memory_batches": 50}, "C1 with a memory of 50 batches"),
        ({"loss.name": "ms", "metrix.enabled": True}, "MS with mixtures of embeddings"),
        ({}, "unknown loss alone"),
    ],
)
def test_the_method_is_told_in_words(settings: dict[str, Any], text: str) -> None:
    assert words.method_text(settings) == text


def test_one_is_no_plural() -> None:
    assert [words.counted(number, "step") for number in (0, 1, 1200)] == ["0 steps", "1 step", "1,200 steps"]


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (PairedDifference(0.02, (0.01, 0.03), 4), "+2.00 points, 95 % interval +1.00 to +3.00 (Student's t over 4"),
        (PairedDifference(2e-5, (1e-5, 3e-5), 4), "+0.002 points, 95 % interval +0.001 to +0.003 (Student's t over 4"),
        (PairedDifference(2e-5, (-1e-5, 5e-5), 4), "+0.00 points, 95 % interval -0.00 to +0.01 (Student's t over 4"),
        (PairedDifference(0.0, (0.0, 0.0), 4), "the same scores in each of 4 pairs of runs"),
    ],
)
def test_an_interval_that_excludes_zero_is_seen_to(difference: PairedDifference, text: str) -> None:
    assert difference_text(difference).startswith(text)
