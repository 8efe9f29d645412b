import pytest
import torch

from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.errors import UserError
from ccp_dml.runs.datasets import classes_to_learn_and_to_select_on
from ccp_dml.runs.start.fitting import fit_to_data


def halves(classes, images=6):
    labels = torch.arange(classes).repeat_interleave(images)
    names = tuple(f"class {number}" for number in range(classes))
    part = LabelledSet(None, torch.arange(len(labels)), labels, names)
    return DataHalves(part, TestSet(part))


def fitted(recipes, classes, *settings, images=6):
    config = resolve(recipes.split(), settings).config
    return fit_to_data(config, halves(classes, images), [setting.partition("=")[0] for setting in settings])


@pytest.mark.parametrize("method", ["c2", "c2-ccp", "proxy-anchor"])
@pytest.mark.parametrize("classes", range(2, 45))
def test_whatever_the_number_of_classes_training_can_begin(method, classes):
    config, _ = fitted(f"folder {method}", classes)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, halves(classes))
    batches = ClassBalancedBatches(learned.labels, config.train.classes_per_batch, config.train.images_per_class, 0)
    assert len(next(iter(batches))) == config.train.classes_per_batch * config.train.images_per_class
    assert len(validation.queries.class_names) >= 2


def test_data_that_fit_stay_as_they_are():
    config = resolve(["csv", "c2"]).config
    assert fit_to_data(config, halves(12), ()) == (config, [])


def test_other_data_sets_keep_their_protocol():
    config = resolve(["cub", "c2"]).config
    assert fit_to_data(config, halves(4), ()) == (config, [])


def test_a_batch_stays_as_large():
    config, notes = fitted("folder c2", 10)
    assert (config.train.classes_per_batch, config.train.images_per_class) == (8, 4)
    config, notes = fitted("folder c2", 5)
    assert (config.train.classes_per_batch, config.train.images_per_class) == (3, 11)
    assert notes == [
        "Fitted to 5 training classes: protocol.folds=2, train.classes_per_batch=3, train.images_per_class=11."
    ]


def test_three_classes_are_validated_by_images():
    config, notes = fitted("folder c2", 3, images=7)
    assert (config.protocol.hold_out, config.protocol.folds) == ("images", 3)
    assert "protocol.hold_out=images" in notes[0]


def test_vectors_are_fitted_like_images():
    config, notes = fitted("features c2-ccp", 3, images=6)
    assert (config.protocol.hold_out, config.protocol.folds) == ("images", 3)
    assert len(notes) == 1


def test_too_few_classes_of_too_few_images_are_refused_in_one_sentence():
    with pytest.raises(UserError) as refusal:
        fitted("folder c2", 3, images=2)
    assert str(refusal.value) == (
        "3 training classes are too few to learn from some and validate on others (4 are needed), and class class 0 "
        "has too few images to validate on a part of them (2; 4 are needed): add classes or images, or let fewer "
        "classes test with data.test_share."
    )
    assert fitted("folder c2", 3, images=4)[0].protocol.folds == 2
    assert fitted("folder c2", 4, images=2)[0].protocol.hold_out == "classes"


def test_what_a_person_set_stays():
    config, _ = fitted("folder c2", 5, "protocol.folds=4", "train.classes_per_batch=8")
    assert (config.protocol.folds, config.train.classes_per_batch, config.train.images_per_class) == (4, 8, 4)
    config, _ = fitted("folder c2", 5, "train.images_per_class=2")
    assert (config.train.classes_per_batch, config.train.images_per_class) == (3, 2)
