"""The colours of pages, charts and pictures. The style sheets get theirs from here, by `css`."""

from typing import Literal

Palette = Literal["series", "classes", "variants"]
"""Colours that a style number picks from: those of lines and methods, of classes on a map, of variants of a loss."""

LIGHT: dict[Palette, tuple[str, ...]] = {
    "series": ("#2457c5", "#c2410c", "#0f766e", "#9333ea", "#a16207", "#be185d", "#4b5563", "#15803d"),
    "classes": (
        *("#1f5fd0", "#d1470f", "#12805c", "#a02bd6", "#a67c00", "#d0246f"),
        *("#0a8aa6", "#6b4a2e", "#5b6472", "#6a9a00", "#b51f1f", "#4636b8"),
    ),
    "variants": ("#8c8c8c", "#d98c21", "#7fb3d9", "#1f6fb2", "#7a4fa3"),
}
DARK: dict[Palette, tuple[str, ...]] = {
    "series": ("#7fa8ff", "#ff9a5c", "#4fd1c0", "#c99bff", "#e5c04b", "#ff8fc0", "#b6c0cf", "#7ddb8f"),
    "classes": (
        *("#7fa8ff", "#ff9a5c", "#4fd19a", "#d79bff", "#e8c34a", "#ff8fc0"),
        *("#55d3ee", "#d0a27c", "#b6c0cf", "#b5dd4c", "#ff8078", "#a79bff"),
    ),
    "variants": ("#9a9a9a", "#e5a04b", "#8fc3e9", "#4f9fe2", "#b58ae0"),
}
DASHES = ((), (7, 3), (2, 3), (9, 3, 2, 3), (), (4, 4), (12, 4), (9, 3, 2, 3, 2, 3))
"""Lengths of strokes and gaps of the lines of a series, so that lines that cover each other are both seen."""

PAGE_LIGHT = {
    "paper": "#f6f7f9",
    "card": "#ffffff",
    "ink": "#1b2230",
    "soft": "#5a6475",
    "line": "#dfe3ea",
    "faint": "#eceff4",
    "accent": "#2457c5",
    "right": "#12724a",
    "wrong": "#b3361f",
    "notice": "#fff4d6",
    "notice-line": "#d9a400",
    "heat-colour": "#f08a4b",
}
PAGE_DARK = {
    "paper": "#12161d",
    "card": "#1a2029",
    "ink": "#e7ebf2",
    "soft": "#a3adbd",
    "line": "#323b49",
    "faint": "#252d39",
    "accent": "#8ab0ff",
    "right": "#5fd39b",
    "wrong": "#ff9a80",
    "notice": "#3a2f10",
    "notice-line": "#d9a400",
    "heat-colour": "#a8481a",
}
LETTERS: dict[Palette, str] = {"series": "s", "classes": "k", "variants": "v"}
"""What a style sheet calls a colour: `--s0` is the first of a series, and an element of class `s0` has it as `--c`."""

COLOUR_MAP = "viridis"
"""The scale of heat maps and surfaces, which Plotly and matplotlib both have."""


def colour_name(style: int, palette: Palette = "series") -> str:
    """Name the colour of a style as style sheets do, for example "s0"; styles beyond the last begin anew."""
    return f"{LETTERS[palette]}{style % len(LIGHT[palette])}"


def variable(style: int, palette: Palette = "series") -> str:
    """Refer to the colour of a style in a page, for example "var(--s0)"; the reader's scheme decides its value."""
    return f"var(--{colour_name(style, palette)})"


def light(style: int, palette: Palette = "series") -> str:
    """Return the colour of a style on white, for example "#2457c5"."""
    return LIGHT[palette][style % len(LIGHT[palette])]


def dashes(style: int) -> tuple[int, ...]:
    """Return the strokes and gaps of a line; empty for a solid one."""
    return DASHES[style % len(DASHES)]


def css() -> str:
    """Define all colours for a style sheet, in the light and in the dark scheme, and the dashes of lines."""
    classes = "".join(
        f".{colour_name(style, palette)} {{ --c: {variable(style, palette)}; }}\n"
        for palette in LETTERS
        for style in range(len(LIGHT[palette]))
    )
    classes += "".join(
        f".s{style} .line, .line.s{style} {{ stroke-dasharray: {' '.join(map(str, lengths))}; }}\n"
        for style, lengths in enumerate(DASHES)
        if lengths
    )
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(PAGE_DARK, DARK)} }} }}"
    return f":root {{ color-scheme: light dark; {_variables(PAGE_LIGHT, LIGHT)} }}\n{dark}\n{classes}"


def _variables(page: dict[str, str], palettes: dict[Palette, tuple[str, ...]]) -> str:
    colours = {colour_name(style, palette): one for palette in palettes for style, one in enumerate(palettes[palette])}
    return " ".join(f"--{name}: {value};" for name, value in {**page, **colours}.items())
