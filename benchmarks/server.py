"""Fifty clients at once on a server of 10,000 images: errors, searches per second, and how long one takes.

    python benchmarks/server.py

There is no peer to compare with, so that these are times of your machine, which server and clients share.
"""

import io
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.made_up_index import made_up_index
from support.running_server import RunningServer, serving
from support.stand_in_model import StandInModel

from ccp_dml.serving.web.server import make_app


def under_clients(folder: Path, count: int, clients: int, requests: int) -> None:
    model = StandInModel()
    index = made_up_index(folder, count, model.dim, digest=model.digest)
    pictures = []
    for seed in range(16):
        written = io.BytesIO()
        pixels = np.random.default_rng(seed).integers(0, 256, (224, 224, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(written, "JPEG")
        pictures.append(written.getvalue())

    def ask(server: RunningServer, number: int) -> tuple[int, float]:
        begun = time.perf_counter()
        answer = server.post("/search", {"image": (pictures[number % 16], "image/jpeg")}, k=20)
        return answer.status, time.perf_counter() - begun

    with serving(make_app(model, index, with_tsne=False)) as server, ThreadPoolExecutor(clients) as threads:  # type: ignore[arg-type]
        alone = [ask(server, number)[1] for number in range(20)]
        begun = time.perf_counter()
        answers = list(threads.map(lambda number: ask(server, number), range(requests)))
        seconds = time.perf_counter() - begun
    times = sorted(each for _, each in answers)
    wrong = sum(status != 200 for status, _ in answers)
    print(f"{count:,} images served; one client alone: {1000 * median(alone):.0f} ms per search")
    print(
        f"  {clients} clients, {requests} searches: {wrong} errors, {requests / seconds:.0f} per second, median "
        f"{1000 * median(times):.0f} ms, slowest {1000 * times[-1]:.0f} ms (clients share the machine)"
    )


if __name__ == "__main__":
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as scratch:
        under_clients(Path(scratch) / "served.index", 10_000, 50, 500)
