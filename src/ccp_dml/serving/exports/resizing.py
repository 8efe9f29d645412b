"""Resizing and cropping as a graph of plain tensor operations, for programs that run without torchvision.

torch resizes uint8 images with weights of 15 bits or less, one axis after the other, and rounds after each. The same
integers come out here, so that an exported network sees the pixels that it was trained with.
"""

import torch
from torch import Tensor, nn

Length = int | torch.SymInt  # the second while a graph is traced
MOST_BITS = 22
LARGEST_WEIGHT = 1 << 15
GREY_OF_RGB = (19595, 38470, 7471)
"""Pillow's luminance in parts of 65,536."""


class ResizeAndCrop(nn.Module):
    """Images (B, H, W, 3) uint8 -> pixels (B, 3, crop, crop) float32, 0..255: what the preprocessing of photos gives.

    Args:
        resize: the short side before cropping.
        crop: side of the central square that is cut out.
        grey: images become grey first, and their three channels are the same.
    """

    def __init__(self, resize: int, crop: int, *, grey: bool) -> None:
        super().__init__()
        self.resize, self.crop, self.grey = resize, crop, grey

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[1], images.shape[2]
        channels = images.permute(0, 3, 1, 2).double()  # sums of 22-bit weights times 255 are exact in double precision
        if self.grey:
            parts = torch.tensor(GREY_OF_RGB, dtype=torch.float64).view(1, 3, 1, 1)
            channels = torch.floor(((channels * parts).sum(dim=1, keepdim=True) + 32768) / 65536)
        # The short side becomes `resize`, the other as many times longer as it was: `max` says so for either case.
        new_height = torch.sym_max(self.resize, self.resize * height // width)
        new_width = torch.sym_max(self.resize, self.resize * width // height)
        wide = resized(channels, new_width, self.crop)  # (B, C, H, crop)
        both = resized(wide.transpose(2, 3), new_height, self.crop).transpose(2, 3)
        return both.float().expand(-1, 3, -1, -1)


def resized(images: Tensor, length: Length, crop: int) -> Tensor:
    """Resize the last axis (..., n) to `length`, and keep the central `crop` of it: (..., crop)."""
    first = torch.round(
        (torch.zeros((), dtype=torch.float64) + length - crop) / 2
    ).long()  # half to even, as Python does
    weights, bits = integer_weights(images.shape[-1], length, first + torch.arange(crop))
    unit = torch.exp2(bits)
    return torch.floor((images @ weights.T + unit / 2) / unit).clamp(0, 255)


def integer_weights(size: Length, length: Length, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Compute weights of antialiased bilinear resizing from `size` to `length`, as whole numbers.

    Returns the rows (K, size) of the `kept` (K,) places, and the number of bits, which all rows decide together.
    """
    # All rows at once would fill the memory for a long thin image, so each has only the pixels within its reach here.
    # Where an image is enlarged, the first row sees one pixel, with weight 1: no other has more.
    within_reach = 2 * ((size - 1) // length + 1) + 1
    largest = weights_of(torch.arange(torch.sym_min(size, length)), size, length, within_reach).max()
    candidates = torch.arange(MOST_BITS, dtype=torch.float64)
    too_large = torch.floor(0.5 + largest * torch.exp2(candidates + 1)) >= LARGEST_WEIGHT
    bits = (1 - too_large.double()).sum()  # the largest weight grows with each bit: those that fit come first
    return torch.floor(0.5 + weights_of(kept, size, length) * torch.exp2(bits)), bits


def weights_of(places: Tensor, size: Length, length: Length, within_reach: Length | None = None) -> Tensor:
    """Compute the weights at `places` (K,) of all pixels, (K, size), or only of that many `within_reach` of each."""
    zero = torch.zeros((), dtype=torch.float64)
    scale = (zero + size) / (zero + length)
    reach = scale.clamp(min=1.0)
    centre = (scale * (places.double() + 0.5)).unsqueeze(1)  # (K, 1)
    low, high = torch.floor(centre - reach + 0.5).clamp(min=0), torch.floor(centre + reach + 0.5).clamp(max=size)
    if within_reach is None:
        pixel = torch.arange(size, dtype=torch.float64).unsqueeze(0)  # (1, size)
    else:
        pixel = low + torch.arange(within_reach, dtype=torch.float64)  # (K, within_reach)
    triangle = (1 - ((pixel - centre + 0.5) * (1 / reach)).abs()).clamp(min=0)
    weights = torch.where((pixel >= low) & (pixel < high), triangle, zero)
    return weights / weights.sum(dim=1, keepdim=True)
