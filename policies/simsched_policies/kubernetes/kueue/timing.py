"""The time that a real control plane takes: clients, cycles, gated admissions, starts, evictions and completions."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush

from simsched_policies.kubernetes.kueue.cycle import Entry, Outcome
from simsched_policies.kubernetes.kueue.model import Asking, Mode, PodsReady


@dataclass(frozen=True)
class Timing:
    """The rates and delays of a control plane; by default nothing takes time, and preempted work is kept.

    Clients submit `requests_per_s` after a `burst` (None: all at once). A cycle takes `cycle_s` from its heads to its
    first admission. A workload starts `start_s` after its admission; with `pods_per_s`, all but `pods_burst` of its
    pods are created at that rate, and it runs only with the last. Its quota is free `end_s` after its completion, or
    `eviction_s` after its eviction. With `restarts` preempted workloads start again from their beginning.
    """

    requests_per_s: float | None = None
    burst: int = 10
    cycle_s: float = 0.0
    start_s: float = 0.0
    pods_per_s: float | None = None
    pods_burst: int = 30
    eviction_s: float = 0.0
    end_s: float = 0.0
    restarts: bool = False

    def __post_init__(self) -> None:
        """Refuse rates that are not above 0, and negative delays."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        for name, value in given.items():
            if not 0 <= value < math.inf or (value == 0 and (name.endswith("per_s") or name == "burst")):
                raise ValueError(f"timing.{name} is {value:g}: rates and the burst are above 0, delays at least 0")

    def creation_s(self, pods: int) -> float:
        """Return the seconds until the last of some pods is created."""
        return 0.0 if self.pods_per_s is None else max(0, pods - self.pods_burst) / self.pods_per_s

    def described(self) -> str:
        """Return the settings that differ from the defaults, `start_s=0.1, end_s=1.1`."""
        changed = {name: value for name, value in asdict(self).items() if value != getattr(_INSTANT, name)}
        return ", ".join(f"{name}={value}" for name, value in changed.items())


_INSTANT = Timing()


@dataclass
class Pace:
    """What is under way: submissions, the admissions left of a cycle, and quota that is about to be free."""

    timing: Timing
    ready: PodsReady | None = None
    #: The entries of the last cycle that are still to be carried out, and when the last step was.
    steps: deque[Entry] = field(default_factory=deque)
    at_s: float = 0.0
    #: When all admitted workloads are ready, and the workloads with quota that find no room, with their deadlines.
    gate_s: float = 0.0
    homeless: dict[str, tuple[Entry, float]] = field(default_factory=dict)
    #: Workloads whose quota is about to be free, each with the time and whether it waits again.
    leaving: dict[str, tuple[float, bool]] = field(default_factory=dict)
    _coming: list[tuple[float, int, Asking]] = field(default_factory=list)
    _number: int = 0
    #: When the next request would come if requests came evenly.
    _even_s: float = -math.inf
    _timeouts: dict[str, int] = field(default_factory=dict)

    def submit(self, asking: Asking, now_s: float) -> None:
        """Have the client submit a workload, which comes later if the client is busy."""
        rate = self.timing.requests_per_s
        if rate is None:
            self.expect(asking, now_s)
            return
        when = max(now_s, self._even_s - (self.timing.burst - 1) / rate)
        self._even_s = max(when, self._even_s) + 1 / rate
        self.expect(replace(asking, created_s=when), when)

    def expect(self, asking: Asking, when: float) -> None:
        """Let a workload come at a time."""
        self._number += 1
        heappush(self._coming, (when, self._number, asking))

    def arrived(self, now_s: float) -> list[Asking]:
        """Return the workloads that have come, in order."""
        found = []
        while self._coming and self._coming[0][0] <= now_s:
            found.append(heappop(self._coming)[2])
        return found

    def left(self, now_s: float) -> list[tuple[str, bool]]:
        """Return the workloads whose quota is free now, each with whether it waits again."""
        gone = [(number, back) for number, (when, back) in self.leaving.items() if when <= now_s]
        for number, _ in gone:
            del self.leaving[number]
        return gone

    def look(self, now_s: float) -> None:
        """Begin a decision: without steps left, the next cycle begins now."""
        self.at_s = self.at_s if self.steps else max(self.at_s, now_s)

    def admit(self, asking: Asking, at_s: float, delay_s: float) -> float:
        """Return when a workload that has room runs, its checks being ready after `delay_s`; others may wait for it."""
        delay_s += self.timing.creation_s(sum(pods.count for pods in asking.pod_sets))
        if self.ready is not None:
            ready_s = self.ready.ready_s if asking.ready_s is None else asking.ready_s
            self.gate_s = max(self.gate_s, at_s + delay_s + ready_s)
        return at_s + delay_s + self.timing.start_s

    def may_begin(self, now_s: float) -> bool:
        """Return whether a cycle may begin."""
        return not self.steps and self.at_s <= now_s

    def begin(self, outcome: Outcome, *, in_order: bool) -> None:
        """Carry out the outcome of a cycle, entry by entry, or all preemptions before all admissions."""
        self.steps.extend(outcome.order if in_order else (*outcome.preempting, *outcome.evicted, *outcome.admitted))
        self.at_s += self.timing.cycle_s

    def step(self, now_s: float) -> Entry | None:
        """Return the next entry that is due; admissions wait until all admitted workloads are ready."""
        if not self.steps:
            return None
        at = self.at_s
        if self.ready is not None and self.ready.blocks and self.steps[0].mode is Mode.FIT:
            at = math.inf if self.homeless else max(at, self.gate_s)
        if at > now_s:
            return None
        self.at_s = at
        return self.steps.popleft()

    @property
    def rules(self) -> PodsReady:
        """Return what happens until pods are ready."""
        return self.ready or PodsReady()

    def retry_s(self, number: str) -> float | None:
        """Return the seconds until a workload evicted for pods that were not ready waits again; None for never."""
        rules = self.rules
        times = self._timeouts[number] = self._timeouts.get(number, 0) + 1
        if rules.backoff_limit is not None and times > rules.backoff_limit:
            return None
        return min(rules.backoff_most_s, rules.backoff_s * 2.0 ** min(times - 1, 60))

    def wakes(self, now_s: float) -> list[float]:
        """Return when the next steps may be due, besides events outside."""
        times = [when for when, _ in self.leaving.values()] + [until for _, until in self.homeless.values()]
        times += [when for when, _, _ in self._coming[:1]] + [self.at_s]
        times += [self.gate_s] if self.steps and not self.homeless else []
        return [when for when in times if when > now_s]
