"""One palette: pages, charts and pictures take their colours from it."""

import re
from pathlib import Path

from ccp_dml.reports import page
from ccp_dml.reports.figures import palette

STYLE_SHEETS = sorted(page.TEMPLATES.glob("*.css"))


def defined(text: str) -> set[str]:
    return set(re.findall(r"(--[\w-]+):", text))


def test_every_colour_that_a_style_sheet_uses_is_defined_in_both_schemes() -> None:
    light, dark = palette.css().split("@media", 1)
    assert defined(light) == defined(dark.split("}", 1)[0])
    for sheet in STYLE_SHEETS:
        text = sheet.read_text(encoding="utf-8")
        used = set(re.findall(r"var\((--[\w-]+)", text))
        assert used <= defined(light) | {"--c", "--heat"}, sheet.name


def test_style_sheets_type_no_colour_of_their_own_but_white() -> None:
    for sheet in STYLE_SHEETS:
        colours = set(re.findall(r"#[0-9a-f]{3,8}\b", Path(sheet).read_text(encoding="utf-8")))
        assert colours <= {"#fff"}, sheet.name


def test_palettes_have_as_many_dark_colours_as_light_ones_and_each_once() -> None:
    for name, colours in palette.LIGHT.items():
        assert len(colours) == len(palette.DARK[name]) == len(set(colours))


def test_a_style_has_one_colour_everywhere() -> None:
    assert (palette.colour_name(9), palette.variable(9), palette.light(9)) == ("s1", "var(--s1)", "#c2410c")
    assert palette.colour_name(12, "classes") == "k0"
    assert "--s1: #c2410c;" in palette.css()
    assert ".k11 { --c: var(--k11); }" in palette.css()


def test_lines_of_a_series_differ_in_more_than_colour() -> None:
    assert len(palette.DASHES) == len(palette.LIGHT["series"])
    assert (palette.dashes(0), palette.dashes(9)) == ((), (7, 3))
    assert ".s1 .line, .line.s1 { stroke-dasharray: 7 3; }" in palette.css()
