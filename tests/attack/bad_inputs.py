"""Make bad inputs of every kind that a user can hand over, from a random stream; each is one call that may raise."""

import io
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from attack.verdicts import SilentlyWrong
from ccp_dml.config.layers import known_keys, resolve
from ccp_dml.data.files.health import check_data
from ccp_dml.data.published.archives import unpack
from ccp_dml.foundation.checkpoint import load_checkpoint, load_weights
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.datasets import build_data

Attack = Callable[[], object]

ODD_TEXTS = [
    "", "0", "-1", "1", "nan", "inf", "-inf", "1e308", "1e-308", "true", "[]", "[0]", "[1,1]", "[[[]]]", "{}", "{a=1}",
    "9" * 5000, "[" * 6000, "'" * 9, "\x00", "a" * 70_000, "/dev/zero", "/proc", "..", "\ud800", "[/b]", "${HOME}",
    "12345678901", "-0", "0x10", "1_000", "2026-01-01", "\u202e", "None", "null", "😀", "a=b", "%s%n", "1,2",
]  # fmt: skip


def odd_text(draw: random.Random) -> str:
    if draw.random() < 0.7:
        return draw.choice(ODD_TEXTS)
    return "".join(
        chr(draw.choice([draw.randrange(32, 127), draw.randrange(1, 0xD7FF)])) for _ in range(draw.randrange(12))
    )


def config_key(draw: random.Random, _: Path) -> Attack:
    key = draw.choice(known_keys()) if draw.random() < 0.9 else odd_text(draw)
    method = draw.choice(["c2", "c2-ccp", "ms", "proxy-anchor", "c1-xbm"])
    setting = f"{key}={odd_text(draw)}"
    return lambda: complete(resolve(["glyphs", method], [setting]).config)


def toml_recipe(draw: random.Random, folder: Path) -> Attack:
    lines = [
        draw.choice(
            [f"[{odd_text(draw)[:40]}]", f"{draw.choice(known_keys())} = {odd_text(draw)}", odd_text(draw)[:200]]
        )
        for _ in range(draw.randrange(4))
    ]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    file = folder / "recipe.toml"
    file.write_bytes(content if draw.random() < 0.8 else draw.randbytes(60))
    return lambda: complete(resolve([str(file)]).config)


def csv_table(draw: random.Random, folder: Path) -> Attack:
    header = draw.choice(
        ["path,label", "path,label,split", "path,path,label", "label", "", "PATH;LABEL", "path,label\x00"]
    )
    names = ["none.png", *(f"{number}.png" for number in range(8))]
    for number, name in enumerate(names[1:]):
        Image.new("RGB", (9, 9), (30 * number, 9, 9)).save(folder / name)
    rows = [
        draw.choice(
            [f"{draw.choice(names)},{draw.randrange(3)}", odd_text(draw)[:100], f"{odd_text(draw)[:50]},1", ",,,,"]
        )
        for _ in range(draw.randrange(8))
    ]
    if draw.random() < 0.2:  # a good table, in half of the cases with a row too many
        more = draw.choice([[], rows[:1]])
        header, rows = "path,label", [f"{name},{number // 2}" for number, name in enumerate(names[1:])] + more
    file = folder / "table.csv"
    file.write_bytes("\n".join([header, *rows]).encode("utf-8", "surrogatepass"))
    return lambda: check_data(file)


def npz_features(draw: random.Random, folder: Path) -> Attack:
    file = folder / "features.npz"
    rng = np.random.default_rng(draw.randrange(2**32))
    features = [
        rng.normal(size=(24, 3)).astype(draw.choice(["f2", "f4", "f8", "i4"])), rng.normal(size=24), np.zeros((0, 3)),
        np.full((24, 3), np.nan), np.array(["a"] * 24), np.array([{}] * 24, dtype=object), rng.normal(size=(24, 0)),
    ]  # fmt: skip
    labels = [np.arange(24) // 3, np.zeros(24), np.arange(5), np.array(["x"] * 24), np.array([None] * 24, dtype=object)]
    is_good = draw.random() < 0.3  # as long as nothing is damaged
    found = (features[0], labels[0]) if is_good else (draw.choice(features), draw.choice(labels))
    np.savez(file, **{"features" if is_good else draw.choice(["features", "x"]): found[0], "labels": found[1]})
    content = bytearray(file.read_bytes())
    for _ in range(draw.randrange(4)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    if draw.random() < 0.2:
        content = content[: draw.randrange(len(content))]
    if draw.random() < 0.2:
        content = (
            content.replace(b"(24, 3)", b"(10**12,") if draw.random() < 0.5 else content.replace(b"(24, ", b"(99, ")
        )
    file.write_bytes(content)
    config = resolve(["features", "c2"], [f"data.path={file}"]).config
    return lambda: build_data(config.data)


def image_bytes(draw: random.Random) -> bytes:
    content = io.BytesIO()
    mode = draw.choice(["RGB", "L", "P", "RGBA", "1", "I;16", "CMYK"])
    kind = {"CMYK": "JPEG", "I;16": "PNG"}.get(mode, draw.choice(["PNG", "TIFF"]))
    Image.new(mode, (draw.randrange(1, 40), draw.randrange(1, 40))).save(content, kind)
    damaged = bytearray(content.getvalue())
    for _ in range(draw.randrange(6)):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    if draw.random() < 0.3:
        damaged = damaged[: draw.randrange(len(damaged))]
    if draw.random() < 0.1:
        damaged = bytearray(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    return bytes(damaged)


def image_folder(draw: random.Random, folder: Path) -> Attack:
    root = folder / "photos"
    shutil.rmtree(root, ignore_errors=True)
    for name in range(draw.randrange(1, 5)):
        own = root / draw.choice([f"c{name}", f"[b]{name}", f"é{name}", f".hidden{name}", f"{name} "])
        own.mkdir(parents=True, exist_ok=True)
        for number in range(draw.randrange(4)):
            (own / f"{number}{draw.choice(['.png', '.jpg', '.PNG', '.txt', ''])}").write_bytes(image_bytes(draw))
        if draw.random() < 0.2:
            (own / "loop").symlink_to(draw.choice([".", "..", "/", "none", "/proc"]))
    return lambda: check_data(root)


def archive(draw: random.Random, folder: Path) -> Attack:
    file = folder / draw.choice(["a.zip", "a.tgz", "a.tar"])
    names = [
        "x.txt",
        "../up.txt",
        "/absolute.txt",
        "a/" * draw.choice([2, 60, 1500]) + "deep.txt",
        "con\x00trol",
        "é",
        "",
    ]
    chosen = [draw.choice(names) for _ in range(draw.randrange(5))]
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as packed:
            for name in chosen:
                packed.writestr(zipfile.ZipInfo(name or "x"), b"content")
    else:
        with tarfile.open(file, "w:gz" if file.suffix == ".tgz" else "w") as packed:
            for name in chosen:
                entry = tarfile.TarInfo(name or "x")
                entry.type = draw.choice(
                    [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.LNKTYPE]
                )
                entry.linkname = draw.choice(["/etc/passwd", "../..", "x.txt"])
                packed.addfile(entry, io.BytesIO())
    content = bytearray(file.read_bytes())
    if draw.random() < 0.4 and content:
        content[draw.randrange(len(content))] ^= 255
        file.write_bytes(content[: draw.randrange(len(content)) + 1])
    target = folder / "unpacked"

    def attack() -> None:
        shutil.rmtree(target, ignore_errors=True)
        unpack(file, target)
        if (folder / "up.txt").exists() or Path("/absolute.txt").exists():
            raise SilentlyWrong("an archive wrote outside of its folder")

    return attack


def damage(draw: random.Random, file: Path) -> None:
    """Change a file: a bit, its end, or all of it."""
    content = bytearray(file.read_bytes())
    how = draw.random()
    if how < 0.6 and content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif how < 0.8:
        content = content[: draw.randrange(len(content) + 1)]
    else:
        content = bytearray(draw.choice([b"", b"{}", b"[]", b"\xff\xfe", b"[" * 100_000, b"null", draw.randbytes(50)]))
    if bytes(content) == file.read_bytes():
        content += b"x"
    file.write_bytes(content)


def run_folder(draw: random.Random, folder: Path, run: Path) -> Attack:
    """Damage one file of a copy of `run`, and read it as `ccp report`, `ccp evaluate` and `--resume` do."""
    copy = folder / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    file = draw.choice([path for path in sorted(copy.rglob("*")) if path.is_file() and path.suffix != ".html"])
    damage(draw, file)

    def attack() -> None:
        RunFolder.read(copy)
        load_weights(copy / "best.safetensors")
        load_weights(copy / "test_embeddings.safetensors")
        load_checkpoint(copy / "checkpoint.pt")
        load_checkpoint(copy / "checkpoint.previous.pt")
        for path in (copy / "problems").glob("*"):
            load_weights(path)
        read = {
            path.name for path in copy.rglob("*") if path.suffix in (".safetensors", ".pt", ".json", ".jsonl", ".toml")
        }
        if file.name in read and file.name not in ("advice.json", "outline.json"):
            raise SilentlyWrong(f"{file.name} was changed, and everything is read without a word")

    return attack


KINDS: dict[str, Callable[[random.Random, Path], Attack]] = {
    "configuration keys": config_key,
    "TOML recipes": toml_recipe,
    "CSV tables": csv_table,
    "npz features": npz_features,
    "image folders": image_folder,
    "archives": archive,
}
