"""The score to beat: what the backbone's own features retrieve before anything is trained."""

from typing import Any

from torch import nn

from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.models.embedder import Embedder
from ccp_dml.runs.build import build_fabric, build_network, weights_note
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.scoring import embed_test, score_embeddings


def score_raw_backbone(config: Config) -> dict[str, Any]:
    """Scores on the test half of the pooled, L2-normalised features, in the form of `evaluate_runs`."""
    if (note := weights_note(config.model)) is not None:
        raise UserError(f"{note} There is nothing to score otherwise.")
    test = build_data(config.data).test
    model = config.model.model_copy(update={"normalise": "l2"})
    network = build_network(model, test.queries, config.run.seed)
    pass_features_through(network)
    network.to(build_fabric(config.run.device, config.run.precision).device)
    scores = score_embeddings(embed_test(config, network, test), config.protocol.recall_at)
    return {"runs": {f"raw {config.model.backbone}": scores}, **scores}


def pass_features_through(network: Embedder) -> None:
    """Replace the last layer by the identity."""
    width = network.linear.in_features
    network.linear = nn.utils.skip_init(nn.Linear, width, width, bias=False)
    nn.init.eye_(network.linear.weight)
