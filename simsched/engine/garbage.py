"""Keeps the garbage collector from looking through the jobs of a run again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects after which the collector looks at them, instead of Python's hundreds. Jobs that have ended, and what is
#: recorded of them, leave no cycles that only the collector could free.
_NEW_OBJECTS = 20_000


@contextmanager
def spared_by_the_collector() -> Iterator[None]:
    """Have the collector look seldom, and pass over what is there before the block, for as long as the block lasts.

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
