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
    assert origins["optim.lr"] == {"value": 0.25, "origin": "--set optim.lr"}
    assert origins["ccp.mode"]["origin"] == "c2-ccp"
    assert origins["ccp.weight"]["origin"] == "default"
