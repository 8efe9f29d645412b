"""The page of one search: pictures inside it, names as text, missing files as such."""

import base64
import io
import re

import pytest
from PIL import Image
from support.pictures import write_picture

from ccp_dml.serving.search.gallery import Hit, Item
from ccp_dml.serving.web.results_page import picture_address, small_copy, write_results_page


@pytest.fixture
def photo(tmp_path):
    return write_picture(tmp_path / "photo.png", (200, 60, 50), 1, side=600)


def test_a_small_copy_is_small_and_says_nothing_else(tmp_path):
    image = Image.new("RGB", (800, 400), (10, 200, 30))
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    image.save(tmp_path / "a.jpg", exif=exif)
    copy = small_copy(tmp_path / "a.jpg", 200)
    assert b"taken at home" not in copy
    assert Image.open(io.BytesIO(copy)).size == (200, 100)


def test_a_picture_is_an_address_of_its_own(photo, tmp_path):
    address = picture_address(photo)
    content = base64.b64decode(address.removeprefix("data:image/webp;base64,"))
    assert Image.open(io.BytesIO(content)).format == "WEBP"
    (tmp_path / "text.png").write_text("no picture")
    assert picture_address(tmp_path / "text.png") is None
    assert picture_address(tmp_path / "gone.png") is None


def test_the_page_needs_nothing_but_itself(photo, tmp_path):
    hits = [
        Hit(Item(1, str(photo), "<script>alert(1)</script>", {"place": "<b>here"}), 0.125),
        Hit(Item(2, str(tmp_path / "gone.png"), None), 0.5),
    ]
    write_results_page(tmp_path / "page.html", photo, hits, "birds & <i>co", "It promises <em>this</em>.")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/webp") == 2  # the query and the first result
    assert "0.125" in page
    for text in ("<script>alert", "<b>here", "<i>co", "<em>"):
        assert text not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


def test_a_query_whose_name_is_no_text_has_a_page(photo, tmp_path):
    query = photo.rename(photo.with_name("br\udce4.png"))
    write_results_page(tmp_path / "page.html", query, [], "birds", None)
    assert r"br\udce4.png" in (tmp_path / "page.html").read_text(encoding="utf-8")
