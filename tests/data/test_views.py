import numpy as np
import pytest
import torch

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.files.folder import load_folder
from ccp_dml.data.files.images import ImageReading
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.transforms import eval_transform
from ccp_dml.data.views import (
    KEPT_BYTES,
    KEPT_SIDE,
    FeatureViews,
    Unaugmented,
    fits_in_memory,
    with_features,
    without_augmentation,
)
from ccp_dml.foundation.randomness import seeds_of_rows

SOURCE = FeatureRows(torch.zeros(4, 1))
POSITIONS = torch.tensor([3, 1])
VIEWS = np.array([[[0.0], [1.0]], [[10.0], [11.0]], [[20.0], [21.0]]], dtype=np.float16)  # (3, 2, 1)


def test_without_a_seed_the_first_view_is_given_by_position():
    views = FeatureViews(SOURCE, POSITIONS, VIEWS)
    assert views.load(torch.tensor([1, 3]), None).tolist() == [[1.0], [0.0]]
    assert views.load(torch.tensor([1]), None).dtype == torch.float32


def test_a_seed_draws_one_of_the_augmented_views_for_each_item():
    views = FeatureViews(SOURCE, POSITIONS, VIEWS)
    positions, seeds = torch.tensor([1, 3]).repeat(200), seeds_of_rows(400, 5)
    drawn = views.load(positions, seeds).flatten()
    assert torch.equal(drawn[7:90], views.load(positions[7:90], seeds[7:90]).flatten())
    values, counts = drawn.unique(return_counts=True)
    assert values.tolist() == [10.0, 11.0, 20.0, 21.0]
    assert counts.min() > 70, "every view must come about equally often"


def test_items_that_were_not_seen_have_no_features():
    with pytest.raises(IndexError, match="not seen"):
        FeatureViews(SOURCE, POSITIONS, VIEWS).load(torch.tensor([0]), None)


def test_labels_stay_with_their_features():
    data = LabelledSet(SOURCE, POSITIONS, torch.tensor([1, 0]), ("a", "b"))
    seen = with_features(data, VIEWS)
    assert seen.load(torch.tensor([0, 1])).tolist() == [[0.0], [1.0]]
    assert (seen.labels.tolist(), seen.class_names) == ([1, 0], ("a", "b"))


class Noted:
    in_memory = True

    def __init__(self):
        self.seeds = []

    def __len__(self):
        return 1

    def load(self, positions, seeds):
        self.seeds.append(seeds)
        return torch.zeros(len(positions), 1)

    def name(self, position):
        return f"item {position}"

    def picture(self, position):  # noqa: ARG002
        return None

    def signature(self, positions):
        return str(positions.tolist())


def test_only_the_training_half_loses_its_augmentation():
    source = Noted()
    part = LabelledSet(source, torch.tensor([0]), torch.tensor([0]), ("a",))
    halves = without_augmentation(DataHalves(part, TestSet(part)))
    halves.train.load(torch.tensor([0]), torch.tensor([7]))
    halves.test.queries.load(torch.tensor([0]), torch.tensor([8]))
    assert source.seeds == [None, torch.tensor([8])]
    assert isinstance(halves.train.source, Unaugmented)
    assert halves.train.source.signature(torch.tensor([0])) != source.signature(torch.tensor([0]))


def test_small_image_files_are_read_once_and_look_as_before(image_folder, monkeypatch):
    view = eval_transform(36, 32)
    halves = load_folder(image_folder, ImageReading(view, view))
    plain, kept = without_augmentation(halves).train, without_augmentation(halves, 32).train
    read = []
    pixels = type(halves.train.source).pixels
    monkeypatch.setattr(
        type(halves.train.source), "pixels", lambda source, position: read.append(position) or pixels(source, position)
    )
    rows = torch.tensor([2, 0, 2])
    seen = kept.load(rows, torch.tensor([5, 6, 7]))
    assert sorted(set(read)) == sorted(set(halves.train.positions[rows].tolist()))
    first = len(read)
    later = kept.load(torch.tensor([0, 2]))
    assert len(read) == first, "nothing is read twice"
    kept.load(torch.tensor([0, 1]))
    assert len(read) == first + 1
    assert torch.equal(seen, plain.load(rows))
    assert torch.equal(later, plain.load(torch.tensor([0, 2])))
    seen.zero_()
    assert torch.equal(kept.load(rows), plain.load(rows)), "a batch is a copy of what is kept"


def test_only_few_and_small_image_files_are_kept(image_folder):
    view = eval_transform(36, 32)
    halves = load_folder(image_folder, ImageReading(view, view))
    sources = [without_augmentation(halves, side).train.source for side in (32, KEPT_SIDE + 1, None)]
    assert [source.keep for source in sources] == [True, False, False]
    assert not fits_in_memory(KEPT_BYTES // (3 * 32**2) + 1, 32)
    assert fits_in_memory(KEPT_BYTES // (3 * 32**2), 32)
    in_memory = LabelledSet(SOURCE, POSITIONS, torch.tensor([1, 0]), ("a", "b"))
    assert not without_augmentation(DataHalves(in_memory, TestSet(in_memory)), 32).train.source.keep
