"""One typed door to numba."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar, cast

import numba

#: Set where it has been said that there is no cache; processes inherit it.
_SAID = "SIMSCHED_NO_CACHE_SAID"

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile a kernel once, keep it on disk where that can be written, and release the interpreter lock while it runs.

    Fast-math stays off, so that compiled and interpreted runs (`NUMBA_DISABLE_JIT=1`) do the same arithmetic.
    """
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError as error:
        if "cache" not in str(error):
            raise
        _say_once()
        compiled = numba.njit(nogil=True)(function)
    return cast("Kernel", compiled)


def _say_once() -> None:
    """Say, once for this process and those that it starts, that compiled kernels cannot be kept."""
    if _SAID not in os.environ:
        os.environ[_SAID] = "1"
        sys.stderr.write(
            "simsched: no folder for numba's cache can be written, so kernels are compiled anew in every process; "
            "set NUMBA_CACHE_DIR to one that can\n"
        )
