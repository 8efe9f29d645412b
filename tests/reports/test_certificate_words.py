"""A certificate in sentences and rows, the same on pages and on the terminal."""

from io import StringIO

import pytest
from rich.console import Console
from support.made_up_certificates import certificate_of

from ccp_dml.commands.console import AS_IT_IS
from ccp_dml.reports import certificate_words


def test_what_is_missing_is_said() -> None:
    certificate = certificate_of(0.4)
    certificate["threshold"], certificate["selected_on"] = None, "test"
    certificate["constraint"]["alpha"] = None
    certificate["hold_out"] = "images"
    assert "No threshold could be chosen" in certificate_words.threshold_text(certificate)
    assert "no Markov bound (give one with --alpha)" in certificate_words.constraint_text(certificate)
    assert any("selected on the test classes" in note for note in certificate_words.notes(certificate))
    assert certificate_words.set_names(certificate)["validation"] == "held-out images"


def test_classes_that_were_not_drawn_are_not_denied() -> None:
    certificate = certificate_of(0.4)
    certificate["threshold"], part = None, certificate["sets"]["validation"]
    part["images"], part["of_images"] = 6, 600
    said = certificate_words.threshold_text(certificate)
    assert "the 6 of 600 validation images that were drawn are all of one class; ask for more --pairs" in said
    part["images"] = 600
    assert "as the validation images are all of one class." in certificate_words.threshold_text(certificate)


def test_c1_says_how_far_its_scale_is_the_one_that_was_trained() -> None:
    certificate = certificate_of(0.4)
    certificate["constraint"]["scale"] = "half squared distance"
    assert not any("unit length" in note for note in certificate_words.notes(certificate))
    certificate["sets"]["test"]["unit_length"] = 0.25
    assert any(note.startswith("25.0 % of the test embeddings") for note in certificate_words.notes(certificate))


def test_a_bound_that_bounds_nothing_is_called_so() -> None:
    def promises_nothing(spread: float) -> bool:
        return any("promises nothing" in note for note in certificate_words.notes(certificate_of(spread)))

    assert promises_nothing(3.0)
    assert not promises_nothing(0.05)


def test_rows_are_the_numbers_of_the_certificate() -> None:
    certificate = certificate_of(0.4)
    rows = list(certificate_words.violation_rows(certificate))
    test = certificate["sets"]["test"]
    assert len(rows) % 3 == 0, "each statement is made about training, validation and test"
    shown = " ".join(str(row) for row in rows)
    assert certificate_words.interval_text(test["misses"]["by_images"]) in shown
    radii = list(certificate_words.covering_rows(certificate))
    assert len(radii) == 3


def test_the_sentences_name_threshold_and_confidence() -> None:
    certificate = certificate_of(0.4)
    assert certificate_words.threshold_text(certificate).startswith("To match at most 2")
    assert "beta = 0.6" in certificate_words.constraint_text(certificate)
    assert "90 %" in certificate_words.confidence_text(certificate)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.5, 0.75, "95 % interval 0.5 to 0.75"),
        (None, 0.75, "at most 0.75 with 95 % confidence; the pairs are too few for the other end"),
        (0.5, None, "at least 0.5 with 95 % confidence; the pairs are too few for the other end"),
        (None, None, "the pairs are too few for an interval"),
    ],
)
def test_an_end_that_few_pairs_cannot_bound_is_named(low: float | None, high: float | None, said: str) -> None:
    assert certificate_words.distance_interval_text({"low": low, "high": high}, "95 %") == said


def test_nothing_is_cut_on_a_terminal_of_80_columns() -> None:
    certificate = certificate_of(0.4)
    screen = Console(width=80, file=StringIO(), **AS_IT_IS)  # as the commands print
    with screen.capture() as captured:
        for part in certificate_words.certificate_tables(certificate):
            screen.print(part)
    printed = captured.get()
    assert "\u2026" not in printed
    assert "[" not in printed, "markup would be printed as it is"
    for row in certificate_words.violation_rows(certificate):
        assert all(cell in printed for cell in (row.group, row.estimate, row.of_images, row.of_classes, row.bound))
        assert f"{row.image_pairs} pairs" in printed
    for covered in certificate_words.covering_rows(certificate):
        assert covered.mean in printed
