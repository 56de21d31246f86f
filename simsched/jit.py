"""The typed interface to numba."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, update_wrapper
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from simsched.version import __version__

#: Set once the missing cache is reported; child processes inherit it.
_SAID = "SIMSCHED_NO_CACHE_SAID"

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile a kernel that releases the interpreter lock when it is first called, cached on disk where writable.

    Fast-math stays off: compiled and interpreted runs (`NUMBA_DISABLE_JIT=1`) do the same arithmetic.
    """
    return cast("Kernel", _Later(function, bare=False))


def leaf(function: Kernel) -> Kernel:
    """Compile a kernel that, with its callees, allocates no arrays, without atomic reference counting.

    Counting takes a third of the time of small kernels that pass arrays on. The option is internal to numba.
    """
    return cast("Kernel", _Later(function, bare=True))


class _Later:
    """A kernel that is compiled when it is first called, so that a command that calls none does not load numba."""

    def __init__(self, function: Callable[..., Any], *, bare: bool) -> None:
        self._place = function.__module__, function.__name__
        self._function, self._bare = function, bare
        update_wrapper(self, function)

    def __call__(self, *values: Any) -> Any:
        return self.compiled(*values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _at, self._place

    @cached_property
    def compiled(self) -> Any:
        """The compiled kernel; those that it calls take their places in its module, as numba looks for them there."""
        names = self._function.__globals__
        for name in self._function.__code__.co_names:
            if isinstance(called := names.get(name), _Later) and called is not self:
                names[name] = called.compiled
        import numba.core.options  # slow to load

        bare = self._bare and hasattr(numba.core.options.DefaultOptions, "_nrt")
        return _compile(self._function, {"_nrt": False} if bare else {})


def _at(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _compile(function: Kernel, options: dict[str, Any]) -> Kernel:
    import numba  # slow to load

    made_from = _made_from(function)
    folder = _cache_folder(function, made_from)
    if folder is None:
        _say_once()
        return cast("Kernel", numba.njit(nogil=True, **options)(function))
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        compiled = numba.njit(cache=True, nogil=True, **options)(function)
    finally:
        settings.CACHE_DIR = before
    compiled.made_from = made_from
    return cast("Kernel", compiled)


def _cache_folder(function: Callable[..., object], made_from: str) -> Path | None:
    """Return a writable folder for one version of a kernel, since numba's cache only notices changes of its own file.

    It is in NUMBA_CACHE_DIR where that is set, else beside the kernel's file or in the user's folder of caches.
    """
    beside = Path(function.__code__.co_filename).parent / "__pycache__"
    users = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "simsched")  # noqa: PTH111
    given = os.environ.get("NUMBA_CACHE_DIR")
    for root in (Path(given),) if given else (beside, users):
        folder = root / f"numba-{made_from[:16]}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def _made_from(function: Callable[..., object]) -> str:
    """Hash a kernel's code, the kernels and constants it names, and the fields of its arguments, in 64 digits."""
    code = function.__code__
    named: dict[str, Any] = {name: function.__globals__.get(name) for name in code.co_names}
    constants = {name: repr(value) for name, value in named.items() if isinstance(value, int | float | str | tuple)}
    called = {name: value.made_from for name, value in named.items() if hasattr(value, "made_from")}
    constants |= {name: value.tobytes() for name, value in named.items() if hasattr(value, "tobytes")}
    kinds = (function.__globals__.get(kind, kind) for kind in function.__annotations__.values())
    fields = [getattr(kind, "_fields", ()) for kind in kinds]
    consts = [getattr(value, "co_code", value) for value in code.co_consts]
    made_from = (__version__, code.co_code, consts, sorted(constants.items()), sorted(called.items()), fields)
    return sha256(repr(made_from).encode()).hexdigest()


def _say_once() -> None:
    """Report once, for this process and its children, that kernels cannot be cached."""
    if _SAID not in os.environ:
        os.environ[_SAID] = "1"
        sys.stderr.write(
            "simsched: no folder for numba's cache can be written, so kernels are compiled anew in every process; "
            "set NUMBA_CACHE_DIR to one that can\n"
        )
