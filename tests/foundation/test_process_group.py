"""The collective operations in real processes, and in the one that is alone."""

import pytest
import torch
from support.collective_cases import collective_operations, rows_in_pieces
from support.many_processes import in_processes

from ccp_dml.foundation.process_group import (
    ALONE,
    Processes,
    current,
    lost_another,
    started_together,
    times_restarted,
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What each of three processes sees of every operation."""
    return in_processes(3, tmp_path_factory.mktemp("processes"), collective_operations)


def test_gathered_rows_come_in_rank_order(seen):
    for answer in seen:
        assert answer["joined"].tolist() == [[2.0, 3.0], [4.0, 6.0], [6.0, 9.0]]
        assert answer["labels"].tolist() == [0, 10, 1, 11, 2, 12]
        assert answer["rows"].tolist() == [[1, 1]] * 2 + [[2, 2]] * 4
        assert answer["some have nothing"].tolist() == [[1.0] * 3] * 2


def test_the_sum_of_the_processes_gradients_is_the_gradient_of_one_process(seen):
    weight = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    rows = torch.stack([weight * factor for factor in (1, 2, 3)])
    (rows.square().sum(dim=1) * torch.arange(1.0, 4.0)).sum().backward()
    torch.testing.assert_close(sum(answer["gradient"] for answer in seen), weight.grad, rtol=1e-15, atol=0)


def test_gradients_of_shared_work_are_those_of_one_process(seen):
    parts = [torch.tensor([1.0 + rank, 5.0], dtype=torch.float64, requires_grad=True) for rank in range(3)]
    alike = torch.tensor([2.0, 7.0], dtype=torch.float64, requires_grad=True)
    total = sum((alike * part).prod() for part in parts)
    total.square().backward()
    for part, answer in zip(parts, seen, strict=True):
        value, of_alike, of_part = answer["total"]
        assert value == total.item()
        torch.testing.assert_close(of_alike, alike.grad, rtol=1e-15, atol=0)
        torch.testing.assert_close(of_part, part.grad, rtol=1e-15, atol=0)


def test_the_largest_of_all_and_the_rows_of_all(seen):
    assert all(answer["largest"].tolist() == [2, 0] for answer in seen)
    assert torch.equal(seen[0]["at the first"], torch.arange(14, dtype=torch.int32).view(7, 2))
    assert seen[1]["at the first"] is None


def test_rows_travel_in_pieces(tmp_path):
    first, *_ = in_processes(2, tmp_path, rows_in_pieces)
    assert torch.equal(first, torch.arange(30.0).view(10, 3))


def test_all_go_by_the_first(seen):
    assert [answer["same"] for answer in seen] == [{"rank": 0}] * 3
    assert all(answer["shared"].eq(0).all() for answer in seen)
    assert [answer["first"] for answer in seen] == [True, False, False]


def test_shares_are_whole_chunks_in_rank_order(seen):
    assert [answer["share"] for answer in seen] == [slice(0, 3), slice(3, 6), slice(6, 10)]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("rows", "chunk"), [(0, 1), (1, 4), (7, 3), (40, 7), (64, 1)])
def test_shares_leave_nothing_out_and_take_nothing_twice(count, rows, chunk):
    everyone = [Processes() for _ in range(count)]
    taken = []
    for rank, processes in enumerate(everyone):
        processes.rank, processes.count = rank, count
        own = list(range(rows)[processes.share_of(rows, chunk)])
        assert not own or own[0] % chunk == 0
        taken += own
    assert taken == list(range(rows))


def test_alone_everything_is_ones_own():
    rows = torch.ones(3, 2, requires_grad=True)
    assert ALONE.gather(rows) is rows
    assert torch.equal(ALONE.gather_rows([torch.zeros(1), torch.ones(2)]), torch.tensor([0.0, 1.0, 1.0]))
    assert ALONE.hand_out(rows) is ALONE.total(rows) is ALONE.largest(rows) is rows
    whole = torch.zeros(3, 2)
    ALONE.rows_to_first(rows.detach(), whole)
    assert torch.equal(whole, rows)
    assert ALONE.same(7) == 7
    with ALONE.first_goes_first():
        ALONE.wait()
    assert (ALONE.is_first, ALONE.share_of(9, 4)) == (True, slice(0, 9))


def test_the_environment_tells_who_was_started_together(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert (started_together(), times_restarted(), current()) == (1, 0, ALONE)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert started_together() == 1, "WORLD_SIZE alone may mean anything"
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert (started_together(), times_restarted()) == (4, 2)


def test_the_end_of_another_process_is_told_from_other_errors():
    assert lost_another(RuntimeError("[pair.cc:561] Connection closed by peer [127.0.0.1]:1524"))
    assert lost_another(torch.distributed.DistBackendError("NCCL error: remote process exited"))
    assert not lost_another(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
