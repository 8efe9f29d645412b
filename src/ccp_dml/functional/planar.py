"""A plane to draw points of many dimensions in: the one along which they spread most."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Plane:
    """A point of the plane, two orthonormal directions in it, and how much of the spread it shows."""

    origin: Tensor  # (D,)
    axes: Tensor  # (D, 2)
    share: float  # of the points' variance, 0..1

    def project(self, points: Tensor) -> Tensor:
        """Compute coordinates (..., 2) of `points` (..., D)."""
        return (points.to(self.axes.dtype) - self.origin) @ self.axes


@torch.no_grad()
def principal_plane(points: Tensor) -> Plane:
    """Find the plane through the mean of `points` (N, D) along their first two principal components.

    Points of two dimensions are drawn as they are, those of one on a line. The signs of the axes are settled (the
    largest entry of each is positive), so that the same points give the same picture.
    """
    if points.dim() != 2 or len(points) == 0:
        raise ValueError(f"points must be (N, D) with at least one row, got {tuple(points.shape)}")
    points = points.double()
    dimensions = points.shape[1]
    if dimensions <= 2:
        axes = torch.eye(2, dtype=points.dtype)[:dimensions]
        return Plane(torch.zeros(dimensions, dtype=points.dtype), axes, 1.0)
    mean = points.mean(0)
    centred = points - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred)  # ascending; (D,), (D, D)
    axes = directions[:, [-1, -2]]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))  # (1, 2)
    total = float(variances.clamp(min=0).sum())
    shown = float(variances[-2:].clamp(min=0).sum())
    return Plane(mean, axes * largest.sign(), shown / total if total > 0 else 1.0)
