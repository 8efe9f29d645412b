"""Bad inputs of every kind end well or in one sentence. `make attack` runs thousands of them."""

import random
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attack.bad_inputs import KINDS, run_folder
from attack.bad_serving import Serving
from attack.verdicts import BAD, FINE, judge
from attack.works import Ground
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
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("ground"))


@pytest.fixture(scope="module")
def tiny_run(ground):
    assert ground.train(ground.folder / "run") == 0
    return ground.folder / "run"


@pytest.fixture(scope="module")
def serving(ground):
    return Serving(ground)


def test_a_changed_bit_anywhere_in_a_run_is_noticed(tiny_run, tmp_path):
    for seed in range(60):
        verdict, said = judge(run_folder(random.Random(seed), tmp_path, tiny_run))
        assert verdict not in BAD, f"seed {seed}: {said}"


@pytest.mark.parametrize(
    "kind", ["damaged indexes", "conditions of a search", "damaged exports", "command lines", "requests to the server"]
)
def test_a_network_at_work_takes_no_harm(kind, serving, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found = set()
    for seed in range(12):
        own = tmp_path / f"{seed}"
        own.mkdir()
        verdict, said = judge(serving.kinds()[kind](random.Random(seed), own))
        assert verdict not in BAD, f"seed {seed}: {said}"
        found.add(verdict)
    assert found - {FINE}, "none of them was bad"
