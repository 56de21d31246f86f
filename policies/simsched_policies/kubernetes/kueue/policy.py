"""Kueue: jobs wait in queues with quotas, borrow idle quota of their cohort, and are preempted for its owner.

Idea: quota decides who is admitted, and a job is admitted whole (Kueue documentation, "Cluster Queue", "Cohort",
"Preemption", "Fair Sharing", "Admission Fair Sharing"). Every tenant is a cluster queue, parents of tenants are
cohorts, every GPU type is a flavour, and the jobs of a user have a local queue. Deviations: GPUs are the only resource;
victims leave at once: a job that preempts is nominated again in the same decision, first in its queue, and a victim is
considered again at the next decision, ordered by its creation; a preempted job keeps its progress; a job that has quota
but finds no room on nodes releases it and waits until a job leaves; local queues have equal weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from simsched.manifests import Object, Workload as Stated
from simsched.model import Allocation, Capacity, Cluster, NodeShape
from simsched.model.cluster import Tenant
from simsched.model.placement import NOTHING
from simsched.policy import (
    CANCEL,
    INPUT_FILE,
    Becomes,
    Decision,
    JobView,
    Policy,
    Reasons,
    Stop,
    Traits,
    View,
    Wants,
    Why,
)
from simsched.policy.physics import QUOTAS
from simsched.toolkit import PLACERS, PlacerName
from simsched_policies.kubernetes.kueue.cycle import Entry, Pending, admit, queue_order, run_cycle
from simsched_policies.kubernetes.kueue.desk import Desk
from simsched_policies.kubernetes.kueue.explain import Record, said_of
from simsched_policies.kubernetes.kueue.gates import FIXED, RELEASES, SWITCHES
from simsched_policies.kubernetes.kueue.levels import OTHERS, RESOURCE, Levels, allocation_of, quotas_of
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    ClusterQueue,
    Mode,
    PodSet,
    Reclaim,
    Rules,
    Within,
    Workload,
)
from simsched_policies.kubernetes.kueue.objects import declared_by
from simsched_policies.kubernetes.kueue.queues import Waiting
from simsched_policies.kubernetes.kueue.repairs import moved, repairable, second_passes
from simsched_policies.kubernetes.kueue.timing import Pace, Timing
from simsched_policies.kubernetes.kueue.tree import QuotaTree
from simsched_policies.kubernetes.kueue.usage import HALF_LIFE_S, SAMPLING_S, DecayedUsage

#: The value of `allow` for workloads that could never run; they are cancelled.
NEVER = "never-admitted"


class _Held(NamedTuple):
    """A running job: its quota, its request, and its GPUs."""

    workload: Workload
    asking: Asking
    allocation: Allocation
    shape: NodeShape | None


@dataclass
class Kueue(Policy):
    """Admits jobs by quota, with borrowing, reclaiming and preemption by priority or for fair sharing.

    `tenants` own shares of every GPU type and may be limited in borrowing, lending and reclaiming; those of one
    `parent` borrow from each other first; undeclared tenants share one queue that owns the rest. `within` sets which
    jobs a job may preempt in its own queue, and `reclaim` which in other queues that borrow; with `borrowing_preempts`
    even a job whose own queue borrows may preempt jobs of lower priority there, at most `borrowing_preempts_up_to`.
    With `fair_sharing`, queues that borrow least, by their weights, come first, and preemption evens out the shares.
    With `admission_fair_sharing` the user with the least recent use comes first within a queue: use is sampled every
    `usage_sampling_s` and decays with `usage_half_life_s`. With `strict_fifo` the head of a queue blocks it. With
    `topology` (`required LEVEL`, `preferred LEVEL` or `unconstrained`; a level of the cluster, or `node`) jobs are
    placed by topology-aware scheduling instead of by `placement`, and preempt for a place as they do for quota.

    With `manifests`, a file or folder of Kubernetes objects, these set all of the above, quota is counted by resource,
    and pods go only to nodes that match them. `allow` names fields that are not modelled but accepted, or
    `never-admitted` for workloads that could not even run alone, which are then cancelled. With the diagnostics
    `reasons` the decisions of each cycle are kept. A cluster that `grows` may have more or fewer nodes than the
    manifests declare: added nodes are copies, and the quotas of their flavours scale with the GPUs.

    `timing` are rates and delays of the control plane, none by default. `release` is the release of Kueue whose rules
    count.
    """

    name: ClassVar[str] = "kueue"
    traits: ClassVar[Traits] = Traits(
        wants={QUOTAS: Becomes("has one queue for all jobs, which owns the cluster")},
        reads_tenants=True,
        diagnostics="diagnostics",
    )
    #: The switches of the release, with their defaults.
    features: ClassVar[Mapping[str, bool]] = {**SWITCHES, **FIXED}

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    within: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    reclaim: Literal["lower-priority", "any"] = "any"
    borrowing_preempts: bool = False
    borrowing_preempts_up_to: int | None = None
    fair_sharing: bool = False
    admission_fair_sharing: bool = False
    usage_half_life_s: float = HALF_LIFE_S
    usage_sampling_s: float = SAMPLING_S
    strict_fifo: bool = False
    placement: PlacerName = "fragments"
    topology: str | None = None
    manifests: Annotated[str | None, INPUT_FILE] = None
    allow: Sequence[str] = ()
    grows: bool = False
    diagnostics: Sequence[Literal["reasons"]] = ()
    timing: Timing = field(default_factory=Timing)
    release: Literal["main", "v0.10"] = "main"
    _desk: Desk | None = field(default=None, init=False, repr=False)
    _levels: Levels | None = field(default=None, init=False, repr=False)
    _record: Record | None = field(default=None, init=False, repr=False)
    #: Workloads with quota whose admission checks are pending, with the time when these are ready, and their GPUs.
    _unready: dict[str, tuple[float, Allocation]] = field(default_factory=dict, init=False, repr=False)
    _known: tuple[QuotaTree, Waiting] | None = field(default=None, init=False, repr=False)
    _rules: Rules = field(default_factory=Rules, init=False, repr=False)
    _held: dict[str, _Held] = field(default_factory=dict, init=False, repr=False)
    #: What is free on the nodes that are up, unless manifests describe them.
    _free: Capacity = field(default_factory=lambda: Capacity((), (), ()), init=False, repr=False)
    _up: list[bool] = field(default_factory=list, init=False, repr=False)
    #: Jobs by their number in order of arrival, which identifies them in the quotas, and the inverse.
    _jobs: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    #: Why workloads wait, according to their last cycle, if reasons are kept.
    _words: dict[str, tuple[Why, str]] = field(default_factory=dict, init=False, repr=False)
    #: The recent usage of local queues.
    _usage: DecayedUsage = field(init=False, repr=False)
    #: Workloads that have quota but lack a node: a second pass places the pods that were there.
    _lame: dict[str, Asking] = field(default_factory=dict, init=False, repr=False)
    _pace: Pace = field(init=False, repr=False)
    #: Workloads that Kueue has deactivated.
    _over: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse invalid times and manifests."""
        if self.usage_half_life_s < 0 or self.usage_sampling_s <= 0:
            raise ValueError("usage_half_life_s must be at least 0 and usage_sampling_s above 0")
        self._usage = DecayedUsage(self.usage_half_life_s, self.usage_sampling_s)
        self._record = Record() if self.diagnostics else None
        self._pace = Pace(self.timing)
        if self.topology is not None:
            self._levels = Levels(self.topology)
        if self.manifests is not None:
            self._take_manifests(self.manifests)

    def _take_manifests(self, manifests: str) -> None:
        """Read manifests, which exclude all parameters that they set."""
        told = [one.name for one in fields(self) if one.init and getattr(self, one.name) != _default(one)]
        both = sorted(set(told) - {"manifests", "allow", "grows", "diagnostics", "timing", "release"})
        if both:
            raise ValueError(f"manifests and {both[0]} exclude each other: the manifests say all of it")
        self._sit(Desk(manifests, [one for one in self.allow if one != NEVER], grows=self.grows))

    @classmethod
    def resuming(
        cls, path: str, objects: Sequence[Object], allow: Collection[str], workloads: Sequence[Stated]
    ) -> Callable[[], Kueue]:
        """Return a maker of policies that go on where `Workload` objects of a cluster at `path` say it was.

        `allow` is as in manifests, and `workloads` are those of the objects. Raises `InputError` for invalid objects.
        """
        found = declared_by(objects, allow, workloads)

        def make() -> Kueue:
            policy = cls(diagnostics=("reasons",))
            policy._sit(Desk(path, resumes=found))
            return policy

        return make

    def _sit(self, desk: Desk) -> None:
        """Take the rules of a desk."""
        self._desk = desk
        self._pace.ready = self._desk.setup.pods_ready
        past = self._desk.setup.fair_admission
        if past is not None:
            self._usage = DecayedUsage(past.half_life_s, past.sampling_s, past.resource_weights)
            self.admission_fair_sharing = True

    @property
    def follows(self) -> str:
        """Return the release of Kueue that is modelled, and the timing of its control plane if any."""
        timing, ready = self.timing.described(), self._pace.ready
        waits = "" if ready is None else f", pods ready after {ready.ready_s:g} s"
        return f"Kueue {RELEASES[self.release][0]}{f', timing {timing}' if timing else ''}{waits}"

    @property
    def longest_pause_s(self) -> float:
        """Return how long pods without room may block all admissions, and evicted workloads wait."""
        ready = self._pace.ready
        return 0.0 if ready is None else ready.timeout_s + ready.backoff_most_s

    @property
    def counts_on(self) -> Wants:
        """Return the quotas that an experiment declares, unless there are manifests."""
        return {} if self.manifests is not None else super().counts_on

    def begin(self, cluster: Cluster) -> None:
        """Match the nodes of manifests, or the level of a topology, with the cluster."""
        if self._desk is not None:
            self._desk.begin(cluster)
        if self._levels is not None:
            self._levels.begin(cluster)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse jobs without a manifest, jobs that could never run, and shapes that a topology does not place."""
        if self._levels is not None:
            self._levels.begin(cluster)
            self._levels.check(jobs, cluster)
        if self._desk is not None:
            self._desk.begin(cluster)
            hopeless = self._desk.hopeless(jobs)
            if hopeless and NEVER not in self.allow:
                raise self._desk.refuse(hopeless)

    def artifacts(self) -> Mapping[str, str]:
        """Return the record of decisions, if requested."""
        return {} if self._record is None else self._record.files()

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Run cycles of admission until one changes nothing."""
        tree, waiting = self._look(view)
        pace, now_s = self._pace, view.now_s
        start, stop = self._ready(now_s), list[str]()
        self._house(tree, waiting, start, view)
        evicted: list[Asking] = []
        repairs = second_passes(tree, self._lame)
        while pace.may_begin(now_s) or pace.steps:
            if not pace.steps:
                heads, repairs = [*repairs, *waiting.heads()], []
                if not heads or not self._cycle(tree, waiting, heads, view):
                    break
            entry = pace.step(now_s)
            if entry is None:
                if pace.steps:
                    break
            elif entry.mode is Mode.NO_FIT:
                self._lame.pop(entry.asking.id, None)
                waiting.push(self._evicted(entry.asking.id, tree, waiting))
            elif entry.mode is Mode.PREEMPT:
                for victim in entry.victims:
                    evicted += self._preempt(victim.workload.id, start, stop, tree, waiting)
            elif entry.holds is not None:
                if self._lame.pop(entry.asking.id, None):
                    start[self._jobs[entry.asking.id]] = self._moved(tree, entry, entry.holds, view)
            elif not self._admit(tree, entry, start, view):
                waiting.push(entry.asking)
                waiting.hold(entry.asking.id, None if self._desk is None else self._desk.chances(entry))
        for asking in evicted:
            waiting.push(asking)
        if self._record is not None:
            self._record.quotas(now_s, tree)
        if view.reasons is not None:
            self._tell(waiting, view.reasons)
        never = () if self._desk is None else self._desk.hopeless(view.arrived)
        gone = dict.fromkeys((*never, *(self._jobs[number] for number in self._over)), CANCEL)
        self._over.clear()
        wakes = [*(when for when, _ in self._unready.values()), *pace.wakes(now_s)]
        stops = dict.fromkeys(stop, Stop(saved=False) if self.timing.restarts else NOTHING)
        return Decision.change({**stops, **start, **gone}, wake_at_s=min(wakes, default=None))

    def _cycle(self, tree: QuotaTree, waiting: Waiting, heads: Sequence[Pending], view: View) -> bool:
        """Run a cycle and queue its steps; return whether it changes anything."""
        self._note_usage(tree)
        outcome = run_cycle(tree, heads, self._rules)
        if self._record is not None:
            self._record.note(view.now_s, outcome, self._jobs)
        if view.reasons is not None:
            self._words |= said_of(outcome)
        waiting.settle(outcome)
        victims = (victim.workload.id for entry in outcome.preempting for victim in entry.victims)
        fresh = any(victim not in self._pace.leaving for victim in victims)
        if not (fresh or outcome.admitted or outcome.parked or outcome.refused or outcome.evicted):
            return False  # all wait for victims that are still leaving
        self._pace.begin(outcome, in_order=self.timing != Timing() or self._pace.ready is not None)
        return True

    def _preempt(
        self, number: str, start: dict[str, Allocation], stop: list[str], tree: QuotaTree, waiting: Waiting
    ) -> list[Asking]:
        """Evict a workload; return it, to wait again, if its quota is free at once."""
        pace, held = self._pace, self._held.get(number)
        if held is None or number in pace.leaving:
            return []
        stands = bool(self._lame.pop(number, None) or self._unready.pop(number, None))
        stands = pace.homeless.pop(number, None) is not None or stands
        if not stands and start.pop(self._jobs[number], None) is None:
            stop.append(self._jobs[number])
        if not self.timing.eviction_s:
            return [self._evicted(number, tree, waiting)]
        self._held[number] = held._replace(workload=tree.mark_evicted(held.workload))
        pace.leaving[number] = (pace.at_s + self.timing.eviction_s, True)
        return []

    def _house(self, tree: QuotaTree, waiting: Waiting, start: dict[str, Allocation], view: View) -> None:
        """Find room for pods of admitted workloads; those that wait for too long are evicted."""
        for number, (entry, until) in list(self._pace.homeless.items()):
            allocation = self._placed(entry, view.jobs[self._jobs[number]], view.now_s)
            if allocation is not None:
                del self._pace.homeless[number]
                self._held[number] = self._held[number]._replace(allocation=allocation)
                self._start(entry, allocation, start, view.now_s, view.now_s)
            elif until <= view.now_s:
                asking, after_s = self._evicted(number, tree, waiting), self._pace.retry_s(number)
                if after_s is None:
                    self._over.append(number)
                else:
                    again = view.now_s if self._pace.rules.by_eviction else asking.created_s
                    self._pace.expect(replace(asking, created_s=again), view.now_s + after_s)

    def _start(
        self, entry: Entry, allocation: Allocation, start: dict[str, Allocation], at_s: float, now_s: float
    ) -> None:
        """Start a workload that got its room at a time, once its checks are ready and its pods exist."""
        number = entry.asking.id
        when = self._pace.admit(entry.asking, at_s, 0.0 if self._desk is None else self._desk.delay_s(entry))
        if when > now_s:
            self._unready[number] = (when, allocation)
        else:
            start[self._jobs[number]] = allocation

    def _tell(self, waiting: Waiting, reasons: Reasons) -> None:
        """Return the order of waiting workloads in their queues, and why they wait, in Kueue's words if any."""
        key = queue_order(self._rules)
        line = sorted(waiting.all(), key=key)
        for queue in sorted({asking.queue for asking in line}):
            reasons.order({self._jobs[one.id]: key(one)[:3] for one in line if one.queue == queue})
        for asking in line:
            reasons.wait(self._jobs[asking.id], *self._words.get(asking.id, _BEHIND))

    def _ready(self, now_s: float) -> dict[str, Allocation]:
        """Return the jobs whose admission checks are ready, with their GPUs."""
        ready = [number for number, (when, _) in self._unready.items() if when <= now_s]
        return {self._jobs[number]: self._unready.pop(number)[1] for number in ready}

    def _used(self, asking: Asking) -> float:
        weight = 1.0 if self._desk is None else self._desk.weight(asking.local_queue)
        return self._usage.of(asking.local_queue, weight)

    def _note_usage(self, tree: QuotaTree) -> None:
        """Write the recent usage of its local queue to every workload that holds quota."""
        if not self.admission_fair_sharing:
            return
        for number, held in self._held.items():
            usage = self._used(held.asking)
            tree.queues[held.workload.queue].held[number] = replace(held.workload, local_queue_usage=usage)

    def _sample(self, now_s: float) -> None:
        """Take the last of the due samples; usage has not changed since the previous decision."""
        if not self.admission_fair_sharing or not self._usage.due(now_s):
            return
        in_use: dict[str, dict[str, float]] = {}
        for held in self._held.values():
            of_queue = in_use.setdefault(held.asking.local_queue, {})
            for resource, amount in _by_resource(held.workload).items():
                of_queue[resource] = of_queue.get(resource, 0.0) + amount
        self._usage.sample(now_s // self.usage_sampling_s * self.usage_sampling_s, in_use)

    def _admit(self, tree: QuotaTree, entry: Entry, start: dict[str, Allocation], view: View) -> bool:
        """Give a workload quota and nodes; False if their flavours have no room and it does not hold its quota."""
        number, pace = entry.asking.id, self._pace
        job = view.jobs[self._jobs[number]]
        allocation = self._placed(entry, job, view.now_s)
        if allocation is None and pace.ready is None:
            return False
        workload = admit(entry, pace.at_s)
        tree.admit(workload)
        self._held[number] = _Held(workload, entry.asking, allocation or NOTHING, job.request.shape)
        if self.admission_fair_sharing:
            self._usage.charge(entry.asking.local_queue, _by_resource(workload))
        if allocation is None:
            pace.homeless[number] = (entry, pace.at_s + pace.rules.timeout_s)
        else:
            self._start(entry, allocation, start, pace.at_s, view.now_s)
        return True

    def _moved(self, tree: QuotaTree, entry: Entry, before: Workload, view: View) -> Allocation:
        """Take new places for a workload whose pods on a failed node have been placed again."""
        if self._desk is not None:
            self._desk.give_back(before.id)
        allocation = self._placed(entry, view.jobs[self._jobs[before.id]], view.now_s)
        if allocation is None:
            message = f"workload {before.id} has no room at the places that were found for it"
            raise ValueError(message)
        after = moved(tree, before, entry.assignment.assigned())
        self._held[before.id] = self._held[before.id]._replace(workload=after, allocation=allocation)
        return allocation

    def _placed(self, entry: Entry, job: JobView, now_s: float) -> Allocation | None:
        if self._desk is not None:
            found = self._desk.place(entry)
            if isinstance(found, str):
                if self._record is not None:
                    self._record.unplaced(now_s, entry, job.id, found)
                return None
            if self._record is not None:
                self._record.admitted(now_s, entry, job.id)
            return found
        if (allocation := allocation_of(entry)) is not None:
            self._free.take(allocation, None)
            return allocation
        ((flavour, _), gpus) = next(iter(entry.usage.items()))
        placer = PLACERS[self.placement].within(job.request.shape)
        allocation = self._free.choose(placer, gpus, (self._free.types.index(flavour),))
        if allocation is not None:
            self._free.take(allocation, job.request.shape)
        return allocation

    def _evicted(self, number: str, tree: QuotaTree, waiting: Waiting) -> Asking:
        """Take back quota and GPUs of a job; return it as it waits again, ordered by its creation."""
        held = self._held.pop(number)
        self._pace.homeless.pop(number, None)
        self._pace.leaving.pop(number, None)
        tree.release(held.workload)
        waiting.wake(held.workload.queue)
        if self._desk is None:
            self._free.give_back(held.allocation, held.shape)
        else:
            self._desk.give_back(number)
        return held.asking

    def _begun(self, view: View) -> tuple[QuotaTree, Waiting]:
        """Set the rules, and return the quotas and the queues of the first decision."""
        if self._desk is not None:
            tree, rules = self._desk.tree(), self._desk.rules(self._used)
        else:
            tree = self._quotas(view)
            rules = Rules(self.fair_sharing, queue_usage=self._used if self.admission_fair_sharing else None)
            if self._levels is not None:
                flavours = self._levels.flavours(node.gpu_type for node in view.nodes)
                rules = replace(rules, flavours=flavours, topologies=self._levels.topology())
                tree.use(self._levels.domains(view.nodes, view.up))
        self._rules = replace(rules, gates={**rules.gates, **RELEASES[self.release][1]})
        return tree, Waiting(tree, self._rules)

    def _look(self, view: View) -> tuple[QuotaTree, Waiting]:
        """Record arrivals, completions and losses, and nodes that went down or came up."""
        tree, waiting = self._known = self._known or self._begun(view)
        self._sample(view.now_s)
        lost = [job for job in view.lost if self._numbers.get(job.id) in self._held]
        for job in list(lost):
            held = self._held[self._numbers[job.id]]
            if repairable(tree, held.workload, held.allocation, view.up, self._rules.gates):
                self._lame[held.asking.id] = held.asking
                lost.remove(job)
        for number, back in self._pace.left(view.now_s):
            asking = self._evicted(number, tree, waiting)
            if back:
                waiting.push(asking)
        for job_id in [*view.finished, *(job.id for job in lost)]:
            number = self._numbers.get(job_id, "")
            waiting.remove(number)
            self._lame.pop(number, None)
            self._unready.pop(number, None)
            if number in self._held and self.timing.end_s and job_id in view.finished:
                self._pace.leaving[number] = (view.now_s + self.timing.end_s, False)
            elif number in self._held:
                self._evicted(number, tree, waiting)
            if self._record is not None:
                self._record.ended(view.now_s, job_id, "Finished" if job_id in view.finished else "Lost")
        changed = view.up != self._up or bool(view.lost)
        if changed:
            self._up = list(view.up)
            waiting.wake_all()
            for entry in self._pace.steps:
                if entry.mode is Mode.FIT and entry.holds is None:
                    waiting.push(entry.asking)
            self._pace.steps.clear()
            if self._desk is not None:
                self._desk.refresh(view.up, tree)
            elif self._levels is not None:
                tree.use(self._levels.domains(view.nodes, view.up))
        if self._desk is None and (changed or view.beside is not None):
            self._free = Capacity.of(view)
        self._pace.look(view.now_s)
        for job in [*lost, *view.arrived]:
            asking = self._asking(job)
            if self._resumed(asking, job, tree, view.now_s):
                continue
            if self._desk is None or not self._desk.hopeless([job]):
                self._pace.submit(asking, view.now_s)
        for asking in self._pace.arrived(view.now_s):
            waiting.push(asking)
        return tree, waiting

    def _resumed(self, asking: Asking, job: JobView, tree: QuotaTree, now_s: float) -> bool:
        """Let a job that held quota when the objects were written hold it, and run; False if it has to wait."""
        found = None if self._desk is None or now_s > 0 else self._desk.resume(asking, job.id)
        if found is None:
            return False
        workload, allocation = found
        tree.admit(workload)
        self._held[asking.id] = _Held(workload, asking, allocation, job.request.shape)
        self._unready[asking.id] = (now_s, allocation)
        return True

    def _asking(self, job: JobView) -> Asking:
        number = self._numbers.setdefault(job.id, f"{len(self._numbers):012d}")
        self._jobs[number] = job.id
        if self._desk is not None:
            return self._desk.asking(number, job)
        request, types = job.request, job.facts.gpu_types
        queue = request.tenant if request.tenant in self.tenants else OTHERS
        return Asking(
            number,
            queue,
            (PodSet(requests={RESOURCE: job.num_gpus}) if self._levels is None else self._levels.pods(job.num_gpus),),
            int(request.priority),
            request.submit_time_s,
            None if types is None else frozenset(types),
            local_queue=f"{request.tenant}/{request.user}",
            place=request.shape,
        )

    def _quotas(self, view: View) -> QuotaTree:
        rules = ClusterQueue(
            OTHERS,
            within=Within(self.within),
            reclaim=Reclaim(self.reclaim),
            borrow_preempts_lower=self.borrowing_preempts,
            borrow_max_priority=self.borrowing_preempts_up_to,
            strict_fifo=self.strict_fifo,
        )
        totals: dict[str, int] = {}
        for node in view.nodes:
            totals[node.gpu_type] = totals.get(node.gpu_type, 0) + node.gpus
        return quotas_of(self.tenants, totals, rules)


#: Why a workload waits that no cycle has considered: it is behind others, or parked with one of its shape.
_BEHIND = Why.ANOTHER_FIRST, "its queue has not come to it"


def _by_resource(workload: Workload) -> dict[str, float]:
    """Return what a workload holds of each resource, CPUs in cores."""
    total: dict[str, float] = {}
    for (_, resource), amount in workload.usage.items():
        total[resource] = total.get(resource, 0.0) + amount / (1000 if resource == "cpu" else 1)
    return total


def _default(one: Field[Any]) -> Any:
    """Return the default of a parameter."""
    return one.default_factory() if callable(one.default_factory) else one.default
