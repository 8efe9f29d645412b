"""Maps of problems, written and read back."""

import pytest
import torch
from safetensors.torch import save_file

from ccp_dml.errors import UserError
from ccp_dml.records.layout import map_file
from ccp_dml.records.problem_map import MapPoints, ProblemMap, read_problems, write_problem


def problem_map(problem, *, proxies=True):
    draw = torch.Generator().manual_seed(problem)

    def points(first_row, names):
        return MapPoints(
            torch.randn(6, 4, generator=draw), torch.arange(6) // 3, torch.arange(first_row, first_row + 6), names
        )

    selected, converged = (torch.randn(2, 3, 4, generator=draw) for _ in range(2))
    train, validation = points(10, ("Großer Fuchs", 'a "quoted" name')), points(40, ("sparrow", "crow"))
    return ProblemMap(problem, train, validation, selected if proxies else None, converged if proxies else None)


def assert_same(one, other):
    assert one.problem == other.problem
    for side in ("train", "validation"):
        ours, theirs = getattr(one, side), getattr(other, side)
        assert ours.class_names == theirs.class_names
        for name in ("embeddings", "labels", "rows"):
            torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=0)
    for name in ("selected", "converged"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_what_is_written_is_read_back_in_the_order_of_problems(tmp_path):
    maps = [problem_map(number, proxies=number > 1) for number in (1, 2, 10, 1000)]
    for one in reversed(maps):
        write_problem(tmp_path, one)
    read = read_problems(tmp_path)
    assert len(read) == 4
    for ours, theirs in zip(read, maps, strict=True):
        assert_same(ours, theirs)
    assert [map_file(tmp_path, number).name for number in (1, 10, 1000)] == [
        "001.safetensors",
        "010.safetensors",
        "1000.safetensors",
    ]


def test_a_later_map_of_the_same_problem_takes_its_place(tmp_path):
    write_problem(tmp_path, problem_map(1))
    changed = problem_map(1, proxies=False)
    write_problem(tmp_path, changed)
    (read,) = read_problems(tmp_path)
    assert_same(read, changed)


def test_a_folder_without_maps_has_none(tmp_path):
    assert read_problems(tmp_path) == []


def test_a_file_half_written_by_a_killed_run_is_no_map(tmp_path):
    write_problem(tmp_path, problem_map(1))
    (tmp_path / "problems" / ".002.safetensors.abc.part").write_bytes(b"half")
    assert len(read_problems(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["torn", "other tensors", "no names", "wrong names", "name"])
def test_a_damaged_map_is_named(tmp_path, damage):
    file = map_file(tmp_path, 3)
    file.parent.mkdir()
    tensors = {f"{side}.{key}": torch.zeros(1) for side in ("train", "validation") for key in ("embeddings", "labels")}
    tensors |= {"train.rows": torch.zeros(1), "validation.rows": torch.zeros(1)}
    if damage == "torn":
        file.write_bytes(b"\x10\x00")
    elif damage == "other tensors":
        save_file({"weights": torch.zeros(1)}, file, {"note": '{"train": [], "validation": []}'})
    elif damage == "no names":
        save_file(tensors, file)
    elif damage == "wrong names":
        save_file(tensors, file, {"note": '{"train": ['})
    else:
        write_problem(tmp_path, problem_map(3))
        file = file.rename(file.with_name("third.safetensors"))
    with pytest.raises(UserError, match=file.name):
        read_problems(tmp_path)
