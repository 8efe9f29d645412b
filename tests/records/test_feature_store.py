"""The feature cache: whole entries, unfinished ones that are kept, and damaged ones that are refused."""

import errno
import json
import os
from contextlib import ExitStack

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from support.frozen_runs import Counter, entries, training_features

from ccp_dml.cli import main
from ccp_dml.errors import UserError
from ccp_dml.foundation.locks import lock
from ccp_dml.records.feature_store import FeatureStore
from ccp_dml.runs.watcher import Watcher


@pytest.mark.parametrize("breaks_at", [1, 40, 41, 100, 160])
def test_what_a_killed_extraction_computed_is_kept(frozen_settings, tmp_path, breaks_at):
    whole = training_features(frozen_settings(f"run.cache={tmp_path / 'whole'}"))
    with pytest.raises(KeyboardInterrupt):
        training_features(frozen_settings(), Counter(breaks_at))
    (part,) = entries(tmp_path)
    assert part.endswith(".part")
    file = tmp_path / "cache" / part / "features.f32"
    row = whole.source.views[0, 0].nbytes
    done = -(-breaks_at // 16) * 16  # four images in four views make a block
    if done < 160:
        with file.open("r+b") as handle:
            handle.seek(done // 4 * row)
            handle.write(b"torn")  # a block that was being written
    counter = Counter()
    resumed = training_features(frozen_settings(), counter)
    assert np.array_equal(resumed.source.views, whole.source.views)
    assert [seen for seen, _ in counter.seen] == list(range(done + 16, 161, 16))
    assert entries(tmp_path) == [part.removesuffix(".part")]


def test_what_another_version_began_is_begun_anew(frozen_settings, tmp_path):
    whole = training_features(frozen_settings(f"run.cache={tmp_path / 'whole'}"))
    with pytest.raises(KeyboardInterrupt):
        training_features(frozen_settings(), Counter(40))
    (part,) = (tmp_path / "cache").glob("*.part")
    (part / "entry.json").write_text(json.dumps({"format": 99}))
    file = part / "features.f32"
    file.write_bytes(bytes(file.stat().st_size))
    assert np.array_equal(training_features(frozen_settings()).source.views, whole.source.views)


def test_an_entry_of_the_wrong_size_is_not_called_complete(frozen_settings, tmp_path, monkeypatch):
    def intrude(writer, first, features):  # noqa: ARG001
        with (writer.part / "features.f32").open("ab") as file:
            file.write(features[:1].tobytes())

    monkeypatch.setattr("ccp_dml.records.feature_store.Writer.write", intrude)
    with pytest.raises(UserError, match="another process wrote to it"):
        training_features(frozen_settings())
    assert entries(tmp_path)[0].endswith(".part")


def test_a_full_disk_is_a_clear_error_and_loses_nothing(frozen_settings, monkeypatch):
    blocks = []

    def fill_up(descriptor):
        blocks.append(descriptor)
        if len(blocks) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("ccp_dml.records.feature_store.os.fsync", fill_up)
        with pytest.raises(UserError, match=r"No space left on device.*run\.cache"):
            training_features(frozen_settings())
    counter = Counter()
    training_features(frozen_settings(), counter)
    assert counter.seen[0][0] > 16, "what was there before the disk was full is computed again"


def test_a_cache_folder_that_cannot_be_written(frozen_settings, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cache.*cannot be written.*run\.cache"):
        training_features(frozen_settings())


def test_an_entry_of_another_version_is_not_read(frozen_settings, tmp_path):
    training_features(frozen_settings())
    (entry,) = entries(tmp_path)
    header = tmp_path / "cache" / entry / "entry.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "format": 99}))
    with pytest.raises(UserError, match=r"another version.*ccp cache \w{8} --clear --folder"):
        training_features(frozen_settings())


@pytest.mark.parametrize("damage", ["shorter", "one byte", "gone", "headless"])
def test_a_damaged_entry_is_not_read_and_can_be_cleared(frozen_settings, tmp_path, damage):
    training_features(frozen_settings())
    (entry,) = entries(tmp_path)
    file = tmp_path / "cache" / entry / "features.f32"
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    if damage in ("gone", "headless"):
        (file if damage == "gone" else file.with_name("entry.json")).unlink()
    else:
        file.write_bytes(content if damage == "one byte" else content[:-2])
    with pytest.raises(UserError, match=r"is damaged, its content.*ccp cache \w{8} --clear --folder"):
        training_features(frozen_settings())
    assert main(["cache", entry[:8], "--clear", "--folder", str(tmp_path / "cache")]) == 0
    training_features(frozen_settings())


def test_features_too_large_for_half_precision(frozen_settings, frozen_weights):
    state = load_file(frozen_weights)
    save_file({name: value * 1e7 for name, value in state.items()}, frozen_weights)
    with pytest.raises(UserError, match=r"float16 cannot hold: .*set model\.feature_precision=single"):
        training_features(frozen_settings("model.feature_precision=half"))
    largest = training_features(frozen_settings("model.feature_precision=single")).source.views.max()
    assert np.isfinite(largest)
    assert largest > np.finfo(np.float16).max


def test_an_entry_that_another_process_removed_is_no_error(frozen_settings, tmp_path):
    training_features(frozen_settings())
    store = FeatureStore(tmp_path / "cache")
    (entry,) = store.entries()
    store.remove(entry)
    store.remove(entry)
    assert store.entries() == []


def test_a_part_that_is_longer_than_the_whole_is_begun_anew(frozen_settings, tmp_path):
    whole = training_features(frozen_settings(f"run.cache={tmp_path / 'whole'}"))
    with pytest.raises(KeyboardInterrupt):
        training_features(frozen_settings(), Counter(40))
    (part,) = (tmp_path / "cache").glob("*.part")
    with (part / "features.f32").open("ab") as file:
        file.write(bytes(whole.source.views.nbytes))
    assert np.array_equal(training_features(frozen_settings()).source.views, whole.source.views)


def test_who_waits_for_another_process_says_so(frozen_settings, tmp_path, monkeypatch):
    monkeypatch.setattr("ccp_dml.records.feature_store.SECONDS_FOR_ANOTHER_PROCESS", 10.0)  # not for ever
    with pytest.raises(KeyboardInterrupt):
        training_features(frozen_settings(), Counter(40))
    (part,) = (tmp_path / "cache").glob("*.part")
    holder, notes = ExitStack(), []
    holder.enter_context(lock(tmp_path / "cache" / f".{part.name.removesuffix('.part')}.lock", "taken"))

    class Waiting(Watcher):
        def note(self, text):
            notes.append(text)
            holder.close()

    training_features(frozen_settings(), Waiting())
    assert notes[0] == "Another process computes these features; waiting for it."


def test_what_a_kill_left_beside_the_header_is_not_kept(tmp_path):
    store = FeatureStore(tmp_path)
    (tmp_path / f"{'a' * 32}.part").mkdir()
    (tmp_path / f"{'a' * 32}.part" / ".entry.json.x7.part").write_text("{")
    with store.writing("a" * 32, (1, 2, 3), {}, lambda: None) as writer:
        assert writer.begin() == 0
        writer.write(0, np.zeros((1, 2, 3), np.float16))
        writer.finish()
    assert sorted(path.name for path in (tmp_path / ("a" * 32)).iterdir()) == ["entry.json", "features.f16"]


def test_each_precision_has_a_file_of_its_own_name_and_size(tmp_path):
    store, values = FeatureStore(tmp_path), np.linspace(0, 1, 6, dtype=np.float32).reshape(1, 2, 3)
    for key, dtype, name in (("a" * 32, np.float16, "features.f16"), ("b" * 32, np.float32, "features.f32")):
        with store.writing(key, (1, 2, 3), {}, lambda: None, dtype) as writer:
            writer.begin()
            writer.write(0, values.astype(dtype))
            writer.finish()
        assert (tmp_path / key / name).stat().st_size == 6 * np.dtype(dtype).itemsize
        read = store.read(key, (1, 2, 3), dtype)
        assert read.dtype == dtype
        assert np.array_equal(read, values.astype(dtype))
    assert len(store.entries()) == 2
    with pytest.raises(UserError, match="is damaged"):
        store.read("b" * 32, (1, 2, 3), np.float16)
