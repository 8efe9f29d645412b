"""From the folders of runs to the rows, tables and figure of a benchmark."""

import json
from dataclasses import replace

import pytest
import torch

from ccp_dml.benchmark.outcome import collect, missing_runs, shown_metrics, unlike_trainings, write_outcome
from ccp_dml.benchmark.protocols import plan_mlrc
from ccp_dml.records.benchmark_folder import BenchmarkRequest
from ccp_dml.records.embeddings import EmbeddedTest, save_embedded

SCORES = {"map_at_r": 0.25, "r_precision": 0.375, "precision_at_1": 0.5}
REQUEST = BenchmarkRequest("mlrc", "features", ("c2", "c2-ccp"), 1, ("data.path=x.npz", "protocol.folds=2"))


def finish(one, better=0.0):
    """Leave what a finished run leaves; embeddings that all models agree on."""
    folder, labels = one.run.folder, torch.arange(4).repeat(2)
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("")
    save_embedded(folder, EmbeddedTest((torch.eye(4)[labels], labels), None))
    test = {**SCORES, "map_at_r": SCORES["map_at_r"] + better, "recall_at": {"1": 0.5, "2": 0.75}}
    result = {"test": test, "seed": one.run.config.run.seed, "best_step": 50, "steps": 100}
    (folder / "result.json").write_text(json.dumps(result))


@pytest.fixture
def planned(tmp_path):
    return plan_mlrc(REQUEST, tmp_path)


def test_each_finished_model_and_each_whole_ensemble_has_rows(planned, tmp_path):
    for one in planned[:3]:  # both folds of c2, one of c2-ccp
        finish(one)
    rows = collect(REQUEST, planned, tmp_path)
    assert [(row.method, row.setting, row.fold, row.metric) for row in rows if row.metric == "map_at_r"] == [
        ("c2", "separated", 0, "map_at_r"),
        ("c2", "separated", 1, "map_at_r"),
        ("c2-ccp", "separated", 0, "map_at_r"),
        ("c2", "concatenated", None, "map_at_r"),
    ]
    model, ensemble = rows[0], rows[-1]
    assert (model.value, model.folder, model.steps, model.image_size) == (0.5, "c2/repeat0/fold0", 100, None)
    assert (ensemble.value, ensemble.folder, ensemble.steps) == (1.0, "c2/repeat0", None)
    assert ensemble.dim == 2 * model.dim
    assert missing_runs(planned, ["c2", "c2-ccp"]) == ["c2-ccp: 1 of 2 runs are finished."]


def test_nothing_finished_leaves_an_empty_list_of_results_alone(planned, tmp_path):
    table = write_outcome(REQUEST, planned, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]
    assert [row.cells for row in table.rows] == [[], []]


def test_tables_and_figure_are_written_from_what_is_done(planned, tmp_path):
    for one in planned:
        finish(one, better=0.25 if one.method == "c2-ccp" else 0.0)
    table = write_outcome(replace(REQUEST, paper="cub"), planned, tmp_path)
    assert {"results.csv", "table.md", "table.tex", "improvement.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert "Compared with the paper's results on CUB." in table.notes
    assert not any("finished" in note for note in table.notes)


def test_the_table_says_which_methods_never_began(tmp_path):
    settings = (*REQUEST.settings, "train.max_steps=500", "ccp.start_step=500", "train.evaluate_every=50")
    request = replace(REQUEST, settings=settings)
    planned = plan_mlrc(request, tmp_path)
    for one in planned:
        finish(one)
    (note,) = [note for note in write_outcome(request, planned, tmp_path).notes if "the loss alone" in note]
    assert note.startswith("c2-ccp/repeat0/fold0 and 1 more: train.max_steps=500 ends the training before the first")


def test_protocols_show_different_scores():
    test = {**SCORES, "recall_at": {"1": 0.5, "4": 0.75}}
    assert list(shown_metrics(test, "separated")) == ["precision_at_1", "r_precision", "map_at_r"]
    assert list(shown_metrics(test, "single")) == ["recall_at_1", "recall_at_4", "r_precision", "map_at_r"]


def test_the_table_says_what_methods_do_not_have_in_common(tmp_path):
    """On glyphs, losses with proxies of their own take half as many images a step as the others."""
    mine = tmp_path / "mine.toml"
    mine.write_text('[loss]\nname = "c2"\n[train]\nmax_steps = 200\n[optim]\nlr = 1e-4\n')
    settings = ("protocol.folds=2", "train.evaluate_every=50")
    request = BenchmarkRequest("mlrc", "glyphs", ("c2", "c2-ccp", "proxy-anchor", str(mine)), 1, settings)
    planned = plan_mlrc(request, tmp_path / "benchmark")
    assert unlike_trainings(planned) == [
        "Not trained alike: the number of images in a step is 64 with c2, c2-ccp, mine; 32 with proxy-anchor.",
        "Not trained alike: train.max_steps is 4000 with c2, c2-ccp, proxy-anchor; 200 with mine.",
    ]
    assert unlike_trainings([one for one in planned if one.method in ("c2", "c2-ccp")]) == []
    finish(planned[0])
    assert set(unlike_trainings(planned)) <= set(write_outcome(request, planned, tmp_path / "benchmark").notes)
