"""How proxies of very many classes are kept: how a checkpoint is joined and cut.

What the processes train together is compared in integration/test_several_processes.py.
"""

import pytest
import torch

from ccp_dml.config.layers import resolve
from ccp_dml.foundation.mapped import MappedFiles
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.proxies import ClassProxies
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import build_objective, build_optimizer
from ccp_dml.runs.many_proxies import DividedState, divided_state

DIVIDED = "run.proxies_over_processes=true"


class OneOf(Processes):
    """One of several processes; what is sent to the first is put where `sent` says."""

    def __init__(self, rank, count):
        self.rank, self.count, self.sent = rank, count, []

    def rows_to_first(self, own, whole):
        assert (whole is not None) == self.is_first
        self.sent.append(own.clone())
        if whole is not None:
            whole[self.share_of(len(whole))] = own


def objective(*settings, method="c2-ccp", processes=ALONE, classes=10):
    config = complete(resolve(["features", method], ["model.embedding_dim=3", *settings]).config)
    return build_objective(config, classes, processes=processes)


@pytest.mark.parametrize("loss", ["c1", "c2", "ms", "triplet"])
def test_pair_losses_can_be_divided(loss):
    _, proxies = objective(DIVIDED, "ccp.proxies_per_class=2", method=f"{loss}-ccp", processes=OneOf(1, 4))
    assert proxies.vectors.shape == (3, 2, 3)
    assert proxies.labels.tolist() == [2, 2, 3, 3, 4, 4]
    _, whole = objective("ccp.proxies_per_class=2", method=f"{loss}-ccp", processes=OneOf(1, 4))
    assert whole.vectors.shape == (10, 2, 3)


def state_of(proxies):
    """A state as a run's, of which all tables have a row or two per class and tell the class."""
    classes = proxies.labels[:: proxies.per_class].float()
    table = classes[:, None, None].expand(-1, 2, 3)
    moments = {"exp_avg": table + 1, "exp_avg_sq": table + 2, "touched": proxies.labels.int(), "step": torch.ones(())}
    return {
        "network": {"weight": torch.arange(4.0)},
        "objective": {"proxies.vectors": table.clone(), "proxies._extra_state": {"placed": True}},
        "projections": {"selected_proxies": table + 3, "previous_proxies": None, "problem": 7},
        "trainer": {"step": 5, "optimizer": {"state": {0: {"step": torch.ones(())}, 1: moments}, "param_groups": []}},
    }


def as_numbers(state):
    return torch.utils._pytree.tree_map(lambda value: value.tolist() if torch.is_tensor(value) else value, state)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_checkpoint_holds_all_classes_and_is_cut_again(tmp_path, on_disk):
    holders = [OneOf(rank, 3) for rank in range(3)]
    parts = [ClassProxies(5, 2, 3, holders=one) for one in holders]
    if on_disk:
        for part in parts:
            part.files = MappedFiles(tmp_path)
    states = [DividedState(part, 1).joined(state_of(part)) for part in parts]
    assert states[1]["objective"]["proxies.vectors"] is None, "the others keep no table of all"
    first = states[0]["objective"]["proxies.vectors"]
    assert first.shape == (5, 2, 3)
    assert first[0].eq(0).all()
    assert [len(one.sent) for one in holders] == [5] * 3
    expected = state_of(ClassProxies(5, 2, 3))
    assert as_numbers({**states[0], "x": 0}).keys() == as_numbers({**expected, "x": 0}).keys()
    for part in parts:
        cut = DividedState(part, 1).own_part(expected, torch.device("cpu"))
        assert as_numbers(cut) == as_numbers(state_of(part))


def test_processes_without_gradients_by_rows_count_their_rows_as_touched_by_the_last_step():
    part = ClassProxies(5, 2, 3, holders=OneOf(0, 2))
    state = state_of(part)
    moments = state["trainer"]["optimizer"]["state"][1]
    del moments["touched"]
    moments["step"] = torch.tensor(9.0)
    part.holders.largest = lambda own: own + 1  # another process has had some
    joined = DividedState(part, 1).joined(state)
    touched = joined["trainer"]["optimizer"]["state"][1]["touched"]
    assert touched[: 2 * len(part.vectors)].tolist() == [9] * 2 * len(part.vectors)
    part.holders.largest = lambda own: own  # nobody has
    assert "touched" not in DividedState(part, 1).joined(state)["trainer"]["optimizer"]["state"][1]


def test_only_shared_proxies_are_joined():
    whole, proxies = objective()
    optimizer = build_optimizer(resolve(["features", "c2-ccp"], []).config, torch.nn.Linear(2, 2), whole)
    assert divided_state(proxies, optimizer) is None
    assert divided_state(None, optimizer) is None
    part, proxies = objective(DIVIDED, processes=OneOf(1, 2))
    optimizer = build_optimizer(resolve(["features", "c2-ccp"], []).config, torch.nn.Linear(2, 2), part)
    assert divided_state(proxies, optimizer).parameter == 2
