"""The folder of a run: one folder per cell, named by the hash of everything that determines it.

A cell is written under a temporary name and renamed when whole, so that whatever carries a cell's name is complete: the
folder is cache, ledger of what is done, and result at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simsched.errors import InputError, input_error
from simsched.files import sync
from simsched.results import quick_fault

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TEMPORARY = ".tmp-"
#: What the folder of a cell that is being written is called: its key, and the machine and process that write it.
_STAGED = re.compile(r"\.tmp-[^@]+@[^@]+@[0-9]+")


@dataclass(frozen=True)
class StagedCell:
    """A cell that is being written under a temporary name, locked for as long as its writer lives."""

    path: Path
    lock: int | None


class Store:
    """The cells of one experiment below `folder`."""

    def __init__(self, folder: Path) -> None:
        """Look at `folder`; nothing is made until `open`."""
        self.folder = folder
        self.cells = folder / "cells"

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Open the folder, and keep others from removing cells from it for as long as the block lasts.

        Raises `InputError` as `open` does.
        """
        self.open()
        lock = _lock(self.cells, wait=True, shared=True)
        try:
            yield
        finally:
            _unlock(lock)

    @contextlib.contextmanager
    def unused(self) -> Iterator[None]:
        """Keep runs from beginning to use the folder for as long as the block lasts.

        Raises `InputError` where one uses it. Where the file system has no locks, nobody can know.
        """
        try:
            lock = _lock(self.cells, wait=False)
        except BlockingIOError:
            message, remedy = "a run is using it, and nothing is removed", "wait until the run has ended"
            raise input_error(self.folder, message, remedy) from None
        try:
            yield
        finally:
            _unlock(lock)

    def open(self) -> None:
        """Make the folder, and remove what killed runs left half-written.

        Raises `InputError` where it cannot be written.
        """
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
            probe = self.cells / f"{_TEMPORARY}probe{_owner()}"
            probe.mkdir(exist_ok=True)
            probe.rmdir()
        except OSError as error:
            raise self._unwritable(error) from error
        self.sweep()

    def sweep(self) -> None:
        """Remove what writers that are gone have left."""
        for leftover in sorted(self.cells.glob(f"{_TEMPORARY}*")):
            if _STAGED.fullmatch(leftover.name) and not leftover.is_symlink():
                _remove_if_abandoned(leftover)

    def cell(self, key: str) -> Path:
        """Return the folder of a cell."""
        return self.cells / key

    def has(self, key: str) -> bool:
        """Return whether a cell is complete: its files are there, as large as its manifest says."""
        return self.cell(key).is_dir() and not self.fault(key)

    def fault(self, key: str) -> str:
        """Say what is wrong with a cell that is there (see `integrity.quick_fault`); empty for one that is not."""
        folder = self.cell(key)
        return quick_fault(folder) if folder.is_dir() else ""

    def elsewhere(self, key: str) -> Path | None:
        """Find a complete cell of that name in the results of another experiment beside this one's."""
        beside = sorted(self.folder.parent.glob(f"*/{self.cells.name}/{key}"))
        return next((cell for cell in beside if Store(cell.parent.parent).has(key)), None)

    def adopt(self, key: str) -> bool:
        """Take over the cell of another experiment beside this one's, if there is one; its files are shared."""
        found = None if self.has(key) else self.elsewhere(key)
        if found is None:
            return False
        staged = self.begin(key)
        try:
            for file in sorted(found.iterdir()):
                _link(file, staged.path / file.name)
        except OSError:  # it went away, or cannot be read: then it is simply run again
            self.discard(staged)
            return False
        self.publish(staged, key)
        return True

    def begin(self, key: str) -> StagedCell:
        """Make an empty folder in which a cell can be written aside."""
        path = self.cells / f"{_TEMPORARY}{key}{_owner()}"
        shutil.rmtree(path, ignore_errors=True)
        try:
            while True:
                path.mkdir(parents=True)
                lock = _lock(path, wait=True)
                if path.is_dir():  # nobody took it for abandoned before it was locked
                    return StagedCell(path, lock)
                _unlock(lock)
        except OSError as error:
            raise self._unwritable(error) from error

    def publish(self, staged: StagedCell, key: str) -> None:
        """Give a finished cell its name; if another process was faster, its cell stays (the two are the same)."""
        target = self.cell(key)
        try:
            if target.exists() and not self.has(key):  # somebody took files away, or changed them
                shutil.rmtree(target)
            staged.path.replace(target)
            sync(self.cells)
        except OSError as error:
            if not self.has(key):
                raise self._unwritable(error) from error
            shutil.rmtree(staged.path, ignore_errors=True)
        finally:
            _unlock(staged.lock)

    def discard(self, staged: StagedCell) -> None:
        """Remove what a failed or cancelled cell has written."""
        shutil.rmtree(staged.path, ignore_errors=True)
        _unlock(staged.lock)

    def _unwritable(self, error: OSError) -> InputError:
        remedy = "name a folder that can be written, with --out"
        return input_error(self.folder, f"results cannot be written there: {error.strerror or error}", remedy)


def _link(file: Path, name: Path) -> None:
    """Give a finished file a second name, or copy it where the file system has no such names."""
    try:
        name.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, name)


def _owner() -> str:
    return f"@{socket.gethostname()}@{os.getpid()}"


def _lock(folder: Path, *, wait: bool, shared: bool = False) -> int | None:
    """Lock a folder until its descriptor is closed or its holder dies; None where the system cannot.

    Several may hold a lock that is shared.

    Raises `BlockingIOError` if it is locked and `wait` is false.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a temporary folder whose writer is gone; where that cannot be known, it stays."""
    try:
        lock = _lock(folder, wait=False)
    except BlockingIOError:
        return
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)
