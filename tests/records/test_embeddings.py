"""The embeddings of a test half, kept exactly."""

import shutil

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import save_weights
from ccp_dml.records import layout
from ccp_dml.records.documents import write_checksums
from ccp_dml.records.embeddings import EmbeddedTest, load_embedded, save_embedded


def side(seed):
    return torch.randn(20, 3, generator=torch.Generator().manual_seed(seed)), torch.arange(20) % (5 + seed)


@pytest.mark.parametrize("gallery", [None, side(1)])
def test_embeddings_are_kept_exactly(tmp_path, gallery):
    save_embedded(tmp_path, EmbeddedTest(side(0), gallery))
    found = load_embedded(tmp_path)
    assert all(map(torch.equal, found.queries, side(0)))
    assert (found.references is None) == (gallery is None)
    assert gallery is None or all(map(torch.equal, found.references, gallery))


def test_a_file_without_queries_is_named(tmp_path):
    save_weights(
        tmp_path / layout.TEST_EMBEDDINGS, {"references.embeddings": side(0)[0], "references.labels": side(0)[1]}
    )
    with pytest.raises(UserError, match="holds no queries; delete the folder and train again"):
        load_embedded(tmp_path)


def test_a_missing_file_is_named_with_what_brings_it_back(tmp_path):
    with pytest.raises(UserError, match=r"test_embeddings\.safetensors is missing; restore it, or delete result\.json"):
        load_embedded(tmp_path)


def test_the_embeddings_of_another_run_are_refused(tmp_path):
    for seed, name in enumerate(("own", "other")):
        save_embedded(tmp_path / name, EmbeddedTest(side(seed), None))
        write_checksums(tmp_path / name, "{}")
    shutil.copy(tmp_path / "other" / layout.TEST_EMBEDDINGS, tmp_path / "own")
    with pytest.raises(UserError, match=r"test_embeddings\.safetensors is not what the run wrote"):
        load_embedded(tmp_path / "own")
    (tmp_path / "own" / layout.CHECKSUMS).write_text("{}")  # as an earlier version wrote them
    load_embedded(tmp_path / "own")
