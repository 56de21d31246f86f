"""Resolves ambiguities of Slurm's documentation from the log of the cluster.

Each reading is tried on windows of a few hours in the first half of the judged period, which start with the jobs that
ran or waited then. Over a whole log, one job that starts a minute earlier shifts all later ones, so a nearly correct
replay would score hardly better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.operators.beginning import Beginning, with_state
from simsched.operators.replays import ReplayPlan, counted_from, run_replay
from simsched.results import Cell
from simsched.workload.readers import ClusterLog

#: Parameters of a policy by dotted key.
Reading = Mapping[str, Any]
#: The settings that the documentation leaves open, by policy.
_OPEN: Mapping[str, Sequence[Reading]] = {
    "slurm-backfill": (
        {"backfill.from_pass": True},
        {"backfill.whole_nodes": True},
        {"placement": "any"},
        {"placement": "most-free"},
        {"backfill.kind": "easy"},
        {"backfill.kind": "greedy"},
    )
}
#: The number and length of windows.
_WINDOWS, _LENGTH_S = 3, 8 * 3600
#: A reading replaces the previous one if its error is below this fraction of the previous error.
_BETTER = 0.9
#: No other reading is tried if the error of a replay of the log, or of its windows, is below this fraction of waits.
_GOOD, _EXACT = 0.01, 0.0005
#: Candidate intervals of backfill, longest first, and the fraction of quiet starts that must agree with one.
_INTERVALS_S, _AGREE, _LEAST_QUIET = (300, 120, 90, 60, 45, 30, 20, 15, 10), 0.8, 20
#: If fewer starts after a wait than this happen while no job comes or ends, backfill runs on these events.
_NO_QUIET = 0.02


@dataclass(frozen=True)
class _Window:
    """A window of a log, with the jobs that ran or waited at its start: the starts of its jobs, and their waits in it.

    `until_s` is its last second on the log's clock.
    """

    begin: Beginning
    starts: pd.Series
    waits_s: float
    until_s: int

    def error_s(self, cell: Cell) -> float:
        """Sum the errors of starts; starts after the window count as at its end."""
        found = cell.jobs.set_index("job_id")["start_time_s"] + self.begin.zero_s
        both = pd.concat([self.starts, found.reindex(self.starts.index)], axis=1).fillna(np.inf)
        starts = both.clip(upper=self.until_s)
        return float((starts.iloc[:, 0] - starts.iloc[:, 1]).abs().sum())


def with_readings(plan: ReplayPlan, log: ClusterLog, from_s: float, until_s: float) -> tuple[ReplayPlan, Reading]:
    """Return the plan with the readings that match a log best between two times, and these readings."""
    taken: dict[str, Any] = {}
    tried = [one for one in (*_clock(plan, log, from_s, until_s), *_OPEN.get(plan.policy, ())) if _is_open(plan, one)]
    windows = _windows(plan, log, from_s, until_s) if tried else []
    if not windows:
        return plan, taken
    enough_s = _EXACT * sum(one.waits_s for one in windows)
    least_s = _error_s(plan, windows)
    while tried and least_s > enough_s:
        errors: list[float] = []
        for one in tried:
            errors.append(_error_s(_with(plan, {**taken, **one}), windows))
            if errors[-1] <= enough_s:
                break
        best = int(np.argmin(errors))
        if errors[best] >= _BETTER * least_s:
            break
        least_s = errors[best]
        taken |= tried[best]
        tried = [one for one in tried if not set(one) & set(taken)]
    return _with(plan, taken), taken


def needs_reading(jobs: pd.DataFrame) -> bool:
    """Return whether a replay's waits differ so much from the recorded ones that another reading may be better."""
    off = (jobs["simulated_s"] - jobs["recorded_s"]).abs().mean()
    return bool(off > _GOOD * jobs["recorded_s"].mean())


def said_of(reading: Reading) -> str:
    """Describe the chosen readings."""
    values = ", ".join(f"policy.{key}={str(value).lower()}" for key, value in sorted(reading.items()))
    return f"fitted to the first half of the log, as the documentation leaves it open: {values}"


def _is_open(plan: ReplayPlan, reading: Reading) -> bool:
    """Return whether the user has left a reading's settings open."""
    return not any(f"{key}=" in change for key in reading for change in plan.changes)


def _with(plan: ReplayPlan, reading: Reading) -> ReplayPlan:
    params = dict(plan.params)
    for key, value in reading.items():
        name, dot, inner = key.partition(".")
        params[name] = {**params.get(name, {}), inner: value} if dot else value
    return replace(plan, params=params)


def _clock(plan: ReplayPlan, log: ClusterLog, from_s: float, until_s: float) -> Sequence[Reading]:
    """Return when backfill runs, inferred from starts while no job came or ended, if it differs from the plan."""
    if plan.policy not in _OPEN:
        return ()
    table = log.every
    starts = table["start_s"].to_numpy()
    waited = (starts > table["eligible_s"]) & (starts >= from_s) & (starts <= until_s)
    events = np.concatenate([table[name].to_numpy() for name in ("submit_s", "eligible_s", "end_s")])
    quiet = starts[waited & ~np.isin(starts, events)]
    said = dict(plan.params.get("backfill", {}))
    if len(quiet) < _NO_QUIET * waited.sum():
        return ({"backfill.interval_s": 1},) if waited.sum() >= _LEAST_QUIET else ()
    for every_s in _INTERVALS_S if len(quiet) >= _LEAST_QUIET else ():
        phases = np.bincount(quiet % every_s)
        if phases.max() >= _AGREE * len(quiet):
            found = {"interval_s": every_s, "offset_s": int(phases.argmax())}
            if all(said.get(key, 0) == value for key, value in found.items()):
                return ()
            return ({f"backfill.{key}": value for key, value in found.items()},)
    return ()


def _windows(plan: ReplayPlan, log: ClusterLog, from_s: float, until_s: float) -> list[_Window]:
    """Cut out the windows in which most jobs wait, or only one if there are timed reservations."""
    begins = np.arange(from_s, until_s - _LENGTH_S + 1, _LENGTH_S)
    table = log.every
    eligible, started, end = (table[name].to_numpy("float64") for name in ("eligible_s", "start_s", "end_s"))
    started, end = np.where(started < 0, np.inf, started), np.where(end < 0, np.inf, end)
    busy = [((eligible < one + _LENGTH_S) & (started > one) & (started > eligible)).sum() for one in begins]
    most = 1 if plan.params.get("limits", {}).get("reservations") else _WINDOWS
    found = []
    for begin_s in np.sort(begins[np.argsort(busy, kind="stable")[::-1][:most]]):
        last_s = int(begin_s) + _LENGTH_S
        there: npt.NDArray[np.bool_] = (eligible <= last_s) & (end >= begin_s)
        part = table[there]
        ended = part["end_s"] >= 0
        if not ended.any():
            continue
        begin = with_state(plan.log, replace(log, table=part[ended], still=part[~ended]), plan.groups)
        first_s = int(part["end_s"][ended].min())
        judged = part[~part["start_s"].between(0, first_s - 1)].set_index("job_id")
        starts = judged["start_s"].astype("float64").where(judged["start_s"] >= 0, np.inf)
        waits = starts.clip(upper=last_s) - judged["eligible_s"].clip(lower=first_s)
        found.append(_Window(begin, starts, float(waits.sum()), last_s))
    return found


def _error_s(plan: ReplayPlan, windows: Sequence[_Window]) -> float:
    """Sum the errors over replays of windows."""
    traces = {f"windows/{place}.csv.gz": one.begin.log.trace for place, one in enumerate(windows)}
    cells = run_replay(counted_from(plan, windows[0].begin.log), "windows", traces=traces).cells
    return sum(one.error_s(cell) for one, cell in zip(windows, cells, strict=True))
