"""One typed door to numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile a kernel once, keep it on disk, and release the interpreter lock while it runs.

    Fast-math stays off, so that compiled and interpreted runs (`NUMBA_DISABLE_JIT=1`) do the same arithmetic.
    """
    compiler: Any = numba.njit(cache=True, nogil=True)
    return cast("Kernel", compiler(function))
