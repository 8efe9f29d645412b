"""Any network of timm, by name, with the input normalisation its weights were trained with."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.foundation.modes import inference, quiet
from ccp_dml.models.embedder import InputNormalisation


class TimmBackbone(nn.Module):
    """Images (B, 3, H, W) -> feature maps (B, F, h, w); of a transformer, features (B, F) pooled by its own rule.

    Args:
        name: a timm name, with or without a tag of pretrained weights ("resnet50", "resnet50.a1_in1k").
        pretrained: fetch timm's weights, from its cache if they are there.
    """

    def __init__(self, name: str, pretrained: bool = False) -> None:
        super().__init__()
        self.name = name
        global_pool: str | None = None  # the network's own: how tokens are best pooled differs from one to the next
        network = pooling = _create(name, global_pool)
        maps = _on_black_image(pooling, pooling.forward_features)  # type: ignore[arg-type]
        if isinstance(maps, Tensor) and maps.ndim == 4:  # some transformers give a list, a part for each size of patch
            global_pool = ""  # none: `Embedder` pools
            network = _create(name, global_pool)
        sample = _on_black_image(network, network)
        if global_pool == "" and sample.ndim == 2 and sample.numel() == maps.numel():
            global_pool, network = None, pooling  # without pooling it gives all positions as one long row
            sample = _on_black_image(network, network)
        self.channels_last = sample.ndim == 4 and getattr(network, "output_fmt", "NCHW") == "NHWC"
        self.num_features = sample.shape[-1 if self.channels_last else 1]

        self.network = _download(name, global_pool) if pretrained else network
        # Convolutions read colours of a pixel side by side: a third faster on CPUs, faster still on tensor cores.
        self.memory_format = torch.channels_last if sample.ndim == 4 else torch.contiguous_format
        self.network.to(memory_format=self.memory_format)
        settings = _settings(self.network)
        self.input_normalisation = InputNormalisation(
            [255 * value for value in settings["mean"]], [255 * value for value in settings["std"]]
        )
        self.native_size = tuple(settings["input_size"][1:])
        self.takes_native_size_only = bool(settings.get("fixed_input_size"))
        classifiers = settings.get("classifier") or ()
        self.classifier_keys = tuple(
            f"{key}." for key in ((classifiers,) if isinstance(classifiers, str) else classifiers)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W), values 0..255 -> feature maps (B, F, h, w) or features (B, F)."""
        normalised = self.input_normalisation(images).contiguous(memory_format=self.memory_format)
        if self.takes_native_size_only and tuple(images.shape[-2:]) != self.native_size:
            raise self._size_error(images)
        try:
            features = self.network(normalised)
        except AssertionError as error:  # timm asserts sizes that fit patches and windows
            raise self._size_error(images) from error
        return features.permute(0, 3, 1, 2) if self.channels_last else features

    def _size_error(self, images: Tensor) -> UserError:
        height, width = self.native_size
        return UserError(
            f"backbone {self.name} is made for images of {height} x {width} pixels and does not take "
            f"{images.shape[-2]} x {images.shape[-1]}: crop to {height} or choose another backbone"
        )


def _create(name: str, global_pool: str | None, pretrained: bool = False) -> nn.Module:
    import timm  # takes a second, which our own networks do without

    return timm.create_model(name, pretrained=pretrained, num_classes=0, global_pool=global_pool)


def _settings(network: nn.Module) -> dict[str, Any]:
    """Read what timm states about a network's weights: `mean`, `std`, `input_size`, `classifier`, ..."""
    return network.pretrained_cfg  # type: ignore[return-value]  # a plain attribute that nn.Module's types do not know


def _on_black_image(network: nn.Module, forward: Callable[[Tensor], Tensor]) -> Tensor:
    """Feed a black image: timm's networks state their width and layout in too many ways to rely on any."""
    image = torch.zeros(1, *_settings(network)["input_size"])
    with torch.no_grad(), inference(network):
        return forward(image)


def _download(name: str, global_pool: str | None) -> nn.Module:
    try:
        with quiet("huggingface_hub"):  # it prints each of its retries: what comes of them is said in one sentence
            return _create(name, global_pool, pretrained=True)
    except Exception as error:  # the network is known to build: whatever fails here, in any library, is the fetching
        reason = str(error).strip().splitlines()
        raise UserError(
            f"the pretrained weights of {name} could not be fetched "
            f"({type(error).__name__}{': ' + reason[0] if reason else ''}): "
            "download them elsewhere and pass `weights`=FILE"
        ) from error
