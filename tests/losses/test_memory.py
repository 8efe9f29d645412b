"""XBM against its definition with an explicit list of past samples, and across a break."""

import copy

import pytest
import torch
from pytorch_metric_learning import losses as library
from torch._subclasses.fake_tensor import FakeTensorMode

from ccp_dml.losses import (
    ContrastiveLoss,
    CosineContrastiveLoss,
    CrossBatchMemory,
    ProxyAnchorLoss,
    TripletLoss,
    wrap,
)

DIM = 5


def batches(count, size=6):
    draw = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, DIM, generator=draw) * 0.5, torch.randint(3, (size,), generator=draw)) for _ in range(count)
    ]


def explicit(rows_of_pairs, mean_of_non_zero, arguments):
    """C2 with margins .1 and .9, pair by pair."""
    pairs = [pair for row in rows_of_pairs(*arguments) for pair in row]
    pull = mean_of_non_zero([d - 0.1 for same, d, _ in pairs if same])
    return pull + mean_of_non_zero([0.9 - d for same, d, _ in pairs if not same])


@pytest.mark.parametrize("start_step", [0, 3])
@pytest.mark.parametrize("size", [24, 10, 4])  # whole batches, parts of batches, less than one batch
def test_equals_the_definition(rows_of_pairs, mean_of_non_zero, start_step, size):
    memory = CrossBatchMemory(ContrastiveLoss(0.1, 0.9), size, DIM, start_step)
    past = []
    for step, (embeddings, labels) in enumerate(batches(12), start=1):
        expected = explicit(rows_of_pairs, mean_of_non_zero, (embeddings, labels))
        if step > start_step:
            past += zip(embeddings.tolist(), labels.tolist(), strict=True)
            past = past[-size:]
            queue = torch.tensor([vector for vector, _ in past]), torch.tensor([label for _, label in past])
            expected += explicit(rows_of_pairs, mean_of_non_zero, (embeddings, labels, *queue))
        assert memory(embeddings, labels).item() == pytest.approx(expected, rel=1e-5), step


def test_batches_of_changing_size_wrap_around(rows_of_pairs, mean_of_non_zero):
    memory = CrossBatchMemory(ContrastiveLoss(0.1, 0.9), 7, DIM, start_step=0)
    past = []
    for (embeddings, labels), keep in zip(batches(9), [6, 1, 3, 5, 2, 6, 4, 3, 6], strict=True):
        embeddings, labels = embeddings[:keep], labels[:keep]
        past = [*past, *zip(embeddings.tolist(), labels.tolist(), strict=True)][-7:]
        queue = torch.tensor([vector for vector, _ in past]), torch.tensor([label for _, label in past])
        expected = explicit(rows_of_pairs, mean_of_non_zero, (embeddings, labels))
        expected += explicit(rows_of_pairs, mean_of_non_zero, (embeddings, labels, *queue))
        assert memory(embeddings, labels).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("stop", [2, 3, 4, 7])  # before, at and after the start, and after wrapping around
@pytest.mark.parametrize("loss", [ContrastiveLoss(0.1, 0.9), CosineContrastiveLoss(), TripletLoss(0.1)])
def test_resumes_exactly(loss, stop):
    some = batches(10)
    whole = CrossBatchMemory(loss, 15, DIM, start_step=3)
    expected = [whole(*batch).item() for batch in some]
    first = CrossBatchMemory(loss, 15, DIM, start_step=3)
    head = [first(*batch).item() for batch in some[:stop]]
    second = CrossBatchMemory(loss, 15, DIM, start_step=3)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert head + [second(*batch).item() for batch in some[stop:]] == expected


def test_gradient_reaches_the_batch_and_never_the_past():
    memory = CrossBatchMemory(ContrastiveLoss(0.0, 0.9), 12, DIM, start_step=0)
    (first, labels), (second, _) = batches(2)
    first.requires_grad_()
    second.requires_grad_()
    memory(first, labels)
    memory(second, labels).backward()
    assert first.grad is None
    assert second.grad.abs().sum() > 0
    assert not memory.embeddings.requires_grad


def test_backward_may_come_after_the_queue_has_moved_on():
    # Without normalisation, the queue's own numbers enter the product whose gradient is wanted.
    memory = CrossBatchMemory(CosineContrastiveLoss(normalise="none"), 12, DIM, start_step=0)
    some = [(embeddings.requires_grad_(), labels) for embeddings, labels in batches(4)]
    torch.stack([memory(*batch) for batch in some]).sum().backward()
    assert all(embeddings.grad.abs().sum() > 0 for embeddings, _ in some)


def test_the_queue_is_not_trained():
    assert not list(CrossBatchMemory(ContrastiveLoss(), 12, DIM).parameters())


@pytest.mark.parametrize("narrow", [torch.uint8, torch.int32])
def test_labels_may_be_integers_of_any_type(narrow):
    wide, other = (CrossBatchMemory(ContrastiveLoss(0.1, 0.9), 10, DIM, start_step=0) for _ in range(2))
    for embeddings, labels in batches(4):
        assert torch.equal(other(embeddings, labels.to(narrow)), wide(embeddings, labels))


@pytest.mark.parametrize("start_step", [0, 2])
def test_what_is_only_measured_is_not_remembered(start_step):
    one, two = (CrossBatchMemory(ContrastiveLoss(0.1, 0.9), 20, DIM, start_step) for _ in range(2))
    for step, (embeddings, labels) in enumerate(batches(6)):
        two.eval()
        validation = two(embeddings.flip(0), labels)
        if step <= start_step:  # the queue is still empty
            assert torch.equal(validation, two.loss(embeddings.flip(0), labels))
        two.train()
        assert torch.equal(two(embeddings, labels), one(embeddings, labels))
    assert (two.calls, two.enqueued) == (one.calls, one.enqueued)


@pytest.mark.parametrize("sizes", [(0, 5), (-1, 5), (5, 0), (5, 5, -1)])
def test_a_memory_without_room_is_refused(sizes):
    with pytest.raises(ValueError, match="room for at least one embedding"):
        CrossBatchMemory(ContrastiveLoss(), *sizes)


def test_embeddings_of_another_dimension_are_named():
    memory = CrossBatchMemory(ContrastiveLoss(), 10, DIM + 1)
    with pytest.raises(ValueError, match=f"embeddings have {DIM} dimensions, but this memory is made for {DIM + 1}"):
        memory(*batches(1)[0])


def test_labels_may_be_on_another_device_than_the_queue():
    """Fake tensors have a device and no values, so that no GPU is needed."""
    with FakeTensorMode():
        memory = CrossBatchMemory(ContrastiveLoss(), 10, DIM, start_step=0)
        memory._buffers = {name: value.to("cuda") for name, value in memory._buffers.items()}
        assert memory(torch.zeros(4, DIM, device="cuda"), torch.arange(4)).device.type == "cuda"


def test_a_queue_on_another_device_than_the_embeddings_is_named():
    memory = CrossBatchMemory(ContrastiveLoss(), 10, DIM).to("meta")
    with pytest.raises(ValueError, match=r"embeddings are on cpu, this memory on meta: .* memory.to\(device\)"):
        memory(*batches(1)[0])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (ProxyAnchorLoss(classes=3, dim=DIM), "which ProxyAnchorLoss is not"),
        (library.TripletMarginLoss(), "ccp.losses.wrap adapts"),
        (wrap(library.ProxyNCALoss(3, DIM)), "class vectors of its own"),
    ],
)
def test_a_loss_without_references_is_refused_before_the_queue_is_used(loss, message):
    with pytest.raises(ValueError, match=message):
        CrossBatchMemory(loss, 10, DIM)
