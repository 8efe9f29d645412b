"""Numbers at the edges: half precision, zeros, vectors of extreme length, labels and margins that are none."""

import math

import pytest
import torch

from ccp_dml.losses import LOSSES, PROXY_LOSSES

SIZES = {"classes": 4, "dim": 8, "seed": 0}
ALL = [*LOSSES, *PROXY_LOSSES]


def make(name, **given):
    if name in LOSSES:
        return LOSSES[name](**given)
    return PROXY_LOSSES[name](**given, **SIZES, **({"steps_per_epoch": 2} if name == "hpl-pa" else {}))


LABELS = torch.tensor([0, 0, 1, 1, 2, 3])
HALVES = {
    "usual": torch.randn(6, 8, generator=torch.Generator().manual_seed(0)),
    "zeros": torch.zeros(6, 8),
    "underflow": torch.full((6, 8), 6e-8),  # the smallest number of float16
    "large": torch.full((6, 8), 6e4),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("values", HALVES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_under_autocast_stays_finite(name, values, dtype):
    loss = make(name)
    embeddings = HALVES[values].to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        for _ in range(3):  # some losses begin something after a few calls
            found = loss(embeddings, LABELS)
        found.backward()
    assert found.dtype == torch.float32
    assert torch.isfinite(found)
    assert torch.isfinite(embeddings.grad).all()
    assert all(torch.isfinite(value.grad).all() for value in loss.parameters() if value.grad is not None)


@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_costs_nothing(name):
    embeddings = torch.zeros(0, 8, requires_grad=True)
    loss = make(name)(embeddings, torch.zeros(0, dtype=torch.int64))
    assert torch.isfinite(loss)
    loss.backward()
    assert embeddings.grad.shape == (0, 8)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("length", [1e10, 1e20, 1e30])
def test_vectors_whose_squares_overflow_give_the_right_loss_or_none(name, length):
    """As only directions count, the loss is that of shorter vectors; the library's losses are NaN, which is noticed."""
    directions = torch.nn.functional.normalize(HALVES["usual"], dim=1)
    usual, long = (make(name)(directions * scale, LABELS) for scale in (10.0, length))
    assert torch.isnan(long) if name in PROXY_LOSSES and length > 1e19 else torch.allclose(long, usual, rtol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_references_whose_squares_overflow_are_normalised(name):
    directions = torch.nn.functional.normalize(torch.randn(9, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    ref_labels = torch.arange(9) % 4
    usual, long = (make(name)(HALVES["usual"], LABELS, directions * s, ref_labels) for s in (10.0, 1e20))
    torch.testing.assert_close(long, usual)


@pytest.mark.parametrize("name", PROXY_LOSSES)
@pytest.mark.parametrize("wrong", [-1, 4, 100])
def test_labels_without_a_class_vector_are_refused(name, wrong):
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.3"):
        make(name)(HALVES["usual"], torch.tensor([0, 1, 2, 3, 0, wrong]))


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("c1", "margin"),
        ("c2", "positive_margin"),
        ("c2", "negative_margin"),
        ("triplet", "margin"),
        ("ms", "alpha"),
        ("ms", "base"),
        ("proxy-anchor", "margin"),
        ("proxy-anchor", "alpha"),
        ("proxy-nca++", "temperature"),
        ("soft-triple", "margin"),
        ("soft-triple", "tau"),
        ("soft-triple", "la"),
        ("hpl-pa", "coarse_weight"),
        ("hpl-pa", "margin"),
    ],
)
def test_arguments_that_are_nan_are_refused(name, argument):
    with pytest.raises(ValueError, match="nan"):
        make(name, **{argument: math.nan})


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("narrow", [torch.uint8, torch.int32])
def test_labels_may_be_integers_of_any_type(name, narrow):
    assert torch.equal(make(name)(HALVES["usual"], LABELS.to(narrow)), make(name)(HALVES["usual"], LABELS))


@pytest.mark.parametrize("name", ALL)
def test_labels_that_are_no_column_of_integers_are_named(name):
    with pytest.raises(ValueError, match=r"labels must be integers, got torch\.float32"):
        make(name)(HALVES["usual"], LABELS.float())
    with pytest.raises(ValueError, match=r"labels must be one per row of embeddings: got shape \(6, 1\)"):
        make(name)(HALVES["usual"], LABELS.unsqueeze(1))


def test_a_low_temperature_does_not_hide_labels_that_are_no_integers():
    with pytest.raises(ValueError, match=r"labels must be integers, got torch\.float32"):
        make("proxy-nca++", temperature=0.01)(HALVES["usual"], LABELS.float())
