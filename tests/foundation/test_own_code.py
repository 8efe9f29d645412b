"""Names of a user's own code: how they are read, found, run once and digested."""

import sys

import pytest
from torch import nn

from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code
from ccp_dml.foundation.digests import file_digest

GROUP = own_code.LOSSES


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\nRUNS = []\nRUNS.append(1)\nclass Loss(nn.Module):\n    pass\nx = 3\n")
    return path


def test_names_of_code_are_told_from_plain_names():
    assert own_code.parse("my.py:Loss") == own_code.CodeName("my.py", "Loss")
    assert own_code.parse("/a b/my.py:Loss").file.name == "my.py"
    assert own_code.parse("C:\\code\\my.py:Loss").place == "C:\\code\\my.py"
    assert own_code.parse("torchvision.datasets:CIFAR100").file is None
    for plain in ("c2", "pml:CircleLoss", "proxy-nca++", "my.py", "my.py:", "my.py:not a name", "a b:C"):
        assert own_code.parse(plain) is None


def test_paths_become_absolute_and_other_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert own_code.absolute("my.py:Loss") == f"{tmp_path / 'my.py'}:Loss"
    assert own_code.absolute("torch.nn:Linear") == "torch.nn:Linear"
    assert own_code.absolute("c2") == "c2"


def test_a_file_is_run_once_per_content(file):
    first = own_code.load(f"{file}:Loss", GROUP, nn.Module)
    assert first is own_code.load(f"{file}:Loss", GROUP)
    assert len(sys.modules[first.__module__].RUNS) == 1
    file.write_text(file.read_text() + "# another content\n")
    assert own_code.load(f"{file}:Loss", GROUP) is not first


def test_what_is_no_class_of_the_right_kind_is_refused(file):
    with pytest.raises(UserError, match=r"has no 'Los'; did you mean 'Loss'"):
        own_code.load(f"{file}:Los", GROUP)
    with pytest.raises(UserError, match="not a class or function but int 3"):
        own_code.load(f"{file}:x", GROUP)
    with pytest.raises(UserError, match=r"not a class derived from torch\.nn\.modules\.module\.Module"):
        own_code.load("json:JSONDecoder", GROUP, nn.Module)
    with pytest.raises(UserError, match=r"There is no file .*gone\.py"):
        own_code.load(f"{file.parent / 'gone.py'}:Loss", GROUP)
    with pytest.raises(UserError, match="There is no module 'no_such_package'; install it"):
        own_code.load("no_such_package:Loss", GROUP)
    with pytest.raises(UserError, match="'c2' names no code"):
        own_code.load("c2", GROUP)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\nx = 1 / 0\n", r"\(line 3\) failed: ZeroDivisionError: division by zero"),
        ("x = (\n", r"\(line 1\) failed: SyntaxError"),
        ("import no_such_thing\n", "put what it needs into the file, or install it"),
    ],
)
def test_code_that_fails_names_the_line(file, text, message):
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        own_code.load(f"{file}:Loss", GROUP)
    with pytest.raises(UserError, match=message):  # and again: a failed module is not kept
        own_code.load(f"{file}:Loss", GROUP)


def test_digests_are_of_the_file_which_is_not_run(file):
    file.write_text("raise SystemExit('run!')\n")
    assert own_code.code_digest(f"{file}:Loss", GROUP) == file_digest(file)
    assert own_code.code_digest("json.decoder:JSONDecoder", GROUP) == file_digest(
        own_code.source_file("json.decoder:X", GROUP)
    )
    with pytest.raises(UserError, match="There is no module 'no_such_package'"):
        own_code.code_digest("no_such_package:Loss", GROUP)


def test_classes_of_this_package_have_no_digest_of_their_own(file):
    own = own_code.load(f"{file}:Loss", GROUP)
    assert own_code.digest_of_class(own_code.CodeName) is None
    assert own_code.digest_of_class(own) == own.__module__
    assert own_code.digest_of_class(nn.Linear) == file_digest(
        own_code.source_file("torch.nn.modules.linear:Linear", GROUP)
    )


def test_entry_points_of_installed_packages_are_names(tmp_path, monkeypatch):
    assert not own_code.is_own("decoder", GROUP)
    installed = tmp_path / "decoders-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: decoders\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\ndecoder = json.decoder:JSONDecoder\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert own_code.is_own("decoder", GROUP)
    assert not own_code.is_own("decoder", own_code.BACKBONES)
    assert own_code.load("decoder", GROUP).__name__ == "JSONDecoder"
    assert own_code.source_file("decoder", GROUP).name == "decoder.py"
