"""What is disturbed: commands that write, small enough to be run a thousand times, and what each must come to."""

import csv
import json
import multiprocessing
import signal
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from support.small_published_set import SMALL_SET

import ccp_dml.plans.runner
from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.data.published.preparation import Steps, prepare
from ccp_dml.foundation.digests import file_digest
from ccp_dml.records.feature_store import FeatureStore
from ccp_dml.records.leftovers import sweep
from ccp_dml.records.logbook import Logbook
from ccp_dml.serving.search.index import SearchIndex

Code = int | None

QUICK = (
    "model.embedding_dim=3", "train.max_steps=4", "train.evaluate_every=2", "train.classes_per_batch=2",
    "train.images_per_class=2", "run.workers=0",
)  # fmt: skip
OF_THE_MACHINE = ("seconds", "peak_memory")


@dataclass(frozen=True)
class Work:
    """A command that writes into a folder, goes on there if it was cut off, and comes to the same outcome."""

    name: str
    run: Callable[[Path], Code]
    outcome: Callable[[Path], Any]


class Ground:
    """What the works need: vectors, pictures, an archive, and a run of each kind of data, made when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def works(self) -> list[Work]:
        """List all works, the cheap ones first."""
        return [
            Work("records of a run", keep_records, of_run),
            Work("feature cache", fill_cache, of_tree),
            Work("ccp data prepare", self.prepare, of_tree),
            Work("ccp index", self.index, of_index),
            Work("ccp export", self.export, of_tree),
            Work("ccp train", self.train, of_run),
            Work("ccp benchmark --workers 2", self.benchmark, of_benchmark),
            Work("ccp study", self.study, of_study),
        ]

    def work(self, name: str) -> Work:
        return next(work for work in self.works() if work.name == name)

    @property
    def features(self) -> Path:
        file = self.folder / "features.npz"
        if not file.exists():
            rng = np.random.default_rng(0)
            np.savez(file, features=rng.normal(size=(48, 4)).astype("f4"), labels=np.arange(12).repeat(4))
        return file

    @property
    def photos(self) -> Path:
        root = self.folder / "photos"
        for label in range(0 if root.exists() else 8):
            (root / f"class {label}").mkdir(parents=True)
            for number in range(4):
                pixels = np.random.default_rng(4 * label + number).integers(0, 255, size=(24, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels // 4 + np.uint8(20 * label)).save(root / f"class {label}" / f"{number}.png")
        return root

    @property
    def photo_run(self) -> Path:
        run = self.folder / "photo run"
        if not run.exists():
            more = ("data.resize=24", "data.crop=20", f"data.root={self.photos}", "run.map_points=0")
            assert main(["train", "folder", "scratch", "c2", *as_options(*QUICK, *more), "--out", str(run)]) == 0
        return run

    @property
    def archive(self) -> Path:
        folder = self.folder / "archive"
        if not folder.exists():
            folder.mkdir()
            (folder / "list.txt").write_text("two images")
            with zipfile.ZipFile(folder / "images.zip", "w") as packed:
                for name in ("a.jpg", "b.jpg"):
                    packed.writestr(name, name * 300)
        return folder

    def prepare(self, out: Path) -> None:
        prepare(SMALL_SET, out, self.archive, Steps(lambda _: None, lambda *_: None))

    def index(self, out: Path) -> Code:
        return main(["index", str(self.photo_run), str(self.photos), "--out", str(out)])

    def export(self, out: Path) -> Code:
        if out.exists():
            return 0  # it is whole, or not there
        return main(["export", str(self.photo_run), "--out", str(out)])

    def train(self, out: Path) -> Code:
        """Train a run, or go on with it."""
        if (out / "config.toml").exists():
            return main(["train", "--resume", "--out", str(out)])
        more = (f"data.path={self.features}", "ccp.patience=1", "protocol.folds=2", "run.map_points=4")
        return main(["train", "features", "c2-ccp", *as_options(*QUICK, *more), "--out", str(out)])

    def benchmark(self, out: Path) -> Code:
        workers_are_forked()
        more = (f"data.path={self.features}", "protocol.folds=2", "run.map_points=0")
        named = ["--data", "features", "--methods", "c2", "--workers", "2"]
        return main(["benchmark", "mlrc", *named, *as_options(*QUICK, *more), "--out", str(out)])

    def study(self, out: Path) -> Code:
        workers_are_forked()
        more = (f"data.path={self.features}", "protocol.folds=2", "run.map_points=0")
        more += ("study.pool_per_class=[2]", "study.proxies_per_class=[1]")
        return main(["study", "pool", "--data", "features", *as_options(*QUICK, *more), "--out", str(out)])


def as_options(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def workers_are_forked() -> None:
    """Spare each worker the import of torch; all else about it stays as it is, also what disturbs its parent."""
    context = multiprocessing.get_context("fork")
    ccp_dml.plans.runner.multiprocessing = SimpleNamespace(  # type: ignore[assignment]
        get_context=lambda _: SimpleNamespace(Pipe=context.Pipe, Process=ForkedWorker)
    )


class ForkedWorker(multiprocessing.get_context("fork").Process):  # type: ignore[name-defined,misc]
    """Starts a worker that, as a spawned one does, takes no handler of its parent along: SIGTERM ends it silently."""

    def start(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            super().start()
        finally:
            signal.signal(signal.SIGTERM, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _bootstrap(self, *args: Any, **kwargs: Any) -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return super()._bootstrap(*args, **kwargs)


def keep_records(out: Path, evaluations: int = 2) -> None:
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


def fill_cache(out: Path) -> None:
    """Fill an entry of the feature cache, in blocks, as `runs.frozen` does."""
    key, views, images, width, block = "a" * 32, 2, 9, 5, 2
    shape = (views, images, width)
    store = FeatureStore(out)
    if store.read(key, shape) is None:
        with store.writing(key, shape, {"of": "an attack"}, lambda: None) as writer:
            for first in range(writer.begin(), images, block):
                size = min(block, images - first)
                numbers = np.arange(first, first + size)[None, :, None] + np.arange(views)[:, None, None] / 4
                writer.write(first, np.broadcast_to(numbers, (views, size, width)).astype(np.float16))
            writer.finish()
    read = store.read(key, shape)
    assert read is not None
    assert (read[1] == np.arange(images)[:, None] + 0.25).all()


def of_run(out: Path) -> Any:
    """Read the result of a run, but for what depends on the machine, and which files there are."""
    result = json.loads((out / "result.json").read_text())
    names = {path.name for path in out.iterdir() if not path.name.startswith((".", "checkpoint"))}
    return {key: value for key, value in result.items() if key not in OF_THE_MACHINE}, names


def of_tree(out: Path) -> Any:
    """Digest every file below a folder; locks and the names of scratch folders do not count."""
    return {
        str(path.relative_to(out)): file_digest(path)
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.suffix not in (".lock", ".md")
    }


def of_index(out: Path) -> Any:
    index = SearchIndex.open(out)
    with closing(index):
        ids = list(range(1, index.count + 1))
        return [(item.path, item.label) for item in index.items(ids)], index.vectors_of(ids).tobytes()


def of_benchmark(out: Path) -> Any:
    return without_times(out / "results.csv"), (out / "table.csv").read_text(), (out / "report.html").exists()


def of_study(out: Path) -> Any:
    return without_times(out / "results.csv"), (out / "study.html").exists()


def without_times(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return [{key: text for key, text in row.items() if "seconds" not in key} for row in csv.DictReader(lines)]
