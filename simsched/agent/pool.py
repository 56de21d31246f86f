"""Histories of finished jobs: a pool from which later jobs of the same or a similar application start.

For each application the pool merges the measurements of its jobs: step times by GPU type and configuration (and with
them the largest number of GPUs of any run), and gradient statistics over training. The throughput parameters are fitted
to the merged step times. The pool is plain data, stored between runs as JSON (`simsched.agent.pool`).

The rules of merging: if several jobs have measured one configuration or one epoch, the pool keeps their mean, with
equal weight for each job; configurations and epochs are in ascending order; an application that returns with other
batch limits counts as a new one, and its old history is dropped. So the pool depends on which jobs have finished but,
except for rounding, not on their order. Step times are separate by GPU type.

The history pool as a file: JSON that people can read and compare, one configuration per line.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from simsched.agent.agent import Measurement
from simsched.agent.fit import Configuration, Profile, fit
from simsched.agent.goodput_agent import Prior
from simsched.errors import InputError, Problem, input_error
from simsched.model import BatchLimits
from simsched.model.application import GradientStats, StepTime
from simsched.model.throughput import ThroughputParams
from simsched.reading import read_json

#: Applications are similar if each of their batch limits, and their step times on one GPU, differ by at most this.
SIMILAR_WITHIN = 2.0


class Pooled(NamedTuple):
    """The means of a pair of numbers, and the number of jobs behind them.

    The numbers are seconds of a step and of its synchronisation, or the two gradient statistics.
    """

    first: float
    second: float
    jobs: int


@dataclass(frozen=True)
class History:
    """The measurements of `jobs` finished jobs of an application.

    `profiles` maps GPU types to step times by configuration, `noise` 0-based epochs to gradient statistics (squared
    norm and variance); all ascend, and none is empty.
    """

    limits: BatchLimits
    jobs: int
    profiles: Mapping[str, Mapping[Configuration, Pooled]]
    noise: Mapping[int, Pooled]

    def max_profiled_gpus(self, gpu_type: str) -> int:
        """Return the largest number of GPUs of a type on which any of the jobs has run."""
        return max(gpus for _, gpus, _ in self.profiles[gpu_type])

    def step_times(self, gpu_type: str) -> dict[Configuration, StepTime]:
        """Return the step times on a GPU type, without counts."""
        return {key: StepTime(step.first, step.second) for key, step in self.profiles[gpu_type].items()}

    def gradient_at(self, progress: float) -> GradientStats:
        """Return the gradient statistics at a share of training in [0, 1): those of the last epoch observed by then."""
        epoch = progress * (max(self.noise) + 1)
        at = max((seen for seen in self.noise if seen <= epoch), default=min(self.noise))
        return GradientStats(self.noise[at].first, self.noise[at].second)


def history_of_job(
    limits: BatchLimits, profiles: Mapping[str, Profile], noise: Mapping[int, GradientStats]
) -> History | None:
    """Return the history of one finished job, None if it has no measurements."""
    if not profiles or not noise:
        return None
    steps = {
        gpu_type: {key: Pooled(*profile[key], 1) for key in sorted(profile)}
        for gpu_type, profile in sorted(profiles.items())
    }
    return History(limits, 1, steps, {epoch: Pooled(*noise[epoch], 1) for epoch in sorted(noise)})


def merge(one: History, other: History) -> History:
    """Merge the histories of two groups of jobs of one application; `ValueError` if their batch limits differ."""
    if one.limits != other.limits:
        raise ValueError("histories of applications with different batch limits cannot be merged")
    jobs = one.jobs + other.jobs
    types = sorted({*one.profiles, *other.profiles})
    profiles = {kind: _union(one.profiles.get(kind, {}), other.profiles.get(kind, {})) for kind in types}
    return History(one.limits, jobs, profiles, _union(one.noise, other.noise))


_Key = TypeVar("_Key", int, Configuration)


def _union(one: Mapping[_Key, Pooled], other: Mapping[_Key, Pooled]) -> dict[_Key, Pooled]:
    merged = {**other, **one}
    for key in one.keys() & other.keys():
        merged[key] = _mean(one[key], other[key])
    return dict(sorted(merged.items()))


def _mean(one: Pooled, other: Pooled) -> Pooled:
    """Average by number of jobs; equal values stay exact, without the rounding of an average."""
    jobs = one.jobs + other.jobs
    share = other.jobs / jobs
    return Pooled(one.first + (other.first - one.first) * share, one.second + (other.second - one.second) * share, jobs)


class HistoryPool:
    """Histories by application, and the parameters fitted to each."""

    def __init__(
        self,
        histories: Mapping[str, History] | None = None,
        params: Mapping[tuple[str, str], ThroughputParams] | None = None,
    ) -> None:
        """Start with these histories; `params` are those fitted to them, by application and GPU type, if known."""
        self._histories = dict(histories or {})
        self._params = dict(params or {})

    @property
    def applications(self) -> tuple[str, ...]:
        """List the known applications, sorted."""
        return tuple(sorted(self._histories))

    @property
    def jobs(self) -> int:
        """Count the jobs behind the histories."""
        return sum(history.jobs for history in self._histories.values())

    def __getitem__(self, application: str) -> History:
        """Return what is known of an application; `KeyError` for an unknown one."""
        return self._histories[application]

    def params(self, application: str, gpu_type: str) -> ThroughputParams:
        """Return the throughput parameters on a GPU type, fitted on the first call after a change."""
        key = application, gpu_type
        if key not in self._params:
            self._params[key] = fit(self._histories[application].step_times(gpu_type)).params
        return self._params[key]

    def add(self, application: str, history: History) -> None:
        """Add the history of jobs of an application."""
        known = self._histories.get(application)
        if known is None or known.limits != history.limits:
            self._histories[application] = history
            self._forget_params(application, known.profiles if known else ())
            return
        self._histories[application] = both = merge(known, history)
        changed = [kind for kind in known.profiles if both.step_times(kind) != known.step_times(kind)]
        self._forget_params(application, changed)

    def _forget_params(self, application: str, gpu_types: Iterable[str]) -> None:
        for gpu_type in gpu_types:
            self._params.pop((application, gpu_type), None)

    def lookup(self, application: str, limits: BatchLimits) -> dict[str, Prior]:
        """Return the priors of a new job by GPU type; {} if its application is unknown with these limits."""
        history = self._histories.get(application)
        if history is None or history.limits != limits:
            return {}
        gradient = history.gradient_at(0)
        return {
            kind: Prior(
                self.params(application, kind), gradient, history.step_times(kind), history.max_profiled_gpus(kind)
            )
            for kind in history.profiles
        }

    def similar(self, limits: BatchLimits, seen: Measurement) -> Prior | None:
        """Return the prior that a job of an unknown application may borrow after a run on one GPU; None if none fits.

        An application is similar if each of its four batch limits, and its step time at the batch measured, lie within
        a factor of `SIMILAR_WITHIN` of the job's. The one with the closest step time wins. Its computation is stretched
        to the job's pace; its synchronisation is kept.
        """
        if seen.site.gpus != 1:
            return None
        ranked = sorted(self._candidates(limits, seen))
        if not ranked:
            return None
        _, name, pace = ranked[0]
        history, gpu_type = self._histories[name], seen.site.gpu_type
        times = {
            key: StepTime((t.step_s - t.sync_s) * pace + t.sync_s, t.sync_s)
            for key, t in history.step_times(gpu_type).items()
        }
        return Prior(fit(times).params, seen.gradient, times, history.max_profiled_gpus(gpu_type))

    def _candidates(self, limits: BatchLimits, seen: Measurement) -> Iterator[tuple[float, str, float]]:
        """List similar applications: distance, name, and the job's pace relative to theirs."""
        gpu_type = seen.site.gpu_type
        for name, history in self._histories.items():
            if gpu_type not in history.profiles:
                continue
            ratios = [a / b for a, b in zip(astuple(limits), astuple(history.limits), strict=True)]
            expected_s = float(self.params(name, gpu_type).step_time_s(1, 1, seen.local_bsz))
            pace = seen.step.step_s / expected_s
            if all(_close(ratio) for ratio in (*ratios, pace)):
                yield abs(math.log(pace)), name, pace


def _close(ratio: float) -> bool:
    return 1 / SIMILAR_WITHIN <= ratio <= SIMILAR_WITHIN


FORMAT = "simsched-history/2"

_REMEDY = "name a pool.json that simsched has written"
_ENTRY_KEYS = ("name", "jobs", "limits", "throughput", "profile", "noise")
_LIMITS = tuple(field.name for field in fields(BatchLimits))
_PARAMS = tuple(field.name for field in fields(ThroughputParams))


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
        noise = self._rows("noise")
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
        found: dict[str, dict[Configuration, Pooled]] = {}
        for (gpu_type, nodes, gpus, local_bsz), steps in sorted(self._rows("profile").items()):
            found.setdefault(gpu_type, {})[nodes, gpus, local_bsz] = steps
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

    def _rows(self, section: Literal["profile", "noise"]) -> dict[tuple[Any, ...], Pooled]:
        """Read rows of a key, two numbers, and a number of jobs; the key of a profile begins with a GPU type."""
        rows, typed = self._entry[section], section == "profile"
        listed = isinstance(rows, list) and bool(rows)
        if not listed or (typed and not all(isinstance(row, list) and row and isinstance(row[0], str) for row in rows)):
            begin = ", all of which begin with a GPU type" if typed else ""
            self._complain(section, f"must be a list of at least one row{begin}")
            return {}
        found: dict[tuple[Any, ...], Pooled] = {}
        for index, row in enumerate(rows):
            fault = _row_fault(row[1:], 3, 1, steps=True) if typed else _row_fault(row, 1, 0, steps=False)
            if not fault and tuple(row[:-3]) in found:
                fault = "stands there twice"
            if fault:
                self._complain(f"{section}[{index}]", f"{row!r} {fault}")
                continue
            *key, first, second, jobs = row
            found[tuple(key)] = Pooled(float(first), float(second), jobs)
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
