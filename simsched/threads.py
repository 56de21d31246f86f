"""Keeps linear-algebra libraries to one thread.

The matrices here are tiny. Threads would spin for longer than they work (measured on two cores: the fit of a throughput
model took 30 times as long with them), and parallel cells would fight over the cores.
"""

from __future__ import annotations

import os

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def one_thread_each() -> None:
    """Ask for one thread unless the environment says otherwise; heard only before numpy is first imported."""
    for name in _VARIABLES:
        os.environ.setdefault(name, "1")
