"""One run: its parts, its pace, the lines of its log, and the checkpoints that it takes."""

import math
from types import SimpleNamespace

import pytest
import torch

from ccp_dml.config.layers import resolve
from ccp_dml.config.schema import ModelConfig
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.errors import NonFiniteError, UserError
from ccp_dml.pace import Pace, Patience
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.assembly import TrainingRun, evaluations_left, pace_of, refuse_other_version
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.watcher import Watcher

QUICK = (
    "train.max_steps=10",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "train.images_per_class=2",
    "model.embedding_dim=6",
    "ccp.start_step=0",
    "ccp.patience=1",
    "ccp.proxies_per_class=2",
    "ccp.pool_per_class=3",
)


class Notes(Watcher):
    """Remembers notes and evaluations."""

    def __init__(self):
        self.texts, self.rows, self.best = [], [], []

    def note(self, text):
        self.texts.append(text)

    def evaluation(self, row, best):
        self.rows.append(row)
        self.best.append(best)


@pytest.fixture
def assemble(features, tmp_path):
    """Assemble a run in a folder of its own, on the data as `change` leaves them."""

    def make(name, method, *settings, change=lambda learned: learned, watcher=None):
        config = complete(resolve(["features", method], [f"data.path={features}", *QUICK, *settings]).config)
        learned, validation = classes_to_learn_and_to_select_on(config.protocol, build_data(config.data))
        network = build_network(config.model, learned, config.run.seed)
        book = Logbook.open_new(tmp_path / name, config, ["test"])
        book.begin(0)
        fabric = build_fabric(config.run.device, config.run.precision)
        return TrainingRun(config, fabric, network, change(learned), validation, book, watcher or Notes())

    return make


@pytest.mark.parametrize(
    ("setting", "attribute", "value"),
    [
        ("ccp.rewind=false", "rewind", False),
        ("ccp.rewind=true", "rewind", True),
        ("ccp.remembered_problems=3", "remembered", 3),
        ("ccp.averaged_solutions=4", "averaged", 4),
        ("ccp.space=normalised", "space", "normalised"),
        ("ccp.pull_to_start=false", "pull_to_start", False),
        ("ccp.patience=2", "problem_patience", Patience(2, 1e-5)),
    ],
)
def test_settings_of_the_loop_reach_it(assemble, setting, attribute, value):
    assert getattr(assemble("run", "c2-ccp", setting).projections, attribute) == value


def test_the_correction_reaches_the_pull(assemble):
    pull = assemble("run", "c2-ccp", "ccp.corrected_sets=3", "ccp.weight=0.5").projections.pull
    assert (pull.corrected_sets, pull.weight) == (3, 0.5)


@pytest.mark.parametrize(("trained", "steps"), [(True, 6), (False, 0)])
def test_only_a_trained_backbone_rests(assemble, monkeypatch, trained, steps):
    monkeypatch.setattr(ModelConfig, "has_trained_backbone", trained)
    run = assemble("run", "c2", "train.warm_up_epochs=1")
    assert run.trainer.warm_up_steps == steps  # 48 rows of six classes, eight a step


def test_a_baseline_is_ccp_without_proxies_and_pull(assemble):
    plain, one_problem, ccp = (assemble(method, method) for method in ("c2", "c2-proxy", "c2-ccp"))
    assert (plain.proxies, plain.trainer.pull) == (None, None)
    assert one_problem.proxies is not None
    assert one_problem.trainer.pull is None
    for baseline in (plain, one_problem):
        pace = baseline.projections.pace
        assert pace.steps is None, "nothing but the run's own end ends its problem"
        assert not pace.watches_proxies
    assert ccp.trainer.pull is ccp.projections.pull is not None
    assert ccp.proxies.vectors.shape == (6, 2, 6)
    assert [chunk.shape for chunk in ccp.embed_pool(1)] == [(6, 3, 6)]


def test_proxies_by_need_are_placed_logged_and_gone_on_with(assemble):
    run = assemble("run", "c2-ccp", "ccp.proxies_by_need=true", "ccp.pool_per_class=4", "ccp.until=steps")
    run.run()
    assert run.proxies.vectors.shape == (6, 4, 6)
    assert len(run.proxies()[0]) == 6 * 2
    assert all(math.isfinite(row["proxy_spread"]) and math.isfinite(row["staleness"]) for row in run.watcher.rows)
    again = assemble("again", "c2-ccp", "ccp.proxies_by_need=true", "ccp.pool_per_class=4", "ccp.until=steps")
    again.load_state_dict(run.logbook.last_state(torch.device("cpu")))
    assert torch.equal(again.proxies()[0], run.proxies()[0])


def test_evaluations_are_logged_told_and_checkpointed(assemble):
    run = assemble("run", "c2-ccp")
    run.run()
    assert [row["step"] for row in run.watcher.rows] == [4, 8, 10]
    assert run.logbook.rows() == run.watcher.rows
    assert run.watcher.best[-1] == max(row["map_at_r"] for row in run.watcher.rows)
    assert run.logbook.best_file.exists()
    state = run.logbook.last_state(torch.device("cpu"))
    assert state["trainer"]["step"] == 10
    first = run.watcher.rows[0]
    assert {"pull_norm", "covering_radius", "problems_begun", "proxy_spread", "active_negatives"} <= first.keys()
    assert [start["step"] for start in first["problems_begun"]] == [0]
    plain = assemble("plain", "c2")
    plain.run()
    assert not {"pull_norm", "covering_radius", "problems_begun", "proxy_spread"} & plain.watcher.rows[0].keys()


def test_the_best_weights_are_left_in_the_network(assemble):
    run = assemble("run", "c2")
    best = {name: torch.full_like(value, 3) for name, value in run.network.state_dict().items()}
    run.projections.run = lambda: best
    run.run()
    torch.testing.assert_close(dict(run.network.state_dict()), best)


def test_numbers_that_explode_end_with_advice(assemble):
    def explode():
        raise NonFiniteError("Step 3: the loss is not finite.")

    run = assemble("run", "c2")
    run.projections.run = explode
    with pytest.raises(NonFiniteError, match=r"^Step 3: the loss is not finite\. Try a smaller optim\.lr"):
        run.run()


def test_a_checkpoint_goes_on_up_to_a_later_step(assemble):
    run = assemble("run", "c2-ccp")
    run.run()
    state = run.logbook.last_state(torch.device("cpu"))
    longer = assemble("longer", "c2-ccp", "train.max_steps=17")
    longer.load_state_dict(state)
    assert longer.trainer.step == 10
    assert longer.projections.max_evaluations == 3 + 2, "at 14, as windows begin where the last one ended, and 17"
    (note,) = [text for text in longer.watcher.texts if "train.evaluate_every" in text]
    assert "Step 10 is no multiple of train.evaluate_every=4" in note
    as_long = assemble("as long", "c2-ccp")
    as_long.load_state_dict(state)
    assert not [text for text in as_long.watcher.texts if "train.evaluate_every" in text]
    shorter = assemble("shorter", "c2-ccp", "train.max_steps=9")
    with pytest.raises(UserError, match=r"train\.max_steps=9 is less than the 10 steps"):
        shorter.load_state_dict(state)


def test_a_checkpoint_of_other_features_is_refused(assemble):
    state = assemble("run", "c2").state_dict()
    state["network"]["linear.weight"] = state["network"]["linear.weight"][:, :-1]
    with pytest.raises(UserError, match="does not fit the network"):
        assemble("other", "c2").load_state_dict(state)


@pytest.mark.parametrize("part", ["", "projections", "trainer"])
def test_a_checkpoint_with_other_entries_is_refused(part):
    own = {"projections": {"problem": 1}, "trainer": {"step": 1}}
    refuse_other_version(own, own)
    found = {name: dict(entries) for name, entries in own.items()}
    (found if part == "" else found[part])["of_tomorrow"] = {}
    with pytest.raises(UserError, match=r"another version of ccp-dml \(they differ in of_tomorrow\)"):
        refuse_other_version(found, own)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_first_problem_with_proxies_is_pulled_to_the_start_only_where_that_is_wanted(assemble, wanted):
    settings = (f"ccp.pull_to_start={str(wanted).lower()}", "ccp.start_step=2", "train.evaluate_every=2")
    run = assemble("run", "c2-ccp", *settings, "train.max_steps=4", "ccp.patience=9")
    run.run()
    assert [start.step for start in run.projections.starts] == [0, 2]
    assert bool(run.projections.pull.anchor) == wanted


def test_proxies_that_moved_lose_their_moments(assemble):
    run = assemble("run", "c2-ccp", "ccp.reset_moments=true")
    run.run()
    assert run.optimizer.state[run.proxies.vectors]
    run.reset_moments_of_proxies()
    assert run.proxies.vectors not in run.optimizer.state
    assert len(run.optimizer.state) > 0, "those of the network stay"


def test_classes_that_do_not_fill_their_place_in_a_batch_are_told(assemble):
    def without_most_of_class_0(learned):
        kept = (learned.labels != 0) | (torch.arange(len(learned)) == 0)
        return LabelledSet(learned.source, learned.positions[kept], learned.labels[kept], learned.class_names)

    run = assemble("run", "c2", change=without_most_of_class_0)
    assert run.watcher.texts == [
        "1 training classes have fewer than 2 images; their images repeat within a batch.",
    ]
    assert assemble("whole", "c2").watcher.texts == []


@pytest.mark.parametrize(
    ("step", "max_steps", "left"), [(0, 10, 3), (4, 10, 2), (10, 10, 0), (12, 10, 0), (3, None, None)]
)
def test_the_last_window_may_be_short(step, max_steps, left):
    trainer = SimpleNamespace(step=step, max_steps=max_steps, evaluate_every=4)
    assert evaluations_left(trainer) == left


@pytest.mark.parametrize(
    ("settings", "ended_by"),
    [
        ([], {}),
        (["ccp.until=stale", "ccp.staleness=0.5"], {"staleness": 0.5}),
        (["ccp.until=behind", "ccp.staleness=0.5"], {"behind": 0.5}),
        (["ccp.until=steps", "ccp.steps_per_problem=70"], {"steps": 70}),
        (["ccp.until=steps", "ccp.steps_per_problem=epoch"], {"steps": 137}),
    ],
    ids=["the paper", "stale", "behind", "steps", "epoch"],
)
def test_a_problem_is_ended_by_what_the_setting_names(settings, ended_by):
    settings = [*settings, "train.classes_per_batch=10", "train.images_per_class=4", "ccp.check_every=5"]
    config = resolve(["cub", "c2-ccp"], settings).config
    pace = pace_of(config, classes=75, epoch=137)
    assert pace == Pace(**ended_by, at_least=12, check_every=5)  # half of 75 classes x 12 images, 40 a step


MANY = ("ccp.mode=alternating", "ccp.until=steps", "ccp.steps_per_problem=5", "train.max_steps=24", "optim.lr=0.01")

ON_DISK = "run.proxies_on_disk=true"
FEW_FEEL = ("loss.positive_margin=0.0", "loss.negative_margin=0.1", "train.classes_per_batch=2")


@pytest.fixture
def few_are_many(monkeypatch):
    """Let the losses look for the proxies that count, as they do with many classes."""
    monkeypatch.setattr("ccp_dml.losses.pairs._PAIRS_WORTH_A_SEARCH", {"cpu": 1, "cuda": 1})


@pytest.mark.usefixtures("few_are_many")
def test_visiting_only_proxies_that_move_changes_nothing(assemble):
    double = (*MANY, "run.precision=64-true", "optim.decay_proxies=false", *FEW_FEEL)
    dense = assemble("dense", "c2-ccp", *double)
    rows = assemble("rows", "c2-ccp", *double, "optim.proxies_by_rows=true")
    sparse = []
    after_step = rows.trainer.after_step
    rows.trainer.after_step = lambda step: (sparse.append(rows.proxies.vectors.grad.is_sparse), after_step(step))
    dense.run(), rows.run()
    assert any(sparse)
    tolerance = {"rtol": 0, "atol": 1e-12 if dense.proxies.vectors.dtype == torch.float64 else 1e-6}
    torch.testing.assert_close(rows.proxies.vectors, dense.proxies.vectors, **tolerance)
    for mine, other in zip(rows.network.parameters(), dense.network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, **tolerance)


@pytest.mark.usefixtures("few_are_many")
def test_a_run_by_rows_is_resumed_bit_by_bit(assemble):
    settings = (*MANY, "optim.decay_proxies=false", *FEW_FEEL, "optim.proxies_by_rows=true")
    whole = assemble("whole", "c2-ccp", *settings)
    whole.run()
    begun = assemble("begun", "c2-ccp", *settings, "train.max_steps=12")
    begun.run()
    resumed = assemble("resumed", "c2-ccp", *settings)
    resumed.load_state_dict(begun.logbook.last_state(torch.device("cpu")))
    resumed.run()
    assert torch.equal(resumed.proxies.vectors, whole.proxies.vectors)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name])


def test_rows_that_decay_are_refused(assemble):
    with pytest.raises(UserError, match=r"optim\.decay_proxies=false"):
        assemble("run", "c2-ccp", "optim.proxies_by_rows=true", "optim.weight_decay=0.1")
    with pytest.raises(UserError, match=r"set ccp\.mode"):
        assemble("other", "c2", "optim.proxies_by_rows=true", "optim.decay_proxies=false")


def test_proxies_decay_unless_told_otherwise(assemble):
    with_decay, without = assemble("one", "c2-ccp"), assemble("two", "c2-ccp", "optim.decay_proxies=false")
    assert any(value is with_decay.proxies.vectors for value in with_decay.trainer.decayed)
    assert not any(value is without.proxies.vectors for value in without.trainer.decayed)
    assert len(without.trainer.decayed) == len(with_decay.trainer.decayed) - 1


def test_checkpoints_may_be_spared_and_a_killed_run_repeats_the_steps(assemble):
    spared = assemble("spared", "c2-ccp", "run.checkpoint_minutes=1000")
    saved = []
    spared.logbook.save = lambda state: saved.append(state["trainer"]["step"])
    spared.run()
    assert saved == [10]  # the last one is always written: a longer run goes on from there
    every = assemble("every", "c2-ccp")
    every.logbook.save = lambda state: saved.append(state["trainer"]["step"])
    every.run()
    assert saved == [10, 4, 8, 10]


@pytest.mark.usefixtures("few_are_many")
def test_proxies_on_disk_change_nothing_and_leave_nothing_behind(assemble):
    settings = (*MANY, *FEW_FEEL, "optim.decay_proxies=false", "optim.proxies_by_rows=true")
    in_memory, on_disk = assemble("memory", "c2-ccp", *settings), assemble("disk", "c2-ccp", *settings, ON_DISK)
    in_memory.run(), on_disk.run()
    assert torch.equal(in_memory.proxies.vectors, on_disk.proxies.vectors)
    assert torch.equal(in_memory.projections.previous_proxies, on_disk.projections.previous_proxies)
    begun = assemble("begun", "c2-ccp", *settings, ON_DISK, "train.max_steps=12")
    begun.run()
    resumed = assemble("resumed", "c2-ccp", *settings, ON_DISK)
    resumed.load_state_dict(begun.logbook.last_state(torch.device("cpu")))
    resumed.run()
    assert torch.equal(resumed.proxies.vectors, in_memory.proxies.vectors)
    assert not list(on_disk.logbook.folder.glob(".*"))


def test_proxies_on_disk_need_steps_that_read_few_of_them(assemble):
    with pytest.raises(UserError, match=r"optim\.proxies_by_rows=true"):
        assemble("run", "c2-ccp", ON_DISK)
    with pytest.raises(UserError, match=r"set ccp\.remembered_problems=1"):
        assemble(
            "other",
            "c2-ccp",
            ON_DISK,
            "optim.proxies_by_rows=true",
            "optim.decay_proxies=false",
            "ccp.remembered_problems=2",
        )


def test_a_pool_in_chunks_gives_the_same_proxies(assemble, monkeypatch):
    settings = (*MANY, "run.evaluation_batch=2")
    whole = assemble("whole", "c2-ccp", *settings)
    whole.run()
    monkeypatch.setattr("ccp_dml.runs.assembly.NUMBERS_OF_A_CHUNK", 1)
    chunks = assemble("chunks", "c2-ccp", *settings)
    sizes = [len(chunk) for chunk in chunks.embed_pool(1)]
    assert sizes == [2] * (len(sizes) - 1) + [sizes[-1]]
    assert len(sizes) > 2
    chunks.run()
    assert torch.equal(chunks.proxies.vectors, whole.proxies.vectors)
    assert chunks.projections.covering_radius == whole.projections.covering_radius
    assert torch.equal(chunks.projections.selected_images, whole.projections.selected_images)


PROFS = ("ccp.steps_per_problem=5", "train.max_steps=24", "ccp.weight=0.5", "optim.lr=0.01")


def watched(run):
    """Note, for each step of a run that is about to go on, its problem and the first image of each class."""
    sampler, steps = run.batches.sampler, []

    def take_step():
        rows = sampler.batch(sampler.epoch, sampler.position)
        labels = run.learned.labels[rows[::2]].tolist()  # two images of each class
        anchor = {name: value.clone() for name, value in run.projections.pull.anchor.items()}
        steps.append((run.projections.problem, dict(zip(labels, rows[::2].tolist(), strict=True)), anchor))
        return original()

    original, run.trainer.take_step = run.trainer.take_step, take_step
    return steps


def test_the_problems_of_the_loop_and_those_of_the_batches_are_the_same_steps(assemble):
    run = assemble("run", "c2-profs", *PROFS)
    steps = watched(run)
    run.run()
    assert run.proxies is None
    assert [problem for problem, _, _ in steps] == [1 + step // 5 for step in range(24)]
    assert [start.step for start in run.projections.starts] == [0, 5, 10, 15, 20]
    found = run.batches.sampler.representatives
    for problem, leaders, _ in steps:
        assert set(leaders.values()) <= set(found.rows_of(torch.arange(6), problem).tolist())
    first, second = ({label: row for p, led, _ in steps if p == n for label, row in led.items()} for n in (1, 2))
    assert len(first) == len(second) == 6
    assert all(first[label] != second[label] for label in first)
    assert {"pull_norm", "problems_begun"} <= run.watcher.rows[-1].keys()
    assert not {"covering_radius", "staleness", "proxy_spread"} & run.watcher.rows[-1].keys()


def test_no_score_ends_a_problem_of_representatives(assemble):
    stalled = ("optim.lr=1e-12", "train.evaluate_every=1", "train.patience=30")  # ccp.patience is 1
    run = assemble("run", "c2-profs", *PROFS, *stalled)
    run.run()
    assert [start.step for start in run.projections.starts] == [0, 5, 10, 15, 20]


def test_representatives_are_pulled_to_the_weights_that_the_problem_before_ended_with(assemble):
    run = assemble("run", "c2-profs", *PROFS)
    ends, steps = {}, watched(run)
    after_step = run.trainer.after_step
    run.trainer.after_step = lambda step: (
        ends.update({step: run.network.linear.weight.detach().clone()}),
        after_step(step),
    )
    run.run()
    assert not any(anchor for problem, _, anchor in steps if problem == 1)
    for problem, _, anchor in steps:
        assert problem == 1 or torch.equal(anchor["linear.weight"], ends[5 * (problem - 1)])


@pytest.mark.parametrize("stop", [8, 20], ids=["within a problem", "where one ends"])
def test_a_run_with_representatives_is_resumed_bit_by_bit_across_problems(assemble, stop):
    whole = assemble("whole", "c2-profs", *PROFS)
    steps = watched(whole)
    whole.run()
    begun = assemble("begun", "c2-profs", *PROFS, f"train.max_steps={stop}")
    begun.run()
    resumed = assemble("resumed", "c2-profs", *PROFS)
    resumed.load_state_dict(begun.logbook.last_state(torch.device("cpu")))
    steps_left = watched(resumed)
    resumed.run()
    assert [step[:2] for step in steps_left] == [step[:2] for step in steps[stop:]]
    assert resumed.watcher.rows[-1]["pull_norm"] == whole.watcher.rows[-1]["pull_norm"] > 0
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name])
    for name, value in whole.projections.pull.anchor.items():
        assert torch.equal(value, resumed.projections.pull.anchor[name])


def test_a_problem_of_an_epoch_is_as_long_as_an_epoch(assemble):
    run = assemble("run", "c2-profs", "train.max_steps=14")
    assert len(run.batches.sampler) == 6 * 8 // 8
    run.run()
    assert [start.step for start in run.projections.starts] == [0, 6, 12]
    assert run.batches.sampler.representatives.batches_per_problem == 6


def test_other_methods_have_no_representatives(assemble):
    for method in ("c2", "c2-proxy", "c2-ccp"):
        assert assemble(method, method).batches.sampler.representatives is None
