import base64
import io

import pytest
import torch
from PIL import Image

from ccp_dml.runs.illustrations import pictures as module
from ccp_dml.runs.illustrations.pictures import BACKGROUND, SIDES, contact_sheet


def opened(sheet: dict) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(sheet["uri"].split(",")[1]))).convert("RGB")


def middle(sheet: dict, place: int) -> tuple[int, ...]:
    """The colour in the middle of a picture on the sheet."""
    side = sheet["side"]
    at = [place % sheet["columns"] * side + side // 2, place // sheet["columns"] * side + side // 2]
    return opened(sheet).getpixel(tuple(at))  # type: ignore[return-value]


def noise(seed: int) -> Image.Image:
    generator = torch.Generator().manual_seed(seed)
    return Image.fromarray(torch.randint(0, 256, (64, 64, 3), generator=generator, dtype=torch.uint8).numpy())


def test_pictures_stand_row_by_row_and_missing_ones_leave_a_gap() -> None:
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), None, (200, 200, 30)]
    sheet = contact_sheet([None if colour is None else Image.new("RGB", (90, 90), colour) for colour in colours])
    assert sheet is not None
    assert (sheet["columns"], sheet["rows"], sheet["side"]) == (3, 2, SIDES[0])
    assert opened(sheet).size == (3 * SIDES[0], 2 * SIDES[0])
    for place, colour in enumerate(colours):
        assert middle(sheet, place) == pytest.approx(colour or BACKGROUND, abs=12)


def test_a_wide_picture_keeps_its_aspect() -> None:
    sheet = contact_sheet([Image.new("L", (100, 50), 255)])
    assert sheet is not None
    picture, side = opened(sheet), sheet["side"]
    assert picture.getpixel((side // 2, side // 2)) == pytest.approx((255, 255, 255), abs=8)
    assert picture.getpixel((side // 2, 3)) == pytest.approx(BACKGROUND, abs=8)


def test_nothing_to_see_makes_no_sheet() -> None:
    assert contact_sheet([None, None]) is None
    assert contact_sheet([]) is None


def test_heavy_pictures_become_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [noise(seed) for seed in range(9)]
    full = contact_sheet(pictures)
    assert full is not None
    assert full["side"] == SIDES[0]
    monkeypatch.setattr(module, "BUDGET", len(full["uri"]) // 3)
    light = contact_sheet(pictures)
    assert light is not None
    assert light["side"] < SIDES[0]
    assert len(light["uri"]) < len(full["uri"])
