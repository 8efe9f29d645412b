"""The language of conditions: what it means, what it refuses, and that nothing in it becomes SQL."""

import sqlite3

import pytest

from ccp_dml.errors import UserError
from ccp_dml.serving.search.where import (
    MOST_PARTS,
    MOST_VALUES,
    Comparison,
    Junction,
    as_milvus,
    as_sql,
    parse_where,
    passed_over,
    unknown_texts,
)

ITEMS = [
    (1, "wren", {"year": 2019, "place": "Wald"}),
    (2, "wren", {"year": 2021, "place": 'a "quoted" \\ place'}),
    (3, "owl", {"year": 2021.5}),
    (4, None, {"year": "unknown", "body mass": 12}),
    (5, "Robert'); DROP TABLE items;--", {}),
]


@pytest.fixture
def database():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, path TEXT, label TEXT)")
    connection.execute("CREATE TABLE attributes (id INTEGER, name TEXT, value)")
    for number, label, attributes in ITEMS:
        connection.execute("INSERT INTO items VALUES (?, ?, ?)", (number, f"/p/{number}.png", label))
        connection.executemany(
            "INSERT INTO attributes VALUES (?, ?, ?)", [(number, *pair) for pair in attributes.items()]
        )
    return connection


def found(database, text):
    sql, parameters = as_sql(parse_where(text))
    return [row[0] for row in database.execute(f"SELECT id FROM items WHERE {sql} ORDER BY id", parameters)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('label = "wren"', [1, 2]),
        ("class == 'wren'", [1, 2]),
        ('label != "wren"', [3, 5]),
        ("year > 2019", [2, 3]),
        ("year >= 2019 and year < 2021.5", [1, 2]),
        ('year = "unknown"', [4]),
        ("year != 2021", [1, 3]),  # the text "unknown" is no number, and those without a year have none
        ('year != "2021"', [4]),
        ('label = "owl" or place = "Wald" and year = 2019', [1, 3]),
        ('(label = "owl" or place = "Wald") and year = 2021.5', [3]),
        ('label IN ("owl", "wren") AND year <= 2021', [1, 2]),
        ("year in (2019, 'unknown')", [1, 4]),
        ("`body mass` = 1.2e1", [4]),
        (r'place = "a \"quoted\" \\ place"', [2]),
        ('path = "/p/3.png"', [3]),
        ("label = 5", []),
        ("""label = "Robert'); DROP TABLE items;--" """, [5]),
        ("""label = "x' OR 1=1 --" """, []),
    ],
)
def test_a_condition_finds_what_it_says(database, text, expected):
    assert found(database, text) == expected
    assert database.execute("SELECT count(*) FROM items").fetchone() == (len(ITEMS),)


@pytest.mark.parametrize("count", [1000, MOST_VALUES - 2])
def test_a_list_may_be_long(database, count):
    years = ", ".join(f"{year}, 'of {year}'" for year in range(1900, 1900 + count // 2))
    assert found(database, f"year in ({years}, 'unknown')") == [1, 2, 4]


def test_a_path_may_be_written_as_results_show_it(database, monkeypatch):
    monkeypatch.chdir("/")
    assert found(database, "path = 'p/3.png'") == [3]
    assert found(database, "path in ('p/1.png', '/p/2.png', 7)") == [1, 2]


def test_names_and_values_are_parameters_of_the_statement():
    sql, parameters = as_sql(parse_where("`x' OR 1=1` = \"y\" and label = 'z'"))
    assert "1=1" not in sql
    assert parameters == ["x' OR 1=1", "y", "z"]


def test_and_binds_closer_than_or():
    one, two, three = (Comparison(name, "=", (1,)) for name in "abc")
    assert parse_where("a=1 or b=1 and c=1") == Junction("or", (one, Junction("and", (two, three))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name of an attribute is expected, but it ends"),
        ("label", "one of = != < <= > >= in is expected, but it ends"),
        ("label = wren", "a text in quotes"),
        ('label = "wren', "cannot be read from '\"wren'"),
        ('label = "wren" year = 3', "`and`, `or` or the end is expected, but there stands year"),
        ('(label = "wren"', "`)` is expected"),
        ("label ; DROP TABLE items", "cannot be read from '; DROP TABLE items'"),
        ("year > 1e999", "a smaller number"),
        ("label = 'a\n'", "control characters"),
        ("label = 'br\udce4'", "contains bytes that are not text in UTF-8"),
        ("label in ()", "a text in quotes"),
        ("(" * 500 + "a = 1" + ")" * 500, "fewer brackets"),
        (" or ".join(["a = 1"] * (MOST_PARTS + 1)), "at most 100"),
        (f"a in ({', '.join(['1'] * (MOST_VALUES + 1))})", "names 10,001 values; at most 10,000 are read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, message):
    with pytest.raises(UserError) as refusal:
        parse_where(text)
    assert message in str(refusal.value)


def test_an_unknown_attribute_is_named_with_the_nearest():
    with pytest.raises(UserError, match="no attribute 'specis'; did you mean 'species'"):
        parse_where('specis = "wren"', ["species", "year"])
    with pytest.raises(UserError, match="there are label, class, path, species"):
        parse_where("qqq = 1", ["species"])
    with pytest.raises(UserError, match="no attribute 'YEAR'; did you mean 'year'"):
        parse_where("YEAR = 2020", ["species", "year"])
    parse_where('species = "wren" and label = "x"', ["species"])


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("year >= 2020", ["`year` is text with some images, such as '2022', which no comparison with a number finds"]),
        ("year > 2020 and year < 2030", ["`year` is text with some images"]),
        ("year = '2020'", ["`year` is a number with some images, such as 2020, which no comparison with a text finds"]),
        ("year in (2020, '2022') or mass > 2", []),
        ("year != 2020 or year != '2022'", ["`year` is text", "`year` is a number"]),
        ("label = 3", ["`label` is text, which never equals a number: write '3' in quotes."]),
        ("label = '3' and path != 'x'", []),
    ],
)
def test_what_a_comparison_misses_because_of_types_is_said(text, notes):
    found = passed_over(parse_where(text), {"year": [2020, 2021, "2022", "unknown"], "mass": [1.5]})
    assert len(found) == len(notes)
    assert all(said.startswith(note) for said, note in zip(found, notes, strict=True))


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("label = 'Wren'", ["No image has the `label` 'Wren'; did you mean 'wren'?"]),
        ("label in ('wren', 'oul') and year > 3", ["No image has the `label` 'oul'; did you mean 'owl'?"]),
        ("place != 'Mars'", ["No image has the `place` 'Mars'; there are 'Wald', 'Feld'."]),
        ("label = 'wren' or place = 'Wald' or label > 'Wren'", []),
        ("label = 'OWL'", ["No image has the `label` 'OWL'; did you mean 'owl'?"]),
        ("note = 'x' and year = 'x' and path = 'x'", []),  # too many values to know, no texts, any path
    ],
)
def test_texts_that_no_image_has_are_said_with_the_nearest(text, notes):
    stored = {"label": {"wren": 2, "owl": 1}, "place": ["Wald", "Feld"], "year": [2020], "note": []}
    assert unknown_texts(parse_where(text), stored) == notes


def test_of_many_unknown_texts_only_some_are_looked_for():
    asked = ", ".join(f"'bird {number}'" for number in range(1000))
    *_, last = found = unknown_texts(parse_where(f"label in ({asked}, 'wren')"), {"label": ["wren"]})
    assert len(found) == 11
    assert last == "No image has 990 others that `label` is compared with."


def test_milvus_gets_quoted_texts_and_no_bare_inequality():
    assert as_milvus(parse_where(r'a = "x\" or id > 0 or \"" and b != 3')) == (
        r'((attributes["a"] == "x\" or id > 0 or \"") and ((attributes["b"] < 3 or attributes["b"] > 3)))'
    )
    assert as_milvus(parse_where('label in ("x", 2)')) == '(label == "x" or id < 0)'
