"""What a build has embedded so far: kept until its index counts, so that a killed one is gone on with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ccp_dml.serving.batch_journal import BatchJournal


class UnfinishedBuild:
    """Vectors by the content of their images, in a folder beside the index.

    The next writer takes over what it needs, whatever was added, removed or renamed in between. Who writes holds the
    index's lock. Vectors of another model are thrown away.
    """

    def __init__(self, index: Path, model_digest: str, dim: int) -> None:
        self._journal = BatchJournal(journal_folder(index), dim)
        batches = self._journal.begin({"model": model_digest})
        contents = [content for batch in batches for content in batch["contents"]]
        self._rows = {content: row for row, content in enumerate(contents)}
        self._vectors: np.ndarray | None = None  # mapped when they are first asked for

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, content: str) -> bool:
        return content in self._rows

    def append(self, contents: Sequence[str], vectors: np.ndarray) -> None:
        """Add the vectors (B, D) of images of these contents, named by their files' digests."""
        first = self._journal.rows
        self._journal.append(vectors, contents=list(contents))
        self._rows |= {content: first + place for place, content in enumerate(contents)}
        self._vectors = None

    def vector(self, content: str) -> np.ndarray:
        """Look up the vector (D,) of an image; a KeyError for a content that is not there."""
        if self._vectors is None:
            self._vectors = self._journal.vectors()
        return self._vectors[self._rows[content]]

    def remove(self) -> None:
        """Forget everything: the index has it by now, or nobody will ask for it."""
        self._vectors = None
        self._journal.remove()


def journal_folder(index: Path) -> Path:
    whole = index.resolve()
    return whole.parent / f".{whole.name}.part"
