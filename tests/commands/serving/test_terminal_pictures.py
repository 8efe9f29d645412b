"""Pictures in a terminal: two pixels per cell, and a word where there is nothing to draw."""

import io
import os

import pytest
from PIL import Image
from rich.console import Console

from ccp_dml.cli import main
from ccp_dml.commands.serving import search
from ccp_dml.commands.serving.terminal_pictures import can_show_pictures, terminal_picture


def terminal(**options):
    return Console(file=io.StringIO(), width=200, legacy_windows=False, **options)


@pytest.fixture
def flag(tmp_path):
    """A picture of eight by eight pixels: red above, blue below, with a green corner."""
    image = Image.new("RGB", (8, 8), (255, 0, 0))
    image.paste((0, 0, 255), (0, 4, 8, 8))
    image.putpixel((0, 0), (0, 255, 0))
    image.save(tmp_path / "flag.png")
    return tmp_path / "flag.png"


def colours(picture):
    """Rows of (upper, lower) colours, one pair per cell."""
    rows = [[]]
    for segment in picture.segments:
        if segment.text == "\n":
            rows.append([])
        else:
            assert segment.text == "▀"
            rows[-1].append((tuple(segment.style.color.triplet), tuple(segment.style.bgcolor.triplet)))
    return rows[:-1]


def test_a_cell_shows_two_pixels_one_above_the_other(flag):
    red, green, blue = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    first, *others = colours(terminal_picture(flag))
    assert first == [(green, red), *[(red, red)] * 7]
    assert others == [[(red, red)] * 8, [(blue, blue)] * 8, [(blue, blue)] * 8]


def test_any_size_becomes_a_square_of_cells(tmp_path):
    Image.new("L", (300, 17), 90).save(tmp_path / "wide.png")
    rows = colours(terminal_picture(tmp_path / "wide.png"))
    assert (len(rows), {len(row) for row in rows}) == (4, {8})
    assert rows[0][0] == ((90, 90, 90), (90, 90, 90))


def test_what_cannot_be_drawn_is_said(tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    assert terminal_picture(tmp_path / "text.png").plain == "(unreadable)"
    assert terminal_picture(tmp_path / "gone.png").plain == "(missing)"


def test_a_picture_that_may_not_be_looked_at_is_unreadable(tmp_path, monkeypatch):
    def forbidden(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", forbidden)
    assert terminal_picture(tmp_path / "hidden.png").plain == "(unreadable)"


def test_only_terminals_with_all_colours_get_pictures(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert can_show_pictures(terminal(force_terminal=True, color_system="truecolor"))
    assert not can_show_pictures(terminal(force_terminal=True, color_system="256"))
    assert not can_show_pictures(terminal(force_terminal=False, color_system="truecolor"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not can_show_pictures(terminal(force_terminal=True, color_system="truecolor"))


def test_search_draws_them_beside_each_result(birds, photos, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = terminal(force_terminal=True, color_system="truecolor")
    monkeypatch.setattr(search, "out", shown)
    assert main(["search", str(birds), str(photos / "class_00" / "0.png"), "-k", "2"]) == 0
    assert shown.file.getvalue().count("▀") == 2 * 8 * 4
