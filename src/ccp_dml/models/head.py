"""What stands between a backbone's features and the embedding, and how it may start better than at random."""

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError

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
        """Features (B, F) -> features (B, F) of mean zero and mean square length one."""
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
        """Features (B, F) -> features (B, F)."""
        return features + self.outwards(torch.relu(self.inwards(features)))


@torch.no_grad()
def start_as_pca(linear: nn.Linear, scaling: FeatureScaling, features: Tensor, *, whiten: bool) -> None:
    """Let the head begin as the projection onto the directions in which `features` (N, F) vary most.

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
        raise UserError("the training features are not finite: check model.weights and model.input_mean")
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
