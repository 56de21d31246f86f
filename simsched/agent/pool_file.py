"""The history pool as a file: JSON that people can read and compare, one configuration per line.

```
{"format": "simsched-history/2",
 "applications": [
  {"name": "cifar10", "jobs": 12,
   "limits": {"init_batch_size": 128, "max_batch_size": 4096, "min_local_bsz": 32, "max_local_bsz": 1024},
   "throughput": {"t4": {"alpha_c": 0.018, "beta_c": 0.0007, ..., "gamma": 2.2}},
   "profile": [["t4", nodes, GPUs, per-GPU batch, seconds of a step, seconds of its synchronisation, jobs], ...],
   "noise": [[epoch from 0, squared norm of the gradient, its variance, jobs], ...]}]}
```
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from simsched.agent.fit import Configuration
from simsched.agent.pool import History, HistoryPool, Pooled
from simsched.errors import InputError, Problem, input_error
from simsched.model import BatchLimits
from simsched.model.throughput import ThroughputParams
from simsched.reading import read_json

FORMAT = "simsched-history/2"

_REMEDY = "name a pool.json that simsched has written"
_ENTRY_KEYS = ("name", "jobs", "limits", "throughput", "profile", "noise")
_LIMITS = tuple(field.name for field in fields(BatchLimits))
_PARAMS = tuple(field.name for field in fields(ThroughputParams))
_PROFILE_KEYS, _NOISE_KEYS = 3, 1  # leading whole numbers of a row


def read_pool(path: Path) -> HistoryPool:
    """Read a pool; raises `InputError` with every problem of the file and its location."""
    return pool_of(read_json(path, _REMEDY), str(path))


def pool_of(content: object, where: str) -> HistoryPool:
    """Build a pool from the plain data of `pool_data`; raises `InputError` naming `where` and the key."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise input_error(where, f"is not a history pool of the format '{FORMAT}' (found: {found})", _REMEDY)
    entries = content.get("applications")
    if not isinstance(entries, list):
        raise input_error(where, "has no list 'applications'", _REMEDY)
    histories: dict[str, History] = {}
    params: dict[tuple[str, str], ThroughputParams] = {}
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        reading = _Entry(entry, f"{where}: applications[{index}]")
        name, history = reading.name(histories), reading.history()
        problems += reading.problems
        if name and history:
            histories[name] = history
            params |= {(name, gpu_type): fitted for gpu_type, fitted in reading.params().items()}
    if problems:
        raise InputError(*problems)
    return HistoryPool(histories, params)


class _Entry:
    """One application of the file, with its problems."""

    def __init__(self, entry: object, where: str) -> None:
        self.problems: list[Problem] = []
        self._where = where
        self._entry: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
        for key in _ENTRY_KEYS:
            if key not in self._entry:
                self._complain("", f"lacks the key '{key}'")

    def _complain(self, key: str, message: str) -> None:
        self.problems.append(Problem(f"{self._where}{'.' if key else ''}{key}", message, _REMEDY))

    def name(self, taken: Mapping[str, History]) -> str:
        name = self._entry.get("name", "")
        if name in taken or not isinstance(name, str):
            self._complain("name", f"{name!r} {'stands there twice' if name in taken else 'is not a name'}")
            return ""
        return name

    def history(self) -> History | None:
        """Return the history; None, with problems recorded, if the entry is invalid."""
        if self.problems:
            return None
        jobs = self._entry["jobs"]
        if not _whole(jobs, 1):
            self._complain("jobs", f"{jobs!r} is not a number of jobs")
        self._check_numbers("limits", self._entry["limits"], _LIMITS, whole=True)
        profiles = self._profiles()
        self._check_throughput(profiles)
        noise = self._rows("noise", _NOISE_KEYS, lowest=0)
        if self.problems:
            return None
        limits = BatchLimits(**{key: self._entry["limits"][key] for key in _LIMITS})
        return History(limits, jobs, profiles, {key[0]: value for key, value in sorted(noise.items())})

    def params(self) -> dict[str, ThroughputParams]:
        """Return the fitted parameters by GPU type of a valid entry."""
        return {
            gpu_type: ThroughputParams(**{key: float(numbers[key]) for key in _PARAMS})
            for gpu_type, numbers in sorted(self._entry["throughput"].items())
        }

    def _profiles(self) -> dict[str, dict[Configuration, Pooled]]:
        """Read step times by GPU type, the first item of each row."""
        rows = self._entry["profile"]
        if not isinstance(rows, list) or not all(
            isinstance(row, list) and row and isinstance(row[0], str) for row in rows
        ):
            self._complain("profile", "must be a list of rows that begin with a GPU type")
            return {}
        found: dict[str, dict[Configuration, Pooled]] = {}
        if not rows:
            self._rows("profile", _PROFILE_KEYS, lowest=1)
        for gpu_type in sorted({row[0] for row in rows}):
            of_type = {index: row[1:] for index, row in enumerate(rows) if row[0] == gpu_type}
            steps = self._rows("profile", _PROFILE_KEYS, lowest=1, rows=of_type)
            found[gpu_type] = {(key[0], key[1], key[2]): value for key, value in sorted(steps.items())}
        return found

    def _check_throughput(self, profiles: Mapping[str, object]) -> None:
        throughput = self._entry["throughput"]
        if not isinstance(throughput, dict) or sorted(throughput) != sorted(profiles):
            self._complain("throughput", f"must have just the GPU types of the profile: {', '.join(profiles)}")
            return
        for gpu_type, numbers in throughput.items():
            self._check_numbers(f"throughput.{gpu_type}", numbers, _PARAMS, whole=False)

    def _check_numbers(self, section: str, numbers: object, keys: Sequence[str], *, whole: bool) -> None:
        if not isinstance(numbers, dict) or sorted(numbers) != sorted(keys):
            self._complain(section, f"must have just the keys {', '.join(keys)}")
            return
        for key in keys:
            good = _whole(numbers[key], 1) if whole else _finite(numbers[key]) and numbers[key] > 0
            if not good:
                kind = "whole number from 1 on" if whole else "positive number"
                self._complain(f"{section}.{key}", f"{numbers[key]!r} is not a {kind}")

    def _rows(
        self, section: str, keys: int, *, lowest: int, rows: Mapping[int, Any] | None = None
    ) -> dict[tuple[int, ...], Pooled]:
        """Read rows of `keys` whole numbers, two numbers, and a number of jobs; `rows` are a selection by index."""
        if rows is None:
            listed = self._entry[section]
            if not isinstance(listed, list) or not listed:
                self._complain(section, "must be a list of at least one row")
                return {}
            rows = dict(enumerate(listed))
        found: dict[tuple[int, ...], Pooled] = {}
        for index, row in rows.items():
            fault = _row_fault(row, keys, lowest, steps=section == "profile")
            if not fault and tuple(row[:keys]) in found:
                fault = "stands there twice"
            if fault:
                self._complain(f"{section}[{index}]", f"{row!r} {fault}")
                continue
            found[tuple(row[:keys])] = Pooled(float(row[keys]), float(row[keys + 1]), row[keys + 2])
        return found


def _row_fault(row: object, keys: int, lowest: int, *, steps: bool) -> str:
    """Describe what is wrong with a row; in step times, the synchronisation must be part of the step."""
    if not isinstance(row, list) or len(row) != keys + 3:
        return f"is not a row of {keys + 3} numbers"
    if not all(_whole(value, lowest) for value in row[:keys]) or not _whole(row[-1], 1):
        return f"needs whole numbers from {lowest} on in its first {keys} places and a number of jobs in its last"
    first, second = row[keys], row[keys + 1]
    if not _finite(first) or not _finite(second):
        return "holds something that is not a number"
    if steps and not (0 <= second < first and row[1] >= row[0]):
        return "is not a step: a synchronisation shorter than the step, on at least as many GPUs as nodes"
    return ""


def _whole(value: object, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def pool_data(pool: HistoryPool) -> dict[str, Any]:
    """Return a pool as plain data, from which `pool_of` rebuilds an equal pool."""
    return {"format": FORMAT, "applications": [_entry_of(pool, name) for name in pool.applications]}


def _entry_of(pool: HistoryPool, name: str) -> dict[str, Any]:
    history = pool[name]
    return {
        "name": name,
        "jobs": history.jobs,
        "limits": asdict(history.limits),
        "throughput": {gpu_type: asdict(pool.params(name, gpu_type)) for gpu_type in history.profiles},
        "profile": [
            [gpu_type, *key, *value] for gpu_type, profile in history.profiles.items() for key, value in profile.items()
        ],
        "noise": [[epoch, *value] for epoch, value in history.noise.items()],
    }


def pool_text(pool: HistoryPool) -> str:
    """Format a pool as the text of a file; equal pools give equal text."""
    entries = ",\n".join(_entry_text(entry) for entry in pool_data(pool)["applications"])
    return f'{{"format": "{FORMAT}", "applications": [\n{entries}\n]}}\n'


def _entry_text(entry: Mapping[str, Any]) -> str:
    parts = [f"{json.dumps(key)}: {json.dumps(entry[key])}" for key in ("name", "jobs", "limits", "throughput")]
    for key in ("profile", "noise"):
        rows = ",\n    ".join(json.dumps(row) for row in entry[key])
        parts.append(f'"{key}": [\n    {rows}]')
    return " {" + ",\n  ".join(parts) + "}"
