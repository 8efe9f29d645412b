"""Who may write a run's folder."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.ownership import Ownership, TakenOver


def test_a_run_belongs_to_who_claimed_it_last(tmp_path):
    first, second = Ownership(tmp_path / "run"), Ownership(tmp_path / "run")
    assert not first.holds()  # nobody has claimed it
    first.claim()
    assert first.holds()
    second.claim()
    assert second.holds()
    assert not first.holds()
    with pytest.raises(TakenOver, match="taken over"):
        first.require()
    first.release()
    assert second.holds()  # a stale owner takes nothing away
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_a_stale_owner_writes_nothing(tmp_path):
    book = Logbook.open_new(tmp_path / "run", resolve(["features"], []).config, ["ccp"])
    book.ownership = Ownership(tmp_path / "run")
    book.ownership.claim()
    book.begin()
    before = sorted(file.name for file in book.folder.iterdir())
    Ownership(tmp_path / "run").claim()
    for write in (
        book.begin,
        lambda: book.record({"step": 1}),
        lambda: book.save({}),
        lambda: book.save_best({}),
        lambda: book.finish({}),
    ):
        with pytest.raises(TakenOver):
            write()
    assert sorted(file.name for file in book.folder.iterdir()) == before
