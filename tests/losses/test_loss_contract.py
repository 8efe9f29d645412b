"""What holds for every pair loss, whatever its formula."""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from ccp_dml.functional.distances import clip_normalise, l2_normalise
from ccp_dml.losses import LOSSES

pytestmark = pytest.mark.parametrize("loss", [make() for make in LOSSES.values()], ids=list(LOSSES))


@pytest.mark.parametrize("arguments", ["batch", "memory", "proxies"], indirect=True)  # duplicates sit at a kink
def test_gradient_check_in_float64(loss, arguments):
    given = [t.double().requires_grad_() if t.is_floating_point() else t for t in arguments]
    assert loss(*given).dtype == torch.float64
    assert torch.autograd.gradcheck(loss, given)


def test_gradient_reaches_samples_and_references(loss, crowd):
    e, y, r, ry = crowd
    e, r = e.clone().requires_grad_(), r.clone().requires_grad_()
    loss(e, y, r, ry).backward()
    assert e.grad.abs().sum() > 0
    assert r.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("labels", "ref_labels"),
    [
        ([0, 1, 2], None),  # no positives
        ([0, 0, 0], None),  # no negatives
        ([0, 1, 2], [5, 5]),  # negatives alone, for some losses nothing at all
        ([5, 5, 5], [5, 5]),
        ([0], None),  # a single sample: no pair
        ([], None),
        ([0, 0, 1], []),
        ([], [0, 1]),
    ],
)
def test_is_finite_and_differentiable_with_whatever_is_missing(loss, labels, ref_labels):
    generator = torch.Generator().manual_seed(0)
    e = torch.randn(len(labels), 4, generator=generator).requires_grad_()
    given = [e, torch.tensor(labels, dtype=torch.int64)]
    if ref_labels is not None:
        r = torch.randn(len(ref_labels), 4, generator=generator).requires_grad_()
        given += [r, torch.tensor(ref_labels, dtype=torch.int64)]
    value = loss(*given)
    value.backward()
    assert torch.isfinite(value)
    assert all(torch.isfinite(t.grad).all() for t in given if t.is_floating_point())
    no_pair = len(labels) < 2 if ref_labels is None else not (labels and ref_labels)
    if no_pair:
        assert value == 0
        assert not e.grad.any()


@pytest.mark.parametrize("point", [[0.0, 0.0], [0.6, 0.8]])
def test_is_finite_when_everything_coincides(loss, point):
    e = torch.tensor([point] * 6, requires_grad=True)
    value = loss(e, torch.arange(6) // 2)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(e.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(loss, crowd, dtype):
    e, y, r, ry = crowd
    halves = e.to(dtype).requires_grad_()
    value = loss(halves, y, r.to(dtype), ry)
    value.backward()
    assert value.dtype == torch.float32
    assert halves.grad.dtype == dtype
    torch.testing.assert_close(value, loss(e.to(dtype).float(), y, r.to(dtype).float(), ry))


def test_autocast_changes_nothing(loss, crowd):
    e, y, r, ry = crowd
    gradients = []
    for enabled in (False, True):
        sample = e.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            value = loss(sample, y, r, ry)
        value.backward()
        gradients.append((value, sample.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert torch.equal(gradients[0][1], gradients[1][1])


def test_normalisation_is_that_of_the_constructor(loss, crowd):
    e, y, r, ry = crowd
    e, r = e * torch.linspace(0.2, 3.0, len(e))[:, None], r * torch.linspace(3.0, 0.2, len(r))[:, None]
    values = []
    for name, normalise in (("clip", clip_normalise), ("l2", l2_normalise)):
        values.append(type(loss)(normalise=name)(e, y, r, ry))
        torch.testing.assert_close(values[-1], type(loss)(normalise="none")(normalise(e), y, normalise(r), ry))
    assert not torch.isclose(values[0], values[1])
    assert loss(e, y, r, ry) == values[0]  # the default is "clip"
    with pytest.raises(ValueError, match="clip, l2, none, got 'L2'"):
        type(loss)(normalise="L2")


def test_labels_may_have_any_value(loss, crowd):
    e, y, r, ry = crowd
    huge = torch.iinfo(torch.int64).max
    assert loss(e, y, r, ry) == loss(e, huge - y, r, huge - ry)
    assert loss(e, y, r, ry) == loss(e, y.to(torch.int32), r, ry.to(torch.uint8))


def test_order_of_references_does_not_matter(loss, crowd):
    e, y, r, ry = crowd
    order = torch.randperm(len(r), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(loss(e, y, r, ry), loss(e, y, r[order], ry[order]))


def test_nan_is_not_hidden(loss, crowd):
    e, y, r, ry = crowd
    broken = e.clone()
    broken[3, 2] = torch.nan
    assert torch.isnan(loss(broken, y, r, ry))


def test_mismatched_inputs_are_named(loss):
    e, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"labels must be one per row of embeddings: got shape \(3,\) for 4 rows"):
        loss(e, y[:3])
    with pytest.raises(ValueError, match="ref_labels must be one per row of ref_embeddings"):
        loss(e, y, e, y[:3])
    with pytest.raises(ValueError, match="give both or neither"):
        loss(e, y, e)
    with pytest.raises(ValueError, match="embeddings have 3 dimensions, ref_embeddings 2"):
        loss(e, y, e[:, :2], y)
    with pytest.raises(ValueError, match=r"embeddings must be \(rows, dimensions\)"):
        loss(e[0], y)
    with pytest.raises(ValueError, match="labels must be integers"):
        loss(e, y.float())
    with pytest.raises(ValueError, match=r"labels must be a tensor, not list: torch\.as_tensor makes it one"):
        loss(e, y.tolist())
    with pytest.raises(ValueError, match=r"labels must be a tensor, not list: it holds names; number them"):
        loss(e, ["wren"] * len(y))
    with pytest.raises(ValueError, match="ref_embeddings must be a tensor, not ndarray"):
        loss(e, y, e.numpy(), y)
    with pytest.raises(ValueError, match=r"embeddings are on cpu, ref_embeddings on meta: .*proxies.to\(device\)"):
        loss(e, y, e.to("meta"), y)


@pytest.mark.parametrize("references", [90, 40_000])
def test_forward_never_waits_for_a_gpu(loss, references):
    """Fake tensors have no values: `.item()`, a boolean index or a branch on a value raises."""
    with FakeTensorMode():
        e, y = torch.zeros(40, 16, device="cuda"), torch.zeros(40, dtype=torch.int64, device="cuda")
        r, ry = (
            torch.zeros(references, 16, device="cuda"),
            torch.zeros(references, dtype=torch.int64, device="cuda"),
        )
        assert loss(e, y).shape == ()
        assert loss(e, y, r, ry).shape == ()
        with pytest.raises(DataDependentOutputException):
            bool(e.sum() > 0)


@pytest.mark.parametrize("references", [90, 40_000])
def test_a_whole_step_can_be_taken_with_shapes_alone(loss, references):
    """Tensors on the device "meta" have no values, either, and torch has a backward pass for them without a GPU."""
    e = torch.zeros(40, 16, device="meta", requires_grad=True)
    r = torch.zeros(references, 16, device="meta", requires_grad=True)
    y, ry = torch.arange(40) // 4, torch.zeros(references, dtype=torch.int64, device="meta")
    (loss(e, y) + loss(e, y, r, ry)).backward()
    assert (e.grad.shape, r.grad.shape) == (e.shape, r.shape)
