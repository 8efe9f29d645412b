"""`ccp config`: what is in force, and where each value comes from."""

import json
import tomllib

from ccp_dml.cli import main


def test_config_prints_toml_and_json_and_origins(capsys):
    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25"]) == 0
    as_toml = tomllib.loads(capsys.readouterr().out)
    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25", "--json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert as_toml == as_json
    assert as_json["optim"]["lr"] == 0.25
    assert as_json["loss"] == {"name": "c2", "positive_margin": 0.5, "negative_margin": 1.2, "normalise": "clip"}
    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25", "--json", "--explain"]) == 0
    origins = json.loads(capsys.readouterr().out)
    assert (origins["optim.lr"]["value"], origins["optim.lr"]["origin"]) == (0.25, "--set optim.lr")
    assert origins["ccp.mode"]["origin"] == "c2-ccp"
    assert origins["ccp.weight"]["origin"] == "default"


def test_explaining_shows_meanings_and_unset_keys(capsys):
    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25", "--explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("optim.lr = 0.25  # --set optim.lr")
    assert lines[at - 1] == "# learning rate of Adam (D16)"
    assert "# data.root is unset" in lines
    assert lines[lines.index("# data.root is unset") - 1] == "# folder of the images"
    assert 'ccp.mode = "alternating"  # c2-ccp' in lines
    assert any(line.startswith("loss.negative_margin = 1.2  # ") for line in lines)


def test_one_key_is_explained(capsys):
    assert main(["config", "glyphs", "c2-ccp", "optim.lr"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("optim.lr: learning rate of Adam (D16)\n  type     number > 0\n  default  1e-05\n")
    assert "value    0.001 (glyphs)" in text
    assert "set by   glyphs (0.001), mnist (0.001)" in text
    assert main(["config", "data.root", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)["data.root"]
    assert explained["value"] is None
    assert explained["meaning"] == "folder of the images"
    assert explained["type"] == "text or unset"


def test_sections_and_arguments_of_losses_are_explained(capsys):
    assert main(["config", "glyphs", "ms", "xbm", "loss.alpha"]) == 0
    text = capsys.readouterr().out
    assert [line.split(":")[0] for line in text.splitlines() if not line.startswith(" ") and line] == [
        "loss.alpha",
        *("xbm.enabled", "xbm.memory_batches", "xbm.start_step"),
    ]
    assert "argument of the loss ms" in text


def test_a_key_that_there_is_not_is_refused(capsys):
    assert main(["config", "optim.lrr"]) == 2
    assert "Unknown key 'optim.lrr'" in capsys.readouterr().err


def test_a_key_may_be_named_without_its_section(capsys):
    assert main(["config", "patience"]) == 0
    text = capsys.readouterr().out
    assert "train.patience: " in text
    assert "ccp.patience: " in text


def test_recipes_that_no_training_takes_are_refused(capsys):
    assert main(["config", "c2-ccp", "glyphs"]) == 2
    assert "write glyphs c2-ccp" in " ".join(capsys.readouterr().err.split())
