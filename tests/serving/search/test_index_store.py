"""An index on disk: generations of files, of which a manifest says which count."""

import json
from contextlib import closing

import numpy as np
import pytest

from ccp_dml.errors import UserError
from ccp_dml.serving.search.index_store import (
    Manifest,
    NextGeneration,
    PinnedModel,
    check_files,
    is_index,
    is_leftover,
    map_vectors,
    open_items,
    read_manifest,
    sweep,
)

MODEL = PinnedModel(path="runs/birds", name="birds", digest="d" * 32, dim=2)


def write(folder, previous, rows):
    generation = NextGeneration(folder, previous)
    np.full((rows, 2), generation.number, np.float32).tofile(generation.path("vectors"))
    with closing(generation.new_table()) as table:
        table.execute("DELETE FROM items")
        table.executemany(
            "INSERT INTO items VALUES (?, ?, NULL, 1, 1, 'x')", [(row + 1, f"{row}.png") for row in range(rows)]
        )
        table.commit()
    return generation.commit(MODEL, rows, rows + 1)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "x.index", None, 3)
    return tmp_path / "x.index"


def test_a_generation_counts_once_it_is_committed(folder):
    first = read_manifest(folder)
    assert (first.generation, first.count, first.model) == (1, 3, MODEL)
    check_files(folder, first)
    second = write(folder, first, 5)
    assert read_manifest(folder) == second
    assert sorted(path.name for path in folder.iterdir()) == [
        "items-000002.sqlite",
        "manifest.json",
        "vectors-000002.f32",
    ]
    np.testing.assert_array_equal(map_vectors(folder, second), np.full((5, 2), 2))
    with closing(open_items(folder, second)) as table:
        assert table.execute("SELECT count(*) FROM items").fetchone() == (5,)


def test_an_abandoned_generation_leaves_the_last_one(folder, tmp_path):
    before = sorted(path.name for path in folder.iterdir())

    def interrupted(generation):
        with generation:
            generation.path("vectors").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(NextGeneration(folder, read_manifest(folder)))
    assert sorted(path.name for path in folder.iterdir()) == before
    with pytest.raises(KeyboardInterrupt):
        interrupted(NextGeneration(tmp_path / "new.index", None))
    assert not (tmp_path / "new.index").exists()


def test_vectors_cannot_be_changed_through_a_map(folder):
    map_vectors(folder, read_manifest(folder))[0] = 7
    check_files(folder, read_manifest(folder))


def test_changed_files_are_noticed(folder):
    manifest = read_manifest(folder)
    vectors = folder / manifest.files["vectors"].name
    content = vectors.read_bytes()
    for damaged, why in ((content[:-1], "23 bytes instead of 24"), (b"\1" + content[1:], "another content")):
        vectors.write_bytes(damaged)
        with pytest.raises(UserError, match=f"is damaged .*{why}"):
            check_files(folder, manifest)
    vectors.unlink()
    with pytest.raises(UserError, match="is missing"):
        check_files(folder, manifest)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"count": -1},
        {"surprise": 1},
        {"files": {"vectors": {"name": "../../etc/passwd", "bytes": 1, "digest": "x"}}},
    ],
)
def test_a_manifest_of_another_shape_is_refused(folder, changes):
    values = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(values | changes))
    with pytest.raises(UserError, match=r"is damaged \(manifest.json"):
        read_manifest(folder)


def test_what_is_no_index_is_named(tmp_path):
    assert not is_index(tmp_path)
    with pytest.raises(UserError, match=r"is no index: it has no manifest\.json"):
        read_manifest(tmp_path)
    with pytest.raises(UserError, match="There is no index"):
        read_manifest(tmp_path / "nothing")


def test_only_what_writers_make_is_swept(folder):
    for name in ("vectors-000009.f32", "items-000009.sqlite-journal", ".manifest.json.abc.part"):
        assert is_leftover(name)
        (folder / name).touch()
    for name in ("notes.txt", "vectors.f32", "manifest.json"):
        assert not is_leftover(name)
    (folder / "notes.txt").touch()
    manifest = read_manifest(folder)
    sweep(folder, manifest)
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        "notes.txt",
        *(stored.name for stored in manifest.files.values()),
    }


def test_an_empty_index_has_empty_vectors(tmp_path):
    manifest = write(tmp_path / "empty.index", None, 0)
    check_files(tmp_path / "empty.index", manifest)
    assert map_vectors(tmp_path / "empty.index", manifest).shape == (0, 2)
    assert isinstance(manifest, Manifest)
