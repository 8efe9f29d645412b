"""The network that is trained: backbone, pooling, linear projection, normalisation."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.models.head import FeatureScaling, ResidualHidden

Pooling = Literal["gap", "gap+gmp"]
Normalisation = Literal["clip", "l2"]


def count_features(backbone: nn.Module) -> int:
    """The width F of a backbone's output, which every backbone states as `num_features`."""
    num_features = getattr(backbone, "num_features", None)
    if not isinstance(num_features, int) or num_features < 1:
        raise TypeError(
            f"{type(backbone).__name__} is no backbone: it needs an attribute num_features, a positive integer, "
            f"not {num_features!r}"
        )
    return num_features


def freeze_batch_norm(module: nn.Module) -> None:
    """Stops batch-norm layers from learning (D14): statistics stay as they are, scale and shift get no gradient.

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
        freeze_backbone: only the head learns; the backbone stays in inference mode, and its features are rounded to
            half precision, as they are stored where they are computed once (see `runs.frozen`).
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
        scale_features: bool = False,
        hidden_dim: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if embedding_dim < 1:
            raise UserError(f"embedding_dim is {embedding_dim}: it must be at least 1")
        if pooling not in get_args(Pooling):
            raise UserError(f"pooling '{pooling}' is unknown: choose one of {', '.join(get_args(Pooling))}")
        if normalise not in get_args(Normalisation):
            raise UserError(f"normalise '{normalise}' is unknown: choose one of {', '.join(get_args(Normalisation))}")
        self.backbone = backbone
        self.embedding_dim = embedding_dim
        self.pooling = pooling
        self.normalise = normalise
        self.freeze_batch_norm = freeze_batch_norm
        self.freeze_backbone = freeze_backbone

        generator = generator or torch.Generator().manual_seed(0)
        width = count_features(backbone)
        # A plain nn.Linear would draw its first weights from the global random state.
        self.linear = nn.utils.skip_init(nn.Linear, width, embedding_dim, bias=False)
        nn.init.xavier_uniform_(self.linear.weight, generator=generator)
        self.scaling = FeatureScaling(width) if scale_features else None
        self.hidden = None if hidden_dim is None else ResidualHidden(width, hidden_dim, generator)
        if freeze_backbone:
            backbone.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "Embedder":
        """Changes the mode of all that is not frozen."""
        super().train(mode)
        if self.freeze_batch_norm:
            freeze_batch_norm(self)
        if self.freeze_backbone:
            self.backbone.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Network inputs, as `Source.load` gives them -> normalised embeddings (B, D)."""
        return NORMALISERS[self.normalise](self.raw(inputs))

    def raw(self, inputs: Tensor) -> Tensor:
        """Network inputs, as `Source.load` gives them -> embeddings (B, D) before normalisation."""
        return self.head(self.features(inputs))

    def features(self, inputs: Tensor) -> Tensor:
        """Network inputs -> the backbone's pooled features (B, F)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_backbone):
            features = self.backbone(inputs)
        # Under autocast the backbone may work in half precision; distances need the rest in the weights' own.
        with torch.autocast(features.device.type, enabled=False):
            pooled = self._pool(features.to(self.linear.weight.dtype))
            return pooled.half().to(pooled.dtype) if self.freeze_backbone else pooled

    def head(self, features: Tensor) -> Tensor:
        """Pooled features (B, F) -> embeddings (B, D) before normalisation."""
        with torch.autocast(features.device.type, enabled=False):
            if self.scaling is not None:
                features = self.scaling(features)
            if self.hidden is not None:
                features = self.hidden(features)
            return self.linear(features)

    def _pool(self, features: Tensor) -> Tensor:
        """Feature maps (B, F, h, w) or features (B, F) -> features (B, F)."""
        if features.ndim == 2:
            return features
        mean = features.mean(dim=(2, 3))
        return mean if self.pooling == "gap" else mean + features.amax(dim=(2, 3))
