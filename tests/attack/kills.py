"""Kill a command at its k-th rename or write, run it again, and compare with the undisturbed one."""

import io
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attack.bad_inputs import same_json
from attack.verdicts import FINE, SILENT, TRACE, in_child
from ccp_dml.config.layers import resolve
from ccp_dml.records.evaluation_log import EvaluationLog
from ccp_dml.records.logbook import Logbook, sweep
from ccp_dml.runs.loss_arguments import complete
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

KILLED = 137
QUICK = (
    "model.embedding_dim=3",
    "train.max_steps=4",
    "train.evaluate_every=2",
    "train.classes_per_batch=2",
    "train.images_per_class=2",
    "ccp.patience=1",
    "protocol.folds=2",
    "run.workers=0",
    "run.map_points=4",
)


def kill_at(event: int) -> None:
    """Let this process die at its `event`-th rename, removal, sync, opening for writing, or within a log line."""
    counter = itertools.count(1)

    def watched(call: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments, **options) and next(counter) == event:
                os._exit(KILLED)
            return call(*arguments, **options)

        return wrapped

    for name in ("replace", "rename", "unlink", "fsync", "chmod", "mkdir"):
        setattr(os, name, watched(getattr(os, name)))

    def writes(*arguments: Any, **options: Any) -> bool:
        mode = arguments[1] if len(arguments) > 1 else options.get("mode", "r")
        return any(letter in str(mode) for letter in "wax+")

    io.open = watched(io.open, writes)
    append = EvaluationLog.append

    def torn(self: EvaluationLog, row: dict[str, Any]) -> None:
        if next(counter) == event:
            with open(self.file, "a") as file:
                file.write('{"step": 1')
            os._exit(KILLED)
        append(self, row)

    EvaluationLog.append = torn  # type: ignore[method-assign]


def train_features(features: Path, out: Path, method: str = "c2-ccp") -> None:
    """Train a tiny run, or go on with it, as `ccp train` does."""
    sweep(out)
    config = complete(resolve(["features", method], [f"data.path={features}", *QUICK]).config)
    if (out / "config.toml").exists():
        book = Logbook.reopen(out)
        if book.result is None:
            train(book.continue_with(config), book, Watcher(), resume=True)
        return
    train(config, Logbook.open_new(out, config, ["attack"]), Watcher())


def keep_records(out: Path, evaluations: int = 4) -> None:
    """Write what a run writes, without training: line, best weights and checkpoint per evaluation, the result."""
    sweep(out)
    config = resolve(["glyphs", "c2"]).config
    state: dict[str, Any] = {"step": 0, "sum": torch.zeros(3)}
    if (out / "config.toml").exists():
        book = Logbook.reopen(out)
        if book.result is not None:
            return
        state = book.last_state(torch.device("cpu")) or state
    else:
        book = Logbook.open_new(out, config, ["attack"])
    book.begin(state["step"])
    while state["step"] < evaluations:
        state = {"step": state["step"] + 1, "sum": state["sum"] + state["step"]}
        book.record({"step": state["step"], "map_at_r": 0.1 * state["step"]})
        book.save_best({"sum": state["sum"]})
        book.save(state)
    book.finish({"sum": state["sum"].tolist(), "lines": len(book.rows())})


def kill_and_go_on(work: Callable[[Path], None], whole: Path, out: Path, event: int) -> tuple[str, str] | None:
    """Kill `work` at an event and run it again; the verdict, or None where it ended before that event came."""

    def killed() -> None:
        kill_at(event)
        work(out)

    code = in_child(killed)
    if code == 0:
        return None
    if code != KILLED:
        return TRACE, f"ended with {code} before event {event}"
    if (code := in_child(lambda: work(out))) != 0:
        return TRACE, f"could not go on after a kill at event {event} (code {code})"
    if not same_json(out / "result.json", whole / "result.json"):
        return SILENT, f"another result after a kill at event {event}"
    return FINE, ""
