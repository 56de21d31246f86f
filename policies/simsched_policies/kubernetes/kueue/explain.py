"""Why workloads wait, start and are preempted, cycle by cycle, in Kueue's words: the record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simsched.artifacts import QUOTAS_FILE, REASONS_FILE, QuotaRow, ReasonRow, rows_text
from simsched.manifests import is_gpu, written
from simsched.policy import Why
from simsched_policies.kubernetes.kueue.assign import Found
from simsched_policies.kubernetes.kueue.cycle import Entry, Outcome
from simsched_policies.kubernetes.kueue.model import Mode, Reason
from simsched_policies.kubernetes.kueue.reasons import Unfit
from simsched_policies.kubernetes.kueue.tree import QuotaTree

_PREEMPTED = {
    Reason.IN_QUEUE: "prioritization in the ClusterQueue",
    Reason.RECLAMATION: "reclamation within the cohort",
    Reason.WHILE_BORROWING: "reclamation within the cohort while borrowing",
    Reason.FAIR_SHARING: "Fair Sharing within the cohort",
}


@dataclass
class Record:
    """The decision of each cycle on each workload; a workload that waits on for the same reason gets no new row."""

    _rows: list[ReasonRow] = field(default_factory=list)
    _last: dict[str, tuple[str, str]] = field(default_factory=dict)
    _cycle: int = 0
    _quotas: list[QuotaRow] = field(default_factory=list)
    #: The last state of each queue, the GPUs that it has reclaimed, and which have reclaimed more.
    _stands: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _reclaimed: dict[str, int] = field(default_factory=dict)
    _reclaimers: set[str] = field(default_factory=set)

    def note(self, now_s: float, outcome: Outcome, names: Mapping[str, str]) -> None:
        """Record the outcome of a cycle; `names` are the jobs of its workloads."""
        self._cycle += 1
        for entry in (*outcome.deferred, *outcome.skipped, *outcome.parked, *outcome.refused):
            self._add(now_s, names[entry.asking.id], entry, "Pending", message(entry))
        for entry in outcome.evicted:
            self._last.pop(names[entry.asking.id], None)
            said = f"NodeFailures: {entry.why}"
            self._put(now_s, names[entry.asking.id], entry.asking.queue, "Evicted", "", "", said)
        for entry in outcome.preempting:
            said = f"{message(entry)} Preempting {len(entry.victims)} workload(s)".strip()
            self._add(now_s, names[entry.asking.id], entry, "Preempting", said)
            for victim in entry.victims:
                who = names[entry.asking.id]
                if victim.reason is not Reason.IN_QUEUE:
                    gpus = sum(amount for (_, resource), amount in victim.workload.usage.items() if is_gpu(resource))
                    self._reclaimers.add(entry.asking.queue)
                    self._reclaimed[entry.asking.queue] = self._reclaimed.get(entry.asking.queue, 0) + gpus
                why = f"Preempted to accommodate a workload ({who}) due to {_PREEMPTED[victim.reason]}"
                self._last.pop(names[victim.workload.id], None)
                said = f"{victim.reason.value}: {why}"
                self._put(now_s, names[victim.workload.id], victim.workload.queue, "Preempted", "", "", said)

    def admitted(self, now_s: float, entry: Entry, name: str) -> None:
        """Record a workload that got quota and nodes."""
        self._add(now_s, name, entry, "Admitted", f"Quota reserved in ClusterQueue {entry.asking.queue}")

    def unplaced(self, now_s: float, entry: Entry, name: str, why: str) -> None:
        """Record a workload that has quota but finds no room on nodes."""
        self._add(now_s, name, entry, "Pending", f"quota is there, and no room on nodes: {why}")

    def ended(self, now_s: float, name: str, event: str, said: str = "") -> None:
        """Record an event of a workload outside cycles."""
        self._rows.append(ReasonRow(f"{now_s:g}", "", name, "", event, "", "", said))

    def _put(self, now_s: float, name: str, *row: str) -> None:
        self._rows.append(ReasonRow(f"{now_s:g}", str(self._cycle), name, *row))

    def _add(self, now_s: float, name: str, entry: Entry, event: str, said: str) -> None:
        if self._last.get(name) == (event, said):
            return
        self._last[name] = (event, said)
        level = entry.assignment.level if entry.usage else 0
        borrows = f"level {level}" if level else ""
        self._put(now_s, name, entry.asking.queue, event, _flavours(entry), borrows, said)

    def quotas(self, now_s: float, tree: QuotaTree) -> None:
        """Record the queues whose state has changed."""
        for name in sorted(tree.unrecorded | self._reclaimers):
            node = tree.queues[name]
            gpus = {key: quota.nominal for key, quota in node.quotas.items() if is_gpu(key[1])}
            used = {key: amount for key, amount in node.usage.items() if is_gpu(key[1])}
            borrowed = sum(max(0, amount - gpus.get(key, 0)) for key, amount in used.items())
            row = QuotaRow(now_s, name, sum(gpus.values()), sum(used.values()), borrowed, self._reclaimed.get(name, 0))
            if self._stands.get(name) != row[1:]:
                self._stands[name] = row[1:]
                self._quotas.append(row)
        tree.unrecorded.clear()
        self._reclaimers.clear()

    def files(self) -> dict[str, str]:
        """Return the record as CSV, by file."""
        return {REASONS_FILE: rows_text(ReasonRow, self._rows), QUOTAS_FILE: rows_text(QuotaRow, self._quotas)}


def message(entry: Entry) -> str:
    """Return why a workload waits, in the words of its condition."""
    if entry.why:
        return entry.why
    parts = [_of_pods(found) for found in entry.assignment.found]
    said = " ".join(part for part in parts if part)
    if entry.mode is Mode.PREEMPT and not entry.victims:
        said = f"{said} There are no candidates for preemption".strip()
    return said


def _of_pods(found: Found) -> str:
    why = [one.text(attempt.flavour) for attempt in found.attempts for one in attempt.why]
    return f"couldn't assign flavors to pod set {found.pods.name}: {', '.join(why)}." if why else ""


def _flavours(entry: Entry) -> str:
    """Format the flavours and amounts that an entry takes."""
    parts = sorted(entry.usage.items())
    return " ".join(f"{flavour}:{resource}={written(resource, amount)}" for (flavour, resource), amount in parts)


def said_of(outcome: Outcome) -> dict[str, tuple[Why, str]]:
    """Return why the workloads of a cycle wait, by id."""
    said: dict[str, tuple[Why, str]] = {}
    for entry in (*outcome.preempting, *outcome.deferred, *outcome.skipped, *outcome.parked, *outcome.refused):
        unfit = {one.unfit for found in entry.assignment.found for attempt in found.attempts for one in attempt.why}
        why = Why.OVER_QUOTA if unfit & {Unfit.WAITS, Unfit.ABOVE_MOST} else Why.LET_WAIT
        said[entry.asking.id] = why, message(entry)
    return said | {entry.asking.id: (Why.NO_ROOM, "it has quota, and no room on nodes") for entry in outcome.admitted}
