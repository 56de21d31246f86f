"""A scheduler in another process, in any language: the protocol's side in simsched.

Nothing but requests, declared signals, and what is free leaves this process (`simsched_policies.external.messages`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from simsched.errors import input_error, nearest
from simsched.model import JobRequest
from simsched.policy import INPUT_FILE, Decision, JobView, Policy, Reasons, Signal, Traits, View, Why, signals as known
from simsched_policies.external.messages import VERSION, Decision as Answer, decision, ready
from simsched_policies.external.wire import ExternalError, Wire

T = TypeVar("T")

#: What may be sent of a job: its visible service, and signals that are plain values.
SENT: Mapping[str, Callable[[JobView], Any]] = MappingProxyType(
    {
        "attained_gpu_s": lambda job: job.attained_gpu_s,
        "held_s": lambda job: job.held_s,
        "gpu_busy": lambda job: job[known.GPU_BUSY],
        "recorded_duration": lambda job: job[known.RECORDED_DURATION],
        "remaining_work": lambda job: job[known.REMAINING_WORK].seconds,
        "stage_times": lambda job: job[known.STAGE_TIMES],
        "true_rates": lambda job: {kind: rate for kind, rate in job[known.TRUE_RATES].items()},  # noqa: C416
    }
)
SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        one.name: one
        for one in vars(known).values()
        if isinstance(one, known.JobSignal | known.ViewSignal | known.FileSignal)
    }
)
#: The client that ships: an example to start from.
CLIENT = Path(__file__).with_name("client.py")
#: A request of which only what must be given is given.
USUAL = JobRequest("", 0.0, 0)
_PLAIN = (str, int, float, bool, type(None))


class Changes:
    """What a client already knows of the nodes, to send it only what changes."""

    def __init__(self, view: View) -> None:
        """Start with all nodes up and free."""
        self._free, self._up = [node.gpus for node in view.nodes], [True] * len(view.nodes)

    def since_last(self, view: View) -> dict[str, Any]:
        """Return the message `decide` of a view, without signals."""
        message: dict[str, Any] = {"type": "decide", "now_s": view.now_s}
        if view.arrived:
            message["arrived"] = [told(job.request) for job in view.arrived]
        if view.finished:
            message["finished"] = list(view.finished)
        for name, jobs in (("lost", view.lost), ("reached", view.reached_threshold)):
            if jobs:
                message[name] = [job.id for job in jobs]
        free, up = list(view.free), list(view.up)
        if free != self._free:
            message["free"] = [(node, new) for node, new in enumerate(free) if new != self._free[node]]
        if up != self._up:
            message["up"] = [(node, new) for node, new in enumerate(up) if new != self._up[node]]
        self._free, self._up = free, up
        return message


@dataclass
class External(Policy):
    """Lets a client decide: a process for each cell, or one that listens on the socket `connect: unix:/path`.

    It is started as `command` followed by the file `program`, whose content is part of what identifies a result. Both
    may stand alone; without either, the client is `client.py` beside this file, which runs the jobs with the least work
    left.

    `tell` names what it is told of jobs beyond their requests, `params` is handed to it at the start. It decides every
    `interval_s` seconds, or at every event, and has `timeout_s` seconds for each answer. With `elastic` it may give
    jobs other numbers of GPUs than they ask for.
    """

    name: ClassVar[str] = "external"
    traits: ClassVar[Traits] = Traits(interval="interval_s")

    command: tuple[str, ...] = ()
    program: Annotated[str | None, INPUT_FILE] = None
    connect: str = ""
    tell: tuple[str, ...] = ("remaining_work",)
    params: Mapping[str, Any] = field(default_factory=dict)
    interval_s: float | None = None
    elastic: bool = False
    timeout_s: float = 30.0
    _wire: Wire | None = field(default=None, init=False, repr=False)
    _changes: Changes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse a client that is given twice or not at all, and signals that cannot be sent."""
        if ((self.command or self.program) and self.connect) or not (self.connect or "unix:").startswith("unix:"):
            raise input_error(
                "policy 'external'", "give either a command, or connect: unix:/path", "see docs/external.md"
            )
        odd = [name for name in self.tell if name not in SENT]
        if odd:
            message = f"the signal '{odd[0]}' is no plain value that could be sent"
            raise input_error("policy 'external', tell", message, nearest(odd[0], SENT))

    @property
    def rigid(self) -> bool:
        """Whether the client gives each job the GPUs that it asks for, or none."""
        return not self.elastic

    @property
    def signals(self) -> frozenset[Signal]:
        """The signals that the client is told."""
        return frozenset(SIGNALS[name] for name in self.tell if name in SIGNALS)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Tell the client what has changed, and carry out its answer."""
        wire = self._wire or self._begin(view, rng)
        message = self._changes.since_last(view)
        if self.tell:
            jobs = {job.id: job for job in (*view.arrived, *view.lost)}
            jobs |= {job.id: job for job in view.jobs.values() if job.running}
            message["told"] = {name: [SENT[one](job) for one in self.tell] for name, job in jobs.items()}
        wire.send(line(message))
        made, said = self._checked(wire, decision)
        if view.reasons is not None:
            give_reasons(view.reasons, said)
        if said.order:
            made = made._replace(jobs={job: made.jobs[job] for job in (*said.order, *made.jobs) if job in made.jobs})
        return made

    def artifacts(self) -> Mapping[str, str]:
        """Tell the client that the run has ended."""
        if self._wire is not None:
            self._wire.send(b'{"type": "end"}')
            self._wire.close()
        return {}

    def _begin(self, view: View, rng: np.random.Generator) -> Wire:
        runs = groupby((node.gpus, node.gpu_type) for node in view.nodes)
        hello = {
            "type": "hello", "version": VERSION, "nodes": [(len(list(run)), *kind) for kind, run in runs],
            "signals": self.tell, "restart_delay_s": view.restart_delay_s, "seed": int(rng.integers(2**32)),
            "params": dict(self.params),
        }  # fmt: skip
        self._changes = Changes(view)
        command = (*self.command, *([self.program] if self.program else []))
        started = command or (() if self.connect else (sys.executable, str(CLIENT)))
        self._wire = wire = Wire(started, self.connect, self.timeout_s)
        wire.send(line(hello))
        self._checked(wire, ready)
        return wire

    def _checked(self, wire: Wire, read: Callable[[bytes], T]) -> T:
        answer = wire.receive()
        try:
            return read(answer)
        except ValueError as error:
            wire.send(line({"type": "refused", "why": str(error)}))
            wire.close()
            raise ExternalError(f"the client's answer {answer[:60]!r} is refused: {error}") from None


def give_reasons(reasons: Reasons, said: Answer) -> None:
    """Report the order and the waits of an answer; `ValueError` for a reason that does not exist."""
    reasons.order(said.order if isinstance(said.order, dict) else dict.fromkeys(said.order, ()))
    reasons.places |= {job: (rank, reasons.places[job][1]) for job, rank in said.ranks.items()}
    for job, (why, detail) in said.waits.items():
        reasons.wait(job, Why(why), detail)


def line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":")).encode()


def told(request: JobRequest) -> dict[str, Any]:
    """Return the plain fields of a request that differ from their defaults."""
    pairs = zip(request._fields, request, USUAL, strict=True)
    return {name: value for name, value, usual in pairs if value != usual and isinstance(value, _PLAIN)}
