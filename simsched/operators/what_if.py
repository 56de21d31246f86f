"""What a change does to whom: one log replayed before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from simsched.experiment.running import Listener
from simsched.operators.replays import ReplayPlan, run_replay
from simsched.results import By, GroupRow, by_group, changes, size_of

#: A wait that changes by less than this, in seconds and as a share, counts as unchanged.
LEAST_CHANGE_S, LEAST_CHANGE = 60.0, 0.05
#: Final states of jobs that were not let to run to their end.
CUT_SHORT: Sequence[str] = ("TimeLimit", "Cancelled")
#: All that jobs are grouped by.
ALL_KINDS: Sequence[By] = ("tenant", "queue", "user", "size")


@dataclass(frozen=True)
class Effect:
    """A group of jobs before and after a change; `verdict` is `gains`, `loses` or `as before`, by its mean wait.

    `sooner` and `later` are the shares of its jobs that wait less and more than before, unchanged ones aside, and
    `cut_before` and `cut_after` count its jobs that end at a limit or are cancelled.
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
        """Say whether the group waits less than before."""
        change = self.after.mean_wait_s - self.before.mean_wait_s
        if abs(change) < max(LEAST_CHANGE_S, LEAST_CHANGE * self.before.mean_wait_s):
            return "as before"
        return "gains" if change < 0 else "loses"


def what_if(
    plan: ReplayPlan, change: Sequence[str], *, by: Sequence[By] = ALL_KINDS, listener: Listener | None = None
) -> list[Effect]:
    """Replay the log as `plan` has it, and once more with every `change`; compare by tenant, queue, user and size.

    Queues are left out where the log names at most one. Raises `InputError` for changes that the experiment refuses.
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
    """Count the jobs of a group (None: of all) that ended at a limit or were cancelled, 0 where no state is known."""
    if "status" not in jobs:
        return 0
    cut = jobs["status"].isin(CUT_SHORT).to_numpy("bool")
    if group is not None:
        cut = cut & ((size_of(jobs["num_gpus"].to_numpy()) if kind == "size" else jobs[kind].to_numpy()) == group)
    return int(cut.sum())
