import pytest
import torch
from PIL import Image

from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.data.published.published_set import load_published
from ccp_dml.data.published.sop import SOP, read_sop
from ccp_dml.errors import UserError

HEADER = "image_id class_id super_class_id path\n"


def write_original(base):
    """Two articles to learn and two to test, whose numbers have gaps, in two super-classes."""
    images = {"train": [(2, "bicycle_final/111_0"), (2, "bicycle_final/111_1"), (1, "chair_final/222_0")]}
    images["test"] = [(11_320, "chair_final/333_0"), (11_319, "chair_final/444_0"), (11_320, "chair_final/333_1")]
    count = 0
    for split, rows in images.items():
        text = HEADER
        for number, path in rows:
            count += 1
            text += f"{count} {number} 1 {path}.JPG\n"
            file = base / f"{path}.JPG"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 16), (10 * count, 0, 0)).save(file, quality=100)
        (base / f"Ebay_{split}.txt").write_text(text)
    return base


def test_published_numbers():
    assert SOP.sizes == {"train": SplitSize(11_318, 59_551), "test": SplitSize(11_316, 60_502)}
    assert (SOP.files[0].name, SOP.files[0].md5) == ("Stanford_Online_Products.zip", "7f73d41a2f44250d4779881525aea32e")


@pytest.mark.parametrize("above", ["", "Stanford_Online_Products"])
def test_original_layout(tmp_path, reading, above):
    write_original(tmp_path / above)
    halves = load_published(SOP, tmp_path, reading)
    assert halves.train.class_names == ("chair_final/222", "bicycle_final/111")  # by class_id
    assert halves.train.labels.tolist() == [1, 1, 0]
    assert halves.test.queries.class_names == ("chair_final/444", "chair_final/333")
    assert halves.test.queries.labels.tolist() == [1, 0, 1]
    assert halves.test.queries.load(torch.arange(3))[:, 0, 0, 0].tolist() == pytest.approx([40, 50, 60], abs=1)


def test_one_folder_per_class_id(tmp_path):
    for number in (1, 11_318, 11_319, 22_634, 22_635):
        (tmp_path / str(number)).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / str(number) / "a.jpg")
    inventory = read_sop(tmp_path)
    assert inventory.sizes() == {"train": SplitSize(2, 2), "test": SplitSize(2, 2)}
    assert [entry.number for entry in inventory.entries] == [1, 11_318, 11_319, 22_634]


def test_one_list_without_the_other(tmp_path):
    write_original(tmp_path)
    (tmp_path / "Ebay_test.txt").unlink()
    with pytest.raises(
        UserError, match=r"holds no Stanford Online Products \(found: Ebay_train\.txt, .*Ebay_test\.txt"
    ):
        read_sop(tmp_path)


def test_list_cut_off_in_a_line(tmp_path):
    file = write_original(tmp_path) / "Ebay_train.txt"
    file.write_text(file.read_text() + "4 7 1")
    with pytest.raises(UserError, match=r"Ebay_train\.txt has '4 7 1' in line 5, not the 4 columns"):
        read_sop(tmp_path)
