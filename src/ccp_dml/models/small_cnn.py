"""A small residual network for small grey images, quick on a processor and quick to train from scratch."""

from itertools import pairwise, product
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import at_least_float32

WIDTHS = (16, 32, 64, 128)  # channels at 1/2, 1/4, 1/8 and 1/16 of the image's side
GROUPS = 8  # of channels normalised together
OUTPUT_SCALE = 0.1
SMALLEST_SIDE = 17  # four halvings must leave the 2 x 2 positions that the last convolution joins


class SmallCNN(nn.Module):
    """Images (B, 3, H, W) -> feature maps (B, 128, h, w) with h = ceil(H / 16) - 1: 1 x 1 for images of 32 x 32.

    Three choices matter when it learns from nothing:

    - Group-norm needs no statistics of the data, so that nothing has to be unfrozen (D14) and training and inference
      are the same function.
    - The last convolution joins positions instead of averaging them: where a stroke is tells characters apart.
    - Its output is normalised, not activated, and scaled down. Embeddings then begin inside the unit ball, where
      clip-normalisation changes nothing and the network need not first turn away from one common direction.

    Strides replace pooling, which takes longer than the convolutions on a processor.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, WIDTHS[0], 5, stride=2, padding=2, bias=False), *_activated(WIDTHS[0])]
        for narrow, wide in pairwise(WIDTHS):
            layers += [nn.Conv2d(narrow, wide, 3, stride=2, padding=1, bias=False), *_activated(wide)]
            layers.append(ResidualBlock(wide))
        self.layers = nn.Sequential(*layers)
        self.join = SmallMapConv(WIDTHS[-1], 2)
        self.join_norm = nn.GroupNorm(GROUPS, WIDTHS[-1])
        self.num_features = WIDTHS[-1]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W), values 0..255 -> feature maps (B, 128, h, w)."""
        dtype = self.join.weight.dtype
        standardised = standardise(images.to(dtype)).to(dtype)  # in between, sums over pixels need single precision
        return OUTPUT_SCALE * self.join_norm(self.join(self.layers(standardised)))


def standardise(images: Tensor) -> Tensor:
    """Make images grey (B, 1, H, W), each of mean 0 and deviation 1: brightness and contrast say nothing."""
    if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < SMALLEST_SIDE:
        raise UserError(
            f"the backbone small_cnn takes images (batch, 3, height, width) of at least {SMALLEST_SIDE} pixels a side, "
            f"but the data set gives {tuple(images.shape)}: choose another backbone"
        )
    grey = at_least_float32(images).mean(dim=1, keepdim=True)
    deviation, mean = torch.std_mean(grey, dim=(2, 3), correction=0, keepdim=True)
    return (grey - mean) / (deviation + 1)  # an empty image stays zero


class ResidualBlock(nn.Module):
    """relu(x + branch(x)); the branch begins as zero, so that a deep network starts as a shallow one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            SmallMapConv(channels, 3, padding=1),
            *_activated(channels),
            SmallMapConv(channels, 3, padding=1),
            nn.GroupNorm(GROUPS, channels),
        )
        nn.init.zeros_(self.branch[-1].weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, h, w) -> (B, C, h, w)."""
        return torch.relu(x + self.branch(x))


class SmallMapConv(nn.Conv2d):
    """A convolution that is one matrix product on maps of 2 x 2, where a processor's convolutions are slow.

    There, a kernel of 2 x 2 without padding meets the whole map once. One of 3 x 3 with padding 1 meets it once for
    each of the four positions of its output, with those four of its nine weights that do not fall on the padding.
    """

    def __init__(self, channels: int, kernel: int, padding: int = 0) -> None:
        super().__init__(channels, channels, kernel, padding=padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, h, w) -> (B, C, h', w')."""
        if x.shape[2:] != (2, 2) or x.device.type != "cpu":
            return super().forward(x)
        if self.kernel_size == (2, 2):
            return F.linear(x.flatten(1), self.weight.flatten(1))[..., None, None]
        by_position = F.linear(x.flatten(2).transpose(1, 2).flatten(1), _Unrolled.apply(self.weight))  # (B, 4 C)
        return by_position.unflatten(1, (4, self.out_channels)).transpose(1, 2).unflatten(2, (2, 2)).contiguous()


# For each of the 4 x 4 pairs of an output's and an input's position: row and column of the weight that joins them.
_JOINING = [(out, of, 1 + of // 2 - out // 2, 1 + of % 2 - out % 2) for out, of in product(range(4), repeat=2)]


class _Unrolled(torch.autograd.Function):
    """Weights (C', C, 3, 3) as the matrix (4 C', 4 C) between the positions of two maps of 2 x 2."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:  # noqa: ARG004 torch hands it over
        planes = weight.permute(2, 3, 0, 1).contiguous()  # copies of whole planes are quick, of single weights slow
        outputs, inputs = weight.shape[:2]
        matrix = weight.new_empty(4, outputs, 4, inputs)
        for out, of, row, column in _JOINING:
            matrix[out, :, of] = planes[row, column]
        return matrix.view(4 * outputs, 4 * inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        return cast(Tensor, _RolledUp.apply(grad))


class _RolledUp(torch.autograd.Function):
    """The sums (C', C, 3, 3) of the entries of a matrix (4 C', 4 C) that are the same weight."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:  # noqa: ARG004
        outputs, inputs = (side // 4 for side in matrix.shape)
        matrix, planes = matrix.reshape(4, outputs, 4, inputs), matrix.new_zeros(3, 3, outputs, inputs)
        for out, of, row, column in _JOINING:
            planes[row, column] += matrix[out, :, of]
        return planes.permute(2, 3, 0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        return cast(Tensor, _Unrolled.apply(grad))


def _activated(channels: int) -> list[nn.Module]:
    return [nn.GroupNorm(GROUPS, channels), nn.ReLU()]
