"""Before and after training: the numbers are those of the networks, and nothing is measured twice."""

import math

import pytest
import torch

from ccp_dml.plans.runner import PlanWatcher
from ccp_dml.records.embeddings import EmbeddedTest, load_embedded
from ccp_dml.records.layout import geometry_file
from ccp_dml.runs.build import build_network
from ccp_dml.studies import STUDIES, geometry
from ccp_dml.studies.embedding_geometry import measure_embedded, read_geometry, tsne_plane
from ccp_dml.studies.workbench import Workbench

STUDY = STUDIES["geometry"]
SMALL = ("model.head_init=xavier", "study.points=40")


class Notes(PlanWatcher):
    """Remembers what goes on beside the runs."""

    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


def carry_out(request, folder):
    """Train and measure; what was told of the measuring."""
    watcher = Notes()
    assert STUDY.train(request, folder, STUDY.plan(request, folder), 1, watcher) == []
    return watcher.texts


def test_measures_of_two_classes_on_a_line():
    embeddings = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [1.0, 0.0], [1.3, 0.0]])
    labels = torch.tensor([0, 0, 0, 1, 1])
    measured = measure_embedded(EmbeddedTest((embeddings, labels), None))
    # Class 0 from its middle: radii .1, .1, 0. Class 1: .3, 0.
    assert measured.covering_radius == pytest.approx(((0.1 + 0.1) / 3 + 0.3 / 2) / 2)
    assert measured.inter_class_distance == pytest.approx((1.0 + 0.9 + 0.8 + 1.3 + 1.2 + 1.1) / 6)
    assert measured.relative_radius == pytest.approx(measured.covering_radius / measured.inter_class_distance)
    assert (measured.map_at_r, measured.classes, measured.images) == (1.0, 2, 5)


def test_queries_and_gallery_are_scored_against_each_other_and_lie_together():
    queries = (torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    gallery = (torch.tensor([[0.9], [0.2]]), torch.tensor([0, 1]))
    measured = measure_embedded(EmbeddedTest(queries, gallery))
    assert measured.map_at_r == 0.0
    assert measured.images == 4
    assert measured.inter_class_distance == pytest.approx((1.0 + 0.2 + 0.1 + 0.7) / 4)


def test_tsne_keeps_neighbours_and_repeats_itself():
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(12)
    embeddings = 5 * torch.eye(60)[labels] + 0.1 * torch.randn(36, 60, generator=draw)
    places = tsne_plane(embeddings, seed=1)
    assert places.shape == (36, 2)
    distances = torch.cdist(places, places).fill_diagonal_(math.inf)
    assert torch.equal(labels[distances.argmin(1)], labels)
    assert torch.equal(places, tsne_plane(embeddings, seed=1))


@pytest.mark.usefixtures("in_this_process")
def test_states_before_and_after_are_those_of_the_networks(ask, tmp_path):
    request = ask("geometry", *SMALL)
    assert STUDY.conclude(request, tmp_path, STUDY.plan(request, tmp_path)) is None, "nothing was measured yet"
    notes = carry_out(request, tmp_path)
    assert len(notes) == 3, "before, c2 and c2-ccp"
    assert carry_out(request, tmp_path) == [], "nothing is measured twice"
    plan = STUDY.plan(request, tmp_path)
    found = STUDY.conclude(request, tmp_path, plan)
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
