"""A map of embeddings on which neighbours stay together: t-SNE."""

import torch
from torch import Tensor

from ccp_dml.errors import UserError

PCA_DIMENSIONS = 50
PERPLEXITY = 30.0
LEAST_SPREAD = 1e-18
"""Points that are closer are one point: t-SNE divides by their spread, whose square is 0 in single precision."""


def tsne_plane(embeddings: Tensor, seed: int) -> Tensor:
    """Place `embeddings` (n, D), n > 3, in the plane (n, 2): t-SNE of their first 50 principal components.

    The same embeddings and seed give the same places. Only who is near whom means something; scale, angle and the
    distances between far groups do not. Points that all coincide are all placed at 0.
    """
    if not embeddings.isfinite().all():
        raise UserError(
            "No map can be drawn of embeddings with NaN or infinite values: the network that gave them has diverged; "
            "train it with a lower optim.lr."
        )
    if (embeddings - embeddings[0]).abs().max() < LEAST_SPREAD:
        return torch.zeros(len(embeddings), 2)
    from sklearn.decomposition import PCA  # takes a second to import, which a server should not wait for
    from sklearn.manifold import TSNE

    points = embeddings.double().cpu().numpy()
    if min(points.shape) > PCA_DIMENSIONS:
        points = PCA(PCA_DIMENSIONS, svd_solver="full").fit_transform(points)
    perplexity = min(PERPLEXITY, (len(points) - 1) / 3)  # a neighbourhood cannot be larger than the sample
    start = "pca" if points.shape[1] > 1 else "random"
    places = TSNE(2, perplexity=perplexity, init=start, random_state=seed).fit_transform(points)
    return torch.from_numpy(places)
