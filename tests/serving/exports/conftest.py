"""One export with every program, for the tests that only read it."""

import pytest

from ccp_dml.serving.exports.export import export_run


@pytest.fixture(scope="session")
def exported(photo_run, tmp_path_factory):
    """A run with every program; only to be read."""
    folder = tmp_path_factory.mktemp("exported") / "photos"
    return export_run(photo_run[0], folder, onnx=True, torch_program=True)
