"""Run a function in several real processes that find each other as under torchrun."""

import multiprocessing
import os
import pickle
import socket
import traceback
from pathlib import Path

PRELOADED = ["torch", "torch.distributed", "ccp_dml.runs.training"]
SECONDS = 900  # for a machine that is busy with other things


def in_processes(count, folder, function, *arguments):
    """Call `function(*arguments)` in `count` processes that have joined; return what each of them returned, by rank.

    They are forked from a server that has imported torch once, which takes longer than most of what they do.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = [Path(folder) / f"of-{count}-rank-{rank}.pickle" for rank in range(count)]
    for file in files:
        file.unlink(missing_ok=True)
    started = [
        context.Process(target=_run, args=(rank, count, port, files[rank], function, arguments))
        for rank in range(count)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(SECONDS)
    for process in started:
        if process.is_alive():
            process.kill()
    missing = [file.name for file in files if not file.exists()]
    assert not missing, f"no answer: {missing}"
    found = [pickle.loads(file.read_bytes()) for file in files]
    for answer in found:
        assert not isinstance(answer, str), answer
    return [answer[0] for answer in found]


def _run(rank, count, port, file, function, arguments):
    place = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"})
    import torch

    from ccp_dml.foundation.process_group import join, leave

    torch.set_num_threads(1)
    join()
    try:
        answer = (function(*arguments),)
    except BaseException:
        answer = traceback.format_exc()
    file.write_bytes(pickle.dumps(answer))
    leave()
