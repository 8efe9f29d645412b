import pytest

from ccp_dml.errors import UserError
from ccp_dml.records.folder_request import RequestFile

REQUEST = RequestFile("benchmark", "benchmark.toml", may_grow=" (more repeats may be added)")


def test_a_request_is_read_back_and_a_new_folder_has_none(tmp_path):
    assert REQUEST.read(tmp_path / "new") is None
    REQUEST.write(tmp_path / "new", {"methods": ["c2"], "repeats": 2})
    assert REQUEST.read(tmp_path / "new") == {"methods": ["c2"], "repeats": 2}


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "other.txt").write_text("")
    for folder in (tmp_path, tmp_path / "other.txt"):
        with pytest.raises(UserError, match="holds no benchmark"):
            REQUEST.read(folder)


def test_a_damaged_request_is_named(tmp_path):
    (tmp_path / "benchmark.toml").write_text("= 1")
    with pytest.raises(UserError, match=r"benchmark\.toml"):
        REQUEST.read(tmp_path)


def test_only_settings_that_change_a_result_must_stay(tmp_path):
    before = ["optim.lr=0.1", "run.device=cpu"]
    REQUEST.refuse_other_settings(tmp_path, before, ["optim.lr=1e-1", "run.device=cuda"])
    for after in (["optim.lr=0.2"], [], [*before, "ccp.weight=1"]):
        with pytest.raises(UserError, match="more repeats may be added"):
            REQUEST.refuse_other_settings(tmp_path, before, after)
    REQUEST.refuse_other_settings(tmp_path, before, [*before, "ccp.weight=1"], may_differ=["ccp.weight"])
