"""The effect of a change by group: one log replayed before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from simsched.experiment.running import Listener
from simsched.operators.replays import ReplayPlan, run_replay
from simsched.results import By, GroupRow, by_group, changes, size_of

#: Smaller changes of a wait, in seconds and as a share, count as unchanged.
LEAST_CHANGE_S, LEAST_CHANGE = 60.0, 0.05
#: Final states of jobs that did not run to completion.
CUT_SHORT: Sequence[str] = ("TimeLimit", "Cancelled")
#: The groupings of jobs.
ALL_KINDS: Sequence[By] = ("tenant", "queue", "user", "size")


@dataclass(frozen=True)
class Effect:
    """A group of jobs before and after a change; `verdict` is `gains`, `loses` or `as before`, by mean wait.

    `sooner` and `later` are the shares of its jobs that wait less and more, unchanged ones aside; `cut_before` and
    `cut_after` count jobs that hit a limit or are cancelled.
    """

    by: str
    before: GroupRow
    after: GroupRow
    sooner: float = 0.0
    later: float = 0.0
    cut_before: int = 0
    cut_after: int = 0

    @property
    def verdict(self) -> str:
        """Return whether the group gains or loses."""
        change = self.after.mean_wait_s - self.before.mean_wait_s
        if abs(change) < max(LEAST_CHANGE_S, LEAST_CHANGE * self.before.mean_wait_s):
            return "as before"
        return "gains" if change < 0 else "loses"


def what_if(
    plan: ReplayPlan, change: Sequence[str], *, by: Sequence[By] = ALL_KINDS, listener: Listener | None = None
) -> list[Effect]:
    """Replay the log as planned and with every `change`; compare by tenant, queue, user and size.

    Omits queues if the log names at most one. Raises `InputError` for changes that the experiment rejects.
    """
    before = run_replay(plan, "before", listener=listener).cells[0].jobs
    after_plan = replace(plan, changes=(*plan.changes, *change))
    after = run_replay(after_plan, "after", listener=listener).cells[0].jobs
    trace = plan.log.trace.table
    queues = dict(zip(trace["job_id"].astype(str), trace["queue"], strict=True))
    before, after = (jobs.assign(queue=jobs["job_id"].map(queues).fillna("")) for jobs in (before, after))
    kinds = [kind for kind in by if kind != "queue" or before["queue"].nunique() > 1]
    return [effect for kind in kinds for effect in compare_groups(before, after, kind)]


def compare_groups(before: pd.DataFrame, after: pd.DataFrame, kind: By) -> list[Effect]:
    """Compare the groups of one kind in two tables of the same jobs."""
    both = before.merge(after[["job_id", "queueing_s"]], on="job_id", suffixes=("", "_after"))
    old, new = both["queueing_s"].to_numpy("float64"), both["queueing_s_after"].to_numpy("float64")
    changed = np.abs(new - old) >= np.maximum(LEAST_CHANGE_S, LEAST_CHANGE * old)
    keys = size_of(both["num_gpus"].to_numpy()) if kind == "size" else both[kind].to_numpy()
    effects = []
    for name, one, other in changes(by_group(before, kind), by_group(after, kind)):
        mine = np.ones(len(both), dtype=bool) if one.group == "all" else keys == ("" if name == "(none)" else name)
        sooner, later = ((changed & mine & way).sum() / max(int(mine.sum()), 1) for way in (new < old, new > old))
        named = "" if name == "(none)" else name
        cut = [_cut_short(jobs, kind, None if one.group == "all" else named) for jobs in (before, after)]
        effects.append(Effect(kind, one, other, float(sooner), float(later), *cut))
    return effects


def _cut_short(jobs: pd.DataFrame, kind: By, group: str | None) -> int:
    """Count a group's jobs (None: all) that hit a limit or were cancelled, 0 if states are unknown."""
    if "status" not in jobs:
        return 0
    cut = jobs["status"].isin(CUT_SHORT).to_numpy("bool")
    if group is not None:
        cut = cut & ((size_of(jobs["num_gpus"].to_numpy()) if kind == "size" else jobs[kind].to_numpy()) == group)
    return int(cut.sum())
