"""Backbones by name.

A backbone is an `nn.Module` with an integer `num_features` F that maps network inputs, as `Source.load` gives them, to
feature maps (B, F, h, w) or features (B, F). It brings its own input normalisation. `classifier_keys`, if it has them,
are how the names of entries in published weight files begin that belong to a classifier and are left out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.models.bn_inception import WEIGHTS_FILE, BNInception
from ccp_dml.models.embedder import InputNormalisation, count_features
from ccp_dml.models.resnet20v2 import ResNet20V2
from ccp_dml.models.small_cnn import SmallCNN
from ccp_dml.models.timm_backbone import TimmBackbone
from ccp_dml.models.weights import load_weights

# The networks written here. A further one is a further line.
BACKBONES: dict[str, Callable[[], nn.Module]] = {
    "bn_inception": BNInception,
    "resnet20v2": ResNet20V2,
    "small_cnn": SmallCNN,
}
IDENTITY = "identity"
# Those that need no pretraining.
FROM_SCRATCH = frozenset({"resnet20v2", "small_cnn", IDENTITY})


def list_backbones() -> list[str]:
    """List every name that `create_backbone` takes: ours, then timm's."""
    import timm  # takes a second, which our own networks do without

    return [*BACKBONES, IDENTITY, *timm.list_models()]


def create_backbone(
    name: str,
    *,
    pretrained: bool = False,
    weights: Path | None = None,
    seed: int = 0,
    feature_dim: int | None = None,
    input_mean: Sequence[float] | None = None,
    input_std: Sequence[float] | None = None,
    own: Callable[[], nn.Module] | None = None,
) -> nn.Module:
    """Create a backbone with random, downloaded or local weights.

    Args:
        name: one of `list_backbones()`, or a timm name with the tag of its weights; with `own` any.
        pretrained: fetch timm's weights for it.
        weights: a local file, `.safetensors` or a state dict (see `load_weights`).
        seed: decides the random weights; the global random state is left as it was.
        feature_dim: width of the features that "identity" passes through.
        input_mean: of red, green and blue on the scale 0..1, with `input_std` in place of the backbone's own input
            normalisation, for weights that were trained with another.
        own: constructs a backbone that this package does not know.
    """
    if pretrained and weights is not None:
        raise UserError("`pretrained` and `weights` are both set: choose one of the two sources of weights")
    if own is None:
        refuse_unknown(name)
    elif pretrained:
        raise UserError(
            f"there are no pretrained weights of {name} to fetch: set `pretrained`=false, and load them in its "
            "constructor or with `weights`=FILE"
        )
    if pretrained:
        _refuse_download_of_ours(name)
    if name == IDENTITY:
        if weights is not None:
            raise UserError("the backbone identity has no weights: remove `weights` or choose a network")
        if feature_dim is None:
            raise UserError("the backbone identity is for data sets of features: choose a network for images")
        return PrecomputedFeatures(feature_dim)

    with torch.random.fork_rng(devices=[]):
        # Of the CPU alone: torch.manual_seed would reach the devices' states, too, and nothing would restore those.
        torch.default_generator.manual_seed(derive_seed(seed, "backbone", name))
        if own is not None:
            backbone = own()
            _refuse_without_width(backbone, name)
        else:
            backbone = BACKBONES[name]() if name in BACKBONES else TimmBackbone(name, pretrained)
    if weights is not None:
        network = backbone.network if isinstance(backbone, TimmBackbone) else backbone
        load_weights(network, Path(weights), name, getattr(backbone, "classifier_keys", ()))
    if input_mean is not None or input_std is not None:
        _renormalise(backbone, name, input_mean, input_std)
    return backbone


def _renormalise(backbone: nn.Module, name: str, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    if mean is None or std is None:
        raise UserError("`input_mean` and `input_std` belong together: set both or neither")
    if not hasattr(backbone, "input_normalisation"):
        raise UserError(f"backbone {name} standardises each image by itself: remove `input_mean` and `input_std`")
    backbone.input_normalisation = InputNormalisation([255 * value for value in mean], [255 * value for value in std])


def _refuse_without_width(backbone: nn.Module, name: str) -> None:
    try:
        count_features(backbone)
    except TypeError as error:
        raise UserError(f"{name}: {error}") from None


def refuse_unknown(name: str) -> None:
    """Raise if there is no backbone, or no weights, of that name."""
    if name in BACKBONES or name == IDENTITY:
        return
    import timm

    architecture, _, tag = name.partition(".")
    known = list_backbones()
    if architecture not in known:
        near = did_you_mean(name, known, most=3) or "; `ccp list backbones` names all there are"
        raise UserError(f"there is no backbone {name!r}{near}")
    tagged = timm.list_models(f"{architecture}.*", pretrained=True)
    if tag and name not in tagged:
        near = did_you_mean(name, tagged, most=3, cutoff=0) or f"; choose {architecture!r} without a tag"
        raise UserError(f"the backbone {architecture!r} has no weights called {tag!r}{near}")


def _refuse_download_of_ours(name: str) -> None:
    if name == "bn_inception":
        raise UserError(
            f"bn_inception's weights cannot be fetched automatically: get {WEIGHTS_FILE} (ImageNet, converted from "
            "Caffe, http://data.lip6.fr/cadene/pretrainedmodels/) and pass it as `weights`=FILE"
        )
    if name in BACKBONES or name == IDENTITY:
        raise UserError(f"there are no pretrained weights of {name}: set `pretrained`=false")


class PrecomputedFeatures(nn.Module):
    """Passes features (B, F) through, so that only a head is trained on them."""

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.num_features = feature_dim

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, F), floating point, to themselves."""
        if features.ndim != 2 or features.shape[1] != self.num_features or not features.is_floating_point():
            raise UserError(
                f"the backbone identity takes features (batch, {self.num_features}) but the data set gives "
                f"{tuple(features.shape)} of {features.dtype}: choose a network as backbone for images"
            )
        return features
