"""Files that appear whole or not at all: they are written aside and renamed."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_MOST_AT_ONCE = 8


def absolute(path: str | Path, folder: str | Path = ".") -> Path:
    """Return a user's path without links, relative ones counted from `folder`; one that leads nowhere stays as it is.

    `Path.resolve` and `Path.expanduser` raise for a link to itself and for a home that there is not.
    """
    return Path(os.path.realpath(os.path.join(folder, os.path.expanduser(path))))  # noqa: PTH111, PTH118


class StagedFile:
    """A hidden file beside a target, which takes its name when it is whole; each process has its own."""

    def __init__(self, target: Path) -> None:
        """Choose the hidden file's `path`; nothing is made."""
        self.path = target.with_name(f".{target.name}.{os.getpid()}.partial")
        self._target = target

    def publish(self) -> None:
        """Give the file its name, in the place of a file that has it."""
        self.path.replace(self._target)

    def discard(self) -> None:
        """Remove the file, if it is there."""
        self.path.unlink(missing_ok=True)


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Yield the path of a hidden file to write; it takes the name `target` when the block ends.

    A block that raises leaves nothing behind, and the target as it was. An error of the system, such as a full disk,
    names the target.
    """
    staged = StagedFile(target)
    try:
        yield staged.path
        staged.publish()
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(staged.path), staged.path):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        staged.discard()


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8 with the line ends that the text has, whole or not at all; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def sync(path: Path) -> None:
    """Have the system put a file or the entries of a folder on disk, where it can."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # a system that opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if path.is_file():
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def sync_all(paths: Collection[Path]) -> None:
    """Have the system put several files and folders on disk at once, which takes hardly longer than one of them.

    One after the other, each would wait for a write of the file system's journal that it could have shared.
    """
    for _ in _syncing_threads(os.getpid()).map(sync, paths):  # raises what `sync` does
        pass


@cache
def _syncing_threads(process: int) -> ThreadPoolExecutor:
    """Return the threads that wait for disks; a process that was forked has none of its parent's."""
    return ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix=f"sync-{process}")


def is_special(path: Path) -> bool:
    """Return whether a path names something that is neither a file nor a folder, such as a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
