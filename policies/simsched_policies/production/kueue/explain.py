"""Why workloads wait, start and are preempted, cycle by cycle, in Kueue's words: the record of a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simsched_policies.production.kueue.assign import Found
from simsched_policies.production.kueue.cycle import Entry, Outcome
from simsched_policies.production.kueue.model import Mode, Reason
from simsched_policies.production.kueue.reasons import quantity

#: The diagnostics that asks for the record, and the file that holds it.
DIAGNOSTICS = "reasons"
FILE = "reasons.csv"
COLUMNS = ("time_s", "cycle", "workload", "queue", "event", "flavors", "borrows", "message")

_PREEMPTED = {
    Reason.IN_QUEUE: "prioritization in the ClusterQueue",
    Reason.RECLAMATION: "reclamation within the cohort",
    Reason.WHILE_BORROWING: "reclamation within the cohort while borrowing",
    Reason.FAIR_SHARING: "Fair Sharing within the cohort",
}


@dataclass
class Record:
    """What each cycle decided on each workload; a workload that waits for the same reason again gets no new row."""

    _rows: list[tuple[str, ...]] = field(default_factory=list)
    _last: dict[str, tuple[str, str]] = field(default_factory=dict)
    _cycle: int = 0

    def note(self, now_s: float, outcome: Outcome, names: Mapping[str, str]) -> None:
        """Note the outcome of a cycle; `names` are the jobs of its workloads."""
        self._cycle += 1
        for entry, event, said in _events(outcome):
            self._add(now_s, names[entry.asking.id], entry, event, said)
        for entry in outcome.preempting:
            for victim in entry.victims:
                who = names[entry.asking.id]
                why = f"Preempted to accommodate a workload ({who}) due to {_PREEMPTED[victim.reason]}"
                row = (victim.workload.queue, "Preempted", "", "", f"{victim.reason.value}: {why}")
                self._last.pop(names[victim.workload.id], None)
                self._rows.append((f"{now_s:g}", str(self._cycle), names[victim.workload.id], *row))

    def unplaced(self, now_s: float, entry: Entry, name: str, why: str) -> None:
        """Note a workload that has quota and finds no room on nodes."""
        self._add(now_s, name, entry, "Pending", f"quota is there, and no room on nodes: {why}")

    def ended(self, now_s: float, name: str, event: str, said: str = "") -> None:
        """Note what happened to a workload outside of cycles."""
        self._rows.append((f"{now_s:g}", "", name, "", event, "", "", said))

    def _add(self, now_s: float, name: str, entry: Entry, event: str, said: str) -> None:
        if self._last.get(name) == (event, said):
            return
        self._last[name] = (event, said)
        level = entry.assignment.level if entry.usage else 0
        borrows = f"level {level}" if level else ""
        row = (entry.asking.queue, event, _flavours(entry), borrows, said)
        self._rows.append((f"{now_s:g}", str(self._cycle), name, *row))

    def text(self) -> str:
        """Return the record as CSV."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([COLUMNS, *self._rows])
        return out.getvalue()


def _events(outcome: Outcome) -> Iterator[tuple[Entry, str, str]]:
    for entry in outcome.admitted:
        yield entry, "Admitted", f"Quota reserved in ClusterQueue {entry.asking.queue}"
    for entry in outcome.preempting:
        yield entry, "Preempting", f"{message(entry)} Preempting {len(entry.victims)} workload(s)".strip()
    for entry in (*outcome.deferred, *outcome.skipped, *outcome.parked, *outcome.refused):
        yield entry, "Pending", message(entry)


def message(entry: Entry) -> str:
    """Return why a workload waits, as the condition of its object says."""
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
    """Write the flavours and amounts that an entry takes."""
    parts = sorted(entry.usage.items())
    return " ".join(f"{flavour}:{resource}={quantity(resource, amount)}" for (flavour, resource), amount in parts)
