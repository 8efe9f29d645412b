from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision.amp import MixedPrecision
from torch import nn

from ccp_dml.errors import NonFiniteError, UserError
from ccp_dml.foundation.process_group import Processes
from ccp_dml.functional.retrieval import RetrievalScores
from ccp_dml.losses import ContrastiveLoss
from ccp_dml.losses.activity import note_pairs
from ccp_dml.objectives import ProxyObjective
from ccp_dml.projections import IterativeProjections
from ccp_dml.proxies import ClassProxies
from ccp_dml.trainer import Trainer, decaying_parameters


class Stream:
    """Endless batches of numbers; the batch after `position` is a function of it alone."""

    def __init__(self, poison_at=None):
        self.position, self.poison_at = 0, poison_at

    def __iter__(self):
        return self

    def __next__(self):
        self.position += 1
        inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(self.position))
        if self.position == self.poison_at:
            inputs[0, 0] = float("nan")
        return inputs, torch.zeros(4, dtype=torch.int64)

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Sum(nn.Module):
    def forward(self, embeddings, labels):
        return embeddings.sum() + 0 * labels.sum()


def scores(value):
    return RetrievalScores(value, value, value, {1: value}, 4, 0)


class HalfPrecisionOnCpu(MixedPrecision):
    """16-mixed as far as a CPU has it: gradients are scaled, everything else stays as it is."""

    def __init__(self):
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2))

    def forward_context(self):
        return nullcontext()

    def convert_input(self, data):
        return data


def make_trainer(network, objective=None, batches=None, values=(), optimizer=None, precision=None, **options):
    fabric = Fabric(accelerator="cpu", devices=1, plugins=None if precision is None else [precision])
    objective = objective or Sum()
    optimizer = optimizer or torch.optim.SGD([*network.parameters(), *objective.parameters()], lr=0.1)
    network, optimizer = fabric.setup(network, optimizer)
    values = iter(values)
    return Trainer(fabric, network, objective, optimizer, batches or Stream(), lambda: scores(next(values)), **options)


def constant_linear(value=1.0):
    network = nn.Linear(3, 1, bias=False)
    nn.init.constant_(network.weight, value)
    return network


def test_evaluates_on_the_grid_and_ends_at_max_steps():
    evaluations = []
    trainer = make_trainer(
        constant_linear(), values=[0.1, 0.2, 0.3], evaluate_every=4, max_steps=10, after_evaluation=evaluations.append
    )
    IterativeProjections(trainer.network, trainer.solve, patience=None, max_evaluations=3).run()
    assert [evaluation.step for evaluation in evaluations] == [4, 8, 10]
    assert [evaluation.is_best for evaluation in evaluations] == [True, True, True]


def test_gradient_is_loss_plus_pull_plus_decay_then_clipped():
    network = constant_linear(2.0)

    class Pull:
        def add_gradient(self):
            network.weight.grad += 100.0

    trainer = make_trainer(
        network, pull=Pull(), weight_decay=0.5, decayed=[network.weight], clip_norm=1.0, evaluate_every=1
    )
    inputs, _ = next(Stream())
    gradient = inputs.sum(dim=0, keepdim=True) + 100.0 + 0.5 * 2.0
    _, norm, _ = trainer.train_until_evaluation()
    assert norm == pytest.approx(float(gradient.norm()))
    expected = 2.0 - 0.1 * gradient / gradient.norm()
    torch.testing.assert_close(network.weight.detach(), expected)


def test_a_norm_below_the_limit_is_not_scaled_up():
    network = constant_linear()
    trainer = make_trainer(network, weight_decay=0.0, clip_norm=1e6, evaluate_every=1)
    trainer.train_until_evaluation()
    inputs, _ = next(Stream())
    torch.testing.assert_close(network.weight.detach(), 1.0 - 0.1 * inputs.sum(dim=0, keepdim=True))


@pytest.mark.parametrize("precision", [None, MixedPrecision("bf16-mixed", "cpu"), "scaled"])
def test_an_objective_may_take_gradients_of_embeddings_by_itself_in_any_precision(precision):
    """`balanced` does; Fabric would let nobody but its own `backward` take gradients of what the network gives."""
    proxies = ClassProxies(classes=2, per_class=1, dim=2)
    proxies.place(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
    network = nn.Linear(3, 2, bias=False)
    nn.init.constant_(network.weight, 0.5)
    objective = ProxyObjective(ContrastiveLoss(), proxies, "balanced")
    inputs, labels = next(Stream())
    embeddings = network(inputs)
    (expected,) = torch.autograd.grad(objective(embeddings, labels), network.weight)
    precision = HalfPrecisionOnCpu() if precision == "scaled" else precision
    trainer = make_trainer(network, objective, precision=precision, clip_norm=1e6, weight_decay=0.0, evaluate_every=1)
    trainer.train_until_evaluation()
    moved = (0.5 - network.weight.detach()) / 0.1
    torch.testing.assert_close(moved, expected, rtol=0.02, atol=0.02)


def test_normalisation_layers_do_not_decay_and_proxies_do():
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2), nn.Linear(2, 2))
    objective = nn.ParameterDict({"proxies": nn.Parameter(torch.zeros(3))})
    names = {id(value): name for name, value in [*network.named_parameters(), *objective.named_parameters()]}
    decayed = [names[id(value)] for value in decaying_parameters(network, objective)]
    assert decayed == ["0.weight", "0.bias", "4.weight", "4.bias", "proxies"]


def test_a_weight_that_layers_share_decays_once():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    assert decaying_parameters(nn.Sequential(first, second)) == [first.weight]


def test_a_loss_whose_name_speaks_of_normalising_is_no_normalisation_layer():
    class NormalizedSoftmaxLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.zeros(3))

    loss = NormalizedSoftmaxLoss()
    assert decaying_parameters(loss) == [loss.W]


def test_a_parameter_without_optimiser_is_refused_by_name():
    class Forgotten(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres = nn.Parameter(torch.zeros(2))

    network = constant_linear()
    with pytest.raises(ValueError, match="'centres'"):
        make_trainer(network, Forgotten(), optimizer=torch.optim.SGD(network.parameters(), lr=0.1))


@pytest.mark.parametrize("poison", [6, 8])
def test_nan_stops_the_run_with_the_step_and_spares_what_was_saved(poison):
    saved = []
    trainer = make_trainer(
        constant_linear(),
        batches=Stream(poison_at=poison),
        values=[0.1, 0.2],
        evaluate_every=4,
        after_evaluation=lambda evaluation: saved.append(evaluation.step),
    )
    projections = IterativeProjections(trainer.network, trainer.solve, patience=None)
    with pytest.raises(NonFiniteError, match=rf"Step {poison}: the embeddings are not finite"):
        projections.run()
    assert saved == [4]


def test_an_exploding_gradient_is_named():
    class Root(nn.Module):
        def forward(self, embeddings, labels):
            return torch.sqrt(embeddings.sum() * 0) + 0 * labels.sum()

    trainer = make_trainer(constant_linear(), Root(), evaluate_every=2)
    with pytest.raises(NonFiniteError, match="Step 1: the gradient norm"):
        trainer.train_until_evaluation()


def test_resting_parameters_stay_during_warm_up():
    network = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False))
    before = network[0].weight.detach().clone()
    trainer = make_trainer(
        network, weight_decay=1.0, decayed=list(network.parameters()), warm_up_steps=2, resting=[network[0].weight],
        evaluate_every=2,
    )  # fmt: skip
    trainer.train_until_evaluation()
    assert torch.equal(network[0].weight, before)
    trainer.train_until_evaluation()
    assert not torch.equal(network[0].weight, before)


def test_state_restores_step_optimiser_and_batches():
    def adam(network):
        return torch.optim.Adam(network.parameters(), lr=0.1)

    whole_network = constant_linear()
    whole = make_trainer(whole_network, optimizer=adam(whole_network), evaluate_every=3)
    whole.train_until_evaluation()
    state = deepcopy(whole.state_dict())
    weights = whole_network.weight.detach().clone()
    whole.train_until_evaluation()

    resumed_network = constant_linear(0.0)
    resumed = make_trainer(resumed_network, optimizer=adam(resumed_network), evaluate_every=3)
    resumed.load_state_dict(state)
    with torch.no_grad():
        resumed_network.weight.copy_(weights)
    resumed.train_until_evaluation()
    assert torch.equal(resumed_network.weight, whole_network.weight)
    assert resumed.step == 6


def test_scaled_gradients_are_unscaled_once_and_the_scale_is_restored():
    def steps(precision, count):
        network = constant_linear()
        trainer = make_trainer(network, precision=precision, evaluate_every=count, weight_decay=0.0)
        trainer.train_until_evaluation()
        return network.weight.detach(), trainer

    plain, _ = steps(None, 5)
    scaled, trainer = steps(HalfPrecisionOnCpu(), 5)
    torch.testing.assert_close(scaled, plain)
    state = deepcopy(trainer.state_dict())
    assert state["scale"]["scale"] == 4096.0  # doubled twice in five steps
    _, fresh = steps(HalfPrecisionOnCpu(), 1)
    fresh.load_state_dict(state)
    assert fresh.state_dict()["scale"] == state["scale"]
    assert "scale" not in steps(None, 1)[1].state_dict()


class OverflowsAtFirst(nn.Module):
    """A loss so large for two steps that its scaled gradients overflow."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, embeddings, _):
        self.steps += 1
        return embeddings.sum() * (1e38 if self.steps <= 2 else 1.0)


def test_the_mean_gradient_norm_is_that_of_the_steps_that_were_taken():
    trainer = make_trainer(
        constant_linear(0.1), OverflowsAtFirst(), precision=HalfPrecisionOnCpu(), evaluate_every=2, weight_decay=0.0
    )
    assert trainer.train_until_evaluation()[1] is None  # both steps were skipped
    trainer.evaluate_every = 1
    plain = make_trainer(constant_linear(0.1), evaluate_every=1, weight_decay=0.0, batches=Stream())
    plain.batches.position = 2
    assert trainer.train_until_evaluation()[1] == pytest.approx(plain.train_until_evaluation()[1])

    mixed = make_trainer(
        constant_linear(0.1), OverflowsAtFirst(), precision=HalfPrecisionOnCpu(), evaluate_every=3, weight_decay=0.0
    )
    plain = make_trainer(constant_linear(0.1), evaluate_every=1, weight_decay=0.0, batches=Stream())
    plain.batches.position = 2
    assert mixed.train_until_evaluation()[1] == pytest.approx(plain.train_until_evaluation()[1])


class Rootless(nn.Module):
    """A loss whose value is finite, and whose gradient is not."""

    def forward(self, embeddings, _):
        return (embeddings - embeddings.detach()).sqrt().sum()


def test_a_gradient_that_is_finite_at_no_scale_is_named():
    trainer = make_trainer(constant_linear(), Rootless(), precision=HalfPrecisionOnCpu(), evaluate_every=5)
    assert trainer.train_until_evaluation()[:2] == (0.0, None)  # 1024 is halved in every step
    trainer.train_until_evaluation()
    with pytest.raises(NonFiniteError, match="Step 11: the gradient norm is not finite"):
        trainer.train_until_evaluation()


class Constant(nn.Module):
    """A loss of nothing: a number that no embedding has a part in."""

    def __init__(self, value, **options):
        super().__init__()
        self.value, self.options = value, options

    def forward(self, *_):
        return torch.tensor(self.value, **self.options)


@pytest.mark.parametrize("precision", [None, HalfPrecisionOnCpu])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_plain_zero_is_a_loss_without_pairs(requires_grad, precision):
    network = constant_linear()
    objective = Constant(0.0, requires_grad=requires_grad)
    trainer = make_trainer(
        network,
        objective,
        precision=precision and precision(),
        evaluate_every=2,
        weight_decay=0.5,
        decayed=[network.weight],
    )
    loss, norm, _ = trainer.train_until_evaluation()
    assert loss == 0
    assert norm > 0  # of the decay
    torch.testing.assert_close(network.weight.detach(), torch.full((1, 3), 0.95**2))


def test_a_loss_without_a_gradient_is_refused():
    trainer = make_trainer(constant_linear(), Constant(0.5))
    with pytest.raises(UserError, match="the loss has no gradient: compute it from the embeddings"):
        trainer.take_step()


class Draws(nn.Module):
    """A loss that draws, as some of pytorch-metric-learning's draw their triplets."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def forward(self, embeddings, labels):
        self.drawn.append(float(torch.rand(())))
        return embeddings.sum() * self.drawn[-1] + 0 * labels.sum()


def test_processes_that_have_one_batch_draw_one_loss_of_it():
    def drawn(seed, count):
        processes = Processes()
        processes.count = count
        trainer = make_trainer(constant_linear(), Draws(), evaluate_every=3, processes=processes)
        torch.manual_seed(seed)  # layers draw differently in each process
        trainer.train_until_evaluation()
        return trainer.objective.drawn, float(torch.rand(()))

    first, second = drawn(1, 2), drawn(2, 2)
    assert first[0] == second[0]
    assert len(set(first[0])) == 3
    assert first[1] != second[1]  # what layers draw afterwards is theirs again
    assert drawn(1, 1)[0] != drawn(2, 1)[0]


class OneMorePairPerStep(nn.Module):
    """In step n, the first n of four positive pairs count."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, embeddings, _):
        self.steps += 1
        values = 1.0 * embeddings
        note_pairs(values, torch.ones_like(values) > 0, torch.zeros_like(values) > 0)
        return values[: self.steps].sum()


def test_the_activity_of_the_last_step_is_told():
    seen = []
    network = constant_linear()
    trainer = make_trainer(network, OneMorePairPerStep(), values=[0.1], evaluate_every=3, after_evaluation=seen.append)
    IterativeProjections(network, trainer.solve, max_evaluations=1, patience=None).run()
    assert (seen[0].activity.positives, seen[0].activity.negatives) == (0.75, 0.0)


def test_a_loss_without_pairs_has_no_activity():
    seen = []
    network = constant_linear()
    trainer = make_trainer(network, values=[0.1], evaluate_every=2, after_evaluation=seen.append)
    IterativeProjections(network, trainer.solve, max_evaluations=1, patience=None).run()
    assert seen[0].activity is None


class PacedProblem:
    """Ends after `steps` steps, wherever that is between evaluations."""

    def __init__(self, steps):
        self.left, self.scores = steps, []

    @property
    def problem_open(self):
        return self.left > 0

    def count_step(self):
        self.left -= 1

    def observe(self, score):
        self.scores.append(score)
        return True


def test_a_problem_that_ends_between_evaluations_leaves_the_grid_and_the_window_as_they_are():
    whole, parts = [], []
    for problems, evaluations in (([12], whole), ([3, 1, 6, 2], parts)):
        trainer = make_trainer(
            constant_linear(), values=[0.1, 0.2, 0.3], evaluate_every=4, after_evaluation=evaluations.append
        )
        scores_seen = []
        for steps in problems:
            problem = PacedProblem(steps)
            trainer.solve(problem)
            scores_seen.append(problem.scores)
        assert trainer.step == 12
    assert scores_seen == [[], [0.1], [0.2], [0.3]]  # a problem that ends with an evaluation still sees it
    assert [(row.previous_step, row.step) for row in parts] == [(0, 4), (4, 8), (8, 12)]
    assert [row.loss for row in parts] == [row.loss for row in whole]  # the mean of all steps of a window
    assert [row.gradient_norm for row in parts] == [row.gradient_norm for row in whole]


def test_steps_are_taken_in_training_mode_after_a_look_at_the_proxies():
    modes = []

    class Mode(nn.Linear):
        def forward(self, inputs):
            modes.append(self.training)
            return super().forward(inputs)

    network = Mode(3, 1)

    class Looking(PacedProblem):
        def count_step(self):
            super().count_step()
            network.eval()

    make_trainer(network, values=[0.1], evaluate_every=3).solve(Looking(3))
    assert modes == [True, True, True]
