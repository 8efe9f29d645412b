"""Search side by side with faiss Flat, and a server under fifty clients at once, as ratios where there is a peer.

`python benchmarks/search.py` compares exact search over 100,000 vectors of 128 numbers with faiss.IndexFlatL2 (the same
neighbours, interleaved timings), then lets 50 clients search 10,000 images on a server of this machine.
"""

import argparse
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

from support.running_server import RunningServer, serving
from support.stand_in_model import StandInModel

from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_store import NextGeneration, PinnedModel
from ccp_dml.serving.web.server import make_app


def made_up_index(folder: Path, count: int, dim: int, model: StandInModel | None = None) -> SearchIndex:
    """An index of random unit vectors whose images do not exist."""
    generation = NextGeneration(folder, None)
    vectors = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors.tofile(generation.path("vectors"))
    table = generation.new_table()
    rows = [(number + 1, f"/none/{number}.png", str(number % 100), 1, 1, "x") for number in range(count)]
    table.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
    table.commit()
    table.close()
    digest = "d" if model is None else model.digest
    generation.commit(PinnedModel(path="none", name="none", digest=digest, dim=dim), count, count + 1)
    return SearchIndex.open(folder)


def against_faiss(folder: Path, count: int, dim: int, k: int, repeats: int) -> None:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = made_up_index(folder, count, dim)
    flat = faiss.IndexFlatL2(dim)
    flat.add(np.ascontiguousarray(index.vectors))
    random = np.random.default_rng(1)
    print(f"{count:,} vectors of {dim}, k = {k}, {torch.get_num_threads()} threads; median of {repeats}, interleaved")
    for queries in (1, 16, 128):
        vectors = random.normal(size=(queries, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ours, theirs = [], []
        for _ in range(repeats):
            begun = time.perf_counter()
            found = index.search(vectors, k)
            between = time.perf_counter()
            _, rows = flat.search(vectors, k)
            ours.append(between - begun)
            theirs.append(time.perf_counter() - between)
        same = np.mean([[hit.item.id - 1 for hit in hits] == list(row) for hits, row in zip(found, rows, strict=True)])
        print(
            f"  {queries:4d} queries: ours {1000 * median(ours):8.1f} ms, faiss {1000 * median(theirs):8.1f} ms, "
            f"ours / faiss {median(ours) / median(theirs):.2f}; the same {k} neighbours for {same:.1%} of queries"
        )


def under_clients(folder: Path, count: int, clients: int, requests: int) -> None:
    model = StandInModel()
    index = made_up_index(folder, count, model.dim, model)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as scratch:
        against_faiss(Path(scratch) / "large.index", options.count, options.dim, 10, options.repeats)
        under_clients(Path(scratch) / "served.index", 10_000, 50, 500)
