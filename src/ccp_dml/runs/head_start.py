"""Where the head begins: at random, or at the (whitened) PCA of what it will be trained on."""

import torch
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import evaluation_batches
from ccp_dml.models.embedder import Embedder
from ccp_dml.models.head import start_as_pca


def start_head(network: Embedder, config: Config, learned: LabelledSet, workers: int) -> None:
    """Set the head's first weights as `model.head_init` asks, from the images of the classes that train alone."""
    if network.scaling is None:
        return  # "xavier": as the network was built
    features = pooled_features(network, learned, config.run.evaluation_batch, workers)
    start_as_pca(network.linear, network.scaling, features, whiten=config.model.head_init == "whitened-pca")


@torch.no_grad()
def pooled_features(network: Embedder, data: LabelledSet, batch_size: int, workers: int) -> Tensor:
    """The backbone's features (N, F) of all of `data` under the evaluation transform."""
    network.eval()
    device = network.linear.weight.device
    batches = evaluation_batches(data, batch_size, workers)
    return torch.cat([network.features(inputs.to(device)) for inputs, _ in batches])
