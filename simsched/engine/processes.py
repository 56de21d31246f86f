"""Users' SimPy processes beside the cluster, and the window through which they see and change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from math import inf
from operator import index
from typing import Any

import numpy as np
import simpy

from simsched.engine.errors import EngineError
from simsched.engine.failures import Failures, Nodes
from simsched.engine.ledger import Ledger, Lifecycle
from simsched.engine.options import PROCESSES, stream
from simsched.engine.records import CANCELLED, JobRecord, job_record
from simsched.engine.state import JobState
from simsched.errors import nearest
from simsched.model import JobSpec
from simsched.plugins import place_of

#: Seconds without a running job after which nobody expects a process to bring the cluster back.
PATIENCE_S = 30 * 86_400
_FIELDS = frozenset(one.name for one in fields(JobSpec)) - {"submit_time_s"}


class ProcessError(EngineError):
    """A process asked for what the cluster cannot do, or failed by itself."""


@dataclass(eq=False)
class Processes(Lifecycle):
    """Runs users' processes and lets them act through ledger, nodes and failures, in a phase of their own."""

    _seed: int
    ledger: Ledger
    nodes: Nodes
    failures: Failures
    submit: Callable[[JobSpec], None]
    on_lost: Callable[[Sequence[JobState]], None]
    #: The ids of all jobs submitted or listed in the workload, and the rows of those that have finished.
    known_ids: set[str]
    _finished: dict[str, JobRecord] = field(default_factory=dict)
    #: By label, what runs.
    running: dict[str, Any] = field(default_factory=dict)
    _awaited: dict[tuple[str, str], simpy.Event] = field(default_factory=dict)
    _happened_s: float = 0.0

    def add(self, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
        """Start a process at this instant: `function(site, **params)` returns a generator, or what works like one.

        Raises `ProcessError` for anything else.
        """
        name = getattr(function, "__name__", type(function).__name__)
        label = name if name not in self.running else f"{name}-{len(self.running) + 1}"
        try:
            made = function(Site(self, label, stream(self._seed, f"process {label}")), **params)
        except (Exception, SystemExit) as error:  # a user's code may raise anything
            raise self._failure(label, function, error) from error
        if not (hasattr(made, "send") and hasattr(made, "throw")):
            raise ProcessError(f"process '{label}' is {made!r:.60}, which SimPy cannot run; {PROCESSES.remedy}")
        self.running[label] = made
        callbacks = self.ledger.clock.process(made).callbacks
        assert callbacks is not None  # it has not ended
        callbacks.append(partial(self._ended, label, function))

    def _ended(self, label: str, function: Callable[..., Any], process: simpy.Event) -> None:
        """Stop the run if a process has failed."""
        if not process.ok:
            process.defused = True
            error: BaseException = process.value  # type: ignore[assignment]  # a failed event's value
            raise self._failure(label, function, error) from error

    def _failure(self, label: str, function: Any, error: BaseException) -> BaseException:
        """Return how a process fails, with its line; an interrupt is the user's."""
        if isinstance(error, KeyboardInterrupt):
            return error
        place, kind = place_of(error, function), "" if isinstance(error, ProcessError) else f"{type(error).__name__}: "
        at = f"t={self.ledger.clock.now_s} s" + (f" ({place})" if place else "")
        return ProcessError(f"process '{label}' at {at}: {kind}{error}")

    def placed(self, job: JobState) -> None:
        """Tell those who wait that a job has started."""
        self._happened_s = self.ledger.clock.now_s
        event = self._awaited.pop(("started", job.request.id), None)
        if event is not None:
            event.succeed(job_record(job, ""))

    def ended(self, job: JobState, record: JobRecord) -> None:
        """Tell those who wait that a job has finished; one that never started will not."""
        self._happened_s = self.ledger.clock.now_s
        self._finished[record.job_id] = record
        event = self._awaited.pop(("finished", record.job_id), None)
        if event is not None:
            event.succeed(record)

    def event(self, what: str, job_id: str) -> simpy.Event:
        """Return the event of a job's first start or of its end, which may have been."""
        if job_id not in self.known_ids:
            raise ProcessError(f"there is no job '{job_id}'; {nearest(job_id, self.known_ids)}".rstrip("; "))
        job, record = self.ledger.active.get(job_id), self._finished.get(job_id)
        if record is None and what == "started" and job is not None and job.starts:
            record = job_record(job, "")
        if record is not None:
            return self.ledger.clock.event().succeed(record)
        return self._awaited.setdefault((what, job_id), self.ledger.clock.event())

    def look(self) -> None:
        """Raise `ProcessError` if nothing but processes has happened for so long that the run would not end."""
        if self.ledger.active and not self.ledger.cluster.allocated_gpus:
            since_s = max(self._happened_s, min(job.request.submit_time_s for job in self.ledger.active.values()))
            if self.ledger.clock.now_s - since_s > PATIENCE_S:
                raise ProcessError(f"no job has run since t={since_s} s, but {len(self.ledger.active)} wait")

    def node(self, node: int) -> int:
        """Return the index of a node, as a whole number of Python; raises `ProcessError` if there is none."""
        if not 0 <= index(node) < len(self.ledger.cluster.up):
            raise ProcessError(f"there is no node {node}; nodes are 0 to {len(self.ledger.cluster.up) - 1}")
        return index(node)


class Site:
    """What a process sees of the cluster and may do to it, as a user or an operator: never the truth about jobs.

    Each call acts at the present second, in the phase of processes: after arrivals, before the decision. What cannot be
    done raises `ProcessError` in the process.
    """

    def __init__(self, engine: Processes, name: str, rng: np.random.Generator) -> None:
        """Show the cluster to the process `name`."""
        self._engine = engine
        self.name = name
        #: The random stream of this process.
        self.rng = rng
        self._submitted = 0

    @property
    def now_s(self) -> float:
        """Seconds since the start of the workload."""
        return self._engine.ledger.clock.now_s

    @property
    def nodes(self) -> tuple[int, ...]:
        """The indices of the nodes in use."""
        return tuple(node for node, up in enumerate(self._engine.ledger.cluster.up) if up)

    def timeout(self, delay_s: float, value: object = None) -> simpy.Event:
        """Return an event after some seconds: at least a tick, or at once for 0; raises `ProcessError` below 0."""
        self._engine.look()
        clock = self._engine.ledger.clock
        if not 0 <= delay_s < inf:
            raise ProcessError(f"a timeout lasts 0 seconds or more, not {delay_s}")
        ticks = clock.ticks(delay_s)
        return clock.timeout(max(ticks, 1) if delay_s and not clock.continuous else ticks, value)

    def any_of(self, events: Iterable[simpy.Event]) -> simpy.Event:
        """Return an event that happens with the first of others."""
        return self._engine.ledger.clock.any_of(events)

    def all_of(self, events: Iterable[simpy.Event]) -> simpy.Event:
        """Return an event that happens with the last of others."""
        return self._engine.ledger.clock.all_of(events)

    def started(self, job: str) -> simpy.Event:
        """Return the event of a job's first start; its value is the job's row by then."""
        return self._engine.event("started", job)

    def finished(self, job: str) -> simpy.Event:
        """Return the event of a job's end; its value is the job's row."""
        return self._engine.event("finished", job)

    def fail(self, node: int, for_s: float) -> None:
        """Break a node for some seconds; its jobs fall back to their last checkpoints. The cause is this process.

        Raises `ProcessError` for a node that does not exist, and a time that is not above 0.
        """
        if not 0 < for_s < inf:
            raise ProcessError(f"a node fails for more than 0 seconds, not {for_s}")
        self._engine.failures.fail_now(self._engine.node(node), for_s, self.name)

    def drain(self, node: int) -> None:
        """Take a node out of use; its jobs lose their GPUs and keep their progress."""
        self._drain([self._engine.node(node)])

    def _drain(self, nodes: Sequence[int]) -> None:
        engine = self._engine
        hit = [job for job in engine.ledger.active.values() if any(node in nodes for node, _ in job.allocation)]
        for job in hit:
            engine.ledger.release(job)
        for node in nodes:
            engine.nodes.switch(node, on=False, cause=self.name)
        engine.ledger.set_speeds()
        engine.on_lost(hit)

    def provision(self, nodes: int) -> None:
        """Have so many nodes in use or starting: start those of the lowest index, or drain those of the highest.

        Raises `ProcessError` for more nodes than exist.
        """
        cluster = self._engine.ledger.cluster
        if not 0 <= index(nodes) <= len(cluster.up):
            raise ProcessError(f"the cluster has {len(cluster.up)} nodes, so that {nodes} cannot be provisioned")
        on = [node for node, up in enumerate(cluster.up) if up or node in cluster.starting]
        off = [node for node in range(len(cluster.up)) if node not in on and node not in cluster.broken]
        for node in off[: max(nodes - len(on), 0)]:
            self._engine.nodes.switch(node, on=True)
        if nodes < len(on):
            self._drain(on[nodes:])

    def submit(self, **job: Any) -> str:
        """Submit a job with the fields of `JobSpec` and return its id; its user is this process unless given.

        Raises `ProcessError` or `InputError` for a job that cannot be.
        """
        unknown = next((name for name in job if name not in _FIELDS), None)
        if unknown is not None:
            raise ProcessError(f"a job has no field '{unknown}'; {nearest(unknown, _FIELDS)}")
        self._submitted += 1
        named = {"id": f"{self.name}-{self._submitted}", "user": self.name, "num_gpus": 1, **job}
        spec = JobSpec(**named, submit_time_s=self.now_s)
        self._engine.submit(spec)
        return spec.id

    def cancel(self, job: str) -> None:
        """End a job, in the final state `Cancelled`; raises `ProcessError` if it is not active."""
        if job not in self._engine.ledger.active:
            self._engine.event("finished", job)  # a job that nobody knows is refused as such
            raise ProcessError(f"job '{job}' is not active")
        self._engine.ledger.complete(self._engine.ledger.active[job], CANCELLED)
