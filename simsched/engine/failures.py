"""Nodes that fail and recover, and jobs that fail by themselves.

Every node, and every rack of nodes that fail together, has a random stream of its own: what the policy does shifts
none of them, so that two policies under one seed meet the same failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import exp, gamma

import numpy as np

from simsched.engine.clock import Clock, Phase
from simsched.engine.failure_options import FailureOptions
from simsched.engine.ledger import Ledger
from simsched.engine.outage_log import OutageLog
from simsched.engine.recovery import Recovery
from simsched.engine.state import ClusterState, JobState
from simsched.engine.streams import stream
from simsched.model import AttemptPlan, JobFailures, JobSpec, Outage, PhillyFailures


def draw_outages(
    options: FailureOptions, mtbf_s: float, rng: np.random.Generator, kind: str = "node failure"
) -> Callable[[float], Outage]:
    """Return a function that draws the next outage after a second; `node` of what it returns is 0."""
    scale_s = mtbf_s / gamma(1 + 1 / options.weibull_shape)

    def draw(after_s: float) -> Outage:
        down_s = after_s + scale_s * float(rng.weibull(options.weibull_shape))
        repair_s = options.repair_median_s * exp(options.repair_sigma * rng.standard_normal())
        return Outage(0, down_s, down_s + repair_s, kind)

    return draw


class Failures:
    """Has nodes fail and recover as the clock goes, and takes jobs off nodes that fail."""

    def __init__(
        self,
        options: FailureOptions,
        seed: int,
        clock: Clock,
        cluster: ClusterState,
        ledger: Ledger,
        active: Mapping[str, JobState],
        log: OutageLog,
        on_change: Callable[[Sequence[JobState]], None],
        on_repair: Callable[[], None],
    ) -> None:
        """Report every failure with the jobs that it hit, and every repair; the `log` has them all."""
        self._options = options
        self._seed = seed
        self._clock = clock
        self._cluster = cluster
        self._ledger = ledger
        self._active = active
        self._log = log
        self._on_change = on_change
        self._on_repair = on_repair
        self._job_failures: JobFailures = PhillyFailures()

    def begin(self) -> None:
        """Appoint the first failure of everything that may fail."""
        options = self._options
        if options.node_mtbf_s is not None:
            for node in range(len(self._cluster.up)):
                rng = stream(self._seed, f"failures of node {node}")
                self._next((node,), draw_outages(options, options.node_mtbf_s, rng), 0)
        if options.rack_mtbf_s is not None:
            for index, rack in enumerate(options.racks):
                rng = stream(self._seed, f"failures of rack {index}")
                self._next(rack, draw_outages(options, options.rack_mtbf_s, rng, "rack failure"), 0)
        for outage in options.outages:
            self._appoint((outage.node,), outage, None)

    def recovery_of(self, spec: JobSpec) -> Recovery:
        """Return what a job that is submitted falls back to."""
        options, clock = self._options, self._clock
        interval_s = options.checkpoint_interval_s
        interval = None if interval_s is None else max(clock.ticks(interval_s), 0 if clock.continuous else 1)
        plan = self._plan(spec)
        ticks = tuple(clock.ticks(seconds) for seconds in plan.run_s)
        return Recovery(interval, clock.ticks(options.checkpoint_cost_s), plan, ticks)

    def _plan(self, spec: JobSpec) -> AttemptPlan:
        if self._options.jobs == "trace":
            return AttemptPlan(spec.attempts_s[:-1], keeps=True)
        if self._options.jobs == "philly":
            return self._job_failures.plan(spec.num_gpus, stream(self._seed, f"failures of job {spec.id}"))
        return AttemptPlan()

    def _next(self, nodes: tuple[int, ...], draw: Callable[[float], Outage], after_s: float) -> None:
        self._appoint(nodes, draw(after_s), draw)

    def _appoint(self, nodes: tuple[int, ...], outage: Outage, draw: Callable[[float], Outage] | None) -> None:
        time = max(self._clock.ticks(outage.down_s), self._clock.now)
        self._clock.at(time, Phase.FAILURE, partial(self._fail, nodes, outage, draw))

    def _fail(self, nodes: tuple[int, ...], outage: Outage, draw: Callable[[float], Outage] | None) -> None:
        down = {node for node in nodes if self._cluster.broken.get(node, 0) == 0}
        hit = [job for job in self._active.values() if any(node in down for node, _ in job.allocation)]
        for job in hit:
            assert job.recovery is not None
            job.recovery.failures += 1
            self._ledger.evict(job)
        for node in nodes:
            self._cluster.break_down(node)
            self._log.breaks(node, outage.kind)
            if node in self._cluster.returning:
                self._log.back(node)
        if hit:
            self._ledger.set_speeds()
        up = max(self._clock.ticks(outage.up_s), self._clock.now)
        self._clock.at(up, Phase.RECOVERY, partial(self._repair, nodes, outage, draw, self._clock.now))
        self._on_change(hit)

    def _repair(
        self, nodes: tuple[int, ...], outage: Outage, draw: Callable[[float], Outage] | None, since: float
    ) -> None:
        for node in nodes:
            self._cluster.repair(node)
            self._log.repaired(node, outage.kind, since)
        if draw is not None:
            self._next(nodes, draw, outage.up_s)
        self._on_repair()
