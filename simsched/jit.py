"""The typed interface to numba."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property, update_wrapper
from hashlib import sha256
from importlib import import_module
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
    from numba.core import caching, types

    try:
        compiled = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError as error:
        if "cache" not in str(error):
            raise
        _say_once()
        return cast("Kernel", numba.njit(nogil=True, **options)(function))
    if hasattr(compiled, "get_call_template"):  # else kernels are interpreted
        # numba would compile a kernel once more for each constant that another one passes to it.
        found, plain = compiled.get_call_template, cast("Any", types).unliteral
        compiled.get_call_template = lambda args, kws: found(tuple(map(plain, args)), kws)
    kept: Any = getattr(compiled, "_cache", None)
    if hasattr(kept, "_impl") and hasattr(kept, "_cache_file"):
        # numba checks only whether the kernel's file has changed, not what it calls elsewhere.
        compiled.made_from = _made_from(function)
        stamp = kept._impl.locator.get_source_stamp()
        kept._cache_file = cast("Any", caching).IndexDataCacheFile(
            kept._cache_path, f"{kept._impl.filename_base}-{compiled.made_from[:16]}", stamp
        )
    return cast("Kernel", compiled)


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
