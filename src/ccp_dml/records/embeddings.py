"""The embeddings of a run's test set, kept beside its result for ensembles.

They take 4 x dim bytes per test image: 31 MB for SOP at 128-D.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_weights, save_weights
from ccp_dml.records import layout
from ccp_dml.records.documents import refuse_changed_document


@dataclass(frozen=True)
class EmbeddedTest:
    """Embeddings (N, D) and labels (N,) of a test set's queries and, where there is one, of its gallery."""

    queries: tuple[Tensor, Tensor]
    references: tuple[Tensor, Tensor] | None

    def sides(self) -> list[tuple[Tensor, Tensor]]:
        """List the queries and, where there is one, the gallery."""
        return [self.queries] if self.references is None else [self.queries, self.references]


def save_embedded(folder: Path, test: EmbeddedTest) -> None:
    """Write the embeddings into the folder of their run."""
    sides = {"queries": test.queries, "references": test.references}
    save_weights(
        folder / layout.TEST_EMBEDDINGS,
        {
            f"{side}.{name}": value
            for side, pair in sides.items()
            if pair is not None
            for name, value in zip(("embeddings", "labels"), pair, strict=True)
        },
    )


def load_embedded(folder: Path) -> EmbeddedTest:
    """Read what `save_embedded` wrote."""
    file = folder / layout.TEST_EMBEDDINGS
    if not file.is_file():
        raise UserError(
            f"{file} is missing; restore it, or delete {layout.RESULT} beside it and repeat the command that trained "
            "the run, which scores it again."
        )
    refuse_changed_document(file)  # whole it may be, and yet that of another run
    tensors = load_weights(file)
    queries, references = (
        (tensors[f"{side}.embeddings"], tensors[f"{side}.labels"]) if f"{side}.labels" in tensors else None
        for side in ("queries", "references")
    )
    if queries is None:
        raise UserError(f"{file} holds no queries; delete the folder and train again.")
    return EmbeddedTest(queries, references)
