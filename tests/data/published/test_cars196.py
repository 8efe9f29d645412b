import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from ccp_dml.data.published.cars196 import CARS196, class_number, official_names, read_cars196
from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.data.published.published_set import load_published, verify
from ccp_dml.errors import UserError

CLASSES = (97, 98, 99, 100)  # around the border between train and test


def write_image(path, red):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 16), (red, 0, 0)).save(path, quality=100)


def write_original(base, per_class=2):
    """cars_annos.mat as published: per image a struct with its class, and a split by image, which is not ours."""
    fields = [("relative_im_path", object), ("bbox_x1", object), ("class", object), ("test", object)]
    numbers = [number for _ in range(per_class) for number in reversed(CLASSES)]
    annotations = np.zeros((1, len(numbers)), dtype=fields)
    for i, number in enumerate(numbers):
        name = f"car_ims/{i + 1:06}.jpg"
        write_image(base / name, number)
        annotations[0, i] = (name, 1, np.uint8(number), np.uint8(i % 2))
    names = np.array([official_names()], dtype=object)
    savemat(base / "cars_annos.mat", {"annotations": annotations, "class_names": names})
    return base


def test_published_numbers():
    assert CARS196.sizes == {"train": SplitSize(98, 8_054), "test": SplitSize(98, 8_131)}
    assert [(file.name, file.md5) for file in CARS196.files] == [
        ("car_ims.tgz", "d5c8f0aa497503f355e17dc7886c3f14"),
        ("cars_annos.mat", "b407c6086d669747186bd1d764ff9dbc"),
    ]


@pytest.mark.parametrize("above", ["", "cars196"])
def test_original_layout(tmp_path, reading, above):
    write_original(tmp_path / above)
    halves = load_published(CARS196, tmp_path, reading)
    assert halves.train.class_names == ("Dodge Charger SRT-8 2009", "Eagle Talon Hatchback 1998")
    assert halves.test.queries.class_names == ("FIAT 500 Abarth 2012", "FIAT 500 Convertible 2012")
    assert halves.train.labels.tolist() == [1, 0, 1, 0]
    assert halves.test.queries.labels.tolist() == [1, 0, 1, 0]
    red = halves.test.queries.load(torch.arange(4))[:, 0, 0, 0].tolist()
    assert red == pytest.approx([100, 99, 100, 99], abs=1)


def test_official_names_are_all_there_and_distinct():
    names = official_names()
    assert len(names) == len({class_number(name) for name in names}) == 196
    assert [class_number(name) for name in names] == list(range(1, 197))
    assert list(names) != sorted(names)  # which is why they must be known


@pytest.mark.parametrize(
    ("folder", "number"),
    [
        ("Acura Integra Type R 2001", 6),
        ("acura_integra_type_r_2001", 6),
        ("Ram C-V Cargo Van Minivan 2012", 174),
        ("017", 17),
        ("98. something", 98),
        ("197", None),
        ("Trabant 601 1989", None),
    ],
)
def test_class_of_a_folder(folder, number):
    assert class_number(folder) == number


def test_one_folder_per_class_divided_by_image(tmp_path, reading):
    """As the copies are that circulate since the official hosts went away."""
    for number in CLASSES:
        name = official_names()[number - 1]
        write_image(tmp_path / "car_data" / "train" / name / "00001.jpg", number)
        write_image(tmp_path / "car_data" / "test" / name / "00002.jpg", number)
    halves = load_published(CARS196, tmp_path / "car_data", reading)
    assert halves.train.class_names == ("Dodge Charger SRT-8 2009", "Eagle Talon Hatchback 1998")
    assert halves.train.labels.tolist() == [0, 0, 1, 1]
    assert halves.test.queries.labels.tolist() == [0, 0, 1, 1]


def test_one_numbered_folder_per_class(tmp_path):
    for number in CLASSES:
        write_image(tmp_path / str(number) / "00001.jpg", number)
    assert read_cars196(tmp_path).sizes() == {"train": SplitSize(2, 2), "test": SplitSize(2, 2)}


@pytest.mark.parametrize("length", [0, 500])
def test_damaged_annotations(tmp_path, length):
    file = write_original(tmp_path) / "cars_annos.mat"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UserError, match=r"cars_annos\.mat cannot be read as the annotations of Cars196"):
        read_cars196(tmp_path)


def test_annotations_without_images(tmp_path):
    write_original(tmp_path)
    (tmp_path / "car_ims").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"holds no Cars196 \(found: cars_annos\.mat, elsewhere\): expected .*car_ims/"):
        read_cars196(tmp_path)


def write_class_folders(base, counts):
    for number, count in counts.items():
        for image in range(count):
            write_image(base / official_names()[number - 1].replace("/", "-") / f"{image}.jpg", number)


def test_class_folders_that_are_short_are_named_by_the_annotations_beside_them(tmp_path):
    write_original(tmp_path / "original", per_class=3)
    write_class_folders(tmp_path / "mine", {97: 3, 98: 1, 99: 3})
    (tmp_path / "original" / "cars_annos.mat").rename(tmp_path / "mine" / "cars_annos.mat")
    (short,) = [problem for problem in verify(CARS196, tmp_path / "mine").problems if "short" in problem]
    assert short == "2 classes are short: Eagle Talon Hatchback 1998 (1 of 3), FIAT 500 Convertible 2012 (0 of 3)"


def test_class_folders_without_annotations_name_empty_classes_and_what_would_tell_more(tmp_path):
    write_class_folders(tmp_path, {number: 1 for number in range(1, 197) if number != 98})
    told = "which classes are short is told once cars_annos.mat lies beside their folders"
    assert f"1 class has no image: Eagle Talon Hatchback 1998; {told}" in verify(CARS196, tmp_path).problems
    write_class_folders(tmp_path, {98: 1})
    assert told in verify(CARS196, tmp_path).problems
