"""What a run tells TensorBoard and the like: read back from their files, or from stand-ins of their packages."""

import csv
import inspect
import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
from support.interruptions import StopAfter

from ccp_dml.cli import main
from ccp_dml.config.layers import flatten, resolve
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.plans.plan import plan_run
from ccp_dml.plans.rehearsal import rehearse
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs import tracking
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.tracking import LoggingWatcher
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

QUICK = (
    "train.max_steps=24",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "model.embedding_dim=6",
    "ccp.patience=1",
)


def settings(features, logger, *more):
    quick = [f"data.path={features}", f"run.logger={logger}", *QUICK, *more]
    return complete(resolve(["features", "c2-ccp"], quick).config)


def run(config, folder, *, resume=False, watcher=None):
    book = Logbook.reopen(folder) if resume else Logbook.open_new(folder, config, ["test"])
    return train(config, book, watcher or Watcher(), resume=resume)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def series(folder):
    """What should be in a log: name -> [(step, value)], from the run's own files."""
    expected, best = {}, 0.0
    for row in lines(folder):
        best = max(best, row["map_at_r"]) if row["step"] > 0 else best
        for name, value in (row | ({"best_map_at_r": best} if row["step"] > 0 else {})).items():
            if name != "step" and not isinstance(value, list | None):  # lists cannot be drawn over the steps
                expected.setdefault(name, []).append((row["step"], value))
    result = json.loads((folder / "result.json").read_text())
    test = {name: value for name, value in result["test"].items() if name != "recall_at"}
    test |= {f"recall_at_{k}": value for k, value in result["test"]["recall_at"].items()}
    return expected | {f"test/{name}": [(result["steps"], value)] for name, value in test.items()}


def assert_logged(found, folder):
    expected = series(folder)
    assert found.keys() == expected.keys()
    assert {"map_at_r", "proxy_spread", "evaluation_seconds", "test/recall_at_1"} <= found.keys()
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6), name


def run_in_parts(config, folder, monkeypatch):
    """Killed between evaluations, then between an evaluation's logging and its checkpoint, then left to finish."""
    with pytest.raises(KeyboardInterrupt):
        run(config, folder, watcher=StopAfter(10))
    save = Logbook.save

    def killed(book, state):
        if state["trainer"]["step"] == 16:
            raise KeyboardInterrupt
        save(book, state)

    with monkeypatch.context() as patch:
        patch.setattr(Logbook, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config, folder, resume=True)
    assert lines(folder)[-1]["step"] == 16
    run(config, folder, resume=True)


# TensorBoard


def tensorboard(folder):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    found = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return found, events.summary_metadata


def test_tensorboard_holds_settings_every_line_and_the_test_scores(features, tmp_path):
    config = settings(features, "tensorboard")
    run(config, tmp_path / "run")
    found, metadata = tensorboard(tmp_path / "run")
    assert found["best_map_at_r"].pop(0) == (0, 0.0)  # by which TensorBoard compares settings
    assert_logged(found, tmp_path / "run")
    plugin = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    content = metadata["_hparams_/session_start_info"].plugin_data.content
    logged = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    assert logged.keys() == dict(flatten(config.as_tables())).keys()
    assert logged["loss.name"].string_value == "c2"
    assert logged["train.max_steps"].number_value == 24


def test_a_killed_and_resumed_run_continues_its_tensorboard_log(features, tmp_path, monkeypatch):
    run_in_parts(settings(features, "tensorboard"), tmp_path / "run", monkeypatch)
    found, _ = tensorboard(tmp_path / "run")
    assert found["best_map_at_r"].pop(0) == (0, 0.0)
    assert_logged(found, tmp_path / "run")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 3


def test_a_log_that_begins_in_the_middle_of_a_run_gets_what_came_before(features, tmp_path):
    pytest.importorskip("tensorboard")
    with pytest.raises(KeyboardInterrupt):
        run(settings(features, "none"), tmp_path / "run", watcher=StopAfter(14))
    run(settings(features, "tensorboard"), tmp_path / "run", resume=True)
    found, _ = tensorboard(tmp_path / "run")
    assert found["best_map_at_r"].pop(0) == (0, 0.0)
    assert_logged(found, tmp_path / "run")


# CSV


def table(folder):
    with (folder / "csv" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        for name, value in row.items():
            if value and name != "step":
                found.setdefault(name, []).append((int(row["step"]), float(value)))
    return found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("in_parts", [False, True])
def test_the_csv_holds_every_line_and_the_test_scores(features, tmp_path, monkeypatch, in_parts):
    config = settings(features, "csv")
    if in_parts:
        run_in_parts(config, tmp_path / "run", monkeypatch)
    else:
        run(config, tmp_path / "run")
    assert_logged(table(tmp_path / "run"), tmp_path / "run")


# MLflow and W&B, played by stand-ins with the few functions that are used


class FakeMlflow:
    """Keeps what a server would."""

    def __init__(self):
        self.runs, self.experiment = {}, None

    def module(self):
        server = self

        class MlflowClient:
            def create_run(self, experiment_id, run_name):
                run_id = f"run-{len(server.runs)}"
                server.runs[run_id] = SimpleNamespace(
                    name=run_name, experiment=experiment_id, params={}, metrics={}, states=[]
                )
                return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

            def update_run(self, run_id, status):
                server.runs[run_id].states.append(status)

            def log_batch(self, run_id, metrics=(), params=()):
                assert len(params) <= 100  # a real server refuses more
                for param in params:
                    assert server.runs[run_id].params.setdefault(param.key, param.value) == param.value
                for metric in metrics:
                    points = server.runs[run_id].metrics.setdefault(metric.key, {})
                    points[metric.step] = metric.value

            def set_terminated(self, run_id, status):
                server.runs[run_id].states.append(status)

        def set_experiment(name):
            server.experiment = name
            return SimpleNamespace(experiment_id=f"id of {name}")

        module, entities = fake_package("mlflow"), fake_package("mlflow.entities")
        module.MlflowClient, module.set_experiment = MlflowClient, set_experiment
        entities.Param = lambda key, value: SimpleNamespace(key=key, value=value)
        entities.Metric = lambda key, value, timestamp, step: SimpleNamespace(
            key=key, value=value, timestamp=timestamp, step=step
        )
        return module, entities


def fake_package(name):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    return module


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow()
    module, entities = fake.module()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return fake


def test_mlflow_is_told_everything_once(features, tmp_path, monkeypatch, mlflow):
    config = settings(features, "mlflow")
    run_in_parts(config, tmp_path / "run", monkeypatch)
    (logged,) = mlflow.runs.values()
    assert (logged.name, logged.experiment) == ((tmp_path / "run").as_posix(), "id of ccp-dml")
    assert logged.params == {name: str(value) for name, value in flatten(config.as_tables())}
    assert logged.states == ["RUNNING", "KILLED", "RUNNING", "KILLED", "RUNNING", "FINISHED"]
    found = {name: list(points.items()) for name, points in logged.metrics.items()}
    assert found["best_map_at_r"].pop(0) == (0, 0.0)
    assert_logged(found, tmp_path / "run")


def test_mlflow_hears_of_a_failure_and_of_the_users_experiment(features, tmp_path, monkeypatch, mlflow):
    class Broken(Watcher):
        def finishing(self):
            raise OSError("disk full")

    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "birds")
    with pytest.raises(OSError, match="disk full"):
        run(settings(features, "mlflow"), tmp_path / "run", watcher=Broken())
    (logged,) = mlflow.runs.values()
    assert logged.states == ["RUNNING", "FAILED"]
    assert mlflow.experiment == "birds"


@pytest.fixture
def wandb(monkeypatch):
    """The sessions that were opened; one W&B run is all sessions with its id."""
    sessions = []

    def init(**arguments):
        session = SimpleNamespace(arguments=arguments, settings={}, history=[], exit_code=None)

        def update(params, allow_val_change):
            assert allow_val_change
            session.settings.update(params)

        def log(metrics, step):
            assert not session.history or step >= session.history[-1][0]  # else W&B drops it
            session.history.append((step, metrics))

        def finish(exit_code):
            session.exit_code = exit_code

        session.config, session.log, session.finish = SimpleNamespace(update=update), log, finish
        sessions.append(session)
        return session

    module = fake_package("wandb")
    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return sessions


def test_wandb_is_told_everything(features, tmp_path, monkeypatch, wandb):
    config = settings(features, "wandb")
    run_in_parts(config, tmp_path / "run", monkeypatch)
    assert len(wandb) == 3
    assert len({session.arguments["id"] for session in wandb}) == 1
    assert all(session.arguments["resume"] == "allow" for session in wandb)
    assert all(session.arguments["project"] == "ccp-dml" for session in wandb)
    assert wandb[0].settings == dict(flatten(config.as_tables()))
    assert [session.exit_code for session in wandb] == [1, 1, 0]
    found = {}
    for session in wandb:
        for step, metrics in session.history:
            for name, value in metrics.items():
                found.setdefault(name, {})[step] = value
    found = {name: list(points.items()) for name, points in found.items()}
    assert found["best_map_at_r"].pop(0) == (0, 0.0)
    assert_logged(found, tmp_path / "run")


def test_two_runs_are_two_runs_to_wandb(features, tmp_path, wandb):
    for name in ("a", "b"):
        run(settings(features, "wandb"), tmp_path / name)
    assert wandb[0].arguments["id"] != wandb[1].arguments["id"]


# Around them


@pytest.mark.parametrize("logger", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_named_before_anything_is_written(features, tmp_path, monkeypatch, capsys, logger):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)  # noqa: ARG005
    chosen = [f"data.path={features}", f"run.logger={logger}", *QUICK]
    options = [part for setting in chosen for part in ("--set", setting)]
    assert main(["train", "features", "c2-ccp", *options, "--out", str(tmp_path / "run")]) == 2
    assert f"pip install {logger}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=f"pip install {logger}"):
        rehearse([plan_run("one", tmp_path / "run", ["features", "c2"], chosen)])


def test_without_a_logger_nothing_is_logged(features, tmp_path):
    run(settings(features, "none"), tmp_path / "run")
    assert not {"csv", "tensorboard"} & {path.name for path in (tmp_path / "run").iterdir()}


def test_everything_a_run_tells_reaches_the_watcher_behind():
    class Noting(Watcher):
        def __getattribute__(self, name):
            return lambda *_: heard.append(name)

    class Deaf:
        def log_metrics(self, metrics, step): ...

        def save(self): ...

    heard = []
    logging = LoggingWatcher(Noting(), SimpleNamespace(folder=None), lambda *_: (Deaf(), True))
    logging.opened = Deaf()
    arguments = {
        "config": Config(),
        "step": 4,
        "row": {"step": 4},
        "best": 0.5,
        "text": "",
        "done": 1,
        "total": 2,
        "result": {"test": {"recall_at": {}}, "steps": 4},
    }
    told = [name for name in vars(Watcher) if not name.startswith("_")]
    for name in told:
        method = getattr(logging, name)
        method(*[arguments[parameter] for parameter in inspect.signature(method).parameters])
    assert heard == told
