"""The bookkeeping of Muri's artifact: progress, events and predicted ends.

Time is continuous, and sums follow the artifact's order, because ties depend on the last bit. Whenever jobs arrive
or end, a running job is credited with the time since the last such event, less one restart overhead, while its end is
predicted without the overhead; `charge_every_event: false` removes the charge. Jobs run in leases: the jobs that end
next until their end, the others until the next event.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, Lease, LeasingAgent, NoBatchAgent
from simsched.errors import input_error
from simsched.model import Allocation, ApplicationFacts, Cluster, JobRequest, Site
from simsched.policy import REMAINING_WORK, Action, Decision, Policy, Traits, View
from simsched.policy.signals import RECORDED_DURATION

#: The changes of a decision.
Jobs = dict[str, Allocation | Action]

#: The factor by which iterations are longer under the scheduler.
ALONE = 1.015
#: Seconds of a restart on 1, 2, 4, 8, 16 and 32 GPUs; 10 for every other model.
_COUNTS = (1, 2, 4, 8, 16, 32)
_OVERHEAD_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
_OTHER_OVERHEAD_S = 10
#: Events so near each other are one, where the artifact has a tolerance: of their time, and in seconds.
TOLERANCE = 1e-9
TOLERANCE_S = 1e-4


@dataclass(eq=False)
class Account:
    """A job in the artifact's books; `ends_s` is when its lease ends."""

    index: int
    request: JobRequest
    iteration_s: float
    stages_s: tuple[float, float, float]
    overhead_s: float
    total: float = 0.0
    duration_s: float = 0.0
    remaining: float = 0.0
    executed_s: float = 0.0
    checked_s: float = 0.0
    running: bool = False
    now_iteration_s: float = 0.0
    now_overhead_s: float = 0.0
    ends_s: float = math.inf
    queue: int = 0

    @property
    def gpus(self) -> int:
        """Requested GPUs."""
        return self.request.num_gpus

    def done(self, now_s: float) -> float:
        """Return the iterations done since the last event, at a given second."""
        since = max(now_s - self.checked_s - self.now_overhead_s, 0) / self.now_iteration_s if self.running else 0.0
        return max(0.0, min(self.total - self.remaining + since, self.total))

    def advance(self, now_s: float) -> None:
        """Credit a running job with the time since its last update, minus one overhead."""
        elapsed_s = now_s - self.checked_s
        self.executed_s = self.executed_s + now_s - self.checked_s
        self.checked_s = now_s
        self.remaining -= max(elapsed_s - self.now_overhead_s, 0) / self.now_iteration_s

    def run(self, now_s: float, iteration_s: float, overhead_s: float) -> None:
        """Run from now at this many seconds per iteration."""
        self.checked_s, self.running = now_s, True
        self.now_iteration_s, self.now_overhead_s = iteration_s, overhead_s


class Bookkeeper(NoBatchAgent, LeasingAgent):
    """Runs a job until the second given by the books."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Return the time until the job ends, or until the next event."""
        account = self._account
        return Lease(account.ends_s, account.done, completes=account.ends_s < math.inf)


@dataclass
class Artifact(Policy):
    """The common part of the artifact's policies: events, and the credit for time."""

    traits: ClassVar[Traits] = Traits(needs={REMAINING_WORK, RECORDED_DURATION})

    #: The part of its time by which an end may differ from the first found of a group, and the seconds by which the
    #: groups that are one event with the earliest may follow it.
    together: ClassVar[float] = TOLERANCE
    together_s: ClassVar[float] = 0.0

    charge_every_event: bool = True

    def begin(self, cluster: Cluster) -> None:
        """Start with empty books."""
        self._nodes = tuple(node.gpus for node in cluster.nodes)
        self._accounts: dict[str, Account] = {}
        self._active: list[Account] = []
        self._arrived: list[Account] = []
        self._ending: list[Account] = []
        self._submitted_s = -math.inf
        self._wake_s: float | None = None

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Open an account.

        Raises `InputError` for a job without a profile of its stages, and for one submitted so shortly after another
        that in the artifact both would arrive together.
        """
        if request.profile is None:
            message = f"job '{request.id}' has no profile of its stages"
            raise input_error("workload", message, "give a trace of Muri with -o workload.path=...")
        if request.submit_time_s != self._submitted_s and math.isclose(
            request.submit_time_s, self._submitted_s, rel_tol=TOLERANCE
        ):
            message = f"job '{request.id}' is submitted within {TOLERANCE:g} of its time after another job"
            raise input_error("workload", message, "give whole seconds, as the artifact's traces do")
        self._submitted_s = request.submit_time_s
        costs = _OVERHEAD_S.get(request.application)
        known = costs is not None and request.num_gpus in _COUNTS
        overhead_s = costs[_COUNTS.index(request.num_gpus)] if costs and known else _OTHER_OVERHEAD_S
        # The artifact multiplies milliseconds; the last bit decides ties.
        iteration_ms = _milliseconds(request.profile.iteration_s)
        account = Account(
            len(self._accounts), request, iteration_ms * ALONE / 1000, request.profile.stages_s,
            overhead_s if self.charge_every_event else 0,
        )  # fmt: skip
        self._accounts[request.id] = account
        return Bookkeeper(account)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Update the books, schedule, and predict the next ends."""
        now_s = view.now_s
        for job in view.arrived:
            account = self._accounts[job.id]
            account.total = account.remaining = job[REMAINING_WORK].iterations(0, 0)
            account.duration_s = job[RECORDED_DURATION]
            self._arrived.append(account)
        if not (view.finished or self._arrived or now_s == self._wake_s):
            return Decision.change({})  # the job due for an update has been updated since
        for account in self._active:
            if account.running:
                account.advance(now_s)
        ended = [account for account in self._ending if account.request.id not in view.jobs]
        for account in ended:
            self._active.remove(account)
            account.running = False
        arrived, self._arrived = self._arrived, []
        self._active += arrived
        jobs = self.schedule(arrived, ended, now_s)
        self._predict(view)
        return Decision(jobs, renew_leases=True, wake_at_s=self._wake_s)

    def due(self) -> tuple[float, list[str]]:
        """Return the next predicted end, and the ids of the jobs that end then."""
        ends_s = self._ending[0].ends_s if self._ending else math.inf
        return ends_s, [account.request.id for account in self._ending]

    def schedule(self, arrived: Sequence[Account], ended: Sequence[Account], now_s: float) -> Jobs:
        """Choose the running jobs and their speeds, and set the next call; return the changes."""
        raise NotImplementedError

    def event_s(self, end_s: float, view: View) -> float:
        """Return the time of the event at which jobs that end at a second count as ended."""
        return end_s

    def _predict(self, view: View) -> None:
        """Find the jobs that end next, all of them at the time of the earliest group, which is that of its first."""
        ends = [(view.now_s + a.remaining * a.now_iteration_s, a) for a in self._active if a.running]
        for _, account in ends:
            account.ends_s = math.inf
        first_s = min((end_s for end_s, _ in ends), default=math.inf)
        groups: list[tuple[float, list[Account]]] = []
        for end_s, account in ends:
            if end_s <= first_s + 1:  # later ones belong to later events
                near = (members for time_s, members in groups if math.isclose(time_s, end_s, rel_tol=self.together))
                found = next(near, None)
                if found is None:
                    groups.append((end_s, [account]))
                else:
                    found.append(account)
        groups.sort(key=lambda group: group[0])
        self._ending = [a for time_s, members in groups if time_s <= groups[0][0] + self.together_s for a in members]
        for account in self._ending:
            account.ends_s = self.event_s(groups[0][0], view)


def _milliseconds(seconds: float) -> float:
    """Return the number of milliseconds with the fewest digits that equals this many seconds."""
    exact = seconds * 1000
    return next((ms for digits in range(17) if (ms := round(exact, digits)) / 1000 == seconds), exact)


def first_fit(free: list[int], whole: int, gpus: int) -> Allocation:
    """Take GPUs from `free`: the first node with room, or the first empty nodes and one more for the rest.

    `whole` is the size of a node. Returns () and takes nothing if the job does not fit.
    """
    if gpus <= whole:
        node = next((node for node, count in enumerate(free) if count >= gpus), -1)
        taken = ((node, gpus),) if node >= 0 else ()
    else:
        full, rest = divmod(gpus, whole)
        empty = [node for node, count in enumerate(free) if count == whole][:full]
        last = next((n for n, count in enumerate(free) if n not in empty and count >= rest), -1) if rest else -1
        if len(empty) < full or (rest and last < 0):
            return ()
        taken = tuple((node, whole) for node in empty) + (((last, rest),) if rest else ())
    for node, count in taken:
        free[node] -= count
    return taken
