"""Resolves ambiguities of Slurm's documentation from the log of the cluster.

Each reading is tried on windows of a few hours in the first half of the judged period whose replay is off, which start
with the jobs that ran or waited then. Over a whole log, one job that starts a minute earlier shifts all later ones, so
a nearly correct replay would score hardly better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.operators.beginning import Beginning, with_state
from simsched.operators.replays import Progress, ReplayPlan, counted_from, run_replay
from simsched.workload.readers import ClusterLog

#: Parameters of a policy by dotted key.
Reading = Mapping[str, Any]
#: The reading in which jobs cancelled before they started wait until then.
CANCELLED = "cancelled"
#: The settings that the documentation leaves open, by policy.
_OPEN: Mapping[str, Sequence[Reading]] = {
    "slurm-backfill": (
        {"backfill.from_pass": True},
        {"backfill.whole_nodes": True},
        {"placement": "any"},
        {"placement": "most-free"},
        {"backfill.kind": "easy"},
        {"backfill.kind": "greedy"},
        {"backfill.counts": "gpus"},
        {"backfill.holders": "cluster"},
        {"backfill.kind": "easy", "backfill.holders": "cluster"},
        {CANCELLED: True},
    )
}
#: What a reading does, for users.
_WORDS: Mapping[str, str] = {
    "backfill.counts": "reservations count the GPUs of a type, not nodes",
    "backfill.holders": "only the first waiting job of the cluster holds a reservation",
    CANCELLED: "jobs that were cancelled before they started waited, and held reservations",
}
#: The number and length of windows.
_WINDOWS, _LENGTH_S = 3, 8 * 3600
#: How many of the busiest windows are looked at for some whose replay is off.
_LOOKED_AT = 12
#: A reading replaces the previous one if its error is below this fraction of the previous error.
_BETTER = 0.9
#: A window is off if its error is above this fraction of waits; no other reading is tried if it is below that.
_GOOD, _EXACT = 0.01, 0.0005
#: Candidate intervals of backfill, longest first, and the fraction of quiet starts that must agree with one.
_INTERVALS_S, _AGREE, _LEAST_QUIET = (300, 120, 90, 60, 45, 30, 20, 15, 10), 0.8, 20
#: If fewer starts after a wait than this happen while no job comes or ends, backfill runs on these events.
_NO_QUIET = 0.02


@dataclass(frozen=True)
class _Window:
    """A window of a log, with the jobs that ran or waited at its start: the starts of its jobs, and their waits in it.

    `begin` is its replay without cancelled jobs, `until_s` its last second on the log's clock.
    """

    part: ClusterLog
    begin: Beginning
    starts: pd.Series
    waits_s: float
    until_s: int

    def error_s(self, plan: ReplayPlan) -> float:
        """Replay the window, and sum the errors of starts; starts after the window count as at its end."""
        begin = with_state(plan.log, self.part, plan.groups, cancelled=True) if plan.cancelled else self.begin
        cell = run_replay(counted_from(plan, begin.log), "windows", in_process=True).cells[0]
        found = cell.jobs.set_index("job_id")["start_time_s"] + begin.zero_s
        both = pd.concat([self.starts, found.reindex(self.starts.index)], axis=1).fillna(np.inf)
        starts = both.clip(upper=self.until_s)
        return float((starts.iloc[:, 0] - starts.iloc[:, 1]).abs().sum())


@dataclass(frozen=True)
class Fitted:
    """The readings that match a log best, how many were tried, and the errors of starts without and with them, in s."""

    reading: Reading = field(default_factory=dict)
    tried: int = 0
    before_s: float = 0.0
    after_s: float = 0.0

    def said(self, skill: float | None) -> str:
        """Describe the readings, with the `skill` of the replay on the half of the log to which they are not fitted."""
        if not self.reading:
            return f"none of {self.tried} other readings of the documentation comes closer to the first half of the log"
        values = ", ".join(
            f"{_WORDS.get(key, '')} ({_assignment(key, value)})" if key in _WORDS else _assignment(key, value)
            for key, value in sorted(self.reading.items())
        )
        gain = f"errors of starts of {self.after_s / 3600:.1f} h instead of {self.before_s / 3600:.1f} h there"
        after = "" if skill is None else f", and skill {skill:.2f} on the second half"
        return f"fitted to the first half of the log, as the documentation leaves it open: {values}; {gain}{after}"


def _assignment(key: str, value: object) -> str:
    return "cancelled jobs wait" if key == CANCELLED else f"policy.{key}={str(value).lower()}"


def with_readings(
    plan: ReplayPlan, log: ClusterLog, from_s: float, until_s: float, *, progress: Progress | None = None
) -> tuple[ReplayPlan, Fitted]:
    """Return the plan with the readings that match a log best between two times, and these readings."""
    taken: dict[str, Any] = {}
    known = (*_clock(plan, log, from_s, until_s), *_OPEN.get(plan.policy, ()))
    tried = [one for one in known if _is_open(plan, one) and (CANCELLED not in one or len(log.withdrawn))]
    if progress is not None and tried:
        progress(f"calibrate: replaying up to {_LOOKED_AT} windows of the log, to find {_WINDOWS} that are off")
    windows = _windows(plan, log, from_s, until_s) if tried else []
    if not windows:
        return plan, Fitted()
    waits_s = sum(one.waits_s for one in windows)
    first_s = least_s = _error_s(plan, windows)
    count = 0
    while tried and least_s > _EXACT * waits_s:
        best: Reading = {}
        for one in [one for one in tried if _matters(plan, taken, one)]:
            count += 1
            if progress is not None:
                values = ", ".join(_assignment(key, value) for key, value in one.items())
                progress(f"calibrate: trying {values} on {len(windows)} windows of the log")
            most_s = least_s if best else _BETTER * least_s
            error_s = _error_s(_with(plan, {**taken, **one}), windows, most_s)
            if error_s < most_s:
                best, least_s = one, error_s
            if least_s <= _EXACT * waits_s:
                break
        if not best:
            break
        taken |= best
        tried = [one for one in tried if not set(one) & set(taken)]
    return _with(plan, taken), Fitted(taken, count, first_s, least_s)


def _is_open(plan: ReplayPlan, reading: Reading) -> bool:
    """Return whether the user has left a reading's settings open."""
    return not any(f"{key}=" in change for key in reading for change in plan.changes)


def _matters(plan: ReplayPlan, taken: Reading, reading: Reading) -> bool:
    """Return whether a reading changes anything: who holds the only reservation does if there is only one."""
    said = dict(plan.params.get("backfill", {}))
    asked = [one.partition("backfill.kind=")[2] for one in plan.changes if "backfill.kind=" in one]
    kind = taken.get("backfill.kind", asked[-1] if asked else said.get("kind", "easy"))
    return set(reading) != {"backfill.holders"} or kind == "easy"


def _with(plan: ReplayPlan, reading: Reading) -> ReplayPlan:
    params = dict(plan.params)
    plan = replace(plan, cancelled=bool(reading.get(CANCELLED, plan.cancelled)))
    for key, value in reading.items():
        if key == CANCELLED:
            continue
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
    """Cut out windows whose replay is off, of those in which most jobs wait."""
    begins = np.arange(from_s, until_s - _LENGTH_S + 1, _LENGTH_S)
    table = log.every
    eligible, started, end = (table[name].to_numpy("float64") for name in ("eligible_s", "start_s", "end_s"))
    started, end = np.where(started < 0, np.inf, started), np.where(end < 0, np.inf, end)
    busy = [((eligible < one + _LENGTH_S) & (started > one) & (started > eligible)).sum() for one in begins]
    found: list[_Window] = []
    for begin_s in begins[np.argsort(busy, kind="stable")[::-1][:_LOOKED_AT]]:
        last_s = int(begin_s) + _LENGTH_S
        there: npt.NDArray[np.bool_] = (eligible <= last_s) & (end >= begin_s)
        part = table[there]
        ended = part["end_s"] >= 0
        if not ended.any():
            continue
        first_s = int(part["end_s"][ended].min())
        gone = log.withdrawn[(log.withdrawn["eligible_s"] <= last_s) & (log.withdrawn["end_s"] >= begin_s)]
        inside = replace(log, table=part[ended], still=part[~ended], withdrawn=gone)
        judged = part[~part["start_s"].between(0, first_s - 1)].set_index("job_id")
        starts = judged["start_s"].astype("float64").where(judged["start_s"] >= 0, np.inf)
        waits = starts.clip(upper=last_s) - judged["eligible_s"].clip(lower=first_s)
        window = _Window(inside, with_state(plan.log, inside, plan.groups), starts, float(waits.sum()), last_s)
        if window.error_s(plan) > _GOOD * window.waits_s:
            found.append(window)
        if len(found) == _WINDOWS:
            break
    return found


def _error_s(plan: ReplayPlan, windows: Sequence[_Window], most_s: float = np.inf) -> float:
    """Sum the errors over replays of windows, of which no more are replayed once it is `most_s`."""
    error_s = 0.0
    for one in windows:
        error_s += one.error_s(plan)
        if error_s >= most_s:
            break
    return error_s
