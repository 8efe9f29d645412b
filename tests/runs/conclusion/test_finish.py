import json

import torch

from ccp_dml.data.labelled import Parts
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.conclusion.finish import finish_run
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.scoring import load_network


def test_a_run_is_finished_with_everything_that_reports_need(photo_run, tmp_path):
    folder, config = photo_run
    halves = build_data(config.data)
    parts = Parts(*classes_to_learn_and_to_select_on(config.protocol, halves), halves.test)
    network = load_network(Logbook.reopen(folder), config, halves.test)
    book = Logbook.open_new(tmp_path / "run", config, ["test"])
    book.begin()
    scores = {"map_at_r": 0.5, "precision_at_1": 0.5, "r_precision": 0.5}
    book.record({"step": 2, "problem": 1, **scores, "queries": 4, "loss": 1.0, "seconds": 1.0})
    perfect = torch.nn.functional.one_hot(halves.test.queries.labels).float()
    facts = {"validation": {**scores, "queries": 4}, "best_step": 2, "steps": 2, "problems": 1, "seed": 0}
    result = finish_run(
        config, book, network, parts, halves.test, EmbeddedTest((perfect, halves.test.queries.labels), None), facts
    )
    assert result["test"]["map_at_r"] == 1.0
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert written >= {
        "gallery.json",
        "confusion.json",
        "certificate.json",
        "classes.json",
        "report.html",
        "checksums.json",
    }
