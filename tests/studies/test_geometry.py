"""Before and after training: the numbers are those of the networks, and nothing is measured twice."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.small_studies import carry_out, concluded, planned

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_note, load_weights, save_weights
from ccp_dml.records.embeddings import EmbeddedTest, load_embedded
from ccp_dml.records.layout import geometry_file
from ccp_dml.runs.build import build_network
from ccp_dml.studies import geometry
from ccp_dml.studies.embedding_geometry import measure_embedded, read_geometry
from ccp_dml.studies.workbench import Workbench

SMALL = ("model.head_init=xavier", "study.points=40")


@pytest.mark.usefixtures("in_this_process")
def test_states_before_and_after_are_those_of_the_networks(ask, tmp_path):
    request = ask("geometry", *SMALL)
    assert concluded(request, tmp_path) is None, "nothing was measured yet"
    notes = carry_out(request, tmp_path)
    assert len(notes) == 3, "before, c2 and c2-ccp"
    assert carry_out(request, tmp_path) == [], "nothing is measured twice"
    plan = planned(request, tmp_path)
    found = concluded(request, tmp_path)
    rows = {(row["method"], row["side"]): row for row in found.rows}
    assert len(rows) == 6

    for run in (one.run for one in plan.runs):
        expected = measure_embedded(load_embedded(run.folder))  # as the run itself embedded its test half
        row = rows[run.name.split("/")[0], "unseen"]
        assert row["map_at_r"] == pytest.approx(expected.map_at_r)
        assert row["covering_radius"] == pytest.approx(expected.covering_radius)
    config = plan.runs[0].run.config
    parts = Workbench().parts(config)
    untrained = build_network(config.model, parts.learned, config.run.seed).eval()
    with torch.no_grad():
        embeddings = untrained(parts.learned.load(torch.arange(len(parts.learned))))
    expected = measure_embedded(EmbeddedTest((embeddings, parts.learned.labels), None))
    assert rows[geometry.BEFORE, "seen"]["map_at_r"] == pytest.approx(expected.map_at_r)
    assert rows[geometry.BEFORE, "seen"]["images"] == len(parts.learned)

    for side in read_geometry(geometry_file(tmp_path, "c2", 0)).values():
        assert side.places.shape == (len(side.labels), 2)
        assert set(side.labels.tolist()) == set(range(len(side.class_names)))
    seen, unseen, bars = found.figures
    assert [len(figure.panels) for figure in (seen, unseen, bars)] == [3, 3, 4]
    names = [{group.label for group in panel.groups} for panel in unseen.panels]
    assert names[0] == names[1] == names[2]
    assert names[0] <= set(parts.test.queries.class_names)
    score = 100 * rows["c2-ccp", "unseen"]["map_at_r"]
    assert f"c2-ccp MAP@R {score:.1f} %" in found.paragraph


@pytest.mark.usefixtures("in_this_process")
def test_a_run_that_was_trained_again_is_measured_again(ask, tmp_path):
    request = ask("geometry", *SMALL)
    carry_out(request, tmp_path)
    shutil.rmtree(tmp_path / "c2-ccp" / "repeat0")
    assert [note for note in carry_out(request, tmp_path) if note.startswith("measuring")] == [
        "measuring c2-ccp, repeat 0"
    ]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("state", ["c2", geometry.BEFORE])
def test_a_network_is_measured_on_the_data_that_it_was_trained_with(ask, tmp_path, state):
    request = ask("geometry", *SMALL)
    carry_out(request, tmp_path)
    geometry_file(tmp_path, state, 0).unlink()
    file = Path(planned(request, tmp_path).runs[0].run.config.data.path)
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, "features": arrays["features"] + 1})
    with pytest.raises(UserError, match="are not those"):
        carry_out(request, tmp_path)


@pytest.mark.usefixtures("in_this_process")
def test_what_was_measured_of_another_run_or_of_none_that_is_named_is_not_told(ask, tmp_path):
    request = ask("geometry", *SMALL)
    carry_out(request, tmp_path)
    for method, note in (("c2", {"result": "of another run"}), ("c2-ccp", {"result": None})):
        file = geometry_file(tmp_path, method, 0)
        written = {**json.loads(load_note(file)), **note}
        known = {key: value for key, value in written.items() if value is not None}
        save_weights(file, load_weights(file), json.dumps(known))
    assert {row["method"] for row in concluded(request, tmp_path).rows} == {geometry.BEFORE}
    assert carry_out(request, tmp_path) == ["measuring c2, repeat 0", "measuring c2-ccp, repeat 0"]
    assert {row["method"] for row in concluded(request, tmp_path).rows} == {geometry.BEFORE, "c2", "c2-ccp"}


@pytest.mark.usefixtures("in_this_process")
def test_a_network_that_puts_all_images_in_one_place_is_told_like_others(ask, tmp_path):
    request = ask("geometry", *SMALL)
    carry_out(request, tmp_path)
    file = geometry_file(tmp_path, "c2", 0)
    note = json.loads(load_note(file))
    for side in ("seen", "unseen"):
        note[side] |= {"covering_radius": 0.0, "inter_class_distance": 0.0}
    save_weights(file, load_weights(file), json.dumps(note))
    found = concluded(request, tmp_path)
    assert {row["method"] for row in found.rows if row["relative_radius"] is None} == {"c2"}
    assert "(radius / distance \N{EN DASH})" in found.paragraph
    ratios = {group.label: group.values for group in found.figures[-1].panels[-1].groups}
    assert ratios["c2"] == [None, None]
    assert None not in ratios["c2-ccp"]
