from dataclasses import replace

import torch

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet

ROWS = FeatureRows(torch.arange(12.0).view(6, 2))
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def labelled(labels=LABELS, source=ROWS, names=("a", "b", "c")):
    return LabelledSet(source, torch.tensor([5, 4, 3, 2, 1, 0]), labels, names)


def test_rows_are_of_the_set_and_not_of_its_source():
    assert labelled().load(torch.tensor([0, 5])).tolist() == [[10.0, 11.0], [0.0, 1.0]]


def test_classes_are_renumbered_in_the_order_given():
    part = labelled().of_classes([2, 0])
    assert part.class_names == ("c", "a")
    assert part.labels.tolist() == [1, 1, 0, 0]
    assert part.positions.tolist() == [5, 4, 1, 0]


def test_the_digest_changes_with_labels_names_and_contents_in_memory():
    def digest(train):
        return DataHalves(train, TestSet(labelled())).digest

    same = digest(labelled())
    assert same == digest(labelled())
    others = [
        labelled(LABELS.flip(0)),
        labelled(names=("a", "b", "d")),
        labelled(source=FeatureRows(ROWS.features + 1)),
    ]
    assert same not in {digest(other) for other in others}
    halves = DataHalves(labelled(), TestSet(labelled()))
    assert replace(halves, test=TestSet(labelled(), labelled())).digest != halves.digest
