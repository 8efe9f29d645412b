"""Copies of a user's code in the folder of a run: written, checked, and run with consent only."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.records import layout
from ccp_dml.records.code_copies import (
    code_of,
    digests_of,
    name_of_copy,
    refuse_changed_code,
    same_class,
    with_copies,
    write_copies,
)


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("class Net: pass\n")
    return file


@pytest.fixture
def run(tmp_path, mine):
    """A folder with a copy, the configuration and its digests."""
    folder = tmp_path / "run"
    folder.mkdir()
    config = resolve([], [f"model.backbone={mine}:Net", "loss.name=json.decoder:JSONDecoder"]).config
    write_copies(folder, config)
    return folder, config, digests_of(config)


def test_code_is_found_under_its_keys(run):
    folder, config, digests = run
    assert list(code_of(config)) == ["model.backbone", "loss.name"]
    assert list(code_of(config, ["model.backbone"])) == ["model.backbone"]
    assert code_of(resolve(["glyphs", "c2"], ["loss.name=pml:CircleLoss"]).config) == {}
    assert set(digests) == {"model.backbone", "loss.name"}
    assert [file.name for file in folder.iterdir()] == ["own_code.model.backbone.py"]  # modules are not copied


def test_without_consent_nothing_is_used(run):
    folder, config, digests = run
    with pytest.raises(
        UserError, match=r"model\.backbone = .*a copy of it is .*own_code.*add --trust-code .*trust_code=True"
    ):
        with_copies(folder, config, digests, ["model.backbone"], trust_code=False)
    with pytest.raises(UserError, match=r"json\.decoder:JSONDecoder\. It is not run without your consent"):
        with_copies(folder, config, digests, ["loss.name"], trust_code=False)
    assert with_copies(folder, config, digests, ["data.name"], trust_code=False) == config  # not asked for


def test_the_copy_takes_the_place_of_the_file(run):
    folder, config, digests = run
    used = with_copies(folder, config, digests, ["model.backbone", "loss.name"], trust_code=True)
    assert used.model.backbone == f"{layout.code_file(folder, 'model.backbone')}:Net"
    assert used.loss.name == config.loss.name
    assert name_of_copy("my.py:Net", "model.backbone") == "own_code.model.backbone.py:Net"
    assert name_of_copy("resnet50", "model.backbone") == "resnet50"


def test_a_copy_that_was_changed_or_lost_is_refused(run):
    folder, config, digests = run
    copy = layout.code_file(folder, "model.backbone")
    copy.write_text("class Net: evil = True\n")
    with pytest.raises(UserError, match=r"own_code\.model\.backbone\.py was changed after .* began"):
        with_copies(folder, config, digests, ["model.backbone"], trust_code=True)
    copy.unlink()
    with pytest.raises(UserError, match=r"is missing, the copy of"):
        with_copies(folder, config, digests, ["model.backbone"], trust_code=True)
    with pytest.raises(UserError, match=r"does not record which code"):
        with_copies(folder, config, {}, ["model.backbone"], trust_code=True)
    with pytest.raises(UserError, match=r"json\.decoder was changed after"):
        with_copies(folder, config, {"loss.name": "another"}, ["loss.name"], trust_code=True)


def test_a_file_that_was_changed_is_not_the_run_s(run, mine):
    folder, config, digests = run
    refuse_changed_code(folder, config, digests)
    mine.write_text("class Net: changed = True\n")
    with pytest.raises(UserError, match=r"mine\.py:Net is not the code that .* began with; restore it from .*own_code"):
        refuse_changed_code(folder, config, digests, if_there=True)
    mine.unlink()
    refuse_changed_code(folder, config, digests, if_there=True)
    with pytest.raises(UserError, match="There is no file"):
        refuse_changed_code(folder, config, digests)
    with pytest.raises(UserError, match="install the version that it began with"):
        refuse_changed_code(folder, config, digests | {"loss.name": "another"}, if_there=True)


def test_a_file_may_move():
    assert same_class("/a/my.py:Net", "/b/mine.py:Net")
    assert not same_class("/a/my.py:Net", "/b/my.py:Other")
    assert not same_class("/a/my.py:Net", "resnet50")
    assert not same_class(None, "/a/my.py:Net")
    assert not same_class("a.b:Net", "c.d:Net")
