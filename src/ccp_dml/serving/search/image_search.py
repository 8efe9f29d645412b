"""An index together with the network it was made with: pictures in, the nearest indexed images out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ccp_dml.errors import UserError
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.search.gallery import Gallery, Hit, refuse_other_model
from ccp_dml.serving.search.index_store import PinnedModel
from ccp_dml.serving.search.vector_engine import open_gallery
from ccp_dml.serving.stored_model import load


@dataclass(frozen=True)
class ImageSearch:
    """Searches indexed images by pictures. Several threads may use one at a time. Made by `ccp_dml.open_index`."""

    gallery: Gallery
    model: EmbeddingModel

    def search(
        self, images: Any, k: int = 10, *, where: str | None = None, within: float | None = None
    ) -> list[list[Hit]]:
        """Find the `k` nearest indexed images of each picture, or as many as there are, nearest first.

        A hit has its `distance` and its `item`, with `path`, `label`, `attributes` and `id`.

        Args:
            images: one picture or many, as for `EmbeddingModel.embed`.
            where: keep to images that satisfy a condition, such as `species = "wren" and year >= 2020`.
            within: keep to images that the certificate calls the same as the picture at this false-match rate.
        """
        limit = float("inf") if within is None else self.model.threshold(within)
        vectors = self.model.comparable(self.model.embed(images))
        found = self.gallery.search(vectors, k, where) if len(vectors) else []
        return [[hit for hit in hits if hit.distance <= limit] for hits in found]


def open_index(
    index: str | Path,
    model: str | Path | None = None,
    device: str | torch.device = "auto",
    *,
    settings: Sequence[str] = (),
    trust_code: bool = False,
) -> ImageSearch:
    """Open what `ccp index` wrote, or the address that it was pushed to, with its network.

    Args:
        index: the index's folder, or an address such as `http://localhost:19530#birds`.
        model: where the network is now, if it has moved since.
        device, settings, trust_code: as for `ccp_dml.load`.
    """
    gallery = open_gallery(str(index))
    network = load_pinned(gallery.model, model, str(index), device, settings=settings, trust_code=trust_code)
    return ImageSearch(gallery, network)


def load_pinned(
    pinned: PinnedModel,
    given: str | Path | None,
    name: str,
    device: str | torch.device,
    *,
    settings: Sequence[str],
    trust_code: bool,
) -> EmbeddingModel:
    """Load the network of the index `name`, from where it was or from where it is said to be now."""
    path = Path(pinned.path if given is None else given)
    if given is None and not path.exists():
        raise UserError(f"The model of {name} is no longer at {path}; say where it is with --model MODEL.")
    model = load(path, device, settings=settings, trust_code=trust_code)
    refuse_other_model(pinned, model.digest, str(path), name)
    return model
