"""Algorithm 1 on scripted validation scores: no data, no training, only the order of events."""

import io
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from ccp_dml.errors import NonFiniteError
from ccp_dml.pace import Pace
from ccp_dml.projections import IterativeProjections, ProximalPull, mean_weights
from ccp_dml.proxies import ClassProxies


class Script:
    """Plays given scores, one per evaluation, and notes what the loop does; each 'training' adds 1 to all weights."""

    def __init__(self, scores, *, patience=3, run_patience=60, with_proxies=True, **options):
        self.scores, self.events = list(scores), []
        self.network = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.network.weight)
        proxies = ClassProxies(2, 1, 1) if with_proxies else None
        self.projections = IterativeProjections(
            self.network,
            self.solve,
            proxies=proxies,
            pull=ProximalPull(self.network, 0.5) if with_proxies else None,
            embed_pool=self.embed_pool if with_proxies else None,
            patience=patience,
            run_patience=run_patience,
            **options,
        )

    def embed_pool(self, problem):
        previous = self.projections.previous_proxies
        self.events.append(("pool", problem, None if previous is None else previous.flatten().tolist()))
        return torch.tensor([[[10.0 * problem]], [[-10.0 * problem]]])

    def solve(self, projections):
        while projections.problem_open:
            with torch.no_grad():
                self.network.weight += 1
                if projections.proxies is not None:
                    projections.proxies.vectors += 1
            anchor = projections.pull.anchor.get("weight") if projections.pull else None
            score = self.scores.pop(0)
            self.events.append((projections.problem, score, None if anchor is None else anchor.item()))
            projections.observe(score)


def interrupted(make, scores, stop, end=None):
    """Run a script up to evaluation `stop`, and another one on from its state; return all events and the other one."""
    first, second = make(scores, max_evaluations=stop), make(scores[stop:], max_evaluations=end)
    first.projections.run()
    second.projections.load_state_dict(first.projections.state_dict())
    second.network.load_state_dict(first.network.state_dict())
    if second.projections.proxies is not None:
        second.projections.proxies.load_state_dict(first.projections.proxies.state_dict())
    second.best = second.projections.run()
    return first.events + second.events, second


def test_switches_pulls_and_stop_are_exactly_those_of_the_script():
    script = Script([0.1, 0.3, 0.2, 0.3, 0.25, 0.4, 0.1, 0.1, 0.1, 0.2, 0.2], patience=3, run_patience=5)
    best = script.projections.run()
    assert script.events == [
        ("pool", 1, None),
        (1, 0.1, None),  # nothing pulls in the first problem
        (1, 0.3, None),  # its best: weights 2, proxies 12 and -8
        (1, 0.2, None),
        (1, 0.3, None),
        (1, 0.25, None),  # the third evaluation without improvement ends the problem at once
        ("pool", 2, [12.0, -8.0]),
        (2, 0.4, 2.0),
        (2, 0.1, 2.0),
        (2, 0.1, 2.0),
        (2, 0.1, 2.0),
        ("pool", 3, [21.0, -19.0]),
        (3, 0.2, 6.0),
        (3, 0.2, 6.0),  # the fifth evaluation without improvement ends the run inside a problem
    ]
    assert best["weight"].item() == 6.0  # the network of the best evaluation, 0.4
    assert script.network.weight.item() == 11.0
    assert script.projections.problem == 3
    assert script.scores == []


def test_the_network_goes_on_from_its_last_weights_unless_it_rewinds():
    scores = [0.5, 0.4, 0.3, 0.2]
    onward = Script(scores, patience=2, max_evaluations=4)
    onward.projections.run()
    assert onward.network.weight.item() == 4.0
    rewound = Script(scores, patience=2, max_evaluations=4, rewind=True)
    rewound.projections.run()
    assert rewound.network.weight.item() == 2.0  # 3 steps, back to the first, one more


def test_a_baseline_is_one_problem_without_proxies_or_pull():
    script = Script([0.1] * 5, with_proxies=False, patience=None, run_patience=4)
    script.projections.run()
    assert [event[0] for event in script.events] == [1] * 5
    assert script.projections.problem == 1


def test_one_proxy_problem_selects_once():
    script = Script([0.1] * 7, patience=None, run_patience=6)
    script.projections.run()
    assert [event for event in script.events if event[0] == "pool"] == [("pool", 1, None)]


def test_without_selection_the_last_weights_are_the_result():
    scores, options = [0.1, 0.9, 0.2], {"patience": None, "run_patience": None, "max_evaluations": 3}
    assert Script(scores, **options).projections.run()["weight"].item() == 2
    assert Script(scores, **options, keep_last=True).projections.run()["weight"].item() == 3


def test_budget_of_evaluations_ends_the_run():
    script = Script([0.1 * turn for turn in range(20)], max_evaluations=7)
    script.projections.run()
    assert script.projections.evaluations == 7
    assert len(script.scores) == 13


@pytest.mark.parametrize(
    ("scores", "start", "switch"),
    [([0.1, 0.2, 0.3, 0.4, 0.3, 0.3], 3, 3), ([0.2, 0.1, 0.1, 0.1, 0.3, 0.1], 4, 4)],
    ids=["after so many evaluations", "however little they gained"],
)
def test_a_start_without_proxies_is_a_problem_of_its_own(scores, start, switch):
    script = Script(scores, patience=2, max_evaluations=5, start_evaluations=start)
    script.projections.run()
    kinds = [event[0] for event in script.events]
    assert kinds == [1] * switch + ["pool"] + [2] * (5 - switch)
    assert script.events[switch] == ("pool", 2, None)  # nothing to keep away from yet
    assert script.events[switch + 1][2] == 1.0 + scores[:switch].index(
        max(scores[:switch])
    )  # but something to stay near


def test_the_end_of_a_start_without_proxies_may_be_left_alone():
    script = Script([0.1, 0.2, 0.3, 0.1, 0.1], patience=1, max_evaluations=5, start_evaluations=2, pull_to_start=False)
    script.projections.run()
    anchors = [(event[0], event[2]) for event in script.events if event[0] != "pool"]
    assert anchors == [(1, None), (1, None), (2, None), (2, None), (3, 3.0)]  # pulled by the first proxy problem's best


def test_new_proxies_are_announced_after_they_moved():
    moved = []
    script = Script([0.1] * 7, patience=2, max_evaluations=7)
    script.projections.after_reselection = lambda: moved.append(script.projections.proxies.vectors.flatten().tolist())
    script.projections.run()
    assert moved == [[10.0, -10.0], [20.0, -20.0], [30.0, -30.0]]


def test_a_problem_is_announced_when_it_is_solved_and_its_best_is_still_at_hand():
    ended = []
    script = Script([0.1, 0.3, 0.2, 0.1, 0.4, 0.2, 0.1, 0.2], patience=2, max_evaluations=8)
    loop = script.projections
    loop.after_problem = lambda: ended.append(
        (
            loop.problem,
            loop.best_of_problem["weight"].item(),
            loop.selected_proxies.flatten().tolist(),
            loop.best_proxies_of_problem.flatten().tolist(),
            len(script.events),
        )
    )
    loop.run()
    assert ended == [
        (1, 2.0, [10.0, -10.0], [12.0, -8.0], 5),  # after the pool and four evaluations
        (2, 5.0, [20.0, -20.0], [21.0, -19.0], 9),
        (3, 8.0, [30.0, -30.0], [31.0, -29.0], 11),  # the budget ends the last one
    ]


@pytest.mark.parametrize("stop", range(1, 11))
def test_a_problem_whose_announcement_was_lost_is_announced_when_the_run_goes_on(stop):
    """The state is saved with each evaluation, before anybody hears that it was a problem's last."""
    scores = [0.1, 0.3, 0.2, 0.3, 0.25, 0.4, 0.1, 0.1, 0.1, 0.2, 0.2]
    first = Script(scores, run_patience=5, max_evaluations=stop)
    first.projections.run()
    second, ended = Script(scores[stop:], run_patience=5), []
    second.projections.load_state_dict(first.projections.state_dict())
    second.projections.proxies.load_state_dict(first.projections.proxies.state_dict())
    second.projections.after_problem = lambda: ended.append(
        (second.projections.problem, second.projections.selected_proxies.flatten().tolist())
    )
    second.projections.run()
    all_problems = [(number, [10.0 * number, -10.0 * number]) for number in (1, 2, 3)]
    solved_before = {**dict.fromkeys(range(6, 10), 1), 10: 2}  # evaluations 5 and 9 end problems
    assert ended == all_problems[solved_before.get(stop, 0) :]


@pytest.mark.parametrize("stop", range(1, 11))
def test_resuming_after_any_evaluation_gives_the_same_events(stop):
    scores = [0.1, 0.3, 0.2, 0.3, 0.25, 0.4, 0.1, 0.1, 0.1, 0.2, 0.2]
    whole = Script(scores, run_patience=5)
    whole.projections.run()
    events, second = interrupted(partial(Script, run_patience=5), scores, stop)
    assert events == whole.events
    assert second.best["weight"].item() == 6.0


def test_pull_gradient_points_back_to_the_anchor():
    network = nn.Linear(2, 1, bias=False)
    pull = ProximalPull(network, weight=0.5)
    pull.move_anchor({"weight": torch.tensor([[1.0, -1.0]])})
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[3.0, -1.0]]))
    network.weight.grad = torch.tensor([[0.25, 0.25]])
    pull.add_gradient()
    assert network.weight.grad.tolist() == [[1.25, 0.25]]  # + lambda (theta - theta_prev): descent goes back (D1)
    assert pull.norm().item() == pytest.approx(1.0)


def test_pull_agrees_with_autograd_of_the_regulariser():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).double()
    pull = ProximalPull(network, weight=0.3)
    anchor = {name: torch.randn_like(value) for name, value in network.state_dict().items()}
    pull.move_anchor(anchor)
    penalty = 0.15 * sum(((value - anchor[name]) ** 2).sum() for name, value in network.named_parameters())
    expected = torch.autograd.grad(penalty, list(network.parameters()))
    for value in network.parameters():
        value.grad = torch.zeros_like(value)
    pull.add_gradient()
    for value, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(value.grad, gradient)


def test_pull_does_nothing_before_the_first_problem_is_solved_and_spares_frozen_weights():
    network = nn.Linear(1, 1)
    network.bias.requires_grad_(False)
    pull = ProximalPull(network, weight=1.0)
    network.weight.grad = torch.zeros_like(network.weight)
    pull.add_gradient()
    assert network.weight.grad.item() == 0.0
    assert pull.norm().item() == 0.0
    pull.move_anchor(network.state_dict())
    assert list(pull.anchor) == ["weight"]


@pytest.mark.parametrize("corrected_sets", [0, 1])
def test_weights_that_begin_to_learn_later_are_pulled_from_the_next_problem_on(corrected_sets):
    network = nn.Linear(1, 1)
    network.bias.requires_grad_(False)
    pull = ProximalPull(network, weight=0.5, corrected_sets=corrected_sets)
    pull.move_anchor(network.state_dict())
    network.bias.requires_grad_()
    for value in network.parameters():
        value.grad = torch.zeros_like(value)
    pull.add_gradient()  # in the problem that has begun without them
    pull.move_anchor(network.state_dict())
    with torch.no_grad():
        network.bias += 3.0
    pull.add_gradient()
    assert network.bias.grad.item() == 1.5
    assert network.weight.grad.item() == 0.0


@pytest.mark.parametrize(("corrected_sets", "end"), [(0, (1.0, -1.0)), (1, (2.0, 0.0)), (2, (0.5, -0.5))])
def test_dykstras_correction_finds_the_nearest_point_of_the_intersection(corrected_sets, end):
    """Project (2, 1) in turn onto y <= 0 and x + y <= 0: of all points in both, (0.5, -0.5) is the nearest."""
    pull = ProximalPull(nn.Linear(2, 1, bias=False).double(), weight=1.0, corrected_sets=corrected_sets)
    walls = [torch.tensor([0.0, 1.0]).double(), torch.tensor([1.0, 1.0]).double() / 2**0.5]
    pull.move_anchor({"weight": torch.tensor([2.0, 1.0]).double()})
    for turn in range(101):
        wall = walls[turn % 2]
        solution = pull.anchor["weight"] - (pull.anchor["weight"] @ wall).clamp(min=0) * wall
        pull.move_anchor({"weight": solution})
    torch.testing.assert_close(solution, torch.tensor(end).double())  # one set: the pull is to the start for ever


@pytest.mark.parametrize("stop", [3, 5, 7])
def test_corrections_survive_an_interruption(stop):
    def script(scores, max_evaluations):
        made = Script(scores, patience=1, max_evaluations=max_evaluations)
        made.projections.pull.corrected_sets = 2
        return made

    scores = [0.1, 0.1, 0.3, 0.2, 0.1, 0.4, 0.3, 0.2, 0.1]
    whole = script(scores, 9)
    whole.projections.run()
    assert interrupted(script, scores, stop, 9)[0] == whole.events
    plain = Script(scores, patience=1, max_evaluations=9)
    plain.projections.run()
    assert plain.events != whole.events  # the corrections move the anchors


def test_proxies_without_a_pool_are_refused():
    with pytest.raises(ValueError, match="embed_pool"):
        IterativeProjections(nn.Linear(1, 1), print, proxies=ClassProxies(2, 1, 1))


class PacedScript(Script):
    """Takes one step at a time and evaluates after every fourth; the network walks away from its proxies' images."""

    def __init__(self, scores, proxies_follow=True, **options):
        super().__init__(scores, embed_origins=self.embed_origins, **options)
        self.looks = 0
        self.proxies_follow = proxies_follow

    def solve(self, projections):
        while projections.problem_open:
            with torch.no_grad():
                self.network.weight += 1
                projections.proxies.vectors += 1 if self.proxies_follow else 0
            projections.count_step()
            if projections.steps % 4 == 0:
                self.events.append((projections.problem, projections.steps))
                projections.observe(self.scores.pop(0))

    def embed_pool(self, problem):
        self.events.append(("pool", problem, self.projections.steps))
        return torch.tensor([[[0.1], [0.0]], [[-0.1], [0.0]]])  # (2, 2, 1): a covering radius of .1

    def embed_origins(self, problem, taken):
        assert problem == self.projections.problem
        assert taken.shape == (2, 1)
        self.looks += 1
        proxies = self.projections.proxies.vectors.detach().flatten(0, 1)
        away = 0.05 * self.projections.steps_of_problem
        return torch.tensor([1]), (proxies / proxies.abs().clamp(min=1))[[1]] - away


def test_a_problem_of_so_many_steps_ends_between_evaluations():
    script = PacedScript([0.1, 0.2, 0.3], pace=Pace(steps=6), patience=None, max_evaluations=3)
    script.projections.run()
    assert script.events == [("pool", 1, 0), (1, 4), ("pool", 2, 6), (2, 8), (2, 12)]
    assert [start.step for start in script.projections.starts] == [0, 6]


def test_a_problem_that_its_pace_ended_leaves_its_last_weights_and_proxies_as_anchors():
    script = PacedScript([0.9, 0.2, 0.3], pace=Pace(steps=6), patience=None, max_evaluations=3, rewind=True)
    script.projections.run()
    assert script.projections.pull.anchor["weight"].item() == 6.0  # not 4, where the score was best
    assert script.projections.previous_proxies.flatten().tolist() == pytest.approx([6.0, 6.0], abs=0.11)
    assert script.network.weight.item() == 12.0  # nothing is wound back


def test_a_problem_that_ended_before_any_evaluation_is_not_announced():
    script, announced = PacedScript([0.1, 0.2], pace=Pace(steps=1), patience=None, max_evaluations=2), []
    script.projections.after_problem = lambda: announced.append(script.projections.problem)
    script.projections.run()
    assert [start.step for start in script.projections.starts] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert announced == [4, 8]


@pytest.mark.parametrize(("threshold", "starts"), [(1.4, [0, 3, 6]), (2.4, [0, 5]), (99.0, [0])])
def test_stale_proxies_end_a_problem_at_a_multiple_of_the_covering_radius(threshold, starts):
    """Each step takes the network .05 away from its proxies, which is half the covering radius."""
    script = PacedScript([0.1, 0.2], pace=Pace(staleness=threshold, check_every=1), patience=3, max_evaluations=2)
    script.projections.run()
    assert [start.covering_radius for start in script.projections.starts] == pytest.approx([0.1] * len(starts))
    assert [start.step for start in script.projections.starts] == starts


@pytest.mark.parametrize(("proxies_follow", "starts"), [(False, [0, 3, 6]), (True, [0])])
def test_a_problem_ends_when_its_proxies_are_left_behind_but_not_while_they_keep_up(proxies_follow, starts):
    pace = Pace(behind=1.4, check_every=1)
    script = PacedScript([0.1, 0.2], proxies_follow, pace=pace, patience=3, max_evaluations=2)
    script.projections.run()
    assert [start.step for start in script.projections.starts] == starts
    assert script.looks == 8 + 2  # after each step, and at the evaluations


def test_a_problem_lasts_at_least_as_long_as_its_pool_is_worth():
    pace = Pace(staleness=1.4, at_least=5, check_every=2)
    script = PacedScript([0.1, 0.2, 0.3], pace=pace, patience=3, max_evaluations=3)
    script.projections.run()
    assert [start.step for start in script.projections.starts] == [
        0,
        5,
        10,
    ]  # stale after 3 steps, and at step 4's evaluation
    assert script.looks == 2 + 3  # at steps 5 and 10, and at the evaluations


def test_looks_at_the_proxies_come_as_often_as_asked():
    script = PacedScript([0.1, 0.2], pace=Pace(staleness=99.0, check_every=3), patience=3, max_evaluations=2)
    script.projections.run()
    assert script.looks == 2 + 2  # at steps 3 and 6, and at the evaluations


def test_a_stall_ends_a_problem_whose_proxies_are_fresh():
    script = PacedScript([0.2, 0.1, 0.1, 0.1], pace=Pace(staleness=99.0), patience=2, max_evaluations=4)
    script.projections.run()
    assert [start.step for start in script.projections.starts] == [0, 12]
    assert script.projections.pull.anchor["weight"].item() == 4.0  # then the best weights are the solution


class RepresentedScript(PacedScript):
    """PROFS: no proxies, but a pull and a pace."""

    def __init__(self, scores, **options):
        Script.__init__(self, scores, with_proxies=False, patience=None, **options)
        self.projections.pull = ProximalPull(self.network, 0.5)

    def solve(self, projections):
        while projections.problem_open:
            anchor = projections.pull.anchor.get("weight")
            self.events.append((projections.problem, projections.steps, None if anchor is None else anchor.item()))
            with torch.no_grad():
                self.network.weight += 1
            projections.count_step()
            if projections.steps % 4 == 0:
                projections.observe(self.scores.pop(0))


def test_problems_without_proxies_follow_their_pace_and_are_pulled_to_the_solution_before():
    script = RepresentedScript([0.1, 0.9, 0.2, 0.3], pace=Pace(steps=6), max_evaluations=4)
    assert script.projections.run()["weight"].item() == 8.0
    anchors = [None] * 6 + [6.0] * 6 + [12.0] * 4  # where problems ended, not where the score was best
    assert script.events == [(1 + step // 6, step, anchors[step]) for step in range(16)]
    assert [(start.step, start.covering_radius) for start in script.projections.starts] == [
        (0, None),
        (6, None),
        (12, None),
    ]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_problems_without_proxies_are_resumed_where_they_were(stop):
    """At evaluation 3 a problem ends, too."""
    scores = [0.1, 0.9, 0.2, 0.3]
    whole = RepresentedScript(scores, pace=Pace(steps=6), max_evaluations=4)
    whole.projections.run()
    assert interrupted(partial(RepresentedScript, pace=Pace(steps=6)), scores, stop, 4)[0] == whole.events


@pytest.mark.parametrize("pace", [Pace(staleness=1.0), Pace(behind=1.0)])
def test_a_pace_that_watches_proxies_needs_their_images(pace):
    with pytest.raises(ValueError, match="embed_origins"):
        IterativeProjections(nn.Linear(1, 1), print, pace=pace)


@pytest.mark.parametrize("pace", [Pace(steps=6), Pace(staleness=2.4, check_every=1), Pace(behind=2.4, check_every=1)])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_resuming_a_paced_run_after_any_evaluation_gives_the_same_events(stop, pace):
    scores = [0.1, 0.3, 0.2, 0.3, 0.25]
    whole = PacedScript(scores, pace=pace, max_evaluations=5)
    whole.projections.run()
    events, second = interrupted(partial(PacedScript, pace=pace), scores, stop, 5)
    assert events == whole.events
    assert second.projections.starts == whole.projections.starts
    torch.testing.assert_close(second.projections.pull.anchor, whole.projections.pull.anchor, rtol=0, atol=0)


def test_new_proxies_keep_away_from_as_many_earlier_problems_as_are_remembered():
    seen = {}
    for remembered in (1, 2):
        script = Script([0.1] * 7, patience=2, max_evaluations=7, remembered=remembered)
        script.projections.run()
        seen[remembered] = [event[2] for event in script.events if event[0] == "pool"]
    assert seen[1] == [None, [11.0, -9.0], [21.0, -19.0]]
    assert seen[2] == [None, [11.0, -9.0], [21.0, 11.0, -19.0, -9.0]]  # class by class, the latest first


def test_a_problem_starts_from_the_mean_of_the_last_solutions():
    script = Script([0.1] * 7, patience=2, max_evaluations=7, averaged=2)
    script.projections.run()
    anchors = [event[2] for event in script.events if event[0] != "pool"]
    # The first solution is 1, the first of equal scores; from there on the second is 2.
    assert anchors == [None, None, None, 1.0, 1.0, 1.0, 1.5]
    assert script.network.weight.item() == 1.5 + 1


@pytest.mark.parametrize(("pull_to_start", "anchor"), [(True, 1.5), (False, 2.0)])
def test_the_start_is_averaged_only_where_it_counts_as_a_solution(pull_to_start, anchor):
    options = {"averaged": 2, "start_evaluations": 1, "pull_to_start": pull_to_start}
    script = Script([0.1, 0.2, 0.1, 0.1, 0.1], patience=2, max_evaluations=5, **options)
    script.projections.run()
    assert script.events[-1] == (3, 0.1, anchor)  # the start ended at 1, the best of the next problem was 2


def test_a_pace_by_steps_needs_them_counted():
    projections = IterativeProjections(
        nn.Linear(1, 1), lambda loop: loop.observe(0.5), pace=Pace(steps=3), run_patience=2
    )
    with pytest.raises(ValueError, match="call `count_step` after each step"):
        projections.run()


@pytest.mark.parametrize(("normalise", "radius"), [("clip", 0.1 * 2**0.5), ("l2", 2**0.5)])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_radius_and_staleness_are_measured_as_the_loss_normalises(normalise, radius, in_chunks):
    pool = torch.tensor([[[0.1, 0.0], [0.0, 0.1]]])  # at a right angle, deep inside the unit ball
    projections = IterativeProjections(
        nn.Linear(1, 1),
        lambda loop: loop.observe(0.5),
        proxies=ClassProxies(1, 1, 2, normalise=normalise),
        embed_pool=lambda _: iter([pool]) if in_chunks else pool,
        embed_origins=lambda _, taken: (torch.tensor([0]), pool[0, 1 - taken[0, 0]].unsqueeze(0)),
        max_evaluations=1,
    )
    projections.run()
    assert projections.covering_radius == pytest.approx(radius)
    assert projections.drift.staleness == pytest.approx(radius)  # as if the image were where the other one is


def test_counters_and_extra_state_have_no_mean():
    first = {"weight": torch.tensor([1.0]), "batches": torch.tensor(3), "_extra_state": {"placed": False}}
    second = {"weight": torch.tensor([2.0]), "batches": torch.tensor(8), "_extra_state": {"placed": True}}
    mean = mean_weights([first, second])
    assert mean["weight"].item() == 1.5
    assert mean["batches"].item() == 8
    assert mean["_extra_state"] == {"placed": True}


def test_a_network_may_have_a_state_that_is_no_tensor():
    script = Script([0.3, 0.2, 0.1], patience=1, run_patience=2, averaged=2)
    script.network.proxies = ClassProxies(2, 1, 1)  # which notes whether it has been placed
    best = script.projections.run()
    script.network.proxies.placed = True
    assert best["proxies._extra_state"] == {"placed": False}


def test_an_anchor_stays_where_it_is_when_the_weights_it_was_taken_from_learn():
    network = nn.Linear(2, 1, bias=False)
    pull = ProximalPull(network, weight=1.0)
    pull.move_anchor(network.state_dict())
    with torch.no_grad():
        network.weight += 3.0
    assert pull.norm().item() == pytest.approx(18**0.5)


def test_an_anchor_is_where_the_network_is_wherever_its_weights_were_read_to():
    network = nn.Linear(2, 1, bias=False)
    weights = {"weight": torch.zeros(1, 2)}
    pull = ProximalPull(network.to("meta"), weight=1.0)  # stands for a GPU
    pull.move_anchor(weights)
    network.weight.grad = torch.zeros(1, 2, device="meta")
    pull.add_gradient()
    assert pull.anchor["weight"].device.type == "meta"


def test_an_anchor_of_another_network_is_named():
    network = nn.Linear(2, 1, bias=False)
    with pytest.raises(ValueError, match=r"these weights lack 'weight': give a state of the network"):
        ProximalPull(network, weight=1.0).move_anchor(nn.DataParallel(network).state_dict())


def test_any_kind_of_number_is_a_score_and_the_state_can_be_read_without_unpickling():
    scores = [torch.tensor(0.1), np.float32(0.2), np.float64(0.3)]
    script = Script(scores, max_evaluations=3)
    script.projections.run()
    file = io.BytesIO()
    torch.save(script.projections.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert state["run_patience"]["best"] == pytest.approx(0.3)


def test_a_state_that_was_read_elsewhere_moves_to_the_network():
    script = Script([0.1, 0.1, 0.1], patience=1, max_evaluations=3, averaged=2)
    script.projections.run()
    state = script.projections.state_dict()
    script.network.to("meta")  # the only other device that every machine has
    script.projections.proxies.to("meta")
    script.projections.load_state_dict(state)
    moved = [script.projections.pull.anchor["weight"], script.projections.previous_proxies]
    moved += [script.projections.solutions[0]["weight"], script.projections.best_of_problem["weight"]]
    moved += [script.projections.selected_proxies, script.projections.selected_images]
    assert {value.device.type for value in moved} == {"meta"}


def test_a_space_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="space must be one of raw, normalised, got 'normalized'"):
        IterativeProjections(nn.Linear(1, 1), lambda _: None, space="normalized")


@pytest.mark.parametrize("stop", [2, 3, 5, 6])
def test_remembered_proxies_and_averaged_solutions_survive_an_interruption(stop):
    scores, options = [0.1] * 8, {"patience": 2, "remembered": 2, "averaged": 2}
    whole = Script(scores, max_evaluations=8, **options)
    whole.projections.run()
    events, second = interrupted(partial(Script, **options), scores, stop, 8)
    assert events == whole.events
    assert torch.equal(second.network.weight, whole.network.weight)


def test_a_solve_that_never_observes_is_an_error_and_no_endless_loop():
    projections = IterativeProjections(nn.Linear(1, 1), lambda _: None, run_patience=3)
    with pytest.raises(ValueError, match="observe"):
        projections.run()


@pytest.mark.parametrize(("score", "what"), [("nan", "NaN"), ("-inf", "infinite")])
def test_scores_that_are_not_finite_are_an_error(score, what):
    with pytest.raises(NonFiniteError, match=f"Evaluation 2: the validation score is {what}"):
        Script([0.5, float(score), 0.1], with_proxies=False, run_patience=2).projections.run()


@pytest.mark.parametrize("wrapped", [nn.Sequential, deepcopy])  # other names, and other weights of the same name
def test_a_pull_of_another_network_is_refused_before_training(wrapped):
    network = nn.Linear(2, 1)
    with pytest.raises(
        ValueError, match=r"'weight', which is none of this network's .* torch\.compile or DataParallel"
    ):
        IterativeProjections(wrapped(network), print, pull=ProximalPull(network, 0.5))


def test_images_may_be_embedded_on_another_device_than_the_proxies(monkeypatch):
    script = Script([0.1], max_evaluations=1)
    script.projections.run()
    script.projections.selected_proxies = script.projections.selected_proxies.to("meta")
    script.projections.proxies.to("meta")
    script.projections.embed_origins = lambda *_: (torch.tensor([0, 1]), torch.zeros(2, 1))
    seen = []
    monkeypatch.setattr(ClassProxies, "look_up", lambda _, table, __: table)
    monkeypatch.setattr("ccp_dml.projections.measure_drift", lambda *tables: seen.extend(tables[:3]))
    script.projections.look_at_proxies()
    assert {table.device.type for table in seen} == {"meta"}


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_pull_that_repels_or_has_no_strength_is_refused(weight):
    with pytest.raises(ValueError, match="lambda"):
        ProximalPull(nn.Linear(1, 1), weight)
