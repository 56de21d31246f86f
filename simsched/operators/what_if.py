"""What a change does to whom: one log replayed before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simsched.execution.runner import Listener
from simsched.operators.replays import ReplayPlan, run_replay
from simsched.results.by_group import By, GroupRow, by_group, changes

#: A mean wait that changes by less than this, in seconds and as a share, counts as unchanged.
LEAST_CHANGE_S, LEAST_CHANGE = 60.0, 0.05


@dataclass(frozen=True)
class Effect:
    """A group of jobs before and after a change; `verdict` is `gains`, `loses` or `as before`, by its mean wait."""

    by: str
    before: GroupRow
    after: GroupRow

    @property
    def verdict(self) -> str:
        """Say whether the group waits less than before."""
        change = self.after.mean_wait_s - self.before.mean_wait_s
        if abs(change) < max(LEAST_CHANGE_S, LEAST_CHANGE * self.before.mean_wait_s):
            return "as before"
        return "gains" if change < 0 else "loses"


def what_if(
    plan: ReplayPlan, change: Sequence[str], *, by: Sequence[By] = ("tenant", "size"), listener: Listener | None = None
) -> list[Effect]:
    """Replay the log as `plan` has it, and once more with every `change`; compare by tenant and by size.

    Raises `InputError` for changes that the experiment refuses.
    """
    before = run_replay(plan, "before", listener=listener).cells[0].jobs
    after_plan = replace(plan, changes=(*plan.changes, *change))
    after = run_replay(after_plan, "after", listener=listener).cells[0].jobs
    return [
        Effect(kind, old, new) for kind in by for _, old, new in changes(by_group(before, kind), by_group(after, kind))
    ]
