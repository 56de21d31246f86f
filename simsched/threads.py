"""Limits linear-algebra libraries to one thread, Arrow to the system's memory, and the collector to rare passes.

On these tiny matrices threads mostly spin (on two cores they made fits of throughput models 30 times slower), compete
with parallel cells, and make sums depend on their number.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

#: New objects per collection, instead of Python's hundreds: finished jobs and their records leave no cycles to collect.
_NEW_OBJECTS = 20_000
#: Objects that Python itself excludes from collections: some hundreds in 3.12.
_EXCLUDED = gc.get_freeze_count()
#: The number of the option of `mallopt` that says how many free bytes it keeps, and how many these are.
_TRIM_THRESHOLD, _MOST_KEPT_BYTES = -1, 256 << 10

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def one_thread_each() -> None:
    """Request one thread unless the environment says otherwise, effective before numpy's first import."""
    for name in _VARIABLES:
        os.environ.setdefault(name, "1")


def memory_given_back() -> None:
    """Let Arrow take the system's memory unless the environment says otherwise, effective before its first import.

    What its own allocator keeps of a table that was read and let go is an eighth of the memory of a whole trace. The
    GNU library keeps more the larger the blocks are that it was given back, unless it is told how much: 3 to 5 MiB.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with suppress(AttributeError, OSError, TypeError):  # other libraries have no such call
        ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, _MOST_KEPT_BYTES)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit loaded libraries, and those loaded meanwhile, to one thread during the block."""
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
    """Find the loaded libraries, cached until more modules load: it takes 2 ms, a short run 5 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def spared_by_the_collector() -> Iterator[None]:
    """Make garbage collection rare during the block, and exclude earlier objects.

    Repeated passes over jobs and result rows took about a quarter of the time of a whole trace.
    """
    outermost = gc.get_freeze_count() <= _EXCLUDED
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
