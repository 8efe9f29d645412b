"""Estimate the memory that a run needs at least, and refuse it before it starts where the machine has less."""

from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation.machine import gigabytes, machine_memory
from ccp_dml.proxies import NUMBERS_OF_A_CHUNK, classes_at_once, pool_size

FLOAT = 4  # bytes
WORKER = 200_000_000  # bytes of a process that loads images, before it has loaded any


def memory_needs(
    config: Config, classes: int, *, of_images: bool, processes: int = 1, on_this_machine: int = 1
) -> dict[str, int]:
    """List what takes memory of this machine for certain, in bytes by the keys that decide about it.

    Activations and the network itself are left out: what is listed is far less than a run takes. Of the `processes`
    that train together, so many are `on_this_machine`.
    """
    train, dim = config.train, config.model.embedding_dim
    batch = train.classes_per_batch * train.images_per_class
    side = config.data.crop if isinstance(config.data.crop, int) else 0
    item = 3 * side**2 if of_images else 1  # a byte per colour
    needs = {
        "train.classes_per_batch x train.images_per_class": batch * item * (1 + FLOAT),
        "run.evaluation_batch": config.run.evaluation_batch * item * (1 + FLOAT) if of_images else 0,
        "run.workers": (config.run.workers or 0) * (WORKER + 2 * batch * item) if of_images else 0,
    }
    if config.ccp.has_proxies:
        ccp, is_divided = config.ccp, config.run.proxies_over_processes
        held = classes // processes if is_divided else classes  # by each process
        at_most = ccp.proxies_per_class * (2 if ccp.proxies_by_need else 1)
        of_all = 0 if config.run.proxies_on_disk else on_this_machine * held * at_most * dim
        needs["ccp.proxies_per_class"] = of_all * 4 * FLOAT  # gradient and moments, too
        needs["ccp.remembered_problems"] = of_all * (ccp.remembered_problems - 1) * FLOAT
        pool = pool_size(ccp.pool_per_class, ccp.proxies_per_class)
        if not ccp.proxies_by_need and (is_divided or processes == 1):
            held = min(held, classes_at_once(NUMBERS_OF_A_CHUNK, pool, dim, config.run.evaluation_batch))
        needs["ccp.pool_per_class"] = on_this_machine * held * pool * dim * FLOAT
    if config.xbm.enabled:
        needs["xbm.memory_batches"] = config.xbm.memory_batches * batch * dim * FLOAT
    return needs


def refuse_too_large(
    config: Config,
    classes: int,
    *,
    of_images: bool,
    processes: int = 1,
    on_this_machine: int = 1,
    available: int | None = None,
) -> None:
    """Raise if the settings need more memory than the machine has, with the sum and its largest parts."""
    available = machine_memory() if available is None else available
    needs = memory_needs(config, classes, of_images=of_images, processes=processes, on_this_machine=on_this_machine)
    total = sum(needs.values())
    if available is None or total <= available:
        return
    largest = sorted(needs.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{key} {gigabytes(size)}" for key, size in largest if size > total / 100)
    raise UserError(
        f"The settings need at least {gigabytes(total)} of memory, and this machine has {gigabytes(available)} "
        f"({parts}); lower them."
    )
