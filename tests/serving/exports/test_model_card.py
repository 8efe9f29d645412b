"""The card of an exported model: what a reader needs, in words and numbers of the run."""

import json
import re
import shutil

import numpy as np
import pytest
from huggingface_hub import ModelCard
from PIL import Image

import ccp_dml as ccp
from ccp_dml.serving.exports.model_card import MOST_CLASSES, class_line, percent


def test_the_card_says_what_the_model_is(exported, photo_run):
    text = (exported.folder / "README.md").read_text()
    card, model = ModelCard(text), ccp.load(photo_run[0])
    result = json.loads((photo_run[0] / "result.json").read_text())
    assert card.data.license == "other"
    assert card.data.library_name == "ccp-dml"
    scores = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert scores["map_at_r"] == pytest.approx(result["test"]["map_at_r"], abs=1e-4)
    assert f"| MAP@R | {100 * result['test']['map_at_r']:.2f} |" in text
    assert f"up to the distance {model.certificate['threshold']['beta']:.4g}" in text
    for part in (
        "ccp.load(",
        "Backbone `small_cnn`;",
        "Loss `c2`",
        "`class_02`",
        "map.png",
        "Not chosen yet",
        "36 pixels",
    ):
        assert part in text
    assert Image.open(exported.folder / "map.png").width > 300
    assert str(photo_run[0].parent) not in text
    assert "{{" not in text


@pytest.mark.parametrize("photo", ["turned", "transparent"])
def test_the_programs_of_the_card_run_in_its_folder_and_give_the_vectors_of_the_model(
    photo, exported, photos, tmp_path, monkeypatch
):
    folder = shutil.copytree(exported.folder, tmp_path / "under another name")
    picture = Image.open(photos / "class_00" / "0.png").convert("RGB").resize((48, 36))
    orientation = Image.Exif()
    if photo == "turned":
        orientation[0x112] = 6  # the camera was held upright
    else:
        picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    for name in ("a.jpg", "b.jpg"):
        picture.save(folder / name, "JPEG" if photo == "turned" else "PNG", exif=orientation)
    monkeypatch.chdir(folder)
    expected = ccp.load(folder).embed(["a.jpg"])
    programs = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        names = {}
        exec(program, names)
        np.testing.assert_allclose(names["vectors"][:1], expected, rtol=0, atol=1e-5)


class WithNames:
    def __init__(self, names):
        self.description = self
        self.class_names = names


def test_many_classes_are_counted_and_their_names_are_quoted():
    assert class_line(WithNames(None)) is None
    assert class_line(WithNames(("wren", "a`b\nc"))) == "`wren`, `a'b c`"
    many = class_line(WithNames(tuple(f"class {number}" for number in range(MOST_CLASSES + 5))))
    assert many.endswith("`class 19` and 5 more")


def test_a_score_that_is_not_there_is_blank():
    assert (percent(None), percent(0.12345)) == ("", "12.35")
