"""Which command may continue a study, and what is written down about it."""

import tomllib
from dataclasses import replace

import pytest

from ccp_dml.errors import UserError
from ccp_dml.studies.request import StudyRequest, extend, write_down

REQUEST = StudyRequest("pool", "features", ("c2",), False, ("data.path=x.npz", "optim.lr=1e-3"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"study": "search"}, "study = pool, not search"),
        ({"data": "glyphs"}, "data = features, not glyphs"),
        ({"losses": ("c2", "ms")}, r"losses = \['c2'\], not \['c2', 'ms'\]"),
        ({"is_full": True}, "full = False, not True"),
        ({"storage": "sqlite:///x.db"}, "storage = in this folder, not sqlite:///x.db"),
        ({"settings": ("data.path=x.npz",)}, r"optim\.lr = 0\.001, not its default"),
        (
            {"settings": (*REQUEST.settings, "study.pool_per_class=[1]")},
            r"study\.pool_per_class = its default, not \[1\]",
        ),
    ],
)
def test_another_study_is_refused(tmp_path, change, message):
    write_down(tmp_path, REQUEST)
    with pytest.raises(UserError, match=message):
        extend(tmp_path, replace(REQUEST, **change))


def test_the_same_study_goes_on_with_more_repeats_and_elsewhere(tmp_path):
    extend(tmp_path / "new", REQUEST)
    write_down(tmp_path, REQUEST)
    more = ("study.repeats=3", "study.trials=9", "run.device=cpu")
    extend(tmp_path, replace(REQUEST, settings=(*REQUEST.settings, *more)))


@pytest.mark.parametrize(
    ("study", "before", "wanted", "most"),
    [
        ("pool", ("study.repeats=3",), ("study.repeats=2",), "study.repeats=3"),
        ("pool", ("study.repeats=3",), (), "study.repeats=3"),
        ("alternating", (), ("study.repeats=2",), "study.repeats=3"),  # which its recipe says
        ("alternating", ("study.repeats=2",), ("study.repeats=4",), "study.repeats=4"),
        ("search", ("study.trials=200",), ("study.trials=150",), "study.trials=200"),
    ],
)
def test_fewer_runs_than_there_are_leave_them_all_on_the_page(study, before, wanted, most, tmp_path):
    request = replace(REQUEST, study=study, is_full=True)
    write_down(tmp_path, replace(request, settings=(*REQUEST.settings, *before)))
    assert extend(tmp_path, replace(request, settings=(*wanted, *REQUEST.settings))).settings in [
        (*REQUEST.settings, most),
        (most, *REQUEST.settings),
    ]


def test_foreign_and_damaged_folders_are_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not empty and holds no study"):
        extend(tmp_path, REQUEST)
    for text in ("study = ", 'study = "pool"\ndata = "features"\nlosses = ["c2"]\nfull = false\n'):
        (tmp_path / "study.toml").write_text(text)
        with pytest.raises(UserError, match=r"damaged|its default"):
            extend(tmp_path, REQUEST)


def test_passwords_are_not_written_down(tmp_path):
    write_down(tmp_path, replace(REQUEST, storage="mysql://ann:s3cret@host/db"))
    assert "s3cret" not in (tmp_path / "study.toml").read_text()
    assert tomllib.loads((tmp_path / "study.toml").read_text())["storage"] == "mysql://ann:***@host/db"


def test_layers_and_folders():
    assert REQUEST.recipes("c2-ccp") == ("features", "c2-ccp", "study-pool")
    full = replace(REQUEST, is_full=True, settings=("study.repeats=2", "optim.lr=1"))
    assert full.recipes("c2") == ("features", "c2", "study-pool-full")
    assert full.run_settings == ("optim.lr=1",)
    assert str(full.default_folder) == "runs/study-pool-full-features"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": ("ccp.mode=off",)}, r"--set ccp\.mode would make another method of c2-ccp.*leave it out"),
        ({"settings": ("loss.name=ms",)}, r"--set loss\.name would make another method of c2-ccp"),
        ({"data": "features,ms"}, "ms and c2-ccp are 2 methods"),
    ],
)
def test_methods_stay_what_their_names_say(change, message):
    with pytest.raises(UserError, match=message):
        replace(REQUEST, **change).recipes("c2-ccp")
