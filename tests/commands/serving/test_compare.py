"""`ccp compare` as a user calls it."""

import json

import ccp_dml as ccp
from ccp_dml.cli import main


def test_compare_says_it_in_a_sentence(photo_run, photos, capsys):
    a, b = str(photos / "class_00" / "0.png"), str(photos / "class_15" / "0.png")
    model = ccp.load(photo_run[0])
    for second in (a, b):
        assert main(["compare", a, second, "--model", str(photo_run[0]), "--json"]) == 0
        verdict = json.loads(capsys.readouterr().out)
        assert set(verdict) == {"same", "distance", "threshold", "promise"}
        assert verdict["distance"] == model.distance(a, second)
        assert main(["compare", a, second, "--model", str(photo_run[0])]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("The same" if verdict["same"] else "Different")
        assert verdict["promise"] in shown
    assert main(["compare", a, b, "--model", str(photo_run[0]), "--false-match-rate", "0.5"]) == 0
    assert main(["compare", a, b, "--model", str(photo_run[0]), "--false-match-rate", "7"]) == 2


def test_compare_names_a_broken_image(photo_run, photos, tmp_path, capsys):
    (tmp_path / "empty.jpg").touch()
    assert (
        main(["compare", str(photos / "class_00" / "0.png"), str(tmp_path / "empty.jpg"), "--model", str(photo_run[0])])
        == 2
    )
    assert "empty.jpg" in capsys.readouterr().err
