"""Compiles the kernels of this folder, and keeps numba's cache of them honest."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from simsched import jit as compiler

Kernel = TypeVar("Kernel", bound=Callable[..., object])
KERNEL_FILES = ("_anneal.py", "_genetic.py", "_jit.py", "_start.py", "_state.py")


def _digest() -> str:
    folder = Path(__file__).parent
    return sha256(b"".join((folder / name).read_bytes() for name in KERNEL_FILES)).hexdigest()[:12]


DIGEST = _digest()


def jit(function: Kernel) -> Kernel:
    """Compile a kernel once (`simsched.jit.jit`)."""
    return compiler.jit(_renamed(function))


def leaf(function: Kernel) -> Kernel:
    """Compile a kernel that makes no arrays (`simsched.jit.leaf`)."""
    return compiler.leaf(_renamed(function))


def _renamed(function: Kernel) -> Kernel:
    """Put a hash of all kernels into the name under which numba files a compiled one.

    numba renews a file only when the function's own source changes, although other kernels may be compiled into it.
    """
    function.__qualname__ = f"{function.__qualname__}_{DIGEST}"
    return function
