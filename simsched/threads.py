"""Keeps linear-algebra libraries to one thread.

The matrices here are tiny. Threads would spin for longer than they work (measured on two cores: the fit of a throughput
model took 30 times as long with them), parallel cells would fight over the cores, and sums would depend on how many
threads there are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

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
