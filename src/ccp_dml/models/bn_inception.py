"""BN-Inception (Ioffe & Szegedy, 2015), in the variant that metric learning compares on.

Module names and shapes are those of the ImageNet weights that were converted from Caffe and are published as
`bn_inception-52deb4733.pth`, so that the file loads as it is. They are flat ("inception_3a_1x1"), which is why layers
are registered and looked up by name here.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccp_dml.models.embedder import InputNormalisation

WEIGHTS_FILE = "bn_inception-52deb4733.pth"


class BlockWidths(NamedTuple):
    """Channels of the four branches of an inception block.

    A block without `single` and `projected` halves the resolution: its 3x3 branches end with stride 2 and its pooling
    branch hands on the pooled input.
    """

    single: int  # 1x1
    reduced: int  # 1x1, then 3x3:
    triple: int
    double_reduced: int  # 1x1, then 3x3 twice:
    double: int
    pool: str
    projected: int  # pooling, then 1x1


BLOCKS = {
    "3a": BlockWidths(64, 64, 64, 64, 96, "avg", 32),
    "3b": BlockWidths(64, 64, 96, 64, 96, "avg", 64),
    "3c": BlockWidths(0, 128, 160, 64, 96, "max", 0),
    "4a": BlockWidths(224, 64, 96, 96, 128, "avg", 128),
    "4b": BlockWidths(192, 96, 128, 96, 128, "avg", 128),
    "4c": BlockWidths(160, 128, 160, 128, 160, "avg", 128),
    "4d": BlockWidths(96, 128, 192, 160, 192, "avg", 128),
    "4e": BlockWidths(0, 128, 192, 192, 256, "max", 0),
    "5a": BlockWidths(352, 192, 320, 160, 224, "avg", 128),
    "5b": BlockWidths(352, 192, 320, 192, 224, "max", 128),
}


class BNInception(nn.Module):
    """Images (B, 3, H, W) -> feature maps (B, 1024, H/32, W/32): 7 x 7 for 224 and for 227 pixels."""

    classifier_keys = ("last_linear.",)

    def __init__(self) -> None:
        super().__init__()
        self.input_normalisation = InputNormalisation((104, 117, 128), (1, 1, 1), channel_order="bgr")
        self._add_unit("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self._add_unit("conv2_3x3_reduce", 64, 64)
        self._add_unit("conv2_3x3", 64, 192, kernel=3)
        channels = 192
        for block, widths in BLOCKS.items():
            channels = self._add_block(f"inception_{block}", channels, widths)
        self.num_features = channels

    def _add_unit(self, name: str, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1) -> None:
        convolution = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]  # present by default
        self.add_module(name, convolution)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(channels_out))

    def _add_block(self, name: str, channels_in: int, widths: BlockWidths) -> int:
        """Register a block's layers and return its output channels."""
        stride = 1 if widths.projected else 2
        if widths.single:
            self._add_unit(f"{name}_1x1", channels_in, widths.single)
        self._add_unit(f"{name}_3x3_reduce", channels_in, widths.reduced)
        self._add_unit(f"{name}_3x3", widths.reduced, widths.triple, kernel=3, stride=stride)
        self._add_unit(f"{name}_double_3x3_reduce", channels_in, widths.double_reduced)
        self._add_unit(f"{name}_double_3x3_1", widths.double_reduced, widths.double, kernel=3)
        self._add_unit(f"{name}_double_3x3_2", widths.double, widths.double, kernel=3, stride=stride)
        if widths.projected:
            self._add_unit(f"{name}_pool_proj", channels_in, widths.projected)
        return widths.single + widths.triple + widths.double + (widths.projected or channels_in)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W), values 0..255 -> feature maps (B, 1024, h, w)."""
        x = self._unit("conv1_7x7_s2", self.input_normalisation(images))
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        x = self._unit("conv2_3x3", self._unit("conv2_3x3_reduce", x))
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        for block, widths in BLOCKS.items():
            x = self._block(f"inception_{block}", x, widths)
        return x

    def _unit(self, name: str, x: Tensor) -> Tensor:
        return F.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(x)), inplace=True)

    def _block(self, name: str, x: Tensor, widths: BlockWidths) -> Tensor:
        branches = [self._unit(f"{name}_1x1", x)] if widths.single else []
        branches.append(self._unit(f"{name}_3x3", self._unit(f"{name}_3x3_reduce", x)))
        double = self._unit(f"{name}_double_3x3_1", self._unit(f"{name}_double_3x3_reduce", x))
        branches.append(self._unit(f"{name}_double_3x3_2", double))
        if not widths.projected:
            branches.append(_halve(x))
        else:
            pool = F.avg_pool2d if widths.pool == "avg" else F.max_pool2d
            branches.append(self._unit(f"{name}_pool_proj", pool(x, 3, stride=1, padding=1)))
        return torch.cat(branches, dim=1)


def _halve(x: Tensor) -> Tensor:
    """Halve the sides by max pooling: (B, C, h, w) -> (B, C, ceil(h/2), ceil(w/2)).

    Even sides, the only ones that occur with the usual image sizes, are pooled as in Caffe. Caffe's pooling of an odd
    side comes out one shorter than the convolutions beside it; padding makes it fit, so that other sizes work, too.
    """
    return F.max_pool2d(x, 3, stride=2, padding=(x.shape[2] % 2, x.shape[3] % 2), ceil_mode=True)
