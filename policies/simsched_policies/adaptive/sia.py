"""Sia: every round, each job gets the GPU type and the number of GPUs that maximise the goodput of all jobs together.

Idea: the sensible configurations of GPUs, powers of two inside a node and whole nodes beyond, are few enough for an
integer program to choose one for each job every minute, over GPU types and numbers at once (Jayaram Subramanya et al.,
SOSP'23, section 3). A configuration is worth the goodput that the job's own model predicts, relative to the job's
least, to the power of `fairness`, discounted by past restarts if it is a change. A job starts from a profile on one GPU
of each type, at most doubles its GPUs, and on a type where it never ran is taken to scale as on one where it did. A job
that trains by plans (hybrid, section 5.3) is scaled by whole replicas: stages and tensor ranks stay those of the
requested plan, or of the best plan on the fewest GPUs of a type that fit any plan. Other jobs without a batch size are
rigid: they get the GPUs they asked for, on any type.

Deviations: if all jobs are rigid, rounds are skipped until a job or node arrives or leaves; plans are known beforehand
on any number of GPUs and keep the global batch, whereas Sia profiles the smallest and has every replica add to the
batch; the program is solved to 1e-4 by HiGHS; a placement packs a job on the fullest nodes that hold it, and splits it
only if none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, Prior, Shared, fixed_agent, goodput_agent
from simsched.model import Allocation, ApplicationFacts, Capacity, Cluster, JobRequest, gpus_of
from simsched.model.goodput import GoodputModel
from simsched.model.plans import Plan
from simsched.policy import Becomes, Decision, JobView, Place, Policy, Traits, View
from simsched.policy.physics import GPU_TYPES
from simsched.policy.signals import GOODPUT, OFFLINE_PROFILES, PLANS
from simsched.toolkit import PlanCurves, available_by_type
from simsched.toolkit.elastic import tell_counts
from simsched.toolkit.placers import BEST_FIT
from simsched.toolkit.programs import Floats
from simsched.toolkit.programs.sia import (
    MOST_GPUS,
    Configuration,
    bootstrapped,
    choose,
    configurations,
    may_grow_to,
    offers_of,
    restart_factor,
    rigid,
    values,
)

#: GPU types as the program sees them: whole nodes that their GPUs would fill, and GPUs per node.
Groups = Mapping[str, tuple[int, int]]


@dataclass
class Sia(Policy):
    """Chooses configurations every `interval_s` seconds; `penalty` is the cost of leaving a job without GPUs.

    No job gets more than `most_gpus` GPUs.
    """

    name: ClassVar[str] = "sia"
    traits: ClassVar[Traits] = Traits(
        interval="interval_s",
        type_aware=True,
        wants={GPU_TYPES: Becomes("chooses numbers of GPUs alone")},
        needs={GOODPUT, OFFLINE_PROFILES, PLANS},
        rigid=False,
    )

    interval_s: int = 60
    fairness: float = -0.5
    penalty: float = 1.1
    most_gpus: int = MOST_GPUS
    _seen: object = field(default=None, init=False, repr=False)
    _shared: Shared = field(default_factory=Shared, init=False, repr=False)
    _since_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _alone: dict[tuple[str, str], float] = field(default_factory=dict, init=False, repr=False)
    _known: dict[str, tuple[object, Floats]] = field(default_factory=dict, init=False, repr=False)
    _hybrids: dict[str, tuple[Groups, list[Configuration], Floats]] = field(
        default_factory=dict, init=False, repr=False
    )
    _curves: PlanCurves = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters of the program."""
        if self.fairness == 0 or self.most_gpus < 1:
            raise ValueError("fairness must not be 0, and most_gpus at least 1")
        if self.fairness < 0 and self.penalty <= 1:  # the worth of a job's worst configuration is 1
            raise ValueError("penalty must be more than 1 where fairness is negative, or jobs may wait for ever")

    def begin(self, cluster: Cluster) -> None:
        """Start without any rates of plans."""
        self._curves = PlanCurves(cluster)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Adapt the batch to the goodput if the job has a batch."""
        if facts.limits is None:
            return fixed_agent(request, facts)
        return goodput_agent(request, facts, shared=self._shared)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Value every configuration of every job, choose one for each, and place them."""
        groups = _groups(view)
        if not view.jobs or not groups:
            self._seen = None
            return Decision({})
        for gone in view.finished:
            self._since_s.pop(gone, None)
            self._known.pop(gone, None)
            self._hybrids.pop(gone, None)
        seen = tuple(view.jobs), tuple(view.up)
        if seen == self._seen and not view.lost and all(_is_rigid(job) for job in view.jobs.values()):
            return Decision.change({})
        self._seen = seen
        types = list(groups)
        offered = [self._offers(job, view, groups) for job in view.jobs.values()]
        rows = [
            ([types.index(one.gpu_type) for one in kinds], [one.gpus for one in kinds], worth)
            for kinds, worth in offered
        ]
        available = available_by_type(view)
        room = np.array([available[kind] for kind in types], dtype=np.int64)
        must = np.array([self._restarting(job, view) for job in view.jobs.values()])
        picked = choose(offers_of(rows), room, len(rows), must=must, fairness=self.fairness, penalty=self.penalty)
        flat = [one for kinds, _ in offered for one in kinds]
        chosen = {job: flat[int(at)] for job, at in zip(view.jobs, picked, strict=True) if at >= 0}
        allocations = _placed(chosen, view)
        if view.reasons is not None:
            tell_counts({job: chosen[job].gpus if job in chosen else 0 for job in view.jobs}, view.reasons)
        for job in view.jobs.values():
            if allocations.get(job.id, ()) != job.allocation:
                self._since_s[job.id] = view.now_s
        return Decision(self._plans(allocations, view))

    def _offers(self, job: JobView, view: View, groups: Groups) -> tuple[list[Configuration], Sequence[float]]:
        """Return the configurations that a job may get, and what each is worth."""
        current = _current(job, view)
        goodputs: Floats
        if _is_rigid(job):
            kinds = [one for one in rigid(groups, job.num_gpus) if job.facts.runs_on(one.gpu_type)]
            goodputs = np.ones(len(kinds))
        elif job.limits is None:
            kinds, goodputs = self._hybrid(job, groups)
        else:
            kinds, goodputs = self._adaptive(job, groups)
        at = next((i for i, one in enumerate(kinds) if (one.gpu_type, one.gpus) == current), -1)
        if self._restarting(job, view) and current is not None:
            kind = kinds[at] if at >= 0 else Configuration(current[0], len(job.allocation), current[1])
            return [kind], [1.0]
        if not kinds:
            return [], []
        factor = restart_factor(job.age_s, job.restarts, _delay_s(job, view))
        worth = values(goodputs, np.array([one.gpus for one in kinds]), at, factor, self.fairness)
        return kinds, worth.tolist()

    def _hybrid(self, job: JobView, groups: Groups) -> tuple[list[Configuration], Floats]:
        """Return the configurations of whole replicas, and the rate on each."""
        known = self._hybrids.get(job.id)
        if known is None or known[0] != groups:
            found: list[Configuration] = []
            rates: list[float] = []
            for kind, (nodes, per_node) in sorted(groups.items()):
                most = min(self.most_gpus, job.max_gpus or self.most_gpus, nodes * per_node)
                replica = self._replica(job, kind, most)
                if replica is None:
                    continue
                usual = {one.gpus for one in configurations({kind: (nodes, per_node)}, most)} | {job.num_gpus}
                doubled = {replica.gpus << power for power in range(most.bit_length())}
                for gpus in sorted(gpus for gpus in usual | doubled if gpus <= most and gpus % replica.gpus == 0):
                    plan = replace(replica, data=gpus // replica.gpus)
                    rate = self._curves.rate_by(job, plan, kind)
                    if rate > 0:
                        found.append(Configuration(kind, -(-gpus // per_node), gpus))
                        rates.append(rate)
            known = self._hybrids[job.id] = groups, found, np.array(rates)
        return known[1], known[2]

    def _replica(self, job: JobView, kind: str, most: int) -> Plan | None:
        """Return the plan of a replica: of the requested plan, else of the best one on the fewest GPUs that fit any."""
        plan = job.request.plan
        if plan is None:
            counts = self._curves.counts(most, kind)
            fewest = next((gpus for gpus in counts if self._curves.rate(job, gpus, kind) > 0), None)
            plan = None if fewest is None else self._curves.plan(job, fewest, kind)
        return None if plan is None else replace(plan, data=1)

    def _plans(self, allocations: Mapping[str, Allocation], view: View) -> dict[str, Allocation | Place]:
        """Return allocations with the plan of each job that has plans."""
        found: dict[str, Allocation | Place] = dict(allocations)
        for job_id, at in allocations.items():
            job = view.jobs[job_id]
            if job.limits is None and job[PLANS] is not None and at:
                replica = self._replica(job, view.nodes[at[0][0]].gpu_type, gpus_of(at))
                assert replica is not None  # the configurations offered are its replicas
                found[job_id] = Place(at, plan=replace(replica, data=gpus_of(at) // replica.gpus))
        return found

    def _adaptive(self, job: JobView, groups: Groups) -> tuple[list[Configuration], Floats]:
        limits, report = job.limits, job[GOODPUT]
        assert limits is not None
        most = limits.max_batch_size // limits.min_local_bsz
        largest = max((one.max_profiled_gpus for one in report.types.values()), default=0)
        most = min(most, may_grow_to(largest, self.most_gpus), job.max_gpus or most)
        allowed = [one for one in configurations(groups, self.most_gpus) if one.gpus <= most]
        allowed = [one for one in allowed if job.facts.runs_on(one.gpu_type)]
        what = report.version, tuple(allowed)
        known = self._known.get(job.id)
        if known is None or known[0] != what:
            known = self._known[job.id] = what, self._goodputs(job, allowed)
        kept = known[1] > 0
        return [one for one, keep in zip(allowed, kept, strict=True) if keep], known[1][kept]

    def _goodputs(self, job: JobView, kinds: Sequence[Configuration]) -> Floats:
        """Predict the goodput of configurations from the job's own models, as far as it has any."""
        found = np.zeros(len(kinds))
        report = job[GOODPUT]
        profiled = [kind for kind in sorted(report.types) if report.on(kind).max_profiled_gpus > 0]
        for gpu_type in dict.fromkeys(one.gpu_type for one in kinds):
            at = [i for i, one in enumerate(kinds) if one.gpu_type == gpu_type]
            nodes, gpus = ([kinds[i][part] for i in at] for part in (1, 2))
            known = gpu_type if gpu_type in profiled else (profiled[0] if profiled else None)
            model = None if known is None else report.on(known).model
            if model is None or known is None:  # one GPU each, as profiled
                found[at] = [self._of_one(job, gpu_type) if count == 1 else 0.0 for count in gpus]
                continue
            rates = model.optimise(nodes, gpus).goodput
            if known != gpu_type:
                here, there = self._of_one(job, gpu_type), self._of_one(job, known)
                rates = np.array([bootstrapped(float(rate), here, there) for rate in rates])
            found[at] = rates
        return found

    def _of_one(self, job: JobView, gpu_type: str) -> float:
        """Return the goodput on one GPU of a type, as profiled at submission; 1 without a profile."""
        what = job.facts.name, gpu_type
        if what not in self._alone:
            prior: Prior | None = job[OFFLINE_PROFILES].get(gpu_type)
            limits = job.limits
            if prior is None or limits is None:
                return 1.0
            best = GoodputModel(prior.params, prior.gradient, limits).optimise([1], [1])
            self._alone[what] = max(float(best.goodput[0]), 1e-9)
        return self._alone[what]

    def _restarting(self, job: JobView, view: View) -> bool:
        """Return whether a job is still restoring its state on the GPUs that it holds."""
        since_s = self._since_s.get(job.id)
        return job.running and since_s is not None and view.now_s < since_s + _delay_s(job, view)


def _is_rigid(job: JobView) -> bool:
    return job.limits is None and job[PLANS] is None


def _groups(view: View) -> dict[str, tuple[int, int]]:
    """Return, for types that are up, the whole nodes that their GPUs would fill and the GPUs of their largest node."""
    found = {}
    for gpu_type in sorted({node.gpu_type for node in view.nodes}):
        sizes = [node.gpus for node, up in zip(view.nodes, view.up, strict=True) if up and node.gpu_type == gpu_type]
        if sizes:
            found[gpu_type] = (-(-sum(sizes) // max(sizes)), max(sizes))
    return found


def _current(job: JobView, view: View) -> tuple[str, int] | None:
    if not job.running:
        return None
    return view.nodes[job.allocation[0][0]].gpu_type, gpus_of(job.allocation)


def _delay_s(job: JobView, view: View) -> float:
    delay_s = job.facts.restart_delay_s
    return view.restart_delay_s if delay_s is None else delay_s


def _placed(chosen: Mapping[str, Configuration], view: View) -> dict[str, Allocation]:
    """Place configurations: unchanged ones stay, the others follow by descending GPUs."""
    allocations: dict[str, Allocation] = {}
    for job_id, kind in chosen.items():
        if _current(view.jobs[job_id], view) == (kind.gpu_type, kind.gpus):
            allocations[job_id] = view.jobs[job_id].allocation
    free = Capacity.idle(view, allocations.values())
    moved = [(job_id, kind) for job_id, kind in chosen.items() if job_id not in allocations]
    for job_id, kind in sorted(moved, key=lambda one: -one[1].gpus):
        found = free.place(BEST_FIT, kind.gpus, (free.types.index(kind.gpu_type),))
        assert found is not None, "the program chooses no more than there is"
        allocations[job_id] = found
    return allocations
