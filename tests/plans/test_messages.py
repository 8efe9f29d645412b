"""Messages between a process that trains and the one that started it."""

import pickle
import subprocess
import sys

from ccp_dml.plans.messages import Assignment, how_it_died
from ccp_dml.plans.plan import plan_run


def test_the_way_a_process_died_is_told():
    assert "memory" in how_it_died(-9)
    assert "--workers" not in how_it_died(-9)  # there may be one alone, or a cluster
    assert "signal 11" in how_it_died(-11)
    assert "exit code 3" in how_it_died(3)


def test_a_run_survives_packing(features, tmp_path):
    run = plan_run("run", tmp_path / "run", ["features", "c2"], [f"data.path={features}"])
    sent = pickle.loads(pickle.dumps(Assignment(pickle.dumps(run))))
    assert sent.run() == run


def test_who_only_passes_messages_on_does_not_import_torch():
    code = "import sys, ccp_dml.plans.supervisor, ccp_dml.plans.child; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
