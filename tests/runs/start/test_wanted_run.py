"""What becomes of recipes and settings before anything is trained."""

import pytest

from ccp_dml.errors import UserError
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.start.wanted_run import wanted_run


def wanted(recipes, *settings, seed=None):
    return wanted_run(recipes.split(), settings, seed, build_data)


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        ("c2-ccp", ["data.root=photos"], "No data set is named; data.root is read by folder"),
        ("glyphs c2-ccp", ["data.root=photos"], "the data set glyphs does not read it"),
        ("glyphs c1 c2-ccp", [], "c1 and c2-ccp are 2 methods"),
        ("frozen glyphs c2", [], "write glyphs frozen c2"),
        ("folder c2-ccp", ["data.root=photos"], "Say how to train with a mode, as in `ccp train folder frozen c2-ccp`"),
        ("c2-ccp", ["data.name=mine.py:Data"], "Say how to train with a mode"),
    ],
)
def test_what_would_do_something_else_than_was_meant_is_refused(recipes, settings, words):
    with pytest.raises(UserError) as refused:
        wanted(recipes, *settings)
    assert words in str(refused.value)


def test_the_configuration_is_complete_and_a_missing_method_is_told(features):
    found = wanted("features", f"data.path={features}", seed=7)
    assert found.config.run.seed == 7
    assert found.config.loss.arguments["normalise"] == "clip"
    note, fitted = found.notes
    assert fitted.startswith("Fitted to ")
    assert "No method is named" in note
    assert wanted("features c2", f"data.path={features}").notes == (fitted,)


def test_ones_own_images_get_sizes_folds_and_batches_that_fit(image_folder):
    settings = (f"data.root={image_folder}", "data.classes=5")
    found = wanted("folder scratch c2", *settings)
    assert (found.config.data.resize, found.config.data.crop) == (36, 36)
    assert found.config.protocol.folds == 2
    assert found.notes[0].startswith("Fitted to 5 training classes: protocol.folds=2")
    assert wanted("folder scratch c2", *settings, "protocol.folds=3").config.protocol.folds == 3
