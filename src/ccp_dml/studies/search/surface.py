"""A smooth map of scores between the points that a search has tried."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

FEWEST_POINTS = 4
COLUMNS = 49


@dataclass(frozen=True)
class FittedSurface:
    """`values[row][column]` at `proxies[row]` and `weights[column]`."""

    weights: list[float]
    proxies: list[float]
    values: list[list[float]]


def fit_surface(
    points: Sequence[tuple[float, float]],
    scores: Sequence[float],
    weight_range: tuple[float, float],
    proxies_range: tuple[int, int],
) -> FittedSurface | None:
    """A Gaussian process over log lambda and P, with noise; None where points are too few to say anything between them.

    `points` are pairs of lambda and P.
    """
    if len(points) < FEWEST_POINTS:
        return None
    low, high = np.log10(weight_range)
    first, last = proxies_range

    def scaled(weights: np.ndarray, proxies: np.ndarray) -> np.ndarray:
        """(N, 2), both in 0..1: a length means the same in both directions."""
        return np.stack([(np.log10(weights) - low) / (high - low), (proxies - first) / max(1, last - first)], axis=1)

    tried = np.asarray(points, dtype=float)
    kernel = ConstantKernel(1.0) * Matern(length_scale=[0.3, 0.3], length_scale_bounds=(0.05, 10.0), nu=2.5)
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(0.01, (1e-6, 1.0)), normalize_y=True, n_restarts_optimizer=2, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a flat direction has no best length, and needs none
        process.fit(scaled(tried[:, 0], tried[:, 1]), np.asarray(scores, dtype=float))
    weights = np.logspace(low, high, COLUMNS)
    proxies = np.arange(first, last + 1, dtype=float)
    grid = np.stack(np.meshgrid(weights, proxies), axis=-1).reshape(-1, 2)  # (rows * columns, 2)
    values = process.predict(scaled(grid[:, 0], grid[:, 1])).reshape(len(proxies), len(weights))
    return FittedSurface(weights.tolist(), proxies.tolist(), values.tolist())
