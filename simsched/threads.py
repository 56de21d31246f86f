"""Keeps linear-algebra libraries to one thread, and the garbage collector from looking too often.

The matrices here are tiny. Threads would spin for longer than they work (measured on two cores: the fit of a throughput
model took 30 times as long with them), parallel cells would fight over the cores, and sums would depend on how many
threads there are.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

#: New objects after which the collector looks at them, instead of Python's hundreds. Jobs that have ended, and what is
#: recorded of them, leave no cycles that only the collector could free.
_NEW_OBJECTS = 20_000

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def one_thread_each() -> None:
    """Ask for one thread unless the environment says otherwise; heard only before numpy is first imported."""
    for name in _VARIABLES:
        os.environ.setdefault(name, "1")


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the libraries that are loaded, and those loaded meanwhile, to one thread for as long as the block lasts."""
    added = [name for name in _VARIABLES if name not in os.environ]
    one_thread_each()
    try:
        with _controller(len(sys.modules)).limit(limits=1):
            yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@lru_cache(maxsize=1)
def _controller(modules: int) -> Any:
    """Find the loaded libraries, anew only where modules were imported since: looking takes 2 ms, a short run 5 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def spared_by_the_collector() -> Iterator[None]:
    """Have the garbage collector look seldom, and pass over what is there before the block, while the block lasts.

    Looking through the jobs and the rows of the result tables again and again took about a quarter of the time of a
    whole trace.
    """
    outermost = gc.get_freeze_count() == 0
    threshold = gc.get_threshold()
    if outermost:
        gc.freeze()
        gc.set_threshold(max(_NEW_OBJECTS, threshold[0]) if threshold[0] else 0, *threshold[1:])
    try:
        yield
    finally:
        if outermost:
            gc.set_threshold(*threshold)
            gc.unfreeze()
