"""Themis: applications bid for GPUs whose leases have ended, the least fairly treated first.

Idea: finish-time fairness (Mahajan et al., Themis, NSDI'20, sections 3 to 5). rho = T_sh / T_id: the time from arrival
until an application finishes, over the time that it would take alone in its share of the cluster, one n-th for n
applications. GPUs are held under leases. When leases end, the GPUs are offered to the share 1 - `fairness` of the
applications with the largest rho; each bids 1/rho for every number of GPUs; the winning allocation has the largest
product of bids, and each application keeps the part of it that makes truthful bids optimal (a hidden payment). The rest
goes to the others, one GPU at a time.

rho of a waiting application: with no GPUs it never finishes, and T_sh is infinite; with those that it can use, T_sh is
its age and the time left on them. It is not known here by which of the two the paper ranks: `waiting` is `served` for
the latter or `infinite` for the former, with ties ranked by the latter. The page of results compares them.

Ties: equal rhos fall in the order of submission; among allocations with equal products the one with fewer GPUs wins,
then the one that gives more to the less fairly treated.

Published defaults: fairness 0.8, leases of 20 minutes (the latter from memory). Deviations: leases of all applications
end together: auctions are held every `lease_s`, and GPUs that become free in between are allocated at arrivals and
completions without an auction; jobs are rigid: an application (the jobs of one `group`, or a single job without one)
bids by the jobs that its GPUs would let run, running ones first, then the shortest; what it keeps is rounded down to
whole jobs, but a payment that would cost it all the jobs that it has won is waived; the remainder goes to whole jobs,
the least fairly treated of the other applications first; remaining work is an oracle; placement is not part of the bid.
`Themis` and `themis-rho` differ: the latter serves the largest rho first without an auction, as other simulators do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.policy import REMAINING_WORK, Becomes, Decision, JobView, Policy, Quantum, Traits, View
from simsched.policy.physics import GROUPS
from simsched.toolkit import available_gpus, run_in_order
from simsched.toolkit.auction import bid_of, finish_time_ratio, least_fair, partial_allocation

#: The GPUs by which a waiting application is ranked: all that it can use, or none.
Waiting = Literal["served", "infinite"]


@dataclass(frozen=True)
class _Application:
    """The jobs of a group, in order of submission, with the remaining work of each."""

    name: str
    jobs: tuple[JobView, ...]
    remaining_s: Mapping[str, float]

    @property
    def age_s(self) -> float:
        return max(job.age_s for job in self.jobs)

    @property
    def gpus(self) -> int:
        return sum(job.num_gpus for job in self.jobs)

    def fitting(self, gpus: int) -> list[JobView]:
        """List the jobs that this many GPUs let run: running ones first, then the shortest."""
        chosen = []
        for job in sorted(self.jobs, key=lambda job: (not job.running, self.remaining_s[job.id])):
            if job.num_gpus <= gpus:
                chosen.append(job)
                gpus -= job.num_gpus
        return chosen

    def left_s(self, gpus: int) -> float:
        """Return the remaining seconds on this many GPUs, shared in proportion to the work; infinite if no job fits."""
        used = sum(job.num_gpus for job in self.fitting(gpus))
        if not used:
            return math.inf
        work_gpu_s = ordered_sum(self.remaining_s[job.id] * job.num_gpus for job in self.jobs)
        return max(work_gpu_s / used, max(self.remaining_s.values()))

    def alone_s(self, share_gpus: float) -> float:
        """Return the seconds of the remaining work alone on a share of the cluster."""
        done_gpu_s = ordered_sum(job.attained_gpu_s for job in self.jobs)
        work_gpu_s = done_gpu_s + ordered_sum(self.remaining_s[job.id] * job.num_gpus for job in self.jobs)
        return max(work_gpu_s / min(share_gpus, self.gpus), 1e-9)


def _name_of(job: JobView) -> str:
    return f"group {job.request.group}" if job.request.group else f"job {job.id}"


def _applications(view: View) -> list[_Application]:
    groups: dict[str, list[JobView]] = {}
    for job in view.jobs.values():
        groups.setdefault(_name_of(job), []).append(job)
    return [
        _Application(name, tuple(jobs), {job.id: job[REMAINING_WORK].seconds for job in jobs})
        for name, jobs in groups.items()
    ]


def _ratios(applications: Sequence[_Application], gpus: int, waiting: Waiting) -> dict[str, tuple[float, float]]:
    """Return rho of every application with the GPUs that it has now, and with all that it can use, for ties."""
    share = gpus / max(len(applications), 1)
    found = {}
    for one in applications:
        held = sum(job.num_gpus for job in one.jobs if job.running)
        counts = held or (one.gpus if waiting == "served" else 0), one.gpus
        now, least = (finish_time_ratio(one.age_s, one.left_s(count), one.alone_s(share)) for count in counts)
        found[one.name] = (now, least)
    return found


@dataclass
class ThemisRho(Policy):
    """Serves the applications with the largest rho first, every `interval_s` seconds while any job waits.

    `waiting` says whether a waiting application's rho is that of being `served` now, or `infinite`.
    """

    name: ClassVar[str] = "themis-rho"
    traits: ClassVar[Traits] = Traits(needs={REMAINING_WORK}, quantum="interval_s")

    interval_s: int = 1200
    waiting: Waiting = "served"
    _quantum: Quantum = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without leases."""
        self._quantum = Quantum(self.name, self.interval_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Rank all jobs at the end of the leases, and waiting ones in between."""
        applications = _applications(view)
        ratios = _ratios(applications, max(available_gpus(view), 1), self.waiting)
        order = sorted(applications, key=lambda one: ratios[one.name], reverse=True)
        jobs = [job for one in order for job in one.fitting(one.gpus)]
        if not self._quantum.over(view):
            jobs.sort(key=lambda job: not job.running)
        allocations = run_in_order(jobs, view, score=lambda job: ratios[_name_of(job)])
        waits = len(allocations) < len(view.jobs)
        return Decision(allocations, wake_at_s=self._quantum.end_s(view.now_s) if waits else None)


@dataclass
class Themis(Policy):
    """Holds an auction among the least fairly treated applications whenever the leases end.

    `fairness` is the share not offered any GPUs; `waiting` is as in `themis-rho`.
    """

    name: ClassVar[str] = "themis"
    traits: ClassVar[Traits] = Traits(
        needs={REMAINING_WORK},
        wants={GROUPS: Becomes("takes every job for an application of its own")},
        quantum="lease_s",
    )

    fairness: float = 0.8
    lease_s: int = 1200
    waiting: Waiting = "served"
    _quantum: Quantum = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without leases."""
        least_fair({}, self.fairness)  # refuses values that are not shares
        self._quantum = Quantum(self.name, self.lease_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Hold the auction, or allocate free GPUs."""
        gpus = available_gpus(view)
        applications = _applications(view)
        ratios = _ratios(applications, max(gpus, 1), self.waiting)
        urgent = sorted(applications, key=lambda one: ratios[one.name], reverse=True)
        rest = [job for one in urgent for job in one.fitting(one.gpus)]
        if self._quantum.over(view) and gpus:
            order = [*self._won(urgent, ratios, gpus), *rest]
        else:
            order = sorted(rest, key=lambda job: not job.running)
        allocations = run_in_order(dict.fromkeys(order), view, score=lambda job: ratios[_name_of(job)])
        waits = len(allocations) < len(view.jobs)
        return Decision(allocations, wake_at_s=self._quantum.end_s(view.now_s) if waits else None)

    def _won(
        self, urgent: Sequence[_Application], ratios: Mapping[str, tuple[float, float]], gpus: int
    ) -> list[JobView]:
        """Return the jobs that run on what their applications have won, then those outside, most urgent first."""
        # Ranks instead of names: equal ratios fall in the order of urgency.
        ranked = {f"{rank:09d}": ratios[one.name][0] for rank, one in enumerate(urgent)}
        bidders = [urgent[int(rank)] for rank in sorted(least_fair(ranked, self.fairness))]
        share = gpus / len(urgent)
        bids = [bid_of(one.age_s, one.left_s, one.alone_s(share), min(one.gpus, gpus)) for one in bidders]
        outcome = partial_allocation(bids, gpus)
        # First the jobs that winners keep after payments, then those of winners that would keep none.
        won = dict(zip((one.name for one in bidders), zip(outcome.kept, outcome.won, strict=True), strict=True))
        kept = [job for one in bidders for job in one.fitting(won[one.name][0])]
        waived = [job for one in bidders if not one.fitting(won[one.name][0]) for job in one.fitting(won[one.name][1])]
        outside = [job for one in urgent if one.name not in won for job in one.fitting(one.gpus)]
        return [*kept, *waived, *outside]
