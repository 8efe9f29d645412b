"""Bad inputs of every kind end well or in one sentence. `make attack` runs thousands of them."""

import random
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attack.bad_inputs import KINDS, run_folder
from attack.kills import train_features
from attack.verdicts import BAD, judge
from ccp_dml.config.layers import known_keys, resolve

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(seed=st.integers(0, 2**32))
def test_bad_inputs_end_well_or_in_a_sentence(kind, tmp_path, seed):
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir()
    verdict, said = judge(KINDS[kind](random.Random(seed), tmp_path))
    assert verdict not in BAD, said


@settings(max_examples=150, deadline=None, derandomize=True)
@given(key=st.sampled_from(known_keys()), value=st.text(max_size=30))
def test_every_key_takes_any_text_or_says_why_not(key, value):
    verdict, said = judge(lambda: resolve(["glyphs", "c2-ccp"], [f"{key}={value}"]))
    assert verdict not in BAD, said


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(0)
    np.savez(folder / "f.npz", features=rng.normal(size=(48, 4)).astype("f4"), labels=np.arange(12).repeat(4))
    train_features(folder / "f.npz", folder / "run")
    return folder / "run"


def test_a_changed_bit_anywhere_in_a_run_is_noticed(tiny_run, tmp_path):
    for seed in range(60):
        verdict, said = judge(run_folder(random.Random(seed), tmp_path, tiny_run))
        assert verdict not in BAD, f"seed {seed}: {said}"
