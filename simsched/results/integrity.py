"""Checks that the files of a cell are as written, by the sizes and hashes in its manifest.

The manifest lists every other file of its folder with size and SHA-256, and a hash of itself. The quick check
reads the manifest, the small files and all sizes; the full one reads everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simsched.errors import Problem, first_line, input_error
from simsched.files import sync_all
from simsched.results import stored
from simsched.results.writer import json_text, write_json

MANIFEST_FILE = "manifest.json"
SUMMARY_FILE = "summary.json"

_SEAL = "manifest_sha256"
_CHUNK = 1 << 20
#: Files up to this size in bytes are hashed by the quick check too.
_SMALL = 1 << 16
_NOTHING: Mapping[str, bytes] = MappingProxyType({})


def seal(folder: Path, manifest: Mapping[str, Any], contents: Mapping[str, bytes] = _NOTHING) -> None:
    """Write the manifest of a complete cell, with sizes and hashes of the other files; all files are then on disk.

    `contents` are files still to be written, into a folder that no other process reads yet.
    """
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    others = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST_FILE)
    listed = {name: _listed(folder / name, contents.get(name)) for name in others}
    said = {name: value for name, value in manifest.items() if name != _SEAL} | {"files": listed}
    sealed = {**said, _SEAL: _seal_of(said)}
    if contents:
        (folder / MANIFEST_FILE).write_bytes(json_text(sealed).encode())
    else:
        write_json(folder / MANIFEST_FILE, sealed)
    sync_all([*(folder / name for name in others), folder / MANIFEST_FILE, folder])


def _listed(path: Path, content: bytes | None) -> dict[str, int | str]:
    """Return the manifest entry of a file, which is read unless its content is known."""
    if content is None:
        return {"bytes": path.stat().st_size, "sha256": _hash_of(path)}
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def check(folder: Path) -> None:
    """Raise `InputError` if the quick check of a cell with a sealed manifest finds a fault."""
    fault = quick_fault(folder)
    if fault:
        raise input_error(folder, f"is damaged: {fault}", stored.RUN_AGAIN)


def is_sealed(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest was written by `seal`."""
    return _SEAL in manifest


def quick_fault(folder: Path) -> str:
    """Return the faults of a cell that are visible without reading its tables; empty if there are none."""
    return next(_faults(folder, full=False), "")


def faults(folder: Path) -> list[str]:
    """List all faults of a cell, reading every file."""
    return list(_faults(folder, full=True))


def _faults(folder: Path, *, full: bool) -> Iterator[str]:
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield f"{MANIFEST_FILE} is missing"
        return
    except (OSError, ValueError, RecursionError) as error:
        yield f"{MANIFEST_FILE} cannot be read ({first_line(error)})"
        return
    if not isinstance(manifest, dict):
        yield f"{MANIFEST_FILE} is not a JSON object"
        return
    content = {name: value for name, value in manifest.items() if name != _SEAL}
    if manifest.get(_SEAL) != _seal_of(content):
        yield f"{MANIFEST_FILE} is not as it was written"
        return
    listed = manifest.get("files", {})
    unlike = next(stored.faults(json.dumps({"files": listed}), stored.Listed), None)
    if unlike is not None:
        yield f"{MANIFEST_FILE}: {' '.join(unlike)}"
        return
    if SUMMARY_FILE not in listed:
        yield f"{SUMMARY_FILE} is not listed in {MANIFEST_FILE}"
    for name, known in listed.items():
        yield from _fault_of(folder / name, known, full=full)


def _fault_of(path: Path, known: Mapping[str, Any], *, full: bool) -> Iterator[str]:
    try:
        size = path.stat().st_size
        if not path.is_file():
            yield f"{path.name} is no file"
        elif size != known["bytes"]:
            yield f"{path.name} has {size} bytes, not {known['bytes']}"
        elif (full or size <= _SMALL) and _hash_of(path) != known["sha256"]:
            yield f"{path.name} is not as it was written"
    except FileNotFoundError:
        yield f"{path.name} is missing"
    except OSError as error:
        yield f"{path.name} cannot be read ({error.strerror})"


def problems_of(cells: Mapping[str, Path]) -> list[Problem]:
    """Find the faults of cells, given by name and folder, reading every file."""
    found = ((name, path, fault) for name, path in cells.items() for fault in faults(path))
    return [Problem(str(path), f"{fault} (cell {name})", stored.RUN_AGAIN) for name, path, fault in found]


def _seal_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
