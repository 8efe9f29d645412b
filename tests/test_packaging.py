"""What is built is whole: the wheel, made from the sdist, works in an environment that has never seen the sources."""

import os
import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ccp_dml"
FILES = sorted(
    str(path.relative_to(SOURCE.parent))
    for path in SOURCE.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)


def run(*command, folder):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the sdist and the wheel made from it, out of a copy of the sources."""
    folder = tmp_path_factory.mktemp("build")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(SOURCE, copy / "src" / "ccp_dml", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", copy, folder=folder)
    return folder / "dist"


def test_wheel_and_sdist_hold_every_file(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in FILES if name not in in_wheel] == []
    assert [name for name in FILES if f"src/{name}" not in in_sdist] == []
    assert any(name.endswith(".toml") for name in FILES)


def test_the_wheel_trains_in_an_empty_environment(built, tmp_path):
    """Only the dependencies are shared with this environment: torch is large."""
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, folder=tmp_path)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    home = run(python, "-c", "import ccp_dml; print(ccp_dml.__file__)", folder=tmp_path)
    assert home.startswith(str(packages))
    ccp = python.with_name("ccp")
    assert "c2-ccp-s" in run(ccp, "list", "methods", folder=tmp_path)
    steps = ["--set", "train.max_steps=10", "--set", "train.evaluate_every=5"]
    run(ccp, "train", "glyphs", "c2-ccp", "--set", "ccp.start_step=5", *steps, "--out", "run", folder=tmp_path)
    assert (tmp_path / "run" / "result.json").exists()
    assert (tmp_path / "run" / "report.html").exists()
