"""`ccp data prepare` and `ccp data verify`, as a person uses them, on a CUB of four classes."""

import hashlib
import json
import shutil
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ccp_dml.cli import main
from ccp_dml.config.schema import DataConfig
from ccp_dml.data.published.cars196 import CARS196
from ccp_dml.data.published.cub import CUB
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inshop import INSHOP
from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.runs.datasets import PUBLISHED, build_data

NAMES = {99: "099.Ovenbird", 100: "100.Brown_Pelican", 101: "101.White_Pelican", 102: "102.Western_Wood_Pewee"}
NOBODY = "http://127.0.0.1:1/"  # nothing listens there


@pytest.fixture
def cub(tmp_path, monkeypatch):
    """The original layout of a small CUB, in tmp_path/have/CUB_200_2011, which counts as the published one."""
    base = tmp_path / "have" / "CUB_200_2011"
    noise = np.random.default_rng(0)
    images = []
    for number, name in NAMES.items():
        (base / "images" / name).mkdir(parents=True)
        for image in range(4):
            path = f"{name}/{image}.jpg"
            pixels = noise.integers(0, 256, (40, 36, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(base / "images" / path)
            images.append((len(images) + 1, path, number))
    (base / "classes.txt").write_text("".join(f"{number} {name}\n" for number, name in NAMES.items()))
    (base / "images.txt").write_text("".join(f"{i} {path}\n" for i, path, _ in images))
    (base / "image_class_labels.txt").write_text("".join(f"{i} {number}\n" for i, _, number in images))
    sizes = {"train": SplitSize(2, 8), "test": SplitSize(2, 8)}
    monkeypatch.setitem(PUBLISHED, "cub", replace(CUB, sizes=sizes))
    return base


@pytest.fixture
def archive(cub, tmp_path, monkeypatch):
    """The archive that this CUB is published as; its only source is down."""
    file = tmp_path / "downloads" / "CUB_200_2011.tgz"
    file.parent.mkdir()
    with tarfile.open(file, "w:gz") as tar:
        tar.add(cub, "CUB_200_2011")
    published = RemoteFile(file.name, (NOBODY,), hashlib.md5(file.read_bytes()).hexdigest(), file.stat().st_size)
    monkeypatch.setitem(PUBLISHED, "cub", replace(PUBLISHED["cub"], files=(published,)))
    return file


def prepare(name, root, *options):
    return main(["data", "prepare", name, "--root", str(root), *map(str, options)])


def refused(capsys, code, *words):
    error = capsys.readouterr().err
    assert code == 2
    assert "Traceback" not in error
    sentences = [line for line in error.splitlines() if line.startswith("Error: ")]
    assert len(sentences) == 1
    for word in words:
        assert word in sentences[0], f"{word!r} is not in {sentences[0]!r}"
    return sentences[0]


def verified(root, capsys):
    capsys.readouterr()
    assert main(["data", "verify", "cub", "--root", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["complete"]
    assert {split: (row["classes"], row["images"]) for split, row in found["splits"].items()} == {
        "train": (2, 8),
        "test": (2, 8),
    }
    return found


def test_original_archive(archive, tmp_path, capsys):
    root = tmp_path / "new" / "root"
    assert prepare("cub", root, "--from", archive) == 0
    assert "ccp train cub c2-ccp --set data.root=" in capsys.readouterr().out
    assert [path.name for path in root.iterdir()] == ["CUB_200_2011"]
    verified(root, capsys)


def test_archive_of_ones_own(cub, tmp_path, capsys):
    """Shrunk by someone: another name, another md5, one folder per class, as tar and as zip."""
    own = tmp_path / "mine.tar"
    with tarfile.open(own, "w") as tar:
        tar.add(cub / "images", "shrunk")
    assert prepare("cub", tmp_path / "tar", "--from", own) == 0
    assert verified(tmp_path / "tar", capsys)["folder"] == str(tmp_path / "tar" / "shrunk")
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as packed:  # without a folder above the classes
        for path in sorted((cub / "images").rglob("*.jpg")):
            packed.write(path, path.relative_to(cub / "images"))
    assert prepare("cub", tmp_path / "zip", "--from", tmp_path / "mine.zip") == 0
    assert verified(tmp_path / "zip", capsys)["folder"] == str(tmp_path / "zip" / "CUB_200_2011")


@pytest.mark.parametrize("given", ["", "..", "images"])
def test_folder_is_linked_not_copied(cub, tmp_path, given, capsys):
    root = tmp_path / "root"
    assert prepare("cub", root, "--from", cub / given) == 0
    (link,) = root.iterdir()
    assert link.is_symlink()
    assert link.resolve() == (cub / "images" if given == "images" else cub).resolve()
    verified(root, capsys)
    verified(cub, capsys)  # unprepared, it can be used as well


def test_folder_is_linked_file_by_file_where_there_are_no_symbolic_links(cub, tmp_path, capsys, monkeypatch):
    def refuse(*_, **__):
        raise OSError("not permitted")

    monkeypatch.setattr("pathlib.Path.symlink_to", refuse)
    assert prepare("cub", tmp_path / "root", "--from", cub) == 0
    one = tmp_path / "root" / "CUB_200_2011" / "images" / NAMES[99] / "0.jpg"
    assert one.samefile(cub / "images" / NAMES[99] / "0.jpg")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["CUB_200_2011"]
    verified(tmp_path / "root", capsys)


def test_archive_in_the_root_is_used_instead_of_a_source(archive, tmp_path, capsys):
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(archive, root)
    assert prepare("cub", root) == 0
    assert sorted(path.name for path in root.iterdir()) == ["CUB_200_2011", "CUB_200_2011.tgz"]
    verified(root, capsys)


def test_second_time_does_nothing(archive, tmp_path, capsys):
    root = tmp_path / "root"
    assert prepare("cub", root, "--from", archive) == 0
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    capsys.readouterr()
    assert prepare("cub", root) == 0
    assert "already holds CUB-200-2011" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.usefixtures("archive")
def test_source_that_is_down(tmp_path, capsys):
    root = tmp_path / "root"
    sentence = refused(capsys, prepare("cub", root), "CUB_200_2011.tgz could not be fetched", NOBODY, CUB.page)
    assert f"put it into {root} and run `ccp data prepare cub --root {root}` again" in sentence
    assert not root.exists()


def test_data_set_behind_a_form(tmp_path, capsys):
    root = tmp_path / "root"
    refused(
        capsys, prepare("inshop", root), "img.zip and list_eval_partition.txt", INSHOP.page, f"put them into {root}"
    )
    assert not root.exists()


def test_files_of_a_form_put_into_the_root(tmp_path, capsys, monkeypatch):
    """In-shop as a browser leaves it: a packed and a plain file."""
    sizes = {"train": SplitSize(1, 2), "query": SplitSize(1, 1), "gallery": SplitSize(1, 1)}
    monkeypatch.setitem(PUBLISHED, "inshop", replace(INSHOP, sizes=sizes))
    rows = [("1", "0", "train"), ("1", "1", "train"), ("2", "0", "query"), ("2", "1", "gallery")]
    root = tmp_path / "root"
    root.mkdir()
    lines = ["4", "image_name item_id evaluation_status"]
    with zipfile.ZipFile(root / "img.zip", "w") as packed:
        for article, number, split in rows:
            image = tmp_path / f"{article}_{number}.jpg"
            Image.new("RGB", (8, 8)).save(image)
            packed.write(image, f"img/id_0000000{article}/{number}.jpg")
            lines.append(f"img/id_0000000{article}/{number}.jpg id_0000000{article} {split}")
    refused(capsys, prepare("inshop", root), "cannot be fetched")
    (root / "list_eval_partition.txt").write_text("\n".join(lines))
    assert prepare("inshop", root) == 0
    assert (root / "inshop" / "Img" / "img" / "id_00000002" / "1.jpg").is_file()
    assert main(["data", "verify", "inshop", "--root", str(root)]) == 0


def test_one_of_two_archives(tmp_path, capsys, monkeypatch):
    images = tmp_path / "car_ims.tgz"
    images.write_bytes(b"anything")
    files = (RemoteFile("car_ims.tgz"), RemoteFile("cars_annos.mat"))
    monkeypatch.setitem(PUBLISHED, "cars196", replace(CARS196, files=files))
    code = prepare("cars196", tmp_path / "root", "--from", images)
    refused(capsys, code, "car_ims.tgz is not all of Cars196: put cars_annos.mat beside it")


def test_wrong_md5(archive, tmp_path, capsys):
    contents = bytearray(archive.read_bytes())
    contents[-1] ^= 1
    archive.write_bytes(contents)
    root = tmp_path / "root"
    refused(capsys, prepare("cub", root, "--from", archive), "is not the published CUB_200_2011.tgz", "md5")
    assert not root.exists()


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_half_an_archive(archive, tmp_path, capsys, share):
    half = archive.with_name("half.tgz")  # not the published name: it shows when it is unpacked
    half.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
    root = tmp_path / "root"
    refused(capsys, prepare("cub", root, "--from", half), "half.tgz is damaged or cut off")
    assert not root.exists()


def test_archive_that_tries_to_escape(cub, tmp_path, capsys):
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        tar.add(cub, "CUB_200_2011")
        tar.add(cub / "classes.txt", "../../escaped.txt")
    root = tmp_path / "root"
    refused(capsys, prepare("cub", root, "--from", evil), "evil.tar is not safe", "escaped.txt")
    assert not root.exists()
    assert not list(tmp_path.rglob("escaped.txt"))


def test_archive_with_too_little_in_it(cub, tmp_path, capsys):
    shutil.rmtree(cub / "images" / NAMES[102])
    (cub / "images" / NAMES[99] / "3.jpg").unlink()
    own = tmp_path / "mine.tar"
    with tarfile.open(own, "w") as tar:
        tar.add(cub / "images", "shrunk")
    root = tmp_path / "root"
    refused(
        capsys,
        prepare("cub", root, "--from", own),
        "mine.tar is not CUB-200-2011 as published",
        "train has 7 images of 2 classes instead of 8 of 2",
        "test has 4 images of 1 classes instead of 8 of 2",
    )
    assert not root.exists()


def test_archive_of_something_else(tmp_path, capsys):
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(__file__, "readme.py")
    refused(capsys, prepare("cub", tmp_path / "root", "--from", tmp_path / "other.tar"), "holds no CUB-200-2011")


def test_folder_with_missing_images(cub, tmp_path, capsys):
    (cub / "images" / NAMES[101] / "2.jpg").unlink()
    (cub / "images" / NAMES[99] / "1.jpg").unlink()
    words = ("2 of 16 images are missing", f"images/{NAMES[99]}/1.jpg, images/{NAMES[101]}/2.jpg")
    root = tmp_path / "root"
    refused(capsys, prepare("cub", root, "--from", cub), *words)
    assert not root.exists()
    refused(capsys, main(["data", "verify", "cub", "--root", str(cub)]), *words)


def test_an_incomplete_data_set_names_the_short_classes_and_how_to_go_on(cub, tmp_path, capsys):
    (cub / "images" / NAMES[99] / "1.jpg").unlink()
    root = tmp_path / "root"
    short = f"1 class is short: {NAMES[99]} ("
    refused(capsys, prepare("cub", root, "--from", cub), short, "go on without it: --allow-incomplete")
    assert prepare("cub", root, "--from", cub, "--allow-incomplete") == 0
    shown = capsys.readouterr()
    assert short in " ".join(shown.err.split())
    assert "--set data.skip_broken=true" in " ".join(shown.out.split())
    assert prepare("cub", root, "--allow-incomplete") == 0
    halves = build_data(DataConfig(name="cub", root=str(root), skip_broken=True))
    assert any("not CUB-200-2011 as published" in text for text in halves.incomplete)


def test_nothing_at_the_given_place(tmp_path, capsys):
    refused(capsys, prepare("cub", tmp_path / "root", "--from", tmp_path / "gone"), "gone does not exist")


def test_something_in_the_way(archive, tmp_path, capsys):
    mine = tmp_path / "root" / "CUB_200_2011" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("keep me")
    refused(capsys, prepare("cub", tmp_path / "root", "--from", archive), "CUB_200_2011 is in the way")
    assert mine.read_text() == "keep me"
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["CUB_200_2011"]


def test_unknown_data_set(tmp_path, capsys):
    refused(capsys, prepare("cubs", tmp_path), "'cubs' is no published data set", "did you mean 'cub'")
    refused(capsys, main(["data", "verify", "xyz", "--root", str(tmp_path)]), "cub, cars196, sop, inshop, mnist")


def test_verify_nothing(tmp_path, capsys):
    refused(capsys, main(["data", "verify", "cub", "--root", str(tmp_path)]), "holds no CUB-200-2011", "images.txt")


def test_deep_verification_finds_what_cannot_be_read(cub, capsys):
    broken = cub / "images" / NAMES[100] / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    assert main(["data", "verify", "cub", "--root", str(cub)]) == 0
    code = main(["data", "verify", "cub", "--root", str(cub), "--deep"])
    refused(capsys, code, "1 of 16 images cannot be read", str(broken))


def test_cache_and_training_from_it(cub, tmp_path, capsys):
    root = tmp_path / "root"
    assert prepare("cub", root, "--from", cub, "--cache", 24) == 0
    assert "--set data.cached=true" in capsys.readouterr().out
    assert Image.open(root / "cached-24" / "images" / NAMES[99] / "0.jpg").size == (24, 26)
    settings = [f"data.root={root}", "data.cached=true", "data.resize=24", "data.crop=20", "model.backbone=resnet20v2"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["evaluate", "--raw", "cub", *options, "--set", "run.workers=0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 8
    options[-3] = "data.crop=25"
    refused(capsys, main(["evaluate", "--raw", "cub", *options, "--set", "data.resize=25"]), "--cache 25")


def test_cache_of_plain_pixels(cub, tmp_path, capsys):
    root = tmp_path / "cub"
    refused(capsys, prepare("cub", root, "--from", cub, "--pixels"), "--cache 256")
    assert prepare("cub", root, "--from", cub, "--cache", 24, "--pixels") == 0
    assert Image.open(root / "cached-24-pixels" / "images" / NAMES[99] / "0.jpg.ppm").size == (24, 26)


def test_cache_of_a_data_set_in_memory(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ccp_dml.data.published.preparation.prepare", lambda *_: None)
    refused(capsys, prepare("mnist", tmp_path, "--cache", 64), "nothing to cache")
