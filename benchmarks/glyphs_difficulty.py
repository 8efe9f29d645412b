"""How hard the embedded data set is: retrieval among its test characters without any training.

    python benchmarks/glyphs_difficulty.py

Prints the scores of the pixels themselves, of the pixels without brightness and contrast, and of untrained networks.
"""

import torch
from torch import Tensor

from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.evaluation import score
from ccp_dml.foundation.randomness import generator
from ccp_dml.functional.distances import l2_normalise
from ccp_dml.functional.retrieval import retrieval_scores
from ccp_dml.models.backbones import create_backbone
from ccp_dml.models.embedder import Embedder
from ccp_dml.models.small_cnn import standardise

NETWORKS = 3  # untrained ones, of different seeds


def main() -> None:
    halves = load_glyphs()
    test = halves.test.queries
    images = test.load(torch.arange(len(test)))
    print(f"train: {len(halves.train.class_names)} classes, {len(halves.train)} images")
    print(f"test:  {len(test.class_names)} classes, {len(test)} images\n")
    print(f"{'test half':34}  MAP@R   P@R    P@1")

    def show(name: str, embeddings: Tensor) -> None:
        scores = retrieval_scores(l2_normalise(embeddings.flatten(1)), test.labels)
        print(f"{name:34} {scores.map_at_r:.4f} {scores.r_precision:.4f} {scores.precision_at_1:.4f}")

    show("random vectors", torch.randn(len(test), 128, generator=generator(0)))
    show("pixels", images[:, 0].float())
    show("pixels, standardised", standardise(images))
    show("pixels, standardised, unsigned", standardise(images).abs())
    for seed in range(NETWORKS):
        network = Embedder(create_backbone("small_cnn", seed=seed), 128, generator=generator(seed))
        batches = zip(images.split(256), test.labels.split(256), strict=True)
        scores = score(network, batches)
        name = f"untrained small_cnn, seed {seed}"
        print(f"{name:34} {scores.map_at_r:.4f} {scores.r_precision:.4f} {scores.precision_at_1:.4f}")


if __name__ == "__main__":
    main()
