"""Certificates of made-up embeddings, as a run would write them."""

from dataclasses import asdict
from typing import Any

import torch

from ccp_dml.certificate.constraint import of_loss
from ccp_dml.certificate.set_certificate import EmbeddedSet, certify_set, choose_threshold
from ccp_dml.losses.contrastive import ContrastiveLoss


def certificate_of(spread: float, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """As a run would write it, of clusters that overlap the more the larger `spread` is."""
    parts = {}
    for number, name in enumerate(("training", "validation", "test")):
        generator = torch.Generator().manual_seed(number)
        labels = torch.arange(240) % 12
        points = torch.randn(12, 6, generator=generator)[labels] + spread * torch.randn(240, 6, generator=generator)
        class_names = names + tuple(f"class {label}" for label in range(len(names), 12))
        unit = points / points.norm(dim=1, keepdim=True)
        parts[name] = EmbeddedSet.make(
            unit, labels, class_names, generator, of_images=240 * (number + 1), of_classes=12
        )
    threshold = choose_threshold(parts["validation"], 0.02, 0.9)
    assert threshold is not None
    constraint = of_loss(ContrastiveLoss(0.2, 1.0))
    assert constraint is not None
    return {
        "terms": {"confidence": 0.9},
        "constraint": asdict(constraint),
        "threshold": asdict(threshold),
        "hold_out": "classes",
        "selected_on": "validation",
        "sets": {name: asdict(certify_set(part, constraint, threshold, 0.9)) for name, part in parts.items()},
    }
