"""A policy in Python that runs in a process of its own, reached only by messages: simsched's side of the bridge.

Towards the process, objects for which JSON has no words are pickled; what comes from it is JSON and is checked.
"""

from __future__ import annotations

import base64
import contextlib
import copyreg
import io
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np

from simsched.agent import Agent, Lease, LeasingAgent, Measurement, configured_agent
from simsched.errors import InputError, Problem, input_error
from simsched.model import ApplicationFacts, BatchChoice, Cluster, JobRequest, Site
from simsched.model.placement import Tier
from simsched.model.plans import Plan
from simsched.policy import INPUT_FILE, Decision, JobView, Policy, Signal, Traits, Triggers, View, physics, signals
from simsched.policy.physics import Becomes, Physics, Wants
from simsched.policy.signals import PairSpeeds, RemainingWork, StepCounts, ViewSignal
from simsched_policies.external import messages
from simsched_policies.external.policy import SIGNALS, USUAL, Changes, give_reasons, line
from simsched_policies.external.wall import Limits, started
from simsched_policies.external.wire import ExternalError

#: Signals whose members are asked for one by one, and those of them that are called themselves (None).
ASKED: Mapping[Signal, type[Any] | None] = MappingProxyType(
    {
        signals.REMAINING_WORK: RemainingWork, signals.STEPS: StepCounts, signals.PAIR_SPEEDS: PairSpeeds,
        signals.STEP_TIMES: None, signals.NEXT_ARRIVAL: None, signals.OFFERS: None,
    }
)  # fmt: skip
#: What may be asked of a job besides signals.
SERVICE = ("attained_gpu_s", "held_s", "age_s")
_PHYSICS = {one.name: one for one in vars(physics).values() if isinstance(one, Physics)}


def read_only(values: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only mapping, which cannot be pickled itself."""
    return MappingProxyType(values)


_TABLE = {**copyreg.dispatch_table, MappingProxyType: lambda one: (read_only, (dict(one),))}


def packed(value: object) -> str:
    """Pickle a value, as the text of a message."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _TABLE
    pickler.dump(value)
    return base64.b64encode(stream.getbuffer()).decode()


class Described(messages._Fields):
    """What a policy says of itself: its members that hold plain values."""

    name: str
    rigid: bool
    forgets: bool
    needs_sharing: bool
    own_agents: bool
    follows: str
    longest_pause_s: float
    signals: list[str]
    triggers: dict[str, float | bool | None]
    traits: dict[str, bool]
    counts_on: dict[str, str]
    own: list[str]


def _says(name: str) -> Any:
    return property(lambda self: getattr(self.described, name))


class Bridged(Policy):
    """Runs a policy in a process of its own, which learns only what the policy declares and messages tell it.

    `policy` is the name of the policy, `code` its file or the folder of its package, `params` its own parameters. With
    `walled` its process may not write outside a folder of its own, nor reach any network, and has `memory_mb` of
    memory. It has `timeout_s` seconds for each answer.
    """

    name: ClassVar[str] = "bridged"
    rigid = _says("rigid")
    forgets = _says("forgets")
    needs_sharing = _says("needs_sharing")
    own_agents = _says("own_agents")
    follows = _says("follows")
    longest_pause_s = _says("longest_pause_s")

    def __init__(
        self,
        policy: str = "fifo",
        code: Annotated[str | None, INPUT_FILE] = None,
        params: Mapping[str, Any] | None = None,
        walled: bool = True,
        memory_mb: int = 4096,
        timeout_s: float = 60.0,
    ) -> None:
        """Ask the policy what it declares, in a process that then ends; raises `InputError` as the policy does."""
        place = f"{code}:{policy.rpartition(':')[2]}" if code and code.endswith(".py") else policy
        self._start = Limits(place, line(params or {}).decode(), walled, memory_mb, timeout_s)
        self.described = _described(self._start)
        self.name = self.described.name  # type: ignore[misc]  # the class has none of its own
        self.traits = Traits(needs=self.signals, rigid=self.rigid, **self.described.traits)  # type: ignore[misc, arg-type]
        self._link: _Link | None = None

    @property
    def triggers(self) -> Triggers:
        """When the policy decides."""
        return Triggers(**self.described.triggers)  # type: ignore[arg-type]

    @property
    def signals(self) -> frozenset[Signal]:
        """The signals that the policy declares."""
        return frozenset(SIGNALS[name] for name in self.described.signals)

    @property
    def counts_on(self) -> Wants:
        """The physics that the policy counts on."""
        return {_PHYSICS[name]: Becomes(words) for name, words in self.described.counts_on.items() if name in _PHYSICS}

    @property
    def link(self) -> _Link:
        """The process, started when it is first needed."""
        if self._link is None:
            self._link = _Link(self._start, self.signals)
        return self._link

    def begin(self, cluster: Cluster) -> None:
        """Tell the policy the cluster."""
        if "begin" in self.described.own:
            self.link.call("begin", cluster)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Let the policy create an agent, which stays in its process unless it is the usual one."""
        if "agent" not in self.described.own:
            return configured_agent(request, facts)
        kind, learns = self.link.call("agent", request, facts, job=request.id)
        if kind == "usual":
            return configured_agent(request, facts)
        return (_Leasing if kind == "leasing" else _Agent)(self.link, request.id, learns)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Let the policy look at the workload."""
        if "check_jobs" in self.described.own:
            self.link.shown = {job.id: job for job in jobs}
            self.link.call("check_jobs", [(job.request, job.facts) for job in jobs], cluster)

    def artifacts(self) -> Mapping[str, str]:
        """Return the policy's files, and end its process."""
        found = self.link.call("artifacts") if "artifacts" in self.described.own else {}
        if self._link is not None:
            self._link.end()
        if not all(isinstance(text, str) and "/" not in name for name, text in found.items()):
            raise ExternalError("the policy's artifacts are no texts by file name")
        return dict(found)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Tell the policy what has changed, answer its questions, and return its decision."""
        return self.link.decide(view, rng)


@lru_cache(maxsize=64)
def _described(start: Limits) -> Described:
    link = _Link(start, frozenset())
    try:
        found = messages.read(Described, line(link.call("describe")))
        unknown = [name for name in found.signals if name not in SIGNALS or name == signals.COMING_JOBS.name]
        if unknown:
            raise input_error(f"policy '{found.name}'", f"the signal '{unknown[0]}' cannot be sent to another process",
                              "run it without --isolated")  # fmt: skip
        Triggers(**found.triggers)  # type: ignore[arg-type]
    except ValueError as error:
        raise ExternalError(f"the policy '{start.policy}' does not describe itself: {error}") from None
    finally:
        link.end()
    return found


class _Link:
    """A process with a policy, and what it has been told."""

    def __init__(self, start: Limits, granted: frozenset[Signal]) -> None:
        """Start the process."""
        self._signals = {one.name: one for one in granted}
        self._wire = started(start)
        #: The jobs and the view that questions are about.
        self.shown: Mapping[str, JobView] = {}
        self._view: View | None = None
        self._changes: Changes | None = None
        self._rng: np.random.Generator | None = None
        self._facts: dict[int, tuple[int, ApplicationFacts]] = {}
        self._held: dict[str, tuple[Any, int]] = {}
        self._named: Mapping[str, object] = {}
        self._beside: object = None
        hello = messages.Hello(version=messages.VERSION, nodes=[], signals=[], restart_delay_s=0, seed=0,
                               params=start._asdict())  # fmt: skip
        self._answered(line(hello.model_dump()), messages.Ready)

    def call(self, what: str, *args: object, job: str = "") -> Any:
        """Call a method in the process and return its value, which is plain data."""
        message = {"type": "call", "what": what, "job": job} | ({"python": packed(args)} if args else {})
        return self._answered(line(message), messages.Done).value

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Let the policy decide."""
        self.shown, self._view = view.jobs, view
        message, objects = self._message(view)
        if rng is not self._rng:
            self._rng, objects["rng"] = rng, rng.bit_generator.state
        if objects:
            message["python"] = packed(objects)
        said = self._answered(line(message), messages.Decision)
        made = messages.decided(said)
        if view.reasons is not None:
            give_reasons(view.reasons, said)
        for job in made.allocations:
            self._held.setdefault(job, ((), -1))
        self._named = self._held if made.rest == "stops" else made.jobs
        return made

    def end(self) -> None:
        """End the process, unless it has ended."""
        with contextlib.suppress(ExternalError, OSError):
            self._wire.send(b'{"type": "end"}')
        self._wire.close()

    def _message(self, view: View) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the message of a view, and the objects that go with it."""
        objects: dict[str, Any] = {}
        if self._changes is None:
            self._changes = Changes(view)
            objects["fixed"] = (view.restart_delay_s, view.max_jobs_per_gpu, view.reasons is not None)
            objects["nodes"] = tuple(view.nodes)
        message = self._changes.since_last(view)
        for job, fields in zip(view.arrived, message.get("arrived", ()), strict=True):
            facts = job.facts
            if id(facts) not in self._facts:
                self._facts[id(facts)] = len(self._facts), facts
                objects.setdefault("facts", []).append(facts)
            fields["facts"] = self._facts[id(facts)][0]
            if len(fields) - 1 < sum(one != usual for one, usual in zip(job.request, USUAL, strict=True)):
                objects.setdefault("requests", {})[job.id] = job.request
        if view.beside is not None and list(view.beside) != self._beside:
            objects["beside"] = self._beside = list(view.beside)
        for job_id in view.finished:
            self._held.pop(job_id, None)
        # Without failures and neighbours only jobs that the last decision names can have changed.
        whole = view.max_jobs_per_gpu > 1 or view.lost or "up" in message
        held = [row for job_id in [*(self._held if whole else self._named)] if (row := self._changed(view, job_id))]
        if held:
            message["held"] = held
        return message, objects

    def _changed(self, view: View, job_id: str) -> tuple[Any, ...] | None:
        """Return the new GPUs of a job and what goes with them, None if they are the same."""
        job, known = view.jobs.get(job_id), self._held.get(job_id)
        if job is None or known is None:
            return None
        at, starts = job.allocation, job.starts
        if at is known[0] and starts == known[1] and view.max_jobs_per_gpu == 1:
            return None
        self._held[job_id] = at, starts
        if not at:
            del self._held[job_id]
        return job_id, at, starts, job.first_start_s, job.neighbours

    def _answered(self, message: bytes, kind: type[messages.Message]) -> messages.Message:
        """Send a message and return the answer to it; questions in between are answered."""
        wire = self._wire
        wire.send(message)
        until = time.monotonic() + wire.timeout_s
        while True:
            answer = wire.receive(until)
            try:
                if answer.startswith(b'{"type":"ask"'):
                    wire.send(
                        line({"type": "answer", "python": packed(self._values(messages.read(messages.Ask, answer)))})
                    )
                elif answer.startswith(b'{"type":"failed"'):
                    raise _error(messages.read(messages.Failed, answer))
                else:
                    return messages.read(kind, answer)
            except InputError:
                wire.close()
                raise
            except (ValueError, TypeError, KeyError) as error:
                wire.send(line({"type": "refused", "why": str(error)}))
                wire.close()
                raise ExternalError(f"the policy's answer {answer[:60]!r} is refused: {error}") from None

    def _values(self, ask: messages.Ask) -> dict[str, tuple[bool, Any]]:
        """Return what a policy asks for, of each job; an error that reading it raises is its answer."""
        if ask.signal in SERVICE:
            return {job: (True, getattr(self.shown[job], ask.signal)) for job in ask.jobs}
        signal = self._signals.get(ask.signal)
        if signal is None:
            raise ValueError(f"the signal '{ask.signal}' is not in the policy's needs")
        proto = ASKED.get(signal)
        if ask.member and (proto is None or ask.member.startswith("_") or ask.member not in vars(proto)):
            raise ValueError(f"the signal '{ask.signal}' has no '{ask.member}'")
        values: dict[str, tuple[bool, Any]] = {}
        for job in ask.jobs:
            try:
                found = self._view[signal] if isinstance(signal, ViewSignal) else self.shown[job][signal]  # type: ignore[index]
                values[job] = True, _read(signal, found, ask)
            except (ValueError, LookupError, ArithmeticError, InputError) as error:
                values[job] = False, (type(error).__name__, error.args)
        return values


def _read(signal: Signal, found: Any, ask: messages.Ask) -> Any:
    """Return a value, a member of it, or what a call returns."""
    if signal is signals.SERVICE_HISTORY:
        return found[ask.args[0] if ask.args else 0 :]
    if signal in ASKED and not ask.member and ask.args is None:
        return found is not None
    value = getattr(found, ask.member) if ask.member else found
    if ask.args is None:
        return value
    return value(*(_site(one) if isinstance(one, list) else one for one in ask.args), **ask.named)


def _site(one: Sequence[Any]) -> Site:
    shape, gpu_type, crossed, factor, tiers = one
    return Site(tuple(shape), gpu_type, crossed, factor, tuple(Tier(*tier) for tier in tiers))


def _error(failed: messages.Failed) -> Exception:
    if failed.problems:
        return InputError(*(Problem(*one) for one in failed.problems))
    return ExternalError(failed.error)


class _Agent:
    """The agent of a job, which is in the process of its policy."""

    goodput = None  # whoever reads it is in that process

    def __init__(self, link: _Link, job: str, learns: bool) -> None:
        self._link, self._job, self._learns = link, job, learns

    @property
    def stale(self) -> bool:
        """Whether `choose` could differ from its last answer."""
        return self._learns and bool(self._link.call("stale", job=self._job))

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch for a site."""
        local, steps, plan = self._link.call("choose", site, epoch, job=self._job)
        return BatchChoice(local, steps, None if plan is None else Plan(**plan))

    def observe(self, measurement: Measurement) -> None:
        """Report a measurement."""
        if self._learns:
            self._link.call("observe", measurement, job=self._job)


class _Leasing(_Agent, LeasingAgent):
    """An agent that grants its job time in leases."""

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Return the lease of a job that starts."""
        number, end_s, completes = self._link.call("lease", site, progress, now_s, job=self._job)
        call: Callable[..., Any] = partial(self._link.call, "progress", number, job=self._job)
        return Lease(end_s, call, completes)
