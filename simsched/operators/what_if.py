"""Effects of a change by group: replays a log before and after it, and forecasts the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pandas as pd

from simsched.experiment.running import Listener
from simsched.operators.calibrate import Calibration, calibrate
from simsched.operators.forecast import LEAST_CHANGE, LEAST_CHANGE_S, Forecast, forecast_mean
from simsched.operators.replays import ReplayPlan, run_replay
from simsched.operators.usage import CUT_SHORT, Usage, Used
from simsched.results import By, Cell, GroupRow, by_group, changes, size_of

#: The groupings of jobs; GPU types are those used before the change.
ALL_KINDS: Sequence[str] = ("tenant", "queue", "user", "size", "type")


@dataclass(frozen=True)
class Effect:
    """A group of jobs before and after a change; `verdict` is `gains`, `loses` or `as before`, by mean wait.

    `sooner` and `later` are the shares of its jobs that wait less and more; `cut_before` and `cut_after` count jobs
    that hit a limit or are cancelled. `forecast` refers to the cluster, with the misfit; the others to the replays.
    `used` has the GPU hours, losses, energy and cost before and after.
    """

    by: str
    before: GroupRow
    after: GroupRow
    sooner: float = 0.0
    later: float = 0.0
    cut_before: int = 0
    cut_after: int = 0
    forecast: Forecast | None = None
    used: tuple[Usage, Usage] | None = None

    @property
    def verdict(self) -> str:
        """Return whether the group gains or loses."""
        change = self.after.mean_wait_s - self.before.mean_wait_s
        if abs(change) < max(LEAST_CHANGE_S, LEAST_CHANGE * self.before.mean_wait_s):
            return "as before"
        return "gains" if change < 0 else "loses"


@dataclass(frozen=True)
class Change:
    """The replay's calibration and the effects of a change; none if the gate is closed."""

    calibration: Calibration
    effects: tuple[Effect, ...]


def what_if(
    plan: ReplayPlan,
    change: Sequence[str],
    *,
    by: Sequence[str] = ALL_KINDS,
    trust_anyway: bool = False,
    changed: ReplayPlan | None = None,
    listener: Listener | None = None,
) -> Change:
    """Replay the log unchanged, judge this replay, and replay the log with every `change`.

    Compares the judged jobs by tenant, queue, user, size and GPU type; queues and types only if there are several.
    `changed` is the plan with changes that are not keys of an experiment. If the gate is closed, there are no effects
    without `trust_anyway`. Raises `InputError` for changes that the experiment rejects.
    """
    found = calibrate(plan, listener=listener)
    if not (found.verdict.is_open or trust_anyway or plan.unrecorded):
        return Change(found, ())
    planned = replace(changed or found.plan, changes=(*plan.changes, *change))
    after_cell = run_replay(planned, "after", listener=listener).cells[0]
    from_s, until_s = found.judged_s - found.begin.zero_s, float(found.begin.last_s - found.begin.zero_s)
    if plan.unrecorded:
        until_s = max(float(cell.jobs["end_time_s"].max()) for cell in (found.cell, after_cell))
    used = [Used.of(cell, from_s, until_s, plan.node_price_per_h) for cell in (found.cell, after_cell)]
    trace = found.plan.log.trace.table
    queues = dict(zip(trace["job_id"].astype(str), trace["queue"], strict=True))
    before, after = (_judged(cell, found, queues, used[0].type_of) for cell in (found.cell, after_cell))
    kinds = [kind for kind in by if kind not in ("queue", "type") or before[kind].nunique() > 1]
    effects = [effect for kind in kinds for effect in compare_groups(before, after, kind)]
    jobs = found.jobs.merge(after[["job_id", "queueing_s"]], on="job_id")
    jobs = jobs.merge(before[["job_id", "tenant", "user", "type"]], on="job_id")
    carried = _with_use if plan.unrecorded else _with_forecast
    return Change(found, tuple(carried(effect, jobs, used) for effect in effects))


def _judged(cell: Cell, found: Calibration, queues: dict[str, str], types: pd.Series) -> pd.DataFrame:
    """Return the rows of the judged jobs in a replay."""
    jobs = cell.jobs[cell.jobs["job_id"].isin(found.jobs["job_id"])]
    return jobs.assign(
        queue=jobs["job_id"].map(queues).fillna(""), type=jobs["job_id"].map(types).fillna("").astype(str)
    )


def _with_forecast(effect: Effect, jobs: pd.DataFrame, used: Sequence[Used]) -> Effect:
    mine = _members(effect, jobs)
    columns = (mine[key].to_numpy("float64") for key in ("recorded_s", "simulated_s", "queueing_s", "submit_s"))
    return replace(_with_use(effect, jobs, used), forecast=forecast_mean(*columns))


def _with_use(effect: Effect, jobs: pd.DataFrame, used: Sequence[Used]) -> Effect:
    every = effect.before.group == "all"
    kind = effect.before.group if effect.by == "type" and not every else ""
    parts = [one.part(None if every or kind else set(_members(effect, jobs)["job_id"]), kind) for one in used]
    return replace(effect, used=(parts[0], parts[1]))


def _members(effect: Effect, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the jobs of a group."""
    name = effect.before.group
    named = "" if name == "(none)" and effect.by != "queue" else name
    return jobs if name == "all" else jobs[jobs[effect.by] == named]


def compare_groups(before: pd.DataFrame, after: pd.DataFrame, kind: str) -> list[Effect]:
    """Compare the groups of one kind between two tables of the same jobs."""
    both = before.merge(after[["job_id", "queueing_s"]], on="job_id", suffixes=("", "_after"))
    old, new = both["queueing_s"].to_numpy("float64"), both["queueing_s_after"].to_numpy("float64")
    changed = np.abs(new - old) >= np.maximum(LEAST_CHANGE_S, LEAST_CHANGE * old)
    keys = size_of(both["num_gpus"].to_numpy()) if kind == "size" else both[kind].to_numpy()
    effects = []
    for name, one, other in changes(by_group(before, cast("By", kind)), by_group(after, cast("By", kind))):
        named = "" if name == "(none)" else name
        mine = np.ones(len(both), dtype=bool) if one.group == "all" else keys == named
        sooner, later = ((changed & mine & way).sum() / max(int(mine.sum()), 1) for way in (new < old, new > old))
        cut = [_cut_short(jobs, kind, None if one.group == "all" else named) for jobs in (before, after)]
        effects.append(Effect(kind, one, other, float(sooner), float(later), cut[0], cut[1]))
    return effects


def _cut_short(jobs: pd.DataFrame, kind: str, group: str | None) -> int:
    """Count a group's jobs (None: all) that hit a limit or were cancelled, 0 if states are unknown."""
    if "status" not in jobs:
        return 0
    cut = jobs["status"].isin(CUT_SHORT).to_numpy("bool")
    if group is not None:
        cut = cut & ((size_of(jobs["num_gpus"].to_numpy()) if kind == "size" else jobs[kind].to_numpy()) == group)
    return int(cut.sum())
