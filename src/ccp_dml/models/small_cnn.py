"""A small residual network for small grey images, quick on a processor and quick to train from scratch."""

from itertools import pairwise

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
        return OUTPUT_SCALE * self.join_norm(self.join(self.layers(standardise(images.to(self.join.weight.dtype)))))


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
    """A convolution that is one matrix product on maps of 2 x 2, where libraries for convolutions are slow.

    There, a kernel of 2 x 2 without padding meets the whole map once. One of 3 x 3 with padding 1 meets it once for
    each of the four positions of its output, with those four of its nine weights that do not fall on the padding.
    """

    met: Tensor

    def __init__(self, channels: int, kernel: int, padding: int = 0) -> None:
        super().__init__(channels, channels, kernel, padding=padding, bias=False)
        self.side = kernel - 1  # of the output, on such a map
        self.register_buffer("met", weights_met(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, h, w) -> (B, C, h', w')."""
        if x.shape[2:] != (2, 2):
            return super().forward(x)
        if self.side == 1:
            matrix = self.weight.flatten(1)
        else:
            matrix = (self.weight.flatten(2) @ self.met).unflatten(2, (4, 4)).transpose(1, 2).flatten(2).flatten(0, 1)
        return F.linear(x.flatten(1), matrix).unflatten(1, (self.out_channels, self.side, self.side))


def weights_met() -> Tensor:
    """Tell (9, 16) which of 3 x 3 weights an output's position of a 2 x 2 map lays on an input's: 1 there, else 0."""
    rows, columns = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])  # of the four positions
    weights = 3 * (rows - rows.unsqueeze(1) + 1) + columns - columns.unsqueeze(1) + 1  # (4 outputs, 4 inputs)
    return F.one_hot(weights.flatten(), 9).T.float()


def _activated(channels: int) -> list[nn.Module]:
    return [nn.GroupNorm(GROUPS, channels), nn.ReLU()]
