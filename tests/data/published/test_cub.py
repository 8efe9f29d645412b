from dataclasses import replace

import pytest
import torch
from PIL import Image

from ccp_dml.data.published.cub import CUB, published_counts, read_cub
from ccp_dml.data.published.inventory import SplitSize, describe_short
from ccp_dml.data.published.published_set import load_published, verify
from ccp_dml.errors import UserError

# Around the border between train and test: three images of each.
NAMES = {99: "099.Ovenbird", 100: "100.Brown_Pelican", 101: "101.White_Pelican", 102: "102.Western_Wood_Pewee"}


def write_images(folder, *, per_class=3):
    for number, name in NAMES.items():
        (folder / name).mkdir(parents=True)
        for image in range(per_class):
            Image.new("RGB", (20, 16), (number, image, 0)).save(folder / name / f"bird_{image}.jpg", quality=100)


def write_original(base, *, per_class=3):
    """Lists in which images are numbered across classes, as nothing promises that they are sorted."""
    write_images(base / "images", per_class=per_class)
    images = [(number, f"{NAMES[number]}/bird_{image}.jpg") for image in range(per_class) for number in reversed(NAMES)]
    (base / "classes.txt").write_text("".join(f"{number} {name}\n" for number, name in NAMES.items()))
    (base / "images.txt").write_text("".join(f"{i} {path}\n" for i, (_, path) in enumerate(images, 1)))
    (base / "image_class_labels.txt").write_text("".join(f"{i} {number}\n" for i, (number, _) in enumerate(images, 1)))
    return base


def test_published_numbers():
    assert CUB.sizes == {"train": SplitSize(100, 5_864), "test": SplitSize(100, 5_924)}
    assert (CUB.files[0].name, CUB.files[0].md5) == ("CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78")


@pytest.mark.parametrize("above", ["", "CUB_200_2011"])
def test_original_layout(tmp_path, reading, above):
    write_original(tmp_path / above)
    halves = load_published(CUB, tmp_path, reading)
    assert halves.train.class_names == ("099.Ovenbird", "100.Brown_Pelican")
    assert halves.test.queries.class_names == ("101.White_Pelican", "102.Western_Wood_Pewee")
    assert halves.test.gallery is None
    assert halves.train.labels.tolist() == [1, 0] * 3
    assert halves.test.queries.labels.tolist() == [1, 0] * 3
    red = halves.train.load(torch.arange(6))[:, 0, 0, 0]
    assert [round(value) for value in red.tolist()] == pytest.approx([100, 99] * 3, abs=1)


@pytest.mark.parametrize("above", ["", "cub128", "images"])
def test_one_folder_per_class(tmp_path, reading, above):
    write_images(tmp_path / above)
    halves = load_published(CUB, tmp_path, reading)
    assert halves.train.class_names == ("099.Ovenbird", "100.Brown_Pelican")
    assert halves.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [path.parent.name for path in halves.train.source.paths[6:]] == [NAMES[101]] * 3 + [NAMES[102]] * 3


def test_a_split_by_image_is_put_together_again(tmp_path):
    write_images(tmp_path / "train", per_class=2)
    write_images(tmp_path / "test", per_class=1)
    sizes = read_cub(tmp_path).sizes()
    assert sizes == {"train": SplitSize(2, 6), "test": SplitSize(2, 6)}


def test_folders_that_are_no_classes_are_left_out(tmp_path):
    write_images(tmp_path)
    for name in ("parts", "201.Not_a_class", "cached-256"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "other.jpg")
    assert read_cub(tmp_path).sizes() == {"train": SplitSize(2, 6), "test": SplitSize(2, 6)}


def test_difference_from_the_published_numbers_is_noted(tmp_path, reading):
    write_images(tmp_path)
    assert load_published(CUB, tmp_path, reading).notes == (
        "not CUB-200-2011 as published: train has 6 images of 2 classes instead of 5,864 of 100",
        "not CUB-200-2011 as published: test has 6 images of 2 classes instead of 5,924 of 100",
    )


def test_missing_images_are_counted_and_named(tmp_path, reading):
    base = write_original(tmp_path)
    gone = [base / "images" / NAMES[99] / "bird_1.jpg", base / "images" / NAMES[102] / "bird_0.jpg"]
    for path in gone:
        path.unlink()
    with pytest.raises(
        UserError, match=r"2 of 12 images are missing in .*: images/102.*bird_0.jpg, images/099.*bird_1"
    ):
        load_published(CUB, tmp_path, reading)
    halves = load_published(CUB, tmp_path, replace(reading, skip_broken=True))
    assert len(halves.train) == len(halves.test.queries) == 5
    assert halves.notes[-1].startswith("left out 2 of 12 images that cannot be read: ")


def test_small_training_classes_are_left_out_only_if_asked(tmp_path, reading):
    write_images(tmp_path)
    for image in (1, 2):
        (tmp_path / NAMES[99] / f"bird_{image}.jpg").unlink()
        (tmp_path / NAMES[101] / f"bird_{image}.jpg").unlink()
    assert load_published(CUB, tmp_path, reading).train.class_names == (NAMES[99], NAMES[100])
    halves = load_published(CUB, tmp_path, replace(reading, drop_small_classes=True))
    assert halves.train.class_names == (NAMES[100],)
    assert halves.train.labels.tolist() == [0, 0, 0]
    assert halves.test.queries.class_names == (NAMES[101], NAMES[102])
    assert halves.notes[-1] == "left out 1 training classes with a single image: 099.Ovenbird"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("images.txt", "1 a.jpg\ntwo b.jpg\n", r"images\.txt has 'two b\.jpg' in line 2"),
        ("images.txt", "1\n", r"images\.txt has '1' in line 1"),
        ("classes.txt", "", r"classes\.txt lists nothing"),
        ("classes.txt", "99 099.Ovenbird\n", "do not fit together: no entry for 100"),
        ("image_class_labels.txt", "1 99\n", "do not fit together: no entry for 2"),
    ],
)
def test_damaged_lists(tmp_path, name, text, reason):
    write_original(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=reason):
        read_cub(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match=r"there is no folder .*nowhere: expected CUB-200-2011 there, either images/"):
        read_cub(tmp_path / "nowhere")
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(UserError, match=r"holds no CUB-200-2011 \(found: holiday.jpg\): expected .*001\.Black_footed"):
        read_cub(tmp_path)


def test_the_published_images_of_classes_add_up():
    counts = published_counts()
    assert sum(counts[number] for number in range(1, 101)) == CUB.sizes["train"].images
    assert sum(counts[number] for number in range(101, 201)) == CUB.sizes["test"].images


def test_folders_without_lists_are_held_against_the_published_classes(tmp_path):
    write_images(tmp_path, per_class=59)
    (short,) = [problem for problem in verify(CUB, tmp_path).problems if "classes are short" in problem]
    assert short.startswith("199 classes are short: class 1 (0 of 60)")
    inventory = read_cub(tmp_path)
    told = describe_short(replace(inventory, published={99: 60, 100: 59, 101: 60}))
    assert told == "2 classes are short: 099.Ovenbird (59 of 60), 101.White_Pelican (59 of 60)"
