"""The network that is trained: backbone, pooling, head (scaling, hidden layer, linear projection), normalisation."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import NORMALISERS, without_autocast
from ccp_dml.models.stages import FeaturePrecision, as_kept, cut_at, keep_above, maps_at, parts_below

NEGLIGIBLE = 1e-6
"""Directions whose variance is below this part of the largest are noise; whitening would blow it up."""

FIRST_LENGTH = 3.0
"""How long embeddings are at first: well outside the unit ball, where normalisation puts all of them on the sphere."""


class FeatureScaling(nn.Module):
    """Centres features and divides them by one number, so that a learning rate means the same for every backbone."""

    centre: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, F) -> features (B, F) of mean zero and mean square length one."""
        return (features - self.centre) / self.scale


class ResidualHidden(nn.Module):
    """Adds what a hidden layer makes of the features to the features: nothing at first, so that any start is kept."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.inwards = nn.utils.skip_init(nn.Linear, width, hidden)
        self.outwards = nn.utils.skip_init(nn.Linear, hidden, width, bias=False)
        nn.init.kaiming_uniform_(self.inwards.weight, nonlinearity="relu", generator=generator)
        nn.init.zeros_(self.inwards.bias)
        nn.init.zeros_(self.outwards.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, F) -> features (B, F)."""
        return features + self.outwards(torch.relu(self.inwards(features)))


@torch.no_grad()
def start_as_pca(linear: nn.Linear, scaling: FeatureScaling, features: Tensor, *, whiten: bool) -> None:
    """Start the head as the projection onto the directions in which `features` (N, F) vary most.

    Args:
        linear: its weight (D, F) becomes the D main directions, one a row. Where there are fewer than D, the other rows
            keep their random directions, each as long as the shortest of the main ones.
        scaling: takes the features' mean and root mean square length.
        features: of the classes that train.
        whiten: give every direction the same variance. Either way the embeddings' mean length is `FIRST_LENGTH`.
    """
    scaling.centre.copy_(features.mean(dim=0))
    centred = features.double() - scaling.centre.double()
    scaling.scale.copy_(centred.square().sum(dim=1).mean().sqrt())
    if not torch.isfinite(scaling.scale):
        raise UserError("the training features are not finite: check `weights` and `input_mean`")
    if not scaling.scale > 0:
        raise UserError("the training features are all the same: check the data, or the backbone's weights")
    scaled = centred / scaling.scale.double()
    variances, directions = torch.linalg.eigh(scaled.T @ scaled / len(scaled))  # ascending
    variances, directions = variances.flip(0), directions.flip(1).T  # (F,), (F, F), one direction a row
    main = int((variances[: len(linear.weight)] > NEGLIGIBLE * variances[0]).sum())
    variances, directions = variances[:main], directions[:main]
    # An eigenvector's sign is arbitrary, and libraries differ in it.
    directions = directions * directions.gather(1, directions.abs().argmax(dim=1, keepdim=True)).sign()
    rows = directions * variances.rsqrt().unsqueeze(1) if whiten else directions
    others = nn.functional.normalize(linear.weight[main:].double(), dim=1) * rows.norm(dim=1).min()
    rows = torch.cat([rows, others])  # (D, F)
    length = (scaled @ rows.T).square().sum(dim=1).mean().sqrt()
    linear.weight.copy_(rows * FIRST_LENGTH / length)


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
        """Normalise images (B, 3, H, W), uint8 or floating point, on the scale 0..255."""
        if images.ndim != 4 or images.shape[1] != len(self.mean):
            for_features = "for precomputed features choose the backbone identity"
            remedy = "give each colour a channel" if images.ndim == 4 else for_features
            raise UserError(
                f"the backbone takes images (batch, {len(self.mean)}, height, width) but the data set gives "
                f"{tuple(images.shape)}: {remedy}"
            )
        if self.channel_order == "bgr":
            images = images.flip(1)
        return (images.to(self.mean.dtype) - self.mean) / self.std


Pooling = Literal["gap", "gap+gmp"]
Normalisation = Literal["clip", "l2"]


def count_features(backbone: nn.Module) -> int:
    """Read the width F of a backbone's output, which every backbone states as `num_features`."""
    num_features = getattr(backbone, "num_features", None)
    if not isinstance(num_features, int) or num_features < 1:
        raise TypeError(
            f"{type(backbone).__name__} is no backbone: it needs an attribute num_features, a positive integer, "
            f"not {num_features!r}"
        )
    return num_features


def freeze_batch_norm(module: nn.Module) -> None:
    """Stop batch-norm layers from learning (D14): statistics stay as they are, scale and shift get no gradient.

    A later `module.train()` would let the statistics move again; `Embedder` freezes anew whenever its mode changes.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
            layer.requires_grad_(False)


class Embedder(nn.Module):
    """f(x; theta): network inputs -> embeddings (B, D).

    Args:
        backbone: a module with `num_features` F, mapping inputs to feature maps (B, F, h, w) or features (B, F).
            Features that are flat already are not pooled.
        embedding_dim: D.
        pooling: "gap", the mean over positions, or "gap+gmp", the sum of mean and maximum (D21).
        normalise: "clip", v / max(1, ||v||) (D20), or "l2".
        freeze_batch_norm: batch-norm layers never learn (D14). Switch it off for a network trained from scratch.
        freeze_backbone: only the head learns; the backbone stays in inference mode.
        train_from: the backbone learns from this stage on ("blocks.5"); what lies below stays in inference mode. None:
            all of it learns.
        feature_precision: "half" or "single", to which a frozen backbone's features, or the maps below `train_from`,
            are rounded: as they are stored where they are computed once (see `runs.frozen`).
        scale_features: features are centred and scaled by constants that `start_as_pca` measures.
        hidden_dim: width of a hidden layer beside the linear one; None: there is none.
        generator: draws the head's weights; without one they are those of seed 0.
    """

    def __init__(
        self,
        backbone: nn.Module,
        embedding_dim: int,
        pooling: Pooling = "gap",
        normalise: Normalisation = "clip",
        *,
        freeze_batch_norm: bool = True,
        freeze_backbone: bool = False,
        train_from: str | None = None,
        feature_precision: FeaturePrecision = "half",
        scale_features: bool = False,
        hidden_dim: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if embedding_dim < 1:
            raise UserError(f"embedding_dim is {embedding_dim}: it must be at least 1")
        for name, word, known in (
            ("pooling", pooling, get_args(Pooling)),
            ("normalise", normalise, get_args(Normalisation)),
            ("feature_precision", feature_precision, get_args(FeaturePrecision)),
        ):
            if word not in known:
                raise UserError(f"{name} '{word}' is unknown: choose one of {', '.join(known)}")
        if freeze_backbone and train_from is not None:
            raise UserError("`freeze_backbone` and `train_from` are both set: freeze all of the backbone, or a part")
        self.backbone = backbone
        self.embedding_dim = embedding_dim
        self.pooling = pooling
        self.normalise = normalise
        self.freeze_batch_norm = freeze_batch_norm
        self.freeze_backbone = freeze_backbone
        self.feature_precision: FeaturePrecision = feature_precision

        generator = generator or torch.Generator().manual_seed(0)
        width = count_features(backbone)
        # A plain nn.Linear would draw its first weights from the global random state.
        self.linear = nn.utils.skip_init(nn.Linear, width, embedding_dim, bias=False)
        nn.init.xavier_uniform_(self.linear.weight, generator=generator)
        self.scaling = FeatureScaling(width) if scale_features else None
        self.hidden = None if hidden_dim is None else ResidualHidden(width, hidden_dim, generator)
        self.cut = None if train_from is None else cut_at(backbone, train_from, feature_precision)
        if freeze_backbone:
            backbone.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "Embedder":
        """Change the mode of all that is not frozen."""
        super().train(mode)
        if self.freeze_batch_norm:
            freeze_batch_norm(self)
        if self.freeze_backbone:
            self.backbone.eval()
        if self.cut is not None:
            for part in parts_below(self.backbone, self.cut):
                part.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Map network inputs, as `Source.load` gives them -> normalised embeddings (B, D)."""
        return NORMALISERS[self.normalise](self.raw(inputs))

    def raw(self, inputs: Tensor) -> Tensor:
        """Map network inputs, as `Source.load` gives them -> embeddings (B, D) before normalisation."""
        return self.head(self.features(inputs))

    @property
    def rounds_features(self) -> bool:
        """Tell whether embeddings are made of frozen features, or maps, that were rounded to half precision."""
        return (self.freeze_backbone or self.cut is not None) and self.feature_precision == "half"

    def maps(self, images: Tensor) -> Tensor:
        """Map images -> maps (B, C, h, w), the input of the first stage that learns; see `train_from`."""
        assert self.cut is not None
        return maps_at(self.backbone, self.cut, images)

    def keep_what_learns(self) -> None:
        """Remove what lies below `train_from`: from now on the network takes maps, as `maps` gives them, not images."""
        assert self.cut is not None
        keep_above(self.backbone, self.cut)

    def features(self, inputs: Tensor) -> Tensor:
        """Map network inputs -> the backbone's pooled features (B, F)."""
        pooled = self.pooled(inputs)
        return as_kept(pooled, self.feature_precision) if self.freeze_backbone else pooled

    def pooled(self, inputs: Tensor) -> Tensor:
        """Map network inputs -> the backbone's pooled features (B, F), before a frozen one's are rounded."""
        if self.cut is not None and inputs.is_floating_point() and not torch.is_autocast_enabled(inputs.device.type):
            inputs = inputs.to(self.linear.weight.dtype)  # cached maps, under weights that may be double precision
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_backbone):
            features = self.backbone(inputs)
        # Under autocast the backbone may work in half precision; distances need the rest in the weights' own.
        with without_autocast(features.device):
            return self._pool(features.to(self.linear.weight.dtype))

    def head(self, features: Tensor) -> Tensor:
        """Map pooled features (B, F) -> embeddings (B, D) before normalisation."""
        with without_autocast(features.device):
            if self.scaling is not None:
                features = self.scaling(features)
            if self.hidden is not None:
                features = self.hidden(features)
            return self.linear(features)

    def _pool(self, features: Tensor) -> Tensor:
        """Pool feature maps (B, F, h, w) or features (B, F) -> features (B, F)."""
        if features.ndim == 2:
            return features
        mean = features.mean(dim=(2, 3))
        return mean if self.pooling == "gap" else mean + features.amax(dim=(2, 3))
