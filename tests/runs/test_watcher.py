"""Nobody has to watch: a watcher hears everything, and one that does nothing is enough for a whole run."""

from ccp_dml.config.layers import resolve
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher


class Listener(Watcher):
    """Writes down what it hears, in order."""

    def __init__(self):
        self.heard = []

    def start(self, config, step):
        self.heard.append(("start", config.train.max_steps, step))

    def step(self, step):
        self.heard.append(("step", step))

    def evaluation(self, row, best):
        self.heard.append(("evaluation", row["step"], best == row["map_at_r"]))

    def finishing(self):
        self.heard.append(("finishing",))

    def finished(self, result):
        self.heard.append(("finished", result["steps"]))


def test_a_watcher_hears_a_run_in_order(features, tmp_path):
    quick = ("train.max_steps=3", "train.evaluate_every=2", "train.classes_per_batch=4", "model.embedding_dim=6")
    config = complete(resolve(["features", "c2"], [f"data.path={features}", *quick]).config)
    listener = Listener()
    result = train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), listener)
    kinds = [entry[0] for entry in listener.heard]
    assert kinds == ["start", "step", "step", "evaluation", "step", "evaluation", "finishing", "finished"]
    assert listener.heard[0] == ("start", 3, 0)
    assert [entry[1] for entry in listener.heard if entry[0] == "evaluation"] == [2, 3]
    assert listener.heard[3][2], "the first evaluation is the best so far"
    assert listener.heard[-1] == ("finished", 3)
    silent = train(config, Logbook.open_new(tmp_path / "silent", config, ["test"]), Watcher())
    assert silent["test"] == result["test"], "who watches changes nothing"
