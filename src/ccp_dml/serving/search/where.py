"""Conditions on indexed images, such as `species = "wren" and year >= 2020`, read by a small grammar.

    condition  := all ("or" all)*
    all        := part ("and" part)*
    part       := "(" condition ")" | comparison
    comparison := name ("=" | "!=" | "<" | "<=" | ">" | ">=") value | name "in" "(" value ("," value)* ")"
    name       := letters, digits and _ . - after a letter, or anything between backquotes: `body mass`
    value      := "text" | 'text' | number

Texts are compared with texts and numbers with numbers; an image without the attribute satisfies no comparison. A
relative path starts at the present folder.
Nothing a user writes becomes part of a statement: SQLite gets values and names as parameters, and for Milvus, which
takes no parameters everywhere, texts are quoted and control characters refused.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from ccp_dml.errors import UserError, is_text, listing

Value = str | float | int
COLUMNS = {"label": "label", "class": "label", "path": "path"}
"""Names that are not attributes, and the column each stands for."""
MOST_PARTS = 100  # comparisons in one condition: more than anybody writes, less than SQLite can nest
MOST_VALUES = 10_000  # values in one condition: SQLite takes 32,766 parameters
MOST_HINTS = 10  # texts of one comparison for which the nearest that there are is looked for

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<comparison><=|>=|!=|<>|==|=|<|>)
    | (?P<sign>[(),])
    | (?P<name>`[^`]+`|[^\W\d][\w.-]*)
    )""",
    re.VERBOSE,
)
_SAME_SIGN = {"==": "=", "<>": "!="}


@dataclass(frozen=True)
class Comparison:
    name: str
    sign: str  # = != < <= > >= in
    values: tuple[Value, ...]  # one, or for "in" any number


@dataclass(frozen=True)
class Junction:
    word: str  # and, or
    parts: tuple["Condition", ...]


Condition = Comparison | Junction


def parse_where(text: str, attributes: Sequence[str] | None = None) -> Condition:
    """Read a condition; a UserError says where it cannot be read, or that there is no such attribute."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UserError(f"The condition {text!r} contains control characters; write it on one line, without tabs.")
    if not is_text(text):
        raise UserError(f"The condition {text!r} contains bytes that are not text in UTF-8; type it anew.")
    condition = _Reader(text).whole()
    found = list(_comparisons(condition))
    if len(found) > MOST_PARTS:
        raise UserError(f"The condition has {len(found)} comparisons; at most {MOST_PARTS} are read.")
    values = sum(len(comparison.values) for comparison in found)
    if values > MOST_VALUES:
        raise UserError(
            f"The condition names {values:,} values; at most {MOST_VALUES:,} are read. Put what these images have in "
            "common into a column of a table, and compare that."
        )
    if attributes is not None:
        known = [*dict.fromkeys(COLUMNS), *attributes]
        for comparison in found:
            if comparison.name not in known:
                meant = _nearest(comparison.name, known)
                hint = f"did you mean {meant[0]!r}?" if meant else f"there are {listing(known, 12)}."
                raise UserError(f"The images have no attribute {comparison.name!r}; {hint}")
    return condition


def passed_over(condition: Condition, stored: Mapping[str, Sequence[Value]]) -> list[str]:
    """Say which comparisons can miss images because of types, given values that the attributes have."""
    notes = []
    for comparison in _comparisons(condition):
        name = comparison.name
        asked_texts, asked_numbers = _by_type(comparison.values)
        texts, numbers = _by_type(stored.get(name, ()))
        if name in COLUMNS and asked_numbers:
            notes.append(f"`{name}` is text, which never equals a number: write '{asked_numbers[0]}' in quotes.")
        elif texts and not asked_texts:
            notes.append(
                f"`{name}` is text with some images, such as {texts[0]!r}, which no comparison with a number finds; "
                "compare it with texts in quotes as well."
            )
        elif numbers and not asked_numbers:
            notes.append(
                f"`{name}` is a number with some images, such as {numbers[0]}, which no comparison with a text finds; "
                "compare it with numbers, without quotes, as well."
            )
    return list(dict.fromkeys(notes))


def unknown_texts(condition: Condition, stored: Mapping[str, Collection[Value]]) -> list[str]:
    """Say which texts are asked for that no image has, with the nearest of those that there are.

    `stored` has all values of a name; about names that are not in it, or have none there, nothing is said.
    """
    notes = []
    for comparison in _comparisons(condition):
        known = {value: None for value in stored.get(comparison.name, ()) if isinstance(value, str)}  # in their order
        if not known or comparison.sign not in ("=", "!=", "in"):
            continue
        unknown = [text for text in comparison.values if isinstance(text, str) and text not in known]
        for text in unknown[:MOST_HINTS]:
            near = _nearest(text, list(known))
            hint = f"did you mean {near[0]!r}?" if near else f"there are {listing(list(map(repr, known)))}."
            notes.append(f"No image has the `{comparison.name}` {text!r}; {hint}")
        if len(unknown) > MOST_HINTS:
            others = len(unknown) - MOST_HINTS
            notes.append(f"No image has {others:,} others that `{comparison.name}` is compared with.")
    return list(dict.fromkeys(notes))


def names_in(condition: Condition) -> set[str]:
    """Collect the names of attributes and columns that a condition compares."""
    return {comparison.name for comparison in _comparisons(condition)}


def _nearest(text: str, known: Sequence[str]) -> list[str]:
    """Find what was meant, if anything is like it: the same in other capital and small letters before all else."""
    by_case = [value for value in known if value.casefold() == text.casefold()]
    return by_case[:1] or get_close_matches(text, known[:MOST_VALUES], 1)


def as_sql(condition: Condition) -> tuple[str, list[Value]]:
    """Write an expression over the tables `items` and `attributes`, and its parameters."""
    if isinstance(condition, Junction):
        parts = [as_sql(part) for part in condition.parts]
        return f"({f' {condition.word} '.join(sql for sql, _ in parts)})", [v for _, values in parts for v in values]
    column = COLUMNS.get(condition.name)
    subject = "value" if column is None else f"items.{column}"
    tests, parameters = [], []
    for kind, values in zip(("= 'text'", "IN ('integer', 'real')"), _by_type(condition.values), strict=True):
        if values:
            marks = f"IN ({','.join('?' * len(values))})" if condition.sign == "in" else f"{condition.sign} ?"
            tests.append(f"(typeof({subject}) {kind} AND {subject} {marks})")
            parameters += values
    test = f"({' OR '.join(tests)})"
    if column is not None:
        return test, parameters
    return (
        f"EXISTS (SELECT 1 FROM attributes WHERE attributes.id = items.id AND attributes.name = ? AND {test})",
        [condition.name, *parameters],
    )


def as_milvus(condition: Condition) -> str:
    """Write a filter of Milvus with the same meaning."""
    if isinstance(condition, Junction):
        return f"({f' {condition.word} '.join(map(as_milvus, condition.parts))})"
    column = COLUMNS.get(condition.name)
    subject = f"attributes[{_quoted(condition.name)}]" if column is None else column
    tests = []
    for value in condition.values:
        written = _quoted(value) if isinstance(value, str) else repr(value)
        if column is not None and not isinstance(value, str):
            tests.append("id < 0")  # a text never equals a number, and Milvus refuses to compare them
        elif condition.sign == "!=":
            tests.append(f"({subject} < {written} or {subject} > {written})")  # `!=` would find images without it
        else:
            tests.append(f"{subject} {'==' if condition.sign in ('=', 'in') else condition.sign} {written}")
    return f"({' or '.join(tests)})"


def _by_type(values: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Part texts and numbers."""
    texts: list[Value] = [value for value in values if isinstance(value, str)]
    return texts, [value for value in values if not isinstance(value, str)]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comparisons(condition: Condition) -> Iterator[Comparison]:
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from _comparisons(part)


class _Reader:
    """Reads tokens from left to right, one rule of the grammar per method."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)  # (kind, text, place) of each; the last is the end
        self.next = 0
        self.depth = 0

    def whole(self) -> Condition:
        condition = self.any_of()
        if self.kind != "end":
            self.fail("`and`, `or` or the end")
        return condition

    def any_of(self) -> Condition:
        return self.joined("or", lambda: self.joined("and", self.part))

    def joined(self, word: str, read: Callable[[], Condition]) -> Condition:
        parts = [read()]
        while self.take("name", word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))

    def part(self) -> Condition:
        if not self.take("sign", "("):
            return self.comparison()
        self.depth += 1
        if self.depth > MOST_PARTS:
            self.fail("fewer brackets")
        inner = self.any_of()
        self.depth -= 1
        self.need(")")
        return inner

    def comparison(self) -> Comparison:
        name = self.read(("name",), "the name of an attribute").strip("`")
        if self.take("name", "in"):
            self.need("(")
            values = [self.value(name)]
            while self.take("sign", ","):
                values.append(self.value(name))
            self.need(")")
            return Comparison(name, "in", tuple(values))
        sign = self.read(("comparison",), "one of = != < <= > >= in")
        return Comparison(name, _SAME_SIGN.get(sign, sign), (self.value(name),))

    def value(self, name: str) -> Value:
        """Read what `name` is compared with."""
        is_text = self.kind == "text"
        token = self.read(("text", "number"), 'a text in quotes, such as "wren", or a number')
        if is_text:
            text = re.sub(r"\\(.)", r"\1", token[1:-1])
            # Indexes have paths from the root, results show them from the present folder on.
            return os.path.abspath(os.path.expanduser(text)) if COLUMNS.get(name) == "path" else text
        number = float(token)
        if math.isinf(number):
            self.fail("a smaller number")
        return int(number) if number.is_integer() and abs(number) < 2**53 else number

    @property
    def kind(self) -> str:
        return self.tokens[self.next][0]

    def read(self, kinds: Sequence[str], wanted: str) -> str:
        """Give the text of the next token, which must be of one of these kinds, and go on."""
        if self.kind not in kinds:
            self.fail(wanted)
        self.next += 1
        return self.tokens[self.next - 1][1]

    def take(self, kind: str, text: str) -> bool:
        """Go on if the next token is this one."""
        found = self.kind == kind and self.tokens[self.next][1].lower() == text
        self.next += found
        return found

    def need(self, sign: str) -> None:
        if not self.take("sign", sign):
            self.fail(f"`{sign}`")

    def fail(self, wanted: str) -> NoReturn:
        kind, text, place = self.tokens[self.next]
        found = "it ends" if kind == "end" else f"there stands {text}"
        raise UserError(
            f"The condition {self.text!r} cannot be read: at character {place + 1} {wanted} is expected, but {found}. "
            'Example: species = "wren" and year >= 2020'
        )


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Split a condition into (kind, text, place), with an end."""
    tokens, place = [], 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise UserError(
                f"The condition {text!r} cannot be read from {text[place:].strip()[:20]!r} on. Put texts in quotes, "
                'and names with spaces in backquotes. Example: species = "wren" and year >= 2020'
            )
        tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        place = match.end()
    return [*tokens, ("end", "", len(text))]
