"""The paper's figure of relative improvements."""

import re
from dataclasses import replace

import pytest
from support.made_up_results import built, results

from ccp_dml.benchmark.improvement_figure import VARIANTS, improvement_figure, improvements, write_figure
from ccp_dml.reports.figures.palette import DARK, LIGHT


def test_improvements_are_relative_to_the_plain_loss():
    (found,) = improvements(built(), 0)
    assert (found.base, found.variant) == ("c2", "-ccp")
    assert found.ours == pytest.approx(0.235 / 0.215 - 1)
    assert found.paper == pytest.approx(0.2267 / 0.2101 - 1)
    assert improvements(built(methods=("c2-ccp",)), 0) == []  # nothing to compare with


def test_a_run_that_the_plain_loss_lacks_is_no_gain():
    """The plain loss lacks its best fold, so that its mean is lower; the pairs that are left show no more gain."""
    rows = [row for row in results() if (row.method, row.fold) != ("c2", 3)]
    (found,) = improvements(built(rows), 0)
    assert found.ours == pytest.approx(0.02 / 0.21)


def test_a_gain_is_a_share_of_the_runs_that_it_was_measured_in():
    """CCP has the hardest fold alone, where the plain loss has 0.20; its mean over all folds is 0.215."""
    rows = [row for row in results() if row.method == "c2" or row.fold == 0]
    (found,) = improvements(built(rows), 0)
    assert found.ours == pytest.approx(0.02 / 0.20)


def test_the_figure_is_drawn_when_there_is_something_to_compare(tmp_path):
    assert write_figure(tmp_path, built(methods=("c2-ccp",))) == []
    files = write_figure(tmp_path, built())
    assert [file.name for file in files] == ["improvement.png", "improvement.svg"]
    first = files[1].read_bytes()
    write_figure(tmp_path, built())
    assert files[1].read_bytes() == first  # the same results, the same file


def test_a_panel_compares_each_variant_with_the_paper():
    figure = improvement_figure(built())
    assert [panel.title for panel in figure.panels] == ["128-D, separated", "512-D, concatenated"]
    panel = figure.panels[0]
    assert panel.categories == ["C2"]
    (group,) = panel.groups
    assert group.label == "CCP"
    assert group.values == [pytest.approx(100 * (0.235 / 0.215 - 1))]
    assert group.references == [pytest.approx(100 * (0.2267 / 0.2101 - 1))]
    assert figure.note == ""


def test_a_choice_on_the_test_classes_is_said_below():
    rows = [replace(row, selected_on="test") for row in results()]
    assert "selected on the test classes" in improvement_figure(built(rows)).note


def test_every_variant_has_a_colour_of_its_own():
    for colours in (LIGHT["variants"], DARK["variants"]):
        assert len(set(colours)) >= len(VARIANTS)


def test_on_a_dark_screen_the_figure_is_dark(tmp_path):
    _, drawing = write_figure(tmp_path, built())
    text = drawing.read_text()
    rules = text[text.index("@media screen and (prefers-color-scheme: dark)") : text.index("</style>")]
    used = set(re.findall("(?:fill|stroke): (#[0-9a-f]{6})", text[text.index("</style>") :]))
    assert {"#ffffff", "#000000", LIGHT["variants"][3]} <= used
    for colour in used:
        assert f': {colour}"]' in rules, "matplotlib writes each mark's colour on it, so each needs a rule"
