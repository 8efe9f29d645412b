"""ResNet20V2 for small images: the pre-activation bottleneck network of He et al. (2016), in the Keras layout.

Three stages of two blocks, 9 * 2 + 2 = 20 layers counting a classifier, which metric learning leaves out.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from ccp_dml.models.embedder import InputNormalisation


class ResNet20V2(nn.Module):
    """Images (B, 3, H, W) -> feature maps (B, 256, H/4, W/4): 8 x 8 for CIFAR, 7 x 7 for MNIST in three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.input_normalisation = InputNormalisation((127.5,) * 3, (127.5,) * 3)
        self.stem = _convolution(3, 16, kernel=3)
        self.stem_norm = _batch_norm(16)
        self.blocks = nn.Sequential(
            # The stem's output is activated already.
            PreActivationBlock(16, 16, 64, activate_input=False),
            PreActivationBlock(64, 16, 64),
            PreActivationBlock(64, 64, 128, stride=2),
            PreActivationBlock(128, 64, 128),
            PreActivationBlock(128, 128, 256, stride=2),
            PreActivationBlock(256, 128, 256),
        )
        self.final_norm = _batch_norm(256)
        self.num_features = 256

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W), values 0..255 -> feature maps (B, 256, h, w)."""
        x = F.relu(self.stem_norm(self.stem(self.input_normalisation(images))))
        return F.relu(self.final_norm(self.blocks(x)))


class PreActivationBlock(nn.Module):
    """x + bottleneck(x), normalised and activated before each convolution. The first block of a stage projects x."""

    def __init__(
        self, channels_in: int, bottleneck: int, channels_out: int, stride: int = 1, activate_input: bool = True
    ) -> None:
        super().__init__()
        self.norm1 = _batch_norm(channels_in) if activate_input else None
        self.conv1 = _convolution(channels_in, bottleneck, kernel=1, stride=stride)
        self.norm2 = _batch_norm(bottleneck)
        self.conv2 = _convolution(bottleneck, bottleneck, kernel=3)
        self.norm3 = _batch_norm(bottleneck)
        self.conv3 = _convolution(bottleneck, channels_out, kernel=1)
        changes_width = channels_in != channels_out
        self.shortcut = _convolution(channels_in, channels_out, kernel=1, stride=stride) if changes_width else None

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C_in, h, w) -> (B, C_out, h/stride, w/stride)."""
        y = self.conv1(x if self.norm1 is None else F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        y = self.conv3(F.relu(self.norm3(y)))
        return y + (x if self.shortcut is None else self.shortcut(x))


def _convolution(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    convolution = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]  # present by default
    return convolution


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)  # Keras' epsilon
