import pytest
import torch

from ccp_dml.functional.gradients import add_to_gradients, first_derivative_only


def test_directions_are_added_where_there_is_a_gradient():
    with_gradient, without = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with_gradient.grad = torch.tensor([1.0, 2.0])
    add_to_gradients([with_gradient, without], [torch.tensor([10.0, 20.0])] * 2, 0.5)
    assert with_gradient.grad.tolist() == [6.0, 12.0]
    assert without.grad is None


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        return value**2

    @staticmethod
    @first_derivative_only
    def backward(ctx, gradient):
        (value,) = ctx.saved_tensors
        return 2 * value * gradient


def test_a_second_derivative_is_refused_and_not_zero():
    value = torch.tensor(3.0, requires_grad=True)
    Square.apply(value).backward()
    assert value.grad == 6
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(Square.apply(value), value, create_graph=True)
