"""The maps that a run leaves of its problems: which images they show, under which weights, whatever interrupts it."""

import json

import pytest
import torch
from support.interruptions import StopAfter

from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.evaluation import embed
from ccp_dml.foundation.checkpoint import load_weights
from ccp_dml.functional.distances import clip_normalise
from ccp_dml.projections import IterativeProjections, snapshot
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.problem_map import read_problems
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.illustrations.problem_recorder import ProblemRecorder, draw_sample
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

QUICK = (
    "train.max_steps=40",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "model.embedding_dim=6",
    "ccp.patience=1",
    "train.min_improvement=1",  # nothing counts as one: every problem is two evaluations long
    "ccp.proxies_per_class=3",
)


def settings(features, method, *more):
    return complete(resolve(["features", method], [f"data.path={features}", *QUICK, *more]).config)


def run(config, folder):
    book = Logbook.open_new(folder, config, ["test"])
    train(config, book, Watcher())
    return book


def embedded(config, weights, side, rows):
    """Embeddings of rows of the training or the validation set under given weights, by the shortest way."""
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, build_data(config.data))
    data = learned if side == "train" else validation.queries
    network = build_network(config.model, data, 0)
    network.load_state_dict(weights)
    return embed(network, [(data.load(rows), data.labels[rows])])


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def files_of(folder):
    return {file.name: file.read_bytes() for file in (folder / "problems").iterdir()}


@pytest.fixture
def solved(monkeypatch):
    """What each problem had at hand when it ended: best and last weights, its proxies then and at its start."""
    problems, started = [], []
    record, pose_problem = ProblemRecorder.record, IterativeProjections.pose_problem

    def posed(self):
        started.append(None if self.proxies is None else self.proxies.vectors.detach().clone())
        pose_problem(self)

    def recorded(self, projections, *proxies):
        before = snapshot(projections.network)
        problems.append((projections.best_of_problem, before, started[-1], projections.best_proxies_of_problem))
        record(self, projections, *proxies)
        torch.testing.assert_close(projections.network.state_dict(), before, rtol=0, atol=0)  # training goes on as is

    monkeypatch.setattr(IterativeProjections, "pose_problem", posed)
    monkeypatch.setattr(ProblemRecorder, "record", recorded)
    return problems


def test_a_baseline_leaves_one_map_under_the_weights_of_its_best_evaluation(features, tmp_path):
    config = settings(features, "c2")
    book = run(config, tmp_path / "run")
    (only,) = read_problems(book.folder)
    assert only.problem == 1
    assert (only.selected, only.converged) == (None, None)
    for side, points, images in (("train", only.train, 48), ("validation", only.validation, 16)):
        embeddings, labels = embedded(config, load_weights(book.best_file), side, points.rows)
        torch.testing.assert_close(points.embeddings, embeddings)
        assert len(points.rows) == len(points.rows.unique()) == images
        assert torch.equal(points.labels, labels)  # all classes are on the map, so that they keep their numbers


def test_ccp_leaves_a_map_per_problem_with_proxies_at_start_and_end(features, tmp_path, solved):
    config = settings(features, "c2-ccp")
    book = run(config, tmp_path / "run")
    maps = read_problems(book.folder)
    assert len(maps) == len(solved) == book.result["problems"] == 5
    assert [one.problem for one in maps] == list(range(1, len(maps) + 1))
    for one, (best, _, selected, converged) in zip(maps, solved, strict=True):
        torch.testing.assert_close(one.train.embeddings, embedded(config, best, "train", one.train.rows)[0])
        torch.testing.assert_close(
            one.validation.embeddings, embedded(config, best, "validation", one.validation.rows)[0]
        )
        torch.testing.assert_close(one.selected, clip_normalise(selected))
        torch.testing.assert_close(one.converged, clip_normalise(converged))
        assert one.selected.shape == (6, 3, 6)
        assert not torch.allclose(one.selected, one.converged, atol=1e-4)
        assert torch.equal(one.train.rows, maps[0].train.rows)
        assert torch.equal(one.validation.rows, maps[0].validation.rows)
    assert any(not torch.equal(best["linear.weight"], last["linear.weight"]) for best, last, *_ in solved)


def test_proxies_are_shown_as_the_loss_normalises_them(features, tmp_path):
    book = run(settings(features, "c2-ccp", "loss.normalise=l2"), tmp_path / "run")
    for one in read_problems(book.folder):
        torch.testing.assert_close(one.converged.norm(dim=2), torch.ones(6, 3))


def test_a_start_without_proxies_has_none_on_its_map(features, tmp_path):
    book = run(settings(features, "c2-ccp", "ccp.start_step=8"), tmp_path / "run")
    first, second, *_ = read_problems(book.folder)
    assert (first.selected, first.converged) == (None, None)
    assert second.selected is not None
    assert second.converged is not None
    spreads = ["proxy_spread" in row for row in rows_of(book.folder)]
    assert spreads == [row["problem"] > 1 for row in rows_of(book.folder)]


def test_maps_change_nothing_but_are_left_out_on_demand(features, tmp_path):
    books = [run(settings(features, "c2-ccp", f"run.map_points={n}"), tmp_path / str(n)) for n in (0, 24)]
    without, with_maps = ([drop_seconds(row) for row in rows_of(book.folder)] for book in books)
    assert without == with_maps
    assert not (books[0].folder / "problems").exists()
    assert read_problems(books[0].folder) == []
    assert len(read_problems(books[1].folder)[0].train.rows) == 24


def drop_seconds(row):
    return {key: value for key, value in row.items() if not key.endswith("seconds")}


def test_killed_in_the_middle_of_problems_and_resumed_ends_with_the_same_maps(features, tmp_path):
    config = settings(features, "c2-ccp")
    whole = run(config, tmp_path / "whole")
    broken = Logbook.open_new(tmp_path / "broken", config, ["test"])
    for kill_at in (6, 14, 21, 39):
        with pytest.raises(KeyboardInterrupt):
            train(config, broken, StopAfter(kill_at), resume=kill_at > 6)
        ended = max((row["problem"] for row in rows_of(broken.folder)), default=0)
        assert len(read_problems(broken.folder)) <= ended  # none of a problem that was never solved
    train(config, broken, Watcher(), resume=True)
    assert files_of(broken.folder) == files_of(whole.folder)
    for key in ("seconds", "evaluation_seconds", "reselection_seconds"):
        times = [row[key] for row in rows_of(broken.folder) if row["step"] > 0]  # the start's own is counted apart
        assert times == sorted(times)
        assert times[-1] > 0


@pytest.mark.parametrize("at", ["before the map", "while it is written"])
def test_killed_at_the_end_of_each_problem_and_resumed_ends_with_the_same_maps(features, tmp_path, monkeypatch, at):
    """The checkpoint of a problem's last evaluation is there, its map is not."""
    config = settings(features, "c2-ccp")
    whole = run(config, tmp_path / "whole")
    calls, problems = [], whole.result["problems"]

    def every_other_time(function):
        def killed(*arguments):
            calls.append(1)
            if len(calls) % 2:
                if at == "while it is written":
                    arguments[1].write_bytes(b"half")
                raise KeyboardInterrupt
            function(*arguments)

        return killed

    if at == "before the map":
        monkeypatch.setattr(ProblemRecorder, "record", every_other_time(ProblemRecorder.record))
    else:
        import ccp_dml.foundation.checkpoint

        save_file = ccp_dml.foundation.checkpoint.save_file
        only_maps = every_other_time(save_file)
        monkeypatch.setattr(
            ccp_dml.foundation.checkpoint,
            "save_file",
            lambda tensors, path, notes: (only_maps if "train.rows" in tensors else save_file)(tensors, path, notes),
        )
    broken = Logbook.open_new(tmp_path / "broken", config, ["test"])
    for kill in range(problems):
        with pytest.raises(KeyboardInterrupt):
            train(config, broken, Watcher(), resume=kill > 0)
        assert len(read_problems(broken.folder)) == kill
    train(config, broken, Watcher(), resume=True)
    assert problems > 1
    assert files_of(broken.folder) == files_of(whole.folder)


def test_a_problem_cut_short_is_mapped_again_when_the_run_goes_on(features, tmp_path):
    whole = run(settings(features, "c2-ccp"), tmp_path / "whole")
    longer = run(settings(features, "c2-ccp", "train.max_steps=4"), tmp_path / "longer")
    (cut_short,) = longer.folder.glob("problems/*")
    assert cut_short.name == "001.safetensors"
    cut_short.write_bytes(b"the first evaluation may have been the better one already")
    reopened = Logbook.reopen(longer.folder)
    train(reopened.continue_with(settings(features, "c2-ccp")), reopened, Watcher(), resume=True)
    assert files_of(longer.folder) == files_of(whole.folder)


@pytest.mark.parametrize("points", [12, 48])
def test_a_run_resumed_with_another_number_of_points_keeps_the_images_of_its_maps(features, tmp_path, points):
    book = run(settings(features, "c2-ccp", "run.map_points=24", "train.max_steps=20"), tmp_path / "run")
    before = read_problems(book.folder)
    reopened = Logbook.reopen(book.folder)
    more = settings(features, "c2-ccp", f"run.map_points={points}")
    train(reopened.continue_with(more), reopened, Watcher(), resume=True)
    maps = read_problems(book.folder)
    assert len(maps) > len(before) > 1
    for one in maps:
        assert torch.equal(one.train.rows, before[0].train.rows)
        assert torch.equal(one.validation.rows, before[0].validation.rows)
        assert torch.equal(one.train.labels, before[0].train.labels)
        assert one.train.class_names == before[0].train.class_names


def test_images_have_names_on_maps_where_the_first_problem_left_none(features, tmp_path):
    """A problem that its pace ends before an evaluation has no map."""
    paced = [one for one in QUICK if not one.startswith("ccp.patience")]
    own = [f"data.path={features}", *paced, "ccp.until=steps", "ccp.steps_per_problem=3"]
    book = run(complete(resolve(["features", "c2-ccp"], own).config), tmp_path / "run")
    maps = read_problems(book.folder)
    assert maps[0].problem > 1
    pictures = json.loads((book.folder / "map.json").read_text())
    assert sorted(pictures["train"]["rows"]) == maps[0].train.rows.tolist()


def test_another_seed_shows_other_images(features, tmp_path):
    books = [
        run(settings(features, "c2", f"run.seed={seed}", "run.map_points=8"), tmp_path / str(seed)) for seed in (1, 2)
    ]
    (first,), (second,) = (read_problems(book.folder) for book in books)
    assert not torch.equal(first.train.rows, second.train.rows)


def test_peak_memory_is_in_the_result(features, tmp_path):
    peak = run(settings(features, "c2"), tmp_path / "run").result["peak_memory"]
    assert peak.keys() == {"process"}
    assert 2**26 < peak["process"] < 2**40  # torch alone takes more than 64 MB; a wrong unit is a factor of 1024


def labelled(*sizes):
    """Classes of the given sizes, their rows shuffled."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    names = tuple(f"class {c}" for c in range(len(sizes)))
    return LabelledSet(source=None, positions=torch.arange(len(labels)), labels=labels, class_names=names)


def drawn(data, size, seed=0):
    return draw_sample(data, size, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("sizes", "size", "classes", "each"),
    [
        ((60,) * 75, 400, 12, 33),  # a few classes, equally many images of each
        ((60,) * 10, 400, 10, 40),
        ((5,) * 900, 400, 12, 5),  # small classes are taken whole
        ((60,) * 75, 20, 5, 4),  # a small map has fewer classes rather than single images
        ((60,) * 75, 1, 1, 1),
    ],
)
def test_a_sample_is_equally_many_images_of_a_few_classes(sizes, size, classes, each):
    data = labelled(*sizes)
    sample = drawn(data, size)
    assert torch.bincount(data.labels[sample.rows])[sample.classes].tolist() == [each] * classes
    assert len(sample.rows.unique()) == len(sample.rows) == classes * each <= size
    points = sample.points(torch.zeros(len(sample.rows), 2))
    shown = [points.class_names[label] for label in points.labels.tolist()]
    assert shown == [f"class {label}" for label in data.labels[sample.rows].tolist()]


def test_a_sample_is_random_and_repeatable():
    data = labelled(*(60,) * 75)
    assert torch.equal(drawn(data, 400).rows, drawn(data, 400).rows)
    assert not torch.equal(drawn(data, 400).classes, drawn(data, 400, seed=1).classes)
    one_class = labelled(60)
    assert not torch.equal(drawn(one_class, 20).rows, drawn(one_class, 20, seed=1).rows)
