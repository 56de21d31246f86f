"""Effects of a change by group: replays a log before and after it, and forecasts the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.operators.calibrate import Calibration, calibrate
from simsched.operators.changes import Changed
from simsched.operators.gate import Numbers, ResampledDays
from simsched.operators.replays import Progress, ReplayPlan, changed_plan, run_replay
from simsched.results import Cell
from simsched.results.analyses import By, GroupRow, by_group, changes, size_of

#: The groupings of jobs; GPU types are those used before the change.
ALL_KINDS: Sequence[str] = ("tenant", "queue", "user", "size", "type")
#: Smaller absolute (seconds) and relative changes of a mean wait count as none.
LEAST_CHANGE_S, LEAST_CHANGE = 60.0, 0.05
#: Smaller relative changes also occur by chance, since queues are sensitive to the order of completions.
SURE_CHANGE = 0.25
#: The interval of a forecast: its least factor, its growth with misfit and change, and its least width either way.
#: Chosen so that nine of ten hold the truth on generated clusters; `tests/campaigns/test_forecasts.py` measures it.
_LEAST_FACTOR, _PER_MISFIT, _LEAST_S = 1.02, 0.5, 60.0
#: Final states of jobs that did not run to completion.
CUT_SHORT: Collection[str] = ("TimeLimit", "Cancelled")


@dataclass(frozen=True)
class Forecast:
    """The mean wait of a group of jobs after a change, in seconds, with an interval that includes the misfit.

    `now_s` is the recorded mean. `direction` is `less`, `more`, `as before`, or `cannot tell`.
    """

    #: Of the changes of generated clusters those whose mean wait lay in the interval, and all.
    COVERED: ClassVar[tuple[int, int]] = (46, 48)
    now_s: float
    mean_s: float
    low_s: float
    high_s: float
    direction: str

    @property
    def change_s(self) -> float:
        """Return by how much the mean wait changes, either way."""
        return abs(self.mean_s - self.now_s)


@dataclass(frozen=True)
class Usage:
    """Usage of a group of jobs: GPU hours, their share of the capacity, losses, energy and cost.

    Losses are the GPU hours of jobs that were killed at a limit or cancelled, and those repeated after failures.
    `energy_kwh` is the consumption of busy GPUs and `cost` the share of nodes' prices; both None if unknown.
    """

    gpu_hours: float
    utilisation: float
    lost_gpu_hours: float
    energy_kwh: float | None
    cost: float | None


@dataclass(frozen=True)
class Used:
    """GPU hours of a replay within a window by job (rows) and type (columns); `lost_h` by job."""

    by_type: pd.DataFrame
    lost_h: pd.Series
    gpus: Mapping[str, int]
    hours: float
    busy_w: Mapping[str, float] | None
    gpu_price_per_h: Mapping[str, float] | None

    @classmethod
    def of(cls, cell: Cell, from_s: float, until_s: float, node_price_per_h: float | None) -> Used:
        """Compute the GPU hours between two seconds of a replay."""
        makes = cell.manifest["cluster"]
        types = np.repeat([one["gpu_type"] for one in makes], [one["nodes"] for one in makes])
        table = cell.table("allocations", ["job_id", "start_s", "end_s", "gpus", "placement"])
        lasts = table["end_s"].clip(upper=until_s) - table["start_s"].clip(lower=from_s)
        node = table["placement"].str.extract(r"^(\d+)", expand=False).fillna("0").astype("int64")
        table = table.assign(hours=(lasts.clip(lower=0) * table["gpus"]) / 3600, type=types[node.to_numpy()])
        used = table.pivot_table(index="job_id", columns="type", values="hours", aggfunc="sum", fill_value=0.0)
        jobs = cell.jobs.set_index("job_id").reindex(used.index)
        repeated = jobs["lost_gpu_s"].fillna(0) / 3600 if "lost_gpu_s" in jobs else 0.0
        lost = used.sum(axis=1) * jobs["status"].isin(CUT_SHORT) + repeated
        gpus = Counter[str]()
        for one in makes:
            gpus[one["gpu_type"]] += one["nodes"] * one["gpus_per_node"]
        power, price = cell.manifest.get("power"), node_price_per_h
        watts = {kind: float(one["busy_w"]) for kind, one in power["gpus"].items()} if power else None
        prices = None if price is None else {one["gpu_type"]: price / max(one["gpus_per_node"], 1) for one in makes}
        return cls(used, lost, gpus, (until_s - from_s) / 3600, watts, prices)

    @property
    def type_of(self) -> pd.Series:
        """Return the GPU type on which each job ran longest."""
        return self.by_type.idxmax(axis=1)

    def part(self, jobs: Collection[str] | None = None, gpu_type: str = "") -> Usage:
        """Sum over some jobs (None: all) and one type (empty: all)."""
        rows = self.by_type if jobs is None else self.by_type[self.by_type.index.isin(jobs)]
        rows = rows.loc[rows[gpu_type] > 0, [gpu_type]] if gpu_type in rows else rows
        by_type = rows.sum()
        gpus = sum(count for kind, count in self.gpus.items() if gpu_type in ("", kind))
        hours = float(by_type.sum())
        share = float(self.lost_h[rows.index].sum())

        def weighed(each: Mapping[str, float] | None, factor: float) -> float | None:
            return None if each is None else factor * sum(by_type[kind] * each[kind] for kind in by_type.index)

        whole = gpus * self.hours
        energy, cost = weighed(self.busy_w, 1e-3), weighed(self.gpu_price_per_h, 1.0)
        return Usage(hours, hours / whole if whole else 0.0, share, energy, cost)


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
    """The replay's calibration, the values that change, and the effects; none if the gate is closed."""

    calibration: Calibration
    changed: tuple[Changed, ...]
    effects: tuple[Effect, ...]


def what_if(
    plan: ReplayPlan,
    change: Sequence[str],
    *,
    by: Sequence[str] = ALL_KINDS,
    trust_anyway: bool = False,
    changed: ReplayPlan | None = None,
    progress: Progress | None = None,
) -> Change:
    """Replay the log unchanged, judge this replay, and replay the log with every `change`.

    Compares the judged jobs by tenant, queue, user, size and GPU type; queues and types only if there are several.
    `changed` is the plan with changes that are not keys of an experiment. If the gate is closed, there are no effects
    without `trust_anyway`. Raises `InputError` for changes that the experiment rejects.
    """
    asked = changed_plan(changed or plan, change)  # first of all, as it may be refused
    found = calibrate(plan, progress=progress)
    if not (found.verdict.is_open or trust_anyway or plan.unrecorded):
        return Change(found, tuple(asked.changed), ())
    planned = changed_plan(changed or found.plan, change)
    after_cell = run_replay(planned, "after", progress=progress).cells[0]
    from_s, until_s = found.judged_s - found.begin.zero_s, float(found.begin.last_s - found.begin.zero_s)
    if plan.unrecorded:
        until_s = max(float(cell.jobs["end_time_s"].max()) for cell in (found.cell, after_cell))
    used = [Used.of(cell, from_s, until_s, plan.node_price_per_h) for cell in (found.cell, after_cell)]
    trace = found.plan.log.trace.table
    queues = dict(zip(trace["job_id"].astype(str), trace["queue"], strict=True))
    before, after = (_judged(cell, found, queues, used[0].type_of) for cell in (found.cell, after_cell))
    jobs = found.jobs[["job_id", "submit_s", "recorded_s", "simulated_s"]].merge(before, on="job_id")
    jobs = jobs.merge(after[["job_id", "queueing_s"]], on="job_id", suffixes=("", "_after"))
    kinds = [kind for kind in by if kind not in ("queue", "type") or before[kind].nunique() > 1]
    effects = (effect for kind in kinds for effect in compare_groups(before, after, kind))
    recorded = not plan.unrecorded
    return Change(found, tuple(planned.changed), tuple(_whole(one, jobs, used, recorded=recorded) for one in effects))


def _judged(cell: Cell, found: Calibration, queues: dict[str, str], types: pd.Series) -> pd.DataFrame:
    """Return the rows of the judged jobs in a replay."""
    jobs = cell.jobs[cell.jobs["job_id"].isin(found.jobs["job_id"])]
    return jobs.assign(
        queue=jobs["job_id"].map(queues).fillna(""), type=jobs["job_id"].map(types).fillna("").astype(str)
    )


def _members(jobs: pd.DataFrame, kind: str, group: str) -> npt.NDArray[np.bool_]:
    """Return which jobs are in a group."""
    if group == "all":
        return np.ones(len(jobs), dtype=bool)
    names = size_of(jobs["num_gpus"].to_numpy()) if kind == "size" else jobs[kind].to_numpy()
    return np.asarray(names == ("" if group == "(none)" else group), dtype=bool)


def _whole(effect: Effect, jobs: pd.DataFrame, used: Sequence[Used], *, recorded: bool) -> Effect:
    """Add the usage of the group, and its forecast if its waits are `recorded`."""
    kind, group = effect.by, effect.before.group
    mine = jobs[_members(jobs, kind, group)]
    gpu_type = group if kind == "type" and group != "all" else ""
    names = None if gpu_type or group == "all" else set(mine["job_id"])
    before, after = (one.part(names, gpu_type) for one in used)
    columns = (mine[key].to_numpy("float64") for key in ("recorded_s", "simulated_s", "queueing_s_after", "submit_s"))
    return replace(effect, used=(before, after), forecast=forecast_mean(*columns) if recorded else None)


def compare_groups(before: pd.DataFrame, after: pd.DataFrame, kind: str) -> list[Effect]:
    """Compare the groups of one kind between two tables of the same jobs."""
    both = before.merge(after[["job_id", "queueing_s"]], on="job_id", suffixes=("", "_after"))
    old, new = both["queueing_s"].to_numpy("float64"), both["queueing_s_after"].to_numpy("float64")
    changed = np.abs(new - old) >= np.maximum(LEAST_CHANGE_S, LEAST_CHANGE * old)
    effects = []
    for name, one, other in changes(by_group(before, cast("By", kind)), by_group(after, cast("By", kind))):
        mine = _members(both, kind, name)
        sooner, later = (float((changed & mine & way).sum() / mine.sum()) for way in (new < old, new > old))
        cut = [
            int((_members(jobs, kind, name) & jobs["status"].isin(CUT_SHORT)).sum()) if "status" in jobs else 0
            for jobs in (before, after)
        ]
        effects.append(Effect(kind, one, other, sooner, later, cut[0], cut[1]))
    return effects


def forecast_mean(recorded: Numbers, before: Numbers, after: Numbers, submit: Numbers) -> Forecast:
    """Forecast the mean wait after a change from recorded waits and the replays before and after it.

    The recorded mean is scaled by the ratio of the replays' means, and shifted by their difference; the forecast is the
    midpoint of the two. The interval (90 %) covers both, and is the wider, the further the replay is from the
    recorded waits of single jobs, and the more it changes.
    """
    days = ResampledDays(submit)
    was, old, new = float(recorded.mean()), days.means(before), days.means(after)
    ratio = float((new[0] + 30) / (old[0] + 30))
    scaled, moved = was * ratio, max(was + float(new[0] - old[0]), 0.0)
    misfit = float(np.abs(before - recorded).mean()) / (was + 30)
    factor = _LEAST_FACTOR * float(np.exp(_PER_MISFIT * misfit * abs(np.log(ratio))))
    low = max(min(scaled, moved) / factor - _LEAST_S, 0.0)
    high = max(scaled, moved) * factor + _LEAST_S
    return Forecast(was, (scaled + moved) / 2, low, high, _direction(was, old, new))


def _direction(recorded: float, before: Numbers, after: Numbers) -> str:
    """Return the direction of the change in waits, if nearly all resamples agree and it exceeds the replay's error."""
    change, at_first = float(after[0] - before[0]), float(before[0])
    low, high = np.percentile(after[1:] - before[1:], (2.5, 97.5))
    if abs(change) < LEAST_CHANGE * at_first and max(abs(low), abs(high)) < max(
        LEAST_CHANGE_S, LEAST_CHANGE * at_first
    ):
        return "as before"
    if abs(change) < max(LEAST_CHANGE_S, SURE_CHANGE * at_first, abs(at_first - recorded)) or low <= 0 <= high:
        return "cannot tell"
    return "less" if change < 0 else "more"
