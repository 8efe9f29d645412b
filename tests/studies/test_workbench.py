"""Data and networks outside of a training are those that the training has."""

import pytest
import torch
from support.small_studies import carry_out, planned

from ccp_dml.data.loading import loader_processes
from ccp_dml.records.embeddings import load_embedded
from ccp_dml.runs.scoring import embed_test
from ccp_dml.studies.workbench import Workbench


def test_first_networks_of_a_pair_are_the_same_and_data_are_read_once(ask, tmp_path):
    runs = [one.run for one in planned(ask("geometry", "model.head_init=pca"), tmp_path).runs]
    bench = Workbench()
    one, other = (bench.first_network(run).state_dict() for run in runs)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    parts = bench.parts(runs[0].config)
    assert bench.parts(runs[1].config).learned.source is parts.learned.source
    assert set(parts.learned.class_names).isdisjoint(parts.validation.queries.class_names)
    assert set(parts.learned.class_names).isdisjoint(parts.test.queries.class_names)
    assert loader_processes(runs[0].config.run.workers, parts.learned.source) == 0, (
        "vectors in memory need no processes"
    )


@pytest.mark.usefixtures("in_this_process")
def test_the_best_network_is_the_one_that_the_run_was_scored_with(ask, tmp_path):
    request = ask("geometry", "model.head_init=xavier", "study.points=10")
    carry_out(request, tmp_path)
    run, bench = planned(request, tmp_path).runs[0].run, Workbench()
    embedded = embed_test(run.config, bench.best_network(run), bench.parts(run.config).test)
    assert torch.equal(embedded.queries[0], load_embedded(run.folder).queries[0])
    first = bench.first_network(run)
    assert not torch.equal(embed_test(run.config, first, bench.parts(run.config).test).queries[0], embedded.queries[0])
