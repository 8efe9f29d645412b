from dataclasses import replace
from pathlib import Path

from ccp_dml.data.files.health import DataHealth, HalfHealth
from ccp_dml.reports.data_health import health_page, health_sentences, health_table
from ccp_dml.reports.page import is_page

HALF = HalfHealth(2, 9, 4, 4.5, 5)
HEALTH = DataHealth(
    "photos <b>",
    {"train": HALF, "test": HALF},
    ["test/owl"],
    {"a[/b].png": "truncated"},
    [],
    [],
    [],
    [("t", "l")],
    (9, 20, 30),
    (),
)


def test_sentences_name_examples_and_the_worst_first():
    told = health_sentences(HEALTH)
    assert told[0] == "1 images cannot be read: a[/b].png (truncated)"
    assert "t of l" in told[1]
    assert told[-1] == "The short side of images is 9 to 30 pixels, 20 in the median."


def test_the_page_escapes_names_and_asks_the_network_for_nothing(tmp_path):
    page = health_page(HEALTH)
    assert "photos &lt;b&gt;" in page
    assert "default-src 'none'" in page
    assert "http://" not in page.replace("http-equiv", "")
    Path(tmp_path / "p.html").write_text(page)
    assert is_page(tmp_path / "p.html")


def test_the_table_has_a_row_per_half():
    assert health_table(HEALTH).row_count == 2


def test_a_name_that_is_no_text_can_be_shown():
    page = health_page(replace(HEALTH, broken={"br\udce4.png": "truncated"}))
    assert r"br\udce4.png (truncated)" in page
    assert page.encode("utf-8")
