"""One typed door to numba."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.options

#: Set where it has been said that there is no cache; processes inherit it.
_SAID = "SIMSCHED_NO_CACHE_SAID"

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile a kernel once, keep it on disk where that can be written, and release the interpreter lock while it runs.

    Fast-math stays off, so that compiled and interpreted runs (`NUMBA_DISABLE_JIT=1`) do the same arithmetic.
    """
    return _compile(function, {})


def leaf(function: Kernel) -> Kernel:
    """Compile a kernel that makes no arrays, and calls none that does, without counting references to arrays.

    Counting takes a third of the time of small kernels that hand arrays on: they are atomic operations. The option is
    numba's own and not promised, so a numba without it counts.
    """
    return _compile(function, {"_nrt": False} if hasattr(numba.core.options.DefaultOptions, "_nrt") else {})


def _compile(function: Kernel, options: dict[str, Any]) -> Kernel:
    try:
        compiled = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError as error:
        if "cache" not in str(error):
            raise
        _say_once()
        compiled = numba.njit(nogil=True, **options)(function)
    return cast("Kernel", compiled)


def _say_once() -> None:
    """Say, once for this process and those that it starts, that compiled kernels cannot be kept."""
    if _SAID not in os.environ:
        os.environ[_SAID] = "1"
        sys.stderr.write(
            "simsched: no folder for numba's cache can be written, so kernels are compiled anew in every process; "
            "set NUMBA_CACHE_DIR to one that can\n"
        )
