"""Nodes that fail, that a policy releases and requests, and why each was out of use; failures of jobs.

Each node and rack has its own random stream, so all policies face the same failures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, gamma, inf

import numpy as np

from simsched.engine.clock import Phase
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.options import FailureOptions, stream
from simsched.engine.records import OutageRecord
from simsched.engine.state import JobState, Recovery
from simsched.errors import input_error
from simsched.model import Allocation, Application, JobSpec
from simsched.model.outages import AttemptPlan, JobFailures, Outage, OutageCause, PhillyFailures
from simsched.model.topology import site_of

#: The reason of a node that the policy released; for a broken node, it is that of its outage.
OFF = "off"


@dataclass(eq=False)
class Nodes:
    """Brings nodes up, `_start` ticks after a request, and down, and records each interval out of use when it ends."""

    _ledger: Ledger
    _start: float
    _on_join: Callable[[], None]
    _broken: list[tuple[float, int, str]] = field(default_factory=list)
    #: Since when each node is off, and why.
    _off: dict[int, tuple[float, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._off = {node: (0, OFF) for node, up in enumerate(self._ledger.cluster.up) if not up}

    def provision(self, wanted: Collection[int]) -> None:
        """Release unwanted nodes and start wanted ones that are down."""
        for node in range(len(self._ledger.cluster.up)):
            self.switch(node, on=node in wanted)

    def switch(self, node: int, *, on: bool, cause: str = OFF) -> None:
        """Start a node if it is down, or take an empty one out of use."""
        cluster, clock = self._ledger.cluster, self._ledger.clock
        if not on:
            cluster.returning.discard(node)
            cluster.take_down(node)
            self._off.setdefault(node, (clock.now, cause))
        elif node in cluster.broken:
            cluster.returning.add(node)
            self._back(node)
        elif not cluster.up[node] and node not in cluster.starting:
            cluster.start(node, clock.at(clock.now + self._start, Phase.RECOVERY, partial(self._join, node)))

    def _join(self, node: int, due: object) -> None:
        self._ledger.cluster.bring_up(node)
        self._back(node)
        self._on_join()

    def break_down(self, node: int, kind: str) -> None:
        """Mark an empty node as broken."""
        self._ledger.cluster.break_down(node)
        self._broken.append((self._ledger.clock.now, node, kind))
        if node in self._ledger.cluster.returning:
            self._back(node)

    def repair(self, node: int, kind: str, since: float) -> None:
        """Repair one cause of a node's outage."""
        self._ledger.cluster.repair(node)
        self._broken.remove((since, node, kind))
        self._tell(since, node, kind)

    def stand_in(self, spare: int, gone: int) -> None:
        """Bring up a spare instead of a broken node, which will be off once it is repaired."""
        self._ledger.cluster.returning.remove(gone)
        self._off[gone] = self._ledger.clock.now, OFF
        self._ledger.cluster.bring_up(spare)
        self._back(spare)

    def close(self) -> None:
        """Record open intervals at the end of the run, by start, node and kind."""
        off = [(since, node, cause) for node, (since, cause) in self._off.items()]
        for since, node, kind in sorted([*self._broken, *off]):
            self._tell(since, node, kind, ended=False)

    def _back(self, node: int) -> None:
        if node in self._off:
            since, cause = self._off.pop(node)
            self._tell(since, node, cause)

    def _tell(self, since: float, node: int, kind: str, *, ended: bool = True) -> None:
        clock = self._ledger.clock
        self._ledger.recorder.outage(OutageRecord(node, clock.seconds(since), clock.now_s, kind, ended))


def draw_outages(
    options: FailureOptions, mtbf_s: float, rng: np.random.Generator, kind: str = "node failure"
) -> Callable[[float], Outage]:
    """Return a function that draws the next outage after a second, for node 0."""
    scale_s = mtbf_s / gamma(1 + 1 / options.weibull_shape)
    causes = options.causes or (OutageCause(kind, 1.0, options.repair_median_s, options.repair_sigma),)
    return partial(_next_outage, options.weibull_shape, scale_s, causes, rng)


def _next_outage(
    shape: float, scale_s: float, causes: Sequence[OutageCause], rng: np.random.Generator, after_s: float
) -> Outage:
    down_s = after_s + scale_s * float(rng.weibull(shape))
    limits = np.cumsum([cause.share for cause in causes])
    one = int(np.searchsorted(limits[:-1], rng.random() * limits[-1], side="right")) if len(causes) > 1 else 0
    cause = causes[one]
    repair_s = cause.repair_median_s * exp(cause.repair_sigma * rng.standard_normal())
    return Outage(0, down_s, down_s + repair_s, cause.name)


@dataclass(eq=False)
class Failures(Lifecycle):
    """Fails and repairs nodes, evicts their jobs, and reports both, failures with the affected jobs."""

    _options: FailureOptions
    _seed: int
    _ledger: Ledger
    _nodes: Nodes
    _on_failure: Callable[..., None]
    _on_repair: Callable[[], None]
    _job_failures: JobFailures = field(default_factory=PhillyFailures)
    _spares: set[int] = field(default_factory=set)
    _slow: frozenset[int] = frozenset()
    #: By id, the GPUs that a job held before it lost some of them, and those that are left.
    _short: dict[str, tuple[Allocation, Allocation]] = field(default_factory=dict)

    def begin(self) -> None:
        """Schedule the first failure of each node and rack, and draw which nodes are slow."""
        options, nodes = self._options, self._ledger.cluster.cluster.nodes
        self._spares = set(range(len(nodes) - options.hot_spares, len(nodes)))
        if options.slow_nodes:
            drawn = stream(self._seed, "slow nodes").random(len(nodes))
            self._slow = frozenset(np.flatnonzero(drawn < options.slow_nodes).tolist())
        for node in nodes if options.fails else ():
            mtbf_s = options.mtbf_s(node.gpus)
            assert mtbf_s is not None
            draw = draw_outages(options, mtbf_s, stream(self._seed, f"failures of node {node.index}"))
            self._appoint((node.index,), draw(0), draw)
        if options.rack_mtbf_s is not None:
            for index, rack in enumerate(options.racks):
                rng = stream(self._seed, f"failures of rack {index}")
                draw = draw_outages(options, options.rack_mtbf_s, rng, "rack failure")
                self._appoint(rack, draw(0), draw)
        for outage in (*options.outages, *(() if options.market is None else options.market.outages())):
            self._appoint((outage.node,), outage, None)

    def recovery_of(self, spec: JobSpec, application: Application) -> Recovery:
        """Return the recovery state of a submitted job; `InputError` if its checkpoint cost does not fit."""
        clock = self._ledger.clock
        try:
            options = self._options.of(application.checkpoint_s)
        except ValueError as error:
            raise input_error(f"failures, job '{spec.id}' ({application.name})", str(error)) from error
        per_node = max(node.gpus for node in self._ledger.cluster.cluster.nodes)
        interval_s = options.interval_s(spec.num_gpus, per_node)
        interval = inf if interval_s is None else max(clock.ticks(interval_s), 0 if clock.continuous else 1)
        plan = self._plan(spec)
        ticks = [clock.ticks(seconds) for seconds in plan.run_s]
        return Recovery(interval, clock.ticks(options.cost_s), plan, ticks)

    def _plan(self, spec: JobSpec) -> AttemptPlan:
        if self._options.jobs == "trace":
            return AttemptPlan(spec.attempts_s[:-1], keeps=True)
        if self._options.jobs == "philly":
            return self._job_failures.plan(spec.num_gpus, stream(self._seed, f"failures of job {spec.id}"))
        return AttemptPlan()

    def _appoint(self, nodes: tuple[int, ...], outage: Outage, draw: Callable[[float], Outage] | None) -> None:
        time = max(self._ledger.clock.ticks(outage.down_s), self._ledger.clock.now)
        self._ledger.clock.at(time, Phase.FAILURE, partial(self._fail, nodes, outage, draw))

    def fail_now(self, node: int, for_s: float, kind: str) -> None:
        """Break a node for some seconds, as an outage of this kind."""
        now_s = self._ledger.clock.now_s
        self._fail((node,), Outage(node, now_s, now_s + for_s, kind), None)

    def _fail(
        self, nodes: tuple[int, ...], outage: Outage, draw: Callable[[float], Outage] | None, due: object = None
    ) -> None:
        down = {node for node in nodes if self._ledger.cluster.broken.get(node, 0) == 0}
        hit = [job for job in self._ledger.active.values() if any(node in down for node, _ in job.allocation)]
        held = [() if job.neighbours else job.allocation for job in hit]
        for job in hit:
            assert job.recovery is not None
            job.recovery.failures += 1
            (self._ledger.release if outage.notice else self._ledger.evict)(job)
        replaced = False
        for node in nodes:
            self._nodes.break_down(node, outage.kind)
            replaced |= self._stand_in()
        if self._options.elastic and not replaced:
            hit = [job for job, at in zip(hit, held, strict=True) if not self._goes_on(job, at)]
        if held:
            self._ledger.set_speeds()
        up = max(self._ledger.clock.ticks(outage.up_s), self._ledger.clock.now)
        self._ledger.clock.at(up, Phase.RECOVERY, partial(self._repair, nodes, outage, draw, self._ledger.clock.now))
        self._on_failure(hit)

    def _repair(
        self, nodes: tuple[int, ...], outage: Outage, draw: Callable[[float], Outage] | None, since: float, due: object
    ) -> None:
        cluster = self._ledger.cluster
        for node in nodes:
            self._nodes.repair(node, outage.kind, since)
            if self._options.hot_spares and not cluster.up[node] and node not in cluster.broken:
                self._spares.add(node)
                self._stand_in()
        self._give_back()
        if draw is not None:
            self._appoint(nodes, draw(outage.up_s), draw)
        self._on_repair()

    def _goes_on(self, job: JobState, held: Allocation) -> bool:
        """Let a job continue on what is left of its GPUs (nothing if it shared them); return whether a plan fits."""
        left = tuple(one for one in held if self._ledger.cluster.up[one[0]])
        plans = job.facts.plans
        if not left or plans is None:
            return False
        try:
            plans.best(site_of(self._ledger.cluster.cluster, left), job.request.batch_size)
        except ValueError:
            return False
        before, rest = self._short.get(job.request.id, (held, held))
        self._short[job.request.id] = (before if rest == held else held), left
        self._ledger.place(job, left)
        return True

    def _give_back(self) -> None:
        """Return to jobs the nodes that they lost, once these work and are free."""
        free = self._ledger.cluster.free
        for job_id, (held, left) in list(self._short.items()):
            job = self._ledger.active.get(job_id)
            if job is None or job.allocation != left:
                del self._short[job_id]
            elif not job.neighbours and all(free[node] >= gpus for node, gpus in held if (node, gpus) not in left):
                del self._short[job_id]
                self._ledger.release(job)
                self._ledger.place(job, held)
                self._ledger.set_speeds()

    def _stand_in(self) -> bool:
        """Replace a broken node by a working spare; return whether there was one."""
        ready = self._spares - self._ledger.cluster.broken.keys()
        if ready and self._ledger.cluster.returning:
            spare, gone = min(ready), min(self._ledger.cluster.returning)
            self._spares.remove(spare)
            self._nodes.stand_in(spare, gone)
            return True
        return False

    def placed(self, job: JobState) -> None:
        """Slow down a job on a slow node."""
        if self._slow:
            job.slow = self._options.slow_speed if any(node in self._slow for node, _ in job.allocation) else 1.0

    def begins(self, job: JobState, ticks: float) -> bool:
        """Schedule the job's next checkpoint or own failure if it precedes the end of the epoch."""
        assert job.recovery is not None
        first = inf if ticks == inf else job.recovery.interruption(job)
        if not first < ticks:
            return False
        clock = self._ledger.clock
        job.appointment = clock.at(clock.now + first, Phase.PROGRESS, partial(self._interrupt, job))
        return True

    def released(self, job: JobState) -> None:
        """Save a stopped job."""
        assert job.recovery is not None
        job.recovery.save(job)

    def _interrupt(self, job: JobState, due: object) -> None:
        recovery = job.recovery
        assert recovery is not None
        self._ledger.settle(job)
        job.running, job.appointment = None, None
        if recovery.fails_next:
            self._fail_attempt(job, recovery)
            return
        recovery.writing = True
        written = self._ledger.clock.now + recovery.cost
        job.appointment = self._ledger.clock.at(written, Phase.RESUME, partial(self._end_checkpoint, job, recovery))

    def _end_checkpoint(self, job: JobState, recovery: Recovery, due: object) -> None:
        self._ledger.settle(job)
        recovery.save(job)
        self._ledger.begin(job)

    def _fail_attempt(self, job: JobState, recovery: Recovery) -> None:
        """Requeue a job whose attempt failed, or end it after its last attempt."""
        if recovery.gives_up:
            self._ledger.complete(job, "Failed")
            return
        recovery.attempt += 1
        if recovery.plan.keeps:
            self._ledger.release(job)
        else:
            self._ledger.evict(job)
        self._ledger.set_speeds()
        self._on_failure([job], of_node=False)
