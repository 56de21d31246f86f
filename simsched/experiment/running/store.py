"""The folder of a run, with one folder per cell that all that determines it names, and the removal of cells from it.

Cells are written under a temporary name and renamed when whole; the folder is cache, ledger and result at once. Only
folders written by simsched are removed, never through links: a folder is a cell's if its name is a key that its
manifest repeats; with a damaged manifest, if it lies in a run of simsched and holds only files with simsched's names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.errors import InputError, input_error
from simsched.files import sync
from simsched.results import RUN_FILE, TABLES
from simsched.results.integrity import MANIFEST_FILE, SUMMARY_FILE, quick_fault
from simsched.results.quality import LOSSES_FILE
from simsched.results.sheets import TRIALS_FILE
from simsched.stops import removed_after

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: The files that simsched writes into a cell's folder; a policy may add others.
OWN_FILES = frozenset(
    {MANIFEST_FILE, SUMMARY_FILE, TRIALS_FILE, LOSSES_FILE, *(table.file for table in TABLES.values())}
)
_TEMPORARY = ".tmp-"
#: The temporary folder of a cell: its key, and the writing machine and process.
_STAGED = re.compile(r"\.tmp-[^@]+@[^@]+@[0-9]+")


class Store:
    """The cells of one experiment below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / "cells"

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Open the folder and prevent removals during the block; raises `InputError` as `open` does."""
        self.open()
        lock = _lock(self.cells, wait=True, shared=True)
        try:
            yield
        finally:
            _unlock(lock)

    @contextlib.contextmanager
    def unused(self) -> Iterator[None]:
        """Keep runs out of the folder during the block; raises `InputError` if one uses it (unknown without locks)."""
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
        """Create the folder and remove leftovers of killed runs; raises `InputError` if it is not writable."""
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
            probe = self.cells / f"{_TEMPORARY}probe{_owner()}"
            probe.mkdir(exist_ok=True)
            probe.rmdir()
        except OSError as error:
            raise self._unwritable(error) from error
        self.sweep()

    def sweep(self) -> None:
        """Remove leftovers of dead writers."""
        for leftover in sorted(self.cells.glob(f"{_TEMPORARY}*")):
            if _STAGED.fullmatch(leftover.name) and not leftover.is_symlink():
                _remove_if_abandoned(leftover)

    def cell(self, key: str) -> Path:
        """Return the folder of a cell."""
        return self.cells / key

    def has(self, key: str) -> bool:
        """Return whether a cell is complete: all files exist in the sizes that its manifest gives."""
        return self.cell(key).is_dir() and not self.fault(key)

    def fault(self, key: str) -> str:
        """Return the fault of an existing cell (see `integrity.quick_fault`), empty if it is missing."""
        folder = self.cell(key)
        return quick_fault(folder) if folder.is_dir() else ""

    def elsewhere(self, key: str) -> Path | None:
        """Find a complete cell of that key in a sibling experiment's results."""
        beside = sorted(self.folder.parent.glob(f"*/{self.cells.name}/{key}"))
        return next((cell for cell in beside if Store(cell.parent.parent).has(key)), None)

    def adopt(self, key: str) -> bool:
        """Adopt the cell of a sibling experiment, if any, sharing its files."""
        found = None if self.has(key) else self.elsewhere(key)
        if found is None:
            return False
        try:
            with self.staged(key) as staged:
                for file in sorted(found.iterdir()):
                    _link(file, staged / file.name)
        except OSError:  # missing or unreadable: it runs again
            return False
        return True

    @contextlib.contextmanager
    def staged(self, key: str) -> Iterator[Path]:
        """Yield an empty folder that becomes a cell, or is removed if the block fails.

        An equal cell of a faster process stays. Raises `InputError` if the store cannot be written.
        """
        with removed_after(self.cells / f"{_TEMPORARY}{key}{_owner()}") as path:
            lock = self._begun(path)
            try:
                yield path
                self._publish(path, self.cell(key))
            finally:
                _unlock(lock)

    def _begun(self, path: Path) -> int | None:
        """Create and lock an empty folder, which others take for abandoned unless it is locked."""
        shutil.rmtree(path, ignore_errors=True)
        try:
            while True:
                path.mkdir(parents=True)
                lock = _lock(path, wait=True)
                if path.is_dir():  # not swept before it was locked
                    return lock
                _unlock(lock)
        except OSError as error:
            raise self._unwritable(error) from error

    def _publish(self, path: Path, target: Path) -> None:
        try:
            if target.exists() and not self.has(target.name):  # files were removed or changed
                shutil.rmtree(target)
            path.replace(target)
            sync(self.cells)
        except OSError as error:
            if not self.has(target.name):
                raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        remedy = "name a folder that can be written, with --out"
        return input_error(self.folder, f"results cannot be written there: {error.strerror or error}", remedy)


def _link(file: Path, name: Path) -> None:
    """Hard-link a finished file, or copy it if the file system cannot link."""
    try:
        name.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, name)


def _owner() -> str:
    return f"@{socket.gethostname()}@{os.getpid()}"


def _lock(folder: Path, *, wait: bool, shared: bool = False) -> int | None:
    """Lock a folder until its descriptor closes or its holder dies, None if unsupported.

    Shared locks admit several holders. Raises `BlockingIOError` if it is locked and `wait` is false.
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
    """Remove a temporary folder if its writer is known to be gone."""
    try:
        lock = _lock(folder, wait=False)
    except BlockingIOError:
        return
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


#: The folder of the shards of unfinished cells in that of a run, and the suffix of their jobs.
SHARDS, JOBS = ".shards", ".jobs"
#: A key is the start of a SHA-256.
_KEY = re.compile(r"[0-9a-f]{20,64}")


@dataclass(frozen=True)
class Removal:
    """What was removed, and what was kept and why, by path."""

    removed: tuple[Path, ...]
    left: Mapping[Path, str]


def runs_below(folder: Path) -> list[Path]:
    """List the folder if it is a run's, else the runs in it, without following links."""
    if _is_run(folder):
        return [folder]
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if not path.is_symlink() and _is_run(path)]


def _is_run(folder: Path) -> bool:
    cells = folder / "cells"
    return cells.is_dir() and not cells.is_symlink()


def why_not_ours(cell: Path) -> str:
    """Return why a folder must not be removed as a cell, empty if it may be."""
    if cell.is_symlink() or cell.parent.is_symlink():
        return "it is reached through a link"
    if not cell.is_dir() or not _KEY.fullmatch(cell.name):
        return "its name is not that of a cell"
    if cell.parent.name == SHARDS:
        strange = sorted(one.name for one in cell.iterdir() if one.name != "cells" and one.suffix != JOBS)
        return f"it holds '{strange[0]}', which simsched has not written" if strange else ""
    manifest = _json(cell / MANIFEST_FILE)
    if manifest is not None and manifest.get("cell") != cell.name:
        return f"its {MANIFEST_FILE} is not that of this cell"
    if manifest is None and not _is_index(_json(cell.parent.parent / RUN_FILE)):
        return f"nothing shows that simsched has written it: it has no {MANIFEST_FILE}, and the run no {RUN_FILE}"
    listed = {} if manifest is None else manifest.get("files")
    known = OWN_FILES | (listed.keys() if isinstance(listed, dict) else set())
    with os.scandir(cell) as entries:
        strange = sorted(one.name for one in entries if one.name not in known or not one.is_file(follow_symlinks=False))
    return f"it holds '{strange[0]}', which simsched has not written" if strange else ""


def remove(cells: Iterable[Path]) -> Removal:
    """Remove cells, except foreign folders and those of a run in use."""
    removed: list[Path] = []
    left: dict[Path, str] = {}
    by_run: dict[Path, list[Path]] = {}
    for cell in cells:
        by_run.setdefault(cell.parent.parent, []).append(cell)
    for run, inside in by_run.items():
        try:
            with Store(run).unused():
                for cell in inside:
                    reason = why_not_ours(cell)
                    if reason:
                        left[cell] = reason
                    else:
                        _remove(cell)
                        removed.append(cell)
        except InputError:
            left.update(dict.fromkeys(inside, "a run is using its folder"))
    return Removal(tuple(removed), left)


def _remove(cell: Path) -> None:
    """Remove a folder of files, manifest first: an interrupt leaves no seemingly whole cell; shards as they are."""
    if cell.parent.name == SHARDS:
        shutil.rmtree(cell)
        return
    for file in sorted(cell.iterdir(), key=lambda path: path.name != MANIFEST_FILE):
        file.unlink()
    cell.rmdir()


def _json(path: Path) -> dict[str, Any] | None:
    """Read an object from a file that is not a link, None if there is none."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _is_index(content: Mapping[str, Any] | None) -> bool:
    return (
        content is not None and isinstance(content.get("cells"), list) and isinstance(content.get("experiment"), dict)
    )
