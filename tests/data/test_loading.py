import gc
import multiprocessing

import pytest
import torch
from PIL import Image
from torch import Tensor

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.files.folder import load_folder
from ccp_dml.data.files.images import ImageFiles
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import (
    TrainingBatches,
    auto_workers,
    evaluation_batches,
    load_rows,
    load_views,
    loader_processes,
)
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.data.views import Unaugmented
from ccp_dml.errors import UserError


class NoisySource:
    """Item i is the vector (i, noise): zero for evaluation, drawn from its seed for training. Item `broken` fails."""

    in_memory = False

    def __init__(self, size: int, broken: int = -1) -> None:
        self.size = size
        self.broken = broken

    def __len__(self) -> int:
        return self.size

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:
        if self.broken in positions.tolist():
            raise UserError(f"cannot read item {self.broken}: repair it")
        noise = torch.zeros(len(positions))
        if seeds is not None:
            noise = torch.cat([torch.rand(1, generator=torch.Generator().manual_seed(s)) for s in seeds.tolist()])
        return torch.stack([positions.float(), noise], dim=1)

    def name(self, position: int) -> str:
        return str(position)

    def picture(self, position: int) -> Image.Image | None:  # noqa: ARG002 there is nothing to see
        return None


def labelled(classes: int = 6, per_class: int = 4, broken: int = -1) -> LabelledSet:
    """Row r stands at position 100 + r, so that rows and positions cannot be mixed up unnoticed."""
    size = classes * per_class
    labels = torch.arange(size) // per_class
    names = tuple(f"class {c}" for c in range(classes))
    return LabelledSet(NoisySource(200, broken), 100 + torch.arange(size), labels, names)


def batches_of(data: LabelledSet, workers: int, seed: int = 7, rank: int = 0, world_size: int = 1) -> TrainingBatches:
    sampler = ClassBalancedBatches(data.labels, 2, 2, seed=3, rank=rank, world_size=world_size)
    return TrainingBatches(data, sampler, seed, workers)


def take(batches: TrainingBatches, count: int) -> list[tuple[Tensor, Tensor]]:
    return [next(batches) for _ in range(count)]


def assert_same(left: list[tuple[Tensor, Tensor]], right: list[tuple[Tensor, Tensor]]) -> None:
    assert len(left) == len(right) > 0
    for (inputs, labels), (other_inputs, other_labels) in zip(left, right, strict=True):
        assert torch.equal(inputs, other_inputs)
        assert torch.equal(labels, other_labels)


def test_training_batches_are_endless_and_pair_inputs_with_labels():
    data = labelled()
    batches = batches_of(data, workers=0)
    assert len(batches.sampler) == 6
    for inputs, labels in take(batches, 20):
        rows = inputs[:, 0].long() - 100
        assert torch.equal(data.labels[rows], labels)
    assert batches.state_dict() == {"epoch": 3, "position": 2}


def test_every_batch_has_its_own_augmentation():
    noises = {tuple(inputs[:, 1].tolist()) for inputs, _ in take(batches_of(labelled(), workers=0), 20)}
    assert len(noises) == 20
    assert tuple(next(batches_of(labelled(), workers=0, seed=8))[0][:, 1].tolist()) not in noises


def test_the_batches_of_all_ranks_are_the_global_batch_augmentation_included():
    whole = take(batches_of(labelled(), 0), 9)
    of_ranks = [take(batches_of(labelled(), 0, rank=rank, world_size=2), 9) for rank in range(2)]
    joined = [tuple(torch.cat(part) for part in zip(*parts, strict=True)) for parts in zip(*of_ranks, strict=True)]
    assert_same(joined, whole)
    assert len({float(noise) for inputs, _ in whole for noise in inputs[:, 1]}) == 9 * 4, "a seed came twice"


def test_workers_change_nothing():
    expected = take(batches_of(labelled(), workers=0), 14)
    assert_same(take(batches_of(labelled(), workers=2), 14), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_restored_batches_go_on_where_they_were_handed_out(workers):
    expected = take(batches_of(labelled(), workers=0), 16)
    interrupted = batches_of(labelled(), workers)
    take(interrupted, 5)
    state = interrupted.state_dict()
    assert state == {"epoch": 0, "position": 5}

    restored = batches_of(labelled(), workers)
    restored.load_state_dict(state)
    assert_same(take(restored, 11), expected[5:])


@pytest.mark.parametrize("workers", [0, 2])
def test_state_can_be_restored_in_the_middle_of_an_iteration(workers):
    batches = batches_of(labelled(), workers)
    expected = take(batches, 9)
    batches.load_state_dict({"epoch": 0, "position": 2})
    assert_same(take(batches, 7), expected[2:])


def test_loading_leaves_global_random_state_alone():
    before = torch.get_rng_state()
    take(batches_of(labelled(), workers=0), 3)
    take(batches_of(labelled(), workers=1), 3)
    list(evaluation_batches(labelled(), batch_size=5))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_batches_come_in_order_without_augmentation(workers):
    data = labelled()
    batches = list(evaluation_batches(data, batch_size=7, workers=workers))
    assert [len(labels) for _, labels in batches] == [7, 7, 7, 3]
    assert torch.equal(torch.cat([inputs for inputs, _ in batches])[:, 0], data.positions.float())
    assert torch.cat([inputs for inputs, _ in batches])[:, 1].abs().sum() == 0
    assert torch.equal(torch.cat([labels for _, labels in batches]), data.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_loaded_rows_keep_their_order_and_are_augmented_by_their_own_seeds(workers):
    data = labelled()
    rows, seeds = torch.tensor([5, 5, 0, 23, 5]), torch.tensor([1, 2, 3, 4, 1])
    batches = list(load_rows(data, rows, seeds, batch_size=2, workers=workers))
    inputs = torch.cat([inputs for inputs, _ in batches])
    assert torch.equal(inputs[:, 0].long(), rows + 100)
    assert torch.equal(torch.cat([labels for _, labels in batches]), data.labels[rows])
    assert inputs[0, 1] == inputs[4, 1], "the same row under the same seed must look the same"
    assert len(inputs[:4, 1].unique()) == 4
    assert [len(labels) for _, labels in batches] == [2, 2, 1]


def test_what_a_row_looks_like_depends_neither_on_the_batch_size_nor_on_other_rows():
    data, rows, seeds = labelled(), torch.arange(20), torch.arange(20) + 50
    whole = torch.cat([inputs for inputs, _ in load_rows(data, rows, seeds, batch_size=100)])
    for batch_size, chosen in ((4, slice(None)), (1, slice(6, None)), (7, slice(1, None, 3))):
        batches = list(load_rows(data, rows[chosen], seeds[chosen], batch_size))
        assert torch.equal(torch.cat([inputs for inputs, _ in batches]), whole[chosen])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_users_mistake_arrives_from_workers_in_its_own_words(workers):
    data = labelled(broken=103)
    with pytest.raises(UserError, match=r"\Acannot read item 103: repair it\Z"):
        list(evaluation_batches(data, batch_size=2, workers=workers))
    with pytest.raises(UserError, match=r"\Acannot read item 103: repair it\Z"):
        take(batches_of(data, workers), 20)


def test_an_error_does_not_keep_the_workers_alive():
    before = set(multiprocessing.active_children())
    try:
        take(batches_of(labelled(broken=103), workers=2), 20)
    except UserError:
        assert set(multiprocessing.active_children()) - before, "the error's frames still hold the loader"
    gc.collect()  # frames and error may hold one another
    assert not set(multiprocessing.active_children()) - before


def test_closed_batches_leave_no_process_behind_and_go_on_where_they_were():
    before, whole = set(multiprocessing.active_children()), batches_of(labelled(), workers=2)
    first = take(whole, 3)
    assert set(multiprocessing.active_children()) > before
    whole.close()
    assert set(multiprocessing.active_children()) <= before
    assert_same(first + take(whole, 2), take(batches_of(labelled(), workers=0), 5))
    whole.close()


def test_auto_workers_are_none_in_memory_and_at_most_eight_otherwise(has_cores):
    assert auto_workers(FeatureRows(torch.zeros(3, 2))) == 0
    assert auto_workers(Unaugmented(NoisySource(3), keep=True)) == 0
    assert auto_workers(Unaugmented(NoisySource(3))) > 0
    has_cores(3)
    assert auto_workers(NoisySource(3)) == 3
    has_cores(64)
    assert auto_workers(NoisySource(3)) == 8
    assert [auto_workers(NoisySource(3), shared_by) for shared_by in (2, 16, 100)] == [8, 4, 1]


def test_loaders_of_a_machine_are_divided_among_its_training_processes():
    assert [loader_processes(6, NoisySource(3), shared_by) for shared_by in (1, 2, 4, 9)] == [6, 3, 2, 1]
    assert loader_processes(0, NoisySource(3), 4) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_all_views_of_an_image_are_loaded_at_once(image_folder, reading, monkeypatch, workers):
    part = load_folder(image_folder, reading).train
    rows, seeds = torch.arange(5), torch.arange(10).reshape(2, 5)
    decoded = []
    pixels = ImageFiles.pixels
    monkeypatch.setattr(ImageFiles, "pixels", lambda self, position: decoded.append(position) or pixels(self, position))
    loaded = list(load_views(part, rows, seeds, block=2, workers=workers))
    assert [tuple(one.shape[:2]) for one in loaded] == [(3, 2), (3, 2), (3, 1)]
    if workers == 0:
        assert len(decoded) == len(rows)  # once for three views
    expected = torch.stack([part.load(rows), part.load(rows, seeds[0]), part.load(rows, seeds[1])])
    assert torch.equal(torch.cat(loaded, dim=1), expected)
    assert list(load_views(part, rows[:0], seeds[:, :0], block=2)) == []
    alone = torch.cat(list(load_views(part, rows, seeds[:0], block=2)), dim=1)  # the evaluation's view alone
    assert torch.equal(alone, expected[:1])


def test_views_of_other_sources_and_errors_on_the_way(image_folder, reading):
    glyphs = load_glyphs().train
    rows, seeds = torch.arange(3), torch.arange(3).reshape(1, 3)
    (loaded,) = load_views(glyphs, rows, seeds, block=8)
    assert torch.equal(loaded, torch.stack([glyphs.load(rows), glyphs.load(rows, seeds[0])]))
    part = load_folder(image_folder, reading).train
    part.source.paths[0].unlink()
    with pytest.raises(UserError, match="cannot read the image"):
        list(load_views(part, rows, seeds, block=8))
