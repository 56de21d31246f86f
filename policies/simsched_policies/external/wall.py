"""Starts a policy in a process of its own behind a wall: what it may read, write, reach and use (Linux).

The process closes the wall itself before it loads any code that is not simsched's, and can never open it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import weakref
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from simsched_policies.external.wire import Wire

#: Set once what the wall lacks has been said.
_SAID = "SIMSCHED_WALL_SAID"
_CLONE = 0x40000000 | 0x10000000 | 0x08000000  # namespaces of networks, users and messages between processes
#: Landlock's rights: to list a folder; to run, read and list; those that a file can have; all.
_LIST, _READ, _FILE, _ALL = 0b1000, 0b1101, 0b1100000000000111, (1 << 16) - 1


class Limits(NamedTuple):
    """What to start, and its limits."""

    policy: str
    params: str = "{}"
    walled: bool = True
    memory_mb: int = 4096
    timeout_s: float = 60.0


def started(limits: Limits) -> Wire:
    """Start a process with a policy, in a folder of its own that goes with it."""
    scratch = tempfile.TemporaryDirectory(prefix="simsched-")
    paths = os.pathsep.join(str(Path(one).absolute()) for one in sys.path if one)
    own = {"PYTHONPATH": paths, "TMPDIR": scratch.name, "HOME": scratch.name, "NUMBA_CACHE_DIR": scratch.name}
    env = {name: one for name, one in os.environ.items() if name in ("PATH", "LANG", _SAID)} | own
    os.environ[_SAID] = "1"
    for folder in _kernels(os.environ.get("NUMBA_CACHE_DIR", "")):
        shutil.copytree(folder, Path(scratch.name, folder.name), copy_function=os.symlink, dirs_exist_ok=True)
    command = (sys.executable, "-P", "-m", __name__)
    wire = Wire(command, "", limits.timeout_s, cwd=scratch.name, env=env, start_new_session=True)
    weakref.finalize(wire, scratch.cleanup)
    return wire


@lru_cache
def _packages() -> list[Path]:
    """Return the folders of simsched's packages."""
    specs = [find_spec(name) for name in ("simsched", "simsched_policies")]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]


def _kernels(given: str) -> list[Path]:
    """Return the folders of compiled kernels, which the process may read; it keeps new ones in its own folder."""
    if given:
        return [*Path(given).glob("numba-*")]
    return [folder for package in _packages() for folder in package.rglob("__pycache__/numba-*")]


def close(limits: Limits, scratch: str) -> list[str]:
    """Close the wall around this process, and return what of it this machine lacks."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_mb << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    system, missing = ctypes.CDLL(None, use_errno=True), []
    if sys.platform != "linux" or system.unshare(_CLONE) != 0:
        missing.append("no namespaces (unshare), so that it may reach the network")
    version = system.syscall(444, None, ctypes.c_size_t(0), 1) if sys.platform == "linux" else -1
    if version < 1:
        return [*missing, "no Landlock, so that it may read and write files, and look into other processes"]
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    rules = struct.pack("QQQ", rights, 3 * (version >= 4), 3 * (version >= 6))
    ruleset = system.syscall(444, rules, ctypes.c_size_t(len(rules)), 0)
    for path, wanted in _allowed(limits, scratch):
        with contextlib.suppress(OSError):
            beneath = os.open(path, os.O_PATH)
            allowed = wanted & rights & (-1 if Path(path).is_dir() else _FILE)
            system.syscall(445, ruleset, 1, struct.pack("=Qi", allowed, beneath), 0)
            os.close(beneath)
    if system.prctl(38, 1, 0, 0, 0) or system.syscall(446, ruleset, 0):
        missing.append("Landlock refuses to close, so that it may read and write files")
    return missing


def _allowed(limits: Limits, scratch: str) -> Iterator[tuple[str, int]]:
    """Yield what may be read or listed: Python, libraries, simsched, the policy and the files in its parameters."""
    yield from ((path, _LIST) for path in sys.path)
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    system = [
        "/usr/lib",
        "/usr/lib64",
        "/lib",
        "/lib64",
        "/usr/local/lib",
        "/etc/ld.so.cache",
        "/dev/null",
        "/dev/urandom",
    ]
    place = limits.policy.rpartition(":")[0]
    files = [one for one in _texts(json.loads(limits.params)) if one.startswith("/")]
    for path in (str(Path(os.__file__).parent), *libraries, *map(str, _packages()), *system, place, *files):
        yield path, _READ
    yield scratch, _ALL


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def main() -> None:
    """Serve a policy, behind the wall if it is wanted."""
    hello = json.loads(sys.stdin.buffer.readline())
    limits = Limits(**hello["params"])
    missing = close(limits, str(Path.cwd())) if limits.walled else []
    if missing and _SAID not in os.environ:
        sys.stderr.write(f"simsched: the wall around policies is not whole here: {'; '.join(missing)}\n")
    with contextlib.suppress(BrokenPipeError):  # the run has ended
        import_module("simsched_policies.external.host").serve(hello)


if __name__ == "__main__":
    main()
