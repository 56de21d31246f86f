"""The gate before every answer: compares an unchanged replay of the log with the recorded waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.operators.log_input import Groups, held_over_time, total_gpus
from simsched.results.analyses import SIZES
from simsched.workload.readers import ClusterLog

Numbers = npt.NDArray[np.float64]

DAY_S = 86400
#: The thresholds; docs/operators.md argues for them.
LEAST_SKILL, MOST_OFF, MOST_OFF_GROUP = 0.4, 0.25, 0.35
#: A group of jobs with a smaller share of all recorded waiting is shown but cannot close the gate.
LEAST_SHARE = 0.05
#: The fewest waiting jobs and days with submissions that count as evidence.
LEAST_WAITED, LEAST_DAYS = 30, 3
_DRAWS, _SEED = 400, 26
#: The fraction of jobs that must name a partition or a time limit for the log to count as naming them.
_MOST_SILENT = 0.2
#: The fewest users who stop at the same number of GPUs for it to look like a rule, and the fewest GPUs.
_LIKE_MINDED, _LEAST_CAP = 2, 4
#: Shorter recorded waits count as none: schedulers scan their queues every half minute or minute.
WAITED_S = 300.0
#: The fraction of waits worth reporting.
_WORTH = 0.1
#: Bins of waits, for percentiles over resampled days: 2 % wide, from a minute to a year.
_EDGES = np.concatenate([[0.0], np.geomspace(60.0, 365.0 * DAY_S, 660)])


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % interval from resampled days."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GateRow:
    """A group of jobs: recorded and simulated waits in seconds, and the skill of the replay over guesses.

    `off` is the simulated mean over the recorded one, minus 1. A skill is 1 minus the mean absolute error relative to
    that of the best guess (`guess`: zero, the median, or the mean of the hour of the day), None if the best guess is
    exact; `waited_skill` counts only the `waited` jobs that waited five minutes or more. `share` is its share of all
    recorded waiting.
    """

    kind: str
    group: str
    jobs: int
    waited: int
    recorded_mean_s: Interval
    simulated_mean_s: Interval
    recorded_p90_s: Interval
    simulated_p90_s: Interval
    off: Interval
    skill: float | None
    waited_skill: float | None
    guess: str
    share: float


@dataclass(frozen=True)
class Verdict:
    """Whether a replay may answer, the reasons if not, and evidence in the log of what the replay may lack.

    The rows cover the second half of the judged period, with all jobs first; guesses and settings are fitted on the
    first half. `days` is the length of the judged part. There are no rows if no waits were recorded.
    """

    policy: str
    rows: tuple[GateRow, ...]
    reasons: tuple[str, ...]
    causes: tuple[str, ...]
    days: float

    @property
    def is_open(self) -> bool:
        """Return whether answers may recommend."""
        return not self.reasons

    def said(self) -> str:
        """Summarise the verdict in a sentence."""
        if not self.rows:
            return f"Unjudged: {'; '.join(self.reasons)}."
        every = self.rows[0]
        skill = (
            "no guess beats" if every.waited_skill is None else f"skill {every.waited_skill:.2f} over the best guess"
        )
        means = f"mean wait {_hours(every.simulated_mean_s.value)} h, recorded {_hours(every.recorded_mean_s.value)} h"
        what = "The replay may answer" if self.is_open else "The replay does not answer for this cluster"
        return f"{what}: {means}; {skill} among {every.waited} jobs that waited ({self.days:.1f} days judged)."


def judge_replay(jobs: pd.DataFrame, log: ClusterLog, groups: Groups, policy: str) -> Verdict:
    """Judge a replay.

    `jobs` has `job_id, size, queue, submit_s, recorded_s, simulated_s, gpus` for the judged period only, sorted by
    submission, with seconds since any midnight. The first half of the period fits the guesses, the second is judged.
    """
    middle = (jobs["submit_s"].min() + jobs["submit_s"].max()) / 2
    first = (jobs["submit_s"] < middle).to_numpy("bool")
    total = float(jobs.loc[~first, "recorded_s"].sum())
    rows = tuple(row for kind, name, mine in _parts(jobs) if (row := _row(kind, name, jobs, mine, first, total)))
    days = float(np.ptp(jobs.loc[~first, "submit_s"].to_numpy("float64"))) / DAY_S if len(rows) else 0.0
    reasons = (*unknowns(log, groups), *_reasons(rows, days))
    causes = tuple(likely_causes(jobs[~first], log, groups)) if reasons else ()
    return Verdict(policy, rows, reasons, causes, days)


def _parts(jobs: pd.DataFrame) -> Iterator[tuple[str, str, npt.NDArray[np.bool_]]]:
    yield "all", "all jobs", np.ones(len(jobs), dtype=bool)
    queues = sorted(set(jobs["queue"]))
    for kind, names in (("queue", queues if len(queues) > 1 else ()), ("size", [name for name, _ in SIZES])):
        for name in names:
            yield kind, name, (jobs[kind] == name).to_numpy("bool")


def _row(
    kind: str, name: str, jobs: pd.DataFrame, mine: npt.NDArray[np.bool_], first: npt.NDArray[np.bool_], total_s: float
) -> GateRow | None:
    part = mine & ~first
    if not part.any():
        return None
    recorded, simulated, submit = (jobs[key].to_numpy("float64") for key in ("recorded_s", "simulated_s", "submit_s"))
    waited = recorded >= WAITED_S
    days = ResampledDays(submit[part])
    means = [days.means(values[part]) for values in (recorded, simulated)]
    off = means[1] / np.maximum(means[0], 1.0) - 1
    tops = [days.p90(values[part]) for values in (recorded, simulated)]
    skill, guess = _skill(recorded, simulated, submit, mine & first, part)
    waited_skill, _ = _skill(recorded, simulated, submit, mine & first & waited, part & waited)
    share = float(recorded[part].sum()) / total_s if total_s else 0.0
    count = int((part & waited).sum())
    waits = (_interval(means[0]), _interval(means[1]), tops[0], tops[1], _interval(off))
    return GateRow(kind, name, int(part.sum()), count, *waits, skill, waited_skill, guess, share)


def _skill(
    recorded: Numbers, simulated: Numbers, submit: Numbers, known: npt.NDArray[np.bool_], judged: npt.NDArray[np.bool_]
) -> tuple[float | None, str]:
    """Return the skill on judged jobs over the best guess fitted to the known ones, and that guess."""
    if not judged.any():
        return None, ""
    truth = recorded[judged]
    guesses = {"zero": np.zeros(len(truth))}
    if known.any():
        hours, sums = (submit // 3600 % 24).astype(np.int64), recorded[known]
        counts = np.bincount(hours[known], minlength=24)
        means = np.bincount(hours[known], sums, 24) / np.maximum(counts, 1)
        guesses["median"] = np.full(len(truth), np.median(sums))
        guesses["hour"] = np.where(counts > 0, means, sums.mean())[hours[judged]]
    errors = {name: float(np.abs(guess - truth).mean()) for name, guess in guesses.items()}
    best = min(errors, key=lambda name: errors[name])
    error = float(np.abs(simulated[judged] - truth).mean())
    return (None if errors[best] == 0 else 1 - error / errors[best]), best


class ResampledDays:
    """Whole days of submissions, drawn again and again; the first draw is the log itself."""

    def __init__(self, submit: Numbers) -> None:
        _, self.day = np.unique(submit // DAY_S, return_inverse=True)
        days = int(self.day.max()) + 1
        draws = np.random.default_rng(_SEED).integers(0, days, (_DRAWS, days))
        #: How often each draw contains each day.
        self.often = np.vstack([np.ones(days), np.apply_along_axis(np.bincount, 1, draws, minlength=days)])
        self.count = np.bincount(self.day, minlength=days)

    def means(self, values: Numbers) -> Numbers:
        """Return the mean of each draw."""
        means: Numbers = self.often @ np.bincount(self.day, values, len(self.count)) / (self.often @ self.count)
        return means

    def p90(self, values: Numbers) -> Interval:
        """Return the 90th percentile; that of each draw from bins."""
        cell = self.day * len(_EDGES) + np.searchsorted(_EDGES, values, side="right") - 1
        table = np.bincount(cell, minlength=len(self.count) * len(_EDGES)).reshape(len(self.count), -1)
        whole = np.cumsum(self.often @ table, axis=1)
        places = (whole >= 0.9 * whole[:, -1:]).argmax(axis=1)
        return replace(_interval(_EDGES[places]), value=float(np.percentile(values, 90)))


def _interval(values: Numbers) -> Interval:
    low, high = np.percentile(values[1:], (2.5, 97.5))
    return Interval(float(values[0]), float(low), float(high))


def _reasons(rows: Sequence[GateRow], days: float) -> Iterator[str]:
    """Return the reasons that keep the gate closed."""
    every = rows[0]
    if every.waited < LEAST_WAITED or days < LEAST_DAYS:
        yield (
            f"too little evidence: {every.waited} jobs that waited in {days:.1f} days, where {LEAST_WAITED} in "
            f"{LEAST_DAYS} are the least"
        )
    if every.waited_skill is not None and every.waited_skill < LEAST_SKILL:
        yield (
            f"skill {every.waited_skill:.2f} over the best guess among jobs that waited, where {LEAST_SKILL:g} is the "
            "least"
        )
    for row in rows:
        most = MOST_OFF if row.kind == "all" else MOST_OFF_GROUP
        if row.share < LEAST_SHARE or row.waited < LEAST_WAITED:
            continue
        if abs(row.off.value) > most:
            what = "" if row.kind == "all" else f" of {row.kind} {row.group}"
            yield (
                f"mean wait{what} {_hours(row.simulated_mean_s.value)} h in the replay, "
                f"{_hours(row.recorded_mean_s.value)} h recorded: {100 * row.off.value:+.0f} %, where "
                f"{100 * most:.0f} % is the most"
            )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


def unknowns(log: ClusterLog, groups: Groups) -> tuple[str, ...]:
    """Name what a log must record on this cluster but does not."""
    kinds = {(one.get("gpu_type"), one.get("gpus_per_node")) for one in groups}
    silent = float((log.table["queue"] == "").mean())
    if len(kinds) < 2 or silent <= _MOST_SILENT:
        return ()
    return (
        f"the cluster has {len(kinds)} kinds of nodes, and {100 * silent:.0f} % of the jobs name no partition: the log "
        "does not say who waited for which",
    )


def likely_causes(jobs: pd.DataFrame, log: ClusterLog, groups: Groups) -> Iterator[str]:
    """Name what a replay may lack, by evidence in the log; `jobs` are those judged."""
    table = log.table
    if (table["queue"] == "").mean() > _MOST_SILENT:
        yield "the log names no partitions: ask sacct for Partition"
    if (table["time_limit_s"] <= 0).mean() > _MOST_SILENT:
        yield "jobs without time limits: backfill lives on them (sacct's Timelimit)"
    waited = (jobs["recorded_s"] >= WAITED_S).to_numpy("bool")
    idle = _waited_beside_free(table, groups)
    names = table["job_id"].astype(str)
    share = float(jobs["job_id"][waited].isin(set(names[idle])).mean()) if waited.any() else 0.0
    if share > _WORTH:
        yield (
            f"{100 * share:.0f} % of the jobs that waited did so while as many GPUs of their type as they asked for "
            "stood idle: processors, memory, whole nodes, limits, reservations, or nodes that were down"
        )
    for what in (("user",), ("account",), ("user", "qos")):
        most, holders, met = _common_peak(table, what, idle)
        if holders >= _LIKE_MINDED and met:
            who = " of one ".join(what)
            yield f"{holders} times a {who} comes to hold {most:g} GPUs at once, and none holds more: a limit?"
    more = jobs["simulated_s"].sum() > jobs["recorded_s"].sum()
    yield (
        "the replay waits longer than the cluster did: does the cluster have more nodes than were named, or jobs less "
        "strict rules?"
        if more
        else "the replay waits less than the cluster did: something held jobs back that the replay does not know"
    )


def _waited_beside_free(table: pd.DataFrame, groups: Groups) -> npt.NDArray[np.bool_]:
    """Return which jobs had enough idle GPUs of their type in the middle of a wait of five minutes or more."""
    types = {str(one.get("gpu_type", "")) for one in groups}
    known = bool(table["gpu_type"].isin(types).all())
    start, eligible = (table[name].to_numpy("float64") for name in ("start_s", "eligible_s"))
    free = np.zeros(len(table))
    for kind in types if known else [""]:
        mine = (table["gpu_type"] == kind).to_numpy("bool") | (not known)
        times, held = held_over_time(table[mine])
        place = np.searchsorted(times, (eligible + start)[mine] / 2, side="right")
        gpus = total_gpus([one for one in groups if not known or str(one.get("gpu_type", "")) == kind])
        free[mine] = gpus - np.concatenate([[0.0], held])[place]
    found: npt.NDArray[np.bool_] = (start - eligible >= WAITED_S) & (free >= np.ceil(table["gpus"].to_numpy("float64")))
    return found


def _common_peak(table: pd.DataFrame, what: Sequence[str], idle: npt.NDArray[np.bool_]) -> tuple[float, int, bool]:
    """Return the most GPUs that a user (account, ...) held at once, how many reached this, and whether one waited."""
    keys = table[list(what)].astype(str)
    who, named = keys.groupby(list(what)).ngroup().to_numpy(), (keys != "").any(axis=1).to_numpy("bool")
    if not named.any():
        return 0.0, 0, False
    asked, start, end = (table[name].to_numpy("float64")[named] for name in ("gpus", "start_s", "end_s"))
    moves = np.concatenate([-np.ceil(asked), np.ceil(asked)])
    whose = np.tile(who[named], 2)
    order = np.lexsort((moves, np.concatenate([end, start]), whose))
    held = np.cumsum(moves[order])  # all its GPUs are released before the next one begins
    found, first = np.unique(whose[order], return_index=True)
    peaks = np.maximum.reduceat(held, first)
    most = float(peaks.max())
    if most < _LEAST_CAP:
        return 0.0, 0, False
    at_peak = found[peaks == most]
    return most, len(at_peak), bool(np.isin(who[idle & named], at_peak).any())
