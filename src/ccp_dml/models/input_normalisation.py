"""From the pixels a data set delivers to the numbers a network was trained on."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError


class InputNormalisation(nn.Module):
    """Subtracts a mean and divides by a standard deviation per channel, on the device where the images are.

    Args:
        mean: one value per channel on the scale 0..255, in the network's channel order.
        std: as `mean`.
        channel_order: what the network expects; data sets always deliver RGB.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], channel_order: Literal["rgb", "bgr"] = "rgb"
    ) -> None:
        super().__init__()
        self.channel_order = channel_order
        # Constants of the architecture: kept out of the state dict, so that published files fit as they are.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), uint8 or floating point on the same scale 0..255 -> normalised (B, 3, H, W)."""
        if images.ndim != 4 or images.shape[1] != len(self.mean):
            raise UserError(
                f"the backbone takes images (batch, {len(self.mean)}, height, width) but the data set gives "
                f"{tuple(images.shape)}: for precomputed features set model.backbone=identity"
            )
        if self.channel_order == "bgr":
            images = images.flip(1)
        return (images.to(self.mean.dtype) - self.mean) / self.std
