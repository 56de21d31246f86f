"""Atomic files: written aside and renamed."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from simsched.stops import removed_after

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_MOST_AT_ONCE = 8


def absolute(path: str | Path, folder: str | Path = ".") -> Path:
    """Resolve a user's path, relative to `folder`; a broken one stays as is.

    `Path.resolve` and `Path.expanduser` raise for link loops and missing homes.
    """
    return Path(os.path.realpath(os.path.join(folder, os.path.expanduser(path))))  # noqa: PTH111, PTH118


class StagedFile:
    """A hidden file beside a target, one per process, renamed to it when complete."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}.{os.getpid()}.partial")
        self._target = target

    def publish(self) -> None:
        """Rename the file to its target, replacing it."""
        self.path.replace(self._target)

    def discard(self) -> None:
        """Remove the file if it exists."""
        self.path.unlink(missing_ok=True)


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Yield the path of a hidden file to write, renamed to `target` at the end of the block.

    A block that raises leaves the target unchanged. System errors, such as a full disk, name the target.
    """
    staged = StagedFile(target)
    with removed_after(staged.path):
        try:
            yield staged.path
            staged.publish()
        except OSError as error:
            if error.errno is None or error.filename not in (None, str(staged.path), staged.path):
                raise
            raise OSError(error.errno, error.strerror, str(target)) from error


def write_text(path: Path, text: str) -> None:
    """Write text atomically as UTF-8 with its own line ends, creating the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def sync(path: Path) -> None:
    """Flush a file or folder to disk, where supported."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # the system cannot open folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if path.is_file():
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def sync_all(paths: Collection[Path]) -> None:
    """Flush several files and folders to disk in parallel; in sequence each would wait for its own journal write."""
    for _ in _syncing_threads(os.getpid()).map(sync, paths):  # raises what `sync` does
        pass


@cache
def _syncing_threads(process: int) -> ThreadPoolExecutor:
    """Return the threads that wait for disks; forked processes need their own."""
    from concurrent.futures import ThreadPoolExecutor  # takes a moment

    return ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix=f"sync-{process}")


def is_special(path: Path) -> bool:
    """Return whether a path is neither file nor folder, but for example a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
