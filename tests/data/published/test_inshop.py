import pytest
import torch
from PIL import Image

from ccp_dml.data.published.inshop import INSHOP, read_inshop
from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.data.published.published_set import load_published
from ccp_dml.errors import UserError

ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/MEN/Denim/id_00000001/01_1_front.jpg", "id_00000001", "train"),
    ("img/MEN/Denim/id_00000009/01_1_front.jpg", "id_00000009", "query"),
    ("img/MEN/Denim/id_00000004/01_1_front.jpg", "id_00000004", "gallery"),
    ("img/MEN/Denim/id_00000009/01_3_back.jpg", "id_00000009", "gallery"),
    ("img/MEN/Denim/id_00000004/01_2_side.jpg", "id_00000004", "query"),
    ("img/MEN/Denim/id_00000007/01_2_side.jpg", "id_00000007", "gallery"),
]


def write_images(folder):
    for number, (path, _, _) in enumerate(ROWS):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (10 * number, 0, 0)).save(folder / path, quality=100)


def write_list(file, rows=ROWS):
    """As published: the number of images, the names of the columns, and columns padded with blanks."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{path:<60} {article} {split:<8}" for path, article, split in rows]
    file.write_text("\n".join([str(len(rows)), "image_name item_id evaluation_status", *lines]) + "\n")


def test_published_numbers():
    assert INSHOP.sizes == {
        "train": SplitSize(3_997, 25_882),
        "query": SplitSize(3_985, 14_218),
        "gallery": SplitSize(3_985, 12_612),
    }


@pytest.mark.parametrize(
    ("list_folder", "image_folder"), [("Eval", "Img"), ("Anno", "Img"), ("Eval", ""), ("", ""), ("x/Eval", "x/Img")]
)
def test_original_layout(tmp_path, reading, list_folder, image_folder):
    write_list(tmp_path / list_folder / "list_eval_partition.txt")
    write_images(tmp_path / image_folder)
    halves = load_published(INSHOP, tmp_path, reading)
    assert halves.train.class_names == ("id_00000001", "id_00000002")
    assert halves.train.labels.tolist() == [1, 1, 0]
    queries, gallery = halves.test.queries, halves.test.gallery
    # One numbering for both, that of all articles of the test half, also of one that nobody asks for.
    assert queries.class_names == gallery.class_names == ("id_00000004", "id_00000007", "id_00000009")
    assert queries.labels.tolist() == [2, 0]
    assert gallery.labels.tolist() == [0, 2, 1]
    assert gallery.load(torch.arange(3))[:, 0, 0, 0].tolist() == pytest.approx([40, 50, 70], abs=1)


def test_one_folder_per_article(tmp_path, reading):
    write_images(tmp_path / "flat")
    for path, article, split in ROWS:
        target = tmp_path / "mine" / split / article / path.rpartition("/")[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "flat" / path).rename(target)
    (tmp_path / "mine" / "query" / "id_00000012").mkdir()
    halves = load_published(INSHOP, tmp_path / "mine", reading)
    assert halves.train.class_names == ("id_00000001", "id_00000002")
    assert halves.test.queries.labels.tolist() == [0, 2]
    assert halves.test.gallery.labels.tolist() == [0, 1, 2]


def test_images_that_were_not_unpacked(tmp_path, reading):
    write_list(tmp_path / "Eval" / "list_eval_partition.txt")
    (tmp_path / "Img").mkdir()
    (tmp_path / "Img" / "img.zip").touch()
    with pytest.raises(UserError, match=r"8 of 8 images are missing in .*: Img/img/WOMEN/.*02_1_front\.jpg, .*3 more"):
        load_published(INSHOP, tmp_path, reading)


@pytest.mark.parametrize(
    "row", [("img/a.jpg", "id_00000001", "validation"), ("img/a.jpg", "17", "train"), ("img/a.jpg", "id_00000001", "")]
)
def test_damaged_list(tmp_path, row):
    write_list(tmp_path / "Eval" / "list_eval_partition.txt", [*ROWS, row])
    with pytest.raises(UserError, match=r"list_eval_partition\.txt has 'img/a\.jpg .* in line 11"):
        read_inshop(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match=r"holds no In-shop Clothes Retrieval \(found: nothing\): expected .*Img/img"):
        read_inshop(tmp_path)
