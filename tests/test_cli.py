"""The way in: the version, completion by the shell, and `python -m ccp_dml`."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import ccp_dml
from ccp_dml import cli
from ccp_dml.cli import app, main

COMMAND = Path(sys.executable).with_name("ccp")


def complete(*words):
    """Ask as bash does when Tab is pressed behind the last word."""
    environment = os.environ | {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = subprocess.run(
        [COMMAND], env=environment | {"_CCP_COMPLETE": "complete_bash"}, capture_output=True, text=True, timeout=120
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout.split()


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ccp-dml {version('ccp-dml')}\n"


def test_the_module_runs_as_the_command():
    asked = subprocess.run([sys.executable, "-m", "ccp_dml", "list", "datasets"], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert "glyphs" in asked.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ccp", "tra"], ["train"]),
        (["ccp", "train", "cu"], ["cub"]),
        (["ccp", "train", "cub", "--set", "ccp.pair"], ["ccp.pair_weight="]),
    ],
)
def test_the_shell_completes_commands_recipes_and_keys(words, expected):
    assert complete(*words) == expected


def test_a_script_for_the_shell_can_be_had(monkeypatch, capsys):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert main(["--show-completion", "bash"]) == 0
    assert "COMP_WORDS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], ["torch", "numpy", "pydantic", "PIL"]),
        (["train", "--help"], ["torch", "numpy", "PIL"]),
        (["config", "glyphs", "c2-ccp", "--explain"], ["torch", "numpy", "PIL"]),
        (["config", "optim.lr"], ["torch", "numpy", "PIL"]),
        (["list", "recipes"], ["torch", "numpy", "PIL"]),
    ],
)
def test_a_command_imports_nothing_slow_that_it_does_not_need(arguments, unneeded):
    program = (
        f"import sys; from ccp_dml.cli import main; code = main({arguments}); "
        f"sys.exit(code or ', '.join(sorted(set({unneeded}) & set(sys.modules))) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_every_public_name_is_there():
    for name in ccp_dml.__all__:
        assert getattr(ccp_dml, name) is not None
    assert set(ccp_dml.__all__) <= set(dir(ccp_dml))
    with pytest.raises(AttributeError, match="no attribute 'embedd'"):
        _ = ccp_dml.embedd


@pytest.mark.parametrize(
    "name", ["train", "config", "evaluate", "certify", "list", "report", "benchmark", "data prepare", "data verify"]
)
def test_every_command_has_help_with_an_example(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert f"ccp {name}" in shown


def every_command(command, path=()):
    commands = getattr(command, "commands", None)
    if not commands:
        yield path
    for name, one in (commands or {}).items():
        yield from every_command(one, (*path, name))


COMMANDS = list(every_command(typer.main.get_command(app)))


@pytest.mark.parametrize("group", ["data", "index"])
def test_help_of_a_group_shows_switches_without_a_type(group, capsys):
    assert main([group, "--help"]) == 0
    assert "<bool>" not in capsys.readouterr().out


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_eighty_columns_and_shows_three_examples(path):
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}, prog_name="ccp")
    lines = shown.output.splitlines()
    assert shown.exit_code == 0
    assert max(map(len, lines)) <= 80
    command = " ".join(["ccp", *path]).removesuffix(" build")
    examples = [line.strip(" •") for line in lines if line.strip().startswith("•")]
    assert len(examples) >= 3
    assert all(example.startswith(command) for example in examples)
    usage = next(line for line in lines if "Usage:" in line)
    assert usage.rstrip().endswith("[OPTIONS]")
    assert "[[" not in usage
    assert not re.search(r"<[a-z]|TEXT", shown.output), "an option shows a type of Python instead of a word"


def test_the_grammar_of_recipes_is_in_the_usage():
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "80"}, prog_name="ccp")
    assert "Usage: ccp train DATA [MODE] METHOD [OPTIONS]" in shown.output


def test_help_of_the_whole_shows_the_first_command_and_groups(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "ccp train folder frozen c2-ccp --set data.root=photos" in " ".join(shown.split())
    for panel in ("Train and look", "Put a network to work", "Compare methods", "Data and machine"):
        assert panel in shown
    assert "<bool>" not in shown


def test_commands_are_listed_in_the_order_of_their_use(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    shown = re.findall(r"^│ (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert shown[0] == "train"
    assert shown.index("index") < shown.index("search") < shown.index("benchmark") < shown.index("data")


@pytest.mark.parametrize("words", [["help"], ["-h"], ["--help"]])
def test_help_can_be_asked_for_in_any_way(words, capsys):
    assert main(words) == 0
    assert "Put a network to work" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["help", "search"], ["search", "-h"]])
def test_help_of_a_command_can_be_asked_for_in_any_way(words, capsys):
    assert main(words) == 0
    assert "INDEX|URI IMAGE" in capsys.readouterr().out


def test_help_of_index_is_not_taken_for_a_model(capsys):
    assert main(["index", "help"]) == 0
    assert "refresh" in capsys.readouterr().out


def test_version_may_be_a_word(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"ccp-dml {version('ccp-dml')}\n"


def test_the_command_keeps_freed_memory_before_it_does_anything(monkeypatch):
    order = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: order.append("keeps memory"))
    monkeypatch.setattr(cli, "main", lambda: order.append("runs") or 3)
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 3
    assert order == ["keeps memory", "runs"]
