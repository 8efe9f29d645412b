"""Use something in another mode for a while: networks that only infer, loggers that keep quiet."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def inference(network: nn.Module) -> Iterator[None]:
    """Put a network into inference mode, and each of its layers back into its own mode afterwards."""
    modes = [(layer, layer.training) for layer in network.modules()]  # frozen layers differ from the others
    network.eval()
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Keep the logger `name`, and those below it, which may have levels of their own, from writing for a while."""
    below = [each for each in logging.root.manager.loggerDict if each.startswith(f"{name}.")]
    loggers = [logging.getLogger(each) for each in (name, *below)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
