"""The backbone of a data set whose features were computed beforehand."""

from torch import Tensor, nn

from ccp_dml.errors import UserError


class PrecomputedFeatures(nn.Module):
    """Passes features (B, F) through, so that only a head is trained on them."""

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.num_features = feature_dim

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F), floating point -> the same."""
        if features.ndim != 2 or features.shape[1] != self.num_features or not features.is_floating_point():
            raise UserError(
                f"the backbone identity takes features (batch, {self.num_features}) but the data set gives "
                f"{tuple(features.shape)} of {features.dtype}: for images set model.backbone to a network"
            )
        return features
