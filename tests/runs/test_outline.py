import pytest
from PIL import Image

from ccp_dml.config.layers import resolve
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.outline import outline, typical_side


def described(recipes, *settings):
    config = resolve(recipes.split(), settings).config
    halves = build_data(config.data)
    return outline(config, halves, *classes_to_learn_and_to_select_on(config.protocol, halves))


@pytest.fixture
def photos(tmp_path):
    for label in range(20):
        (tmp_path / f"class{label:02}").mkdir()
        for number in range(24):
            Image.new("RGB", (105, 140), (label, number, 0)).save(tmp_path / f"class{label:02}" / f"{number}.png")
    return tmp_path


def test_the_sentence_says_what_will_happen(photos):
    found = described("folder c2-ccp", f"data.root={photos}", "model.backbone=small_cnn")
    assert found.sentence == (
        "20 classes, 480 images: learning from 8 classes, validating on 2, testing on 10; small_cnn from random "
        "weights; images 105 px enlarged to 227; C2 with CCP, 8 proxies per class."
    )
    assert (found.learned_classes, found.validation_classes, found.test_classes, found.image_side) == (8, 2, 10, 105)


def test_images_are_measured_without_augmentation_as_well(photos):
    found = described("folder c2", f"data.root={photos}", "model.backbone=small_cnn", "data.augment=none")
    assert found.image_side == 105


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        (
            "folder frozen c1-proxy",
            [],
            ["frozen", "images 105 px enlarged to 160", "C1 with 8 proxies per class, chosen once"],
        ),
        ("folder top c2", [], ["with pretrained weights, frozen below blocks.5"]),
        ("folder c2-xbm", ["data.crop=64"], ["images 105 px seen at 64", "C2 with a memory of 25 batches"]),
        ("folder ms-metrix", [], ["MS with mixtures of embeddings"]),
        ("folder c2-ccp-s", ["model.pretrained=true"], ["resnet50 with pretrained weights;", "1 proxy per class"]),
        ("folder proxy-anchor", ["model.weights=w.pt"], ["resnet50 with the weights in", "proxy-anchor alone"]),
        (
            "folder c2",
            ["protocol.hold_out=images"],
            ["learning from 10 classes, validating on 60 other images of them"],
        ),
        ("folder c2", ["protocol.select_on=test"], ["learning from 10 classes, selecting on the test classes"]),
    ],
)
def test_the_sentence_follows_the_settings(photos, recipes, settings, words):
    found = described(recipes, f"data.root={photos}", *settings)
    assert all(word in found.sentence for word in words), found.sentence


def test_vectors_have_no_size_in_pixels(features):
    found = described("features c2", f"data.path={features}", "model.embedding_dim=6")
    assert found.image_side is None
    assert "vectors: learning from" in found.sentence
    assert "a head of 6 numbers on vectors; C2 alone." in found.sentence
    by_images = described("features c2", f"data.path={features}", "protocol.hold_out=images", "protocol.folds=2")
    assert "other vectors of them" in by_images.sentence


def test_a_typical_side_is_the_median_of_those_that_can_be_read(photos):
    (photos / "class00" / "0.png").write_bytes(b"no image")
    Image.new("RGB", (2000, 2000)).save(photos / "class01" / "0.png")
    halves = build_data(resolve(["folder"], [f"data.root={photos}"]).config.data)
    assert typical_side(halves.train) == 105
