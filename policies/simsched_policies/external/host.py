"""A policy in Python that runs in a process of its own: the process's side of the bridge.

It rebuilds the views of jobs and of the cluster from messages, and asks for signals when the policy reads them.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from simsched.agent import Agent, LeasingAgent, NoBatchAgent, UnlearningAgent, configured_agent, no_goodput
from simsched.errors import InputError, input_error, nearest
from simsched.model import Allocation, ApplicationFacts, JobRequest
from simsched.model.placement import NOTHING
from simsched.plugins import parameters
from simsched.policy import (
    CANCEL,
    POLICIES,
    Decision,
    Decline,
    JobView,
    Place,
    Policy,
    Reasons,
    Stop,
    no_decision,
    signals,
    undeclared,
)
from simsched.policy.signals import JobSignal, ViewSignal
from simsched_policies.external.bridge import ASKED
from simsched_policies.external.messages import VERSION, placed

#: Signals that do not change while a job exists, and those that may change at any time.
_CONSTANT = ("recorded_duration", "stage_times", "gpu_busy", "plans", "offline_profiles", "step_times",
             "market", "planned_outages")  # fmt: skip
_ANY_TIME = ("age_s", "goodput")
_ERRORS = {
    "InputError": InputError,
    "LookupError": LookupError,
    "KeyError": KeyError,
    "ZeroDivisionError": ZeroDivisionError,
}


def serve(hello: Mapping[str, Any]) -> None:
    """Answer messages until there are no more; each `hello` names a policy to begin with."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a policy prints is no message
    for message in itertools.chain((hello,), map(json.loads, sys.stdin.buffer)):
        try:
            if message["type"] == "hello":
                host = _Host(out)
                host.send({"type": "ready", "version": VERSION})
                wanted: Mapping[str, Any] | None = message["params"]
            elif message["type"] in ("call", "decide"):
                if wanted is not None:
                    host.load(wanted["policy"], json.loads(wanted["params"]))
                    wanted = None
                host.send(host.decided(message) if message["type"] == "decide" else host.called(message))
        except BrokenPipeError:
            return
        except InputError as error:
            rows = [(one.where, one.message, one.remedy, one.line) for one in error.problems]
            host.send({"type": "failed", "problems": rows})
        except Exception as error:  # noqa: BLE001  # whatever a policy raises ends its run with a message
            host.send({"type": "failed", "error": f"{type(error).__name__}: {error}\n{traceback.format_exc().strip()}"})


class _Job:
    """What is known of a job's state, as `simsched.policy.view.JobFacts` has it."""

    neighbours: tuple[str, ...] = ()
    starts = 0
    first_start_s: float | None = None

    def __init__(self, host: _Host, job_id: str, facts: ApplicationFacts) -> None:
        self.id, self.facts, self.host = job_id, facts, host
        self.allocation: Allocation = NOTHING

    attained_gpu_s: Any = property(lambda self: self.host.value("attained_gpu_s", self.id))
    held_s: Any = property(lambda self: self.host.value("held_s", self.id))
    age_s: Any = property(lambda self: self.host.value("age_s", self.id))


class _Asked:
    """A signal whose members are asked for when they are read."""

    def __init__(self, host: _Host, signal: JobSignal[Any] | ViewSignal[Any], job: str) -> None:
        self._host, self._name, self._job, self._proto = host, signal.name, job, ASKED[signal]

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._host.value(self._name, self._job, "", args, named)

    def __getattr__(self, member: str) -> Any:
        if isinstance(vars(self._proto or object).get(member), property):
            return self._host.value(self._name, self._job, member)
        return lambda *args, **named: self._host.value(self._name, self._job, member, args, named)


class _View(SimpleNamespace):
    """What a policy sees at a decision, as `simsched.policy.View` has it."""

    def __getitem__(self, signal: ViewSignal[Any]) -> Any:
        """Read a signal that the policy has declared."""
        return self.read(signal)


class _Host:
    """A policy and all that it has been told."""

    policy: Policy

    def __init__(self, out: Any) -> None:
        self._out = out
        self._jobs: dict[str, JobView] = {}
        self._states: dict[str, _Job] = {}
        self._running: set[str] = set()
        self._facts: list[ApplicationFacts] = []
        self._agents: dict[str, Agent] = {}
        self._leases: dict[int, Any] = {}
        self._count = itertools.count()
        #: Values by what was asked, and by job: whether there is one, and the value or the error.
        self._values: dict[Any, dict[str, tuple[bool, Any]]] = {}
        self._history: list[float] = []
        self._asked_history = False
        self._view = _View(
            jobs=MappingProxyType(self._jobs), read=self._signal, free=[], up=[], beside=None, reasons=None
        )
        self._rng = np.random.default_rng(0)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        text = json.dumps(message, separators=(",", ":"), default=lambda one: one.item()).encode() + b"\n"
        while text:
            text = text[self._out.write(text) :]

    def load(self, name: str, params: Mapping[str, Any]) -> None:
        """Load the policy."""
        self.policy = policy = _made(POLICIES.load(name), params)
        self._granted = {one: self._provider(one) for one in policy.signals if isinstance(one, JobSignal)}

    def _provider(self, signal: JobSignal[Any]) -> Callable[[Any], object]:
        if signal is signals.GOODPUT:
            return self._goodput
        if signal in ASKED:
            return lambda state: self._member(signal, state.id)
        return lambda state: self.value(signal.name, state.id)

    def _goodput(self, state: _Job) -> object:
        if state.id not in self._agents:
            return self.value("goodput", state.id)
        report = self._agents[state.id].goodput
        if report is None:
            raise InputError(no_goodput(state.id))
        return report

    def _member(self, signal: Any, job: str) -> _Asked | None:
        optional = signal is signals.STEPS
        return _Asked(self, signal, job) if not optional or self.value(signal.name, job) else None

    def _signal(self, signal: ViewSignal[Any]) -> Any:
        if signal not in self.policy.signals:
            raise undeclared(signal)
        if signal is signals.SERVICE_HISTORY:
            if not self._asked_history:
                self._history += self._ask("service_history", [""], "", (len(self._history),), {})[""][1]
                self._asked_history = True
            return self._history
        return _Asked(self, signal, "") if signal in ASKED else self.value(signal.name, "")

    def value(self, name: str, job: str, member: str = "", args: Any = None, named: Any = None) -> Any:
        """Return a value of a job, asking for it, and without arguments for that of all jobs, unless it is known."""
        key = (name, member) if args is None else (name, member, args, tuple((named or {}).items()))
        known = self._values.setdefault(key, {})
        if job not in known:
            jobs = [one for one in self._jobs if one not in known] if job in self._jobs and args is None else [job]
            known |= self._ask(name, jobs, member, args, named or {})
        good, value = known[job]
        if good:
            return value
        raise _ERRORS.get(value[0], ValueError)(*value[1])

    def _ask(self, name: str, jobs: Sequence[str], member: str, args: Any, named: Any) -> dict[str, tuple[bool, Any]]:
        self.send({"type": "ask", "signal": name, "jobs": jobs, "member": member, "args": args, "named": named})
        answer = json.loads(sys.stdin.buffer.readline() or "{}")
        if answer.get("type") != "answer":
            raise BrokenPipeError  # the run has ended
        found: dict[str, tuple[bool, Any]] = _unpacked(answer)
        return found

    def decided(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision of the policy."""
        self._take_in(message)
        view = self._view
        made = self.policy.decide(view, self._rng)
        if not isinstance(made, Decision):
            raise TypeError(no_decision(made))
        told: dict[str, Any] = {"type": "decision"}
        if made.jobs:
            told["jobs"] = {
                job: new if isinstance(new, tuple | list) else _action(new) for job, new in made.jobs.items()
            }
        rest: Any = zip(Decision._fields[1:], made[1:], _DEFAULTS, strict=True)
        told |= {name: list(one) if name == "nodes" else dict(one) if isinstance(one, Mapping) else one
                 for name, one, usual in rest if one != usual}  # fmt: skip
        if view.reasons is not None:
            told["order"] = {job: score for job, (_, score) in view.reasons.places.items()}
            told["ranks"] = {job: rank for job, (rank, _) in view.reasons.places.items()}
            told["waits"] = view.reasons.waits
            view.reasons = Reasons()
        return told

    def _take_in(self, message: Mapping[str, Any]) -> None:
        """Bring the view up to date."""
        view, objects = self._view, _unpacked(message) or {}
        if "fixed" in objects:
            view.restart_delay_s, view.max_jobs_per_gpu, reasons = objects["fixed"]
            view.nodes, view.reasons = objects["nodes"], Reasons() if reasons else None
            view.free, view.up = [node.gpus for node in view.nodes], [True] * len(view.nodes)
        if "rng" in objects:
            self._rng.bit_generator.state = objects["rng"]
        self._facts += objects.get("facts", ())
        view.beside, view.now_s = objects.get("beside", view.beside), message["now_s"]
        self._forget(message.get("finished", ()))
        rich = objects.get("requests", {})
        for fields in message.get("arrived", ()):
            job, facts = fields["id"], self._facts[fields.pop("facts")]
            request = rich.get(job) or JobRequest(**{"submit_time_s": 0.0, "num_gpus": 0, **fields})
            self._add(request, facts)
        for job, at, *rest in message.get("held", ()):
            state = self._states[job]
            state.allocation = tuple([(node, gpus) for node, gpus in at])
            state.starts, state.first_start_s, state.neighbours = rest[0], rest[1], tuple(rest[2])
            self._outdated(job)
            (self._running.add if at else self._running.discard)(job)
        for node, gpus in message.get("free", ()):
            view.free[node] = gpus
        if "up" in message:
            view.up = view.up.copy()
            for node, works in message["up"]:
                view.up[node] = works
        view.finished = message.get("finished", ())
        view.arrived = [self._jobs[one["id"]] for one in message.get("arrived", ())]
        view.lost, view.reached_threshold = (
            [self._jobs[one] for one in message.get(name, ())] for name in ("lost", "reached")
        )

    def _add(self, request: JobRequest, facts: ApplicationFacts) -> None:
        self._states[request.id] = state = _Job(self, request.id, facts)
        self._jobs[request.id] = JobView(request, state, self._granted)

    def _forget(self, finished: Sequence[str]) -> None:
        """Drop what is known of finished jobs, and values that may have changed since the last decision."""
        self._asked_history = False
        for key in [key for key in self._values if key[0] not in _CONSTANT and (key[2:] or key[0] in _ANY_TIME)]:
            del self._values[key]
        for job in (*finished, *self._running) if self._values else ():
            self._outdated(job)
        self._running.difference_update(finished)
        for job in finished:
            self._jobs.pop(job, None)
            self._states.pop(job, None)
            self._agents.pop(job, None)

    def _outdated(self, job: str) -> None:
        for key, known in self._values.items():
            if key[0] not in _CONSTANT or job not in self._jobs:
                known.pop(job, None)

    def called(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method of the policy, or of an agent, and return the answer."""
        what, job, args = message["what"], message["job"], _unpacked(message) or ()
        own = getattr(self, f"_{what}", None)
        if own is not None:
            value = own(job, *args)
        elif job:
            value = getattr(self._agents[job], what)
            value = value(*args) if callable(value) else value
        else:
            value = getattr(self.policy, what)(*args)
        return {"type": "done", "value": value}

    def _describe(self, job: str) -> dict[str, Any]:
        policy, plain = (
            self.policy,
            ("name", "rigid", "forgets", "needs_sharing", "own_agents", "follows", "longest_pause_s"),
        )
        own = ("begin", "agent", "check_jobs", "artifacts")
        return {
            **{name: getattr(policy, name) for name in plain},
            "signals": sorted(one.name for one in policy.signals),
            "triggers": vars(policy.triggers),
            "traits": {name: getattr(policy.traits, name) for name in ("type_aware", "scales")},
            "counts_on": {one.name: becomes.words for one, becomes in policy.counts_on.items()},
            "own": [name for name in own if getattr(type(policy), name) is not getattr(Policy, name)],
        }

    def _agent(self, job: str, request: JobRequest, facts: ApplicationFacts) -> tuple[str, bool]:
        agent, usual = self.policy.agent(request, facts), configured_agent(request, facts)
        if type(agent) is type(usual) and (isinstance(agent, NoBatchAgent) or agent == usual):
            return "usual", False
        self._agents[job] = agent
        return "leasing" if isinstance(agent, LeasingAgent) else "agent", not isinstance(agent, UnlearningAgent)

    def _choose(self, job: str, site: Any, epoch: int) -> tuple[int, int, Any]:
        batch = self._agents[job].choose(site, epoch)
        return batch.local_bsz, batch.accum_steps, None if batch.plan is None else vars(batch.plan)

    def _observe(self, job: str, measurement: Any) -> None:
        self._agents[job].observe(measurement)

    def _lease(self, job: str, site: Any, progress: float, now_s: float) -> tuple[int, float, bool]:
        agent = self._agents[job]
        assert isinstance(agent, LeasingAgent)
        lease, number = agent.lease(site, progress, now_s), next(self._count)
        self._leases[number] = lease
        return number, lease.end_s, lease.completes

    def _progress(self, job: str, number: int, now_s: float) -> float:
        return float(self._leases[number].progress(now_s))

    def _check_jobs(self, job: str, rows: Sequence[Any], cluster: Any) -> None:
        for request, facts in rows:
            self._add(request, facts)
        self.policy.check_jobs(list(self._jobs.values()), cluster)


def _made(policy: type[Policy], params: Mapping[str, Any]) -> Policy:
    """Create a policy; raises `InputError` for parameters that it does not take."""
    known, values = {one.name: one.annotation for one in parameters(policy)}, {}
    where = f"policy '{policy.name}'"
    for name, value in params.items():
        if name not in known:
            raise input_error(where, f"it has no parameter '{name}'", nearest(name, known))
        try:
            values[name] = TypeAdapter(known[name]).validate_json(json.dumps(value))
        except ValidationError as error:
            raise input_error(f"{where}, {name}", str(error.errors()[0]["msg"])) from None
        except PydanticSchemaGenerationError:  # a type of its own, which only its constructor checks
            values[name] = value
    try:
        return policy(**values)
    except (TypeError, ValueError) as error:
        raise input_error(where, str(error)) from error


#: What the other fields of a decision are if it says nothing.
_DEFAULTS = Decision({}, "stays")[1:]


def _action(new: Any) -> Any:
    if isinstance(new, Place):
        return placed(new)
    if isinstance(new, Stop):
        return {"stop": "saved" if new.saved else "lost"}
    if isinstance(new, Decline):
        return {"decline": new.at}
    return "cancel" if new == CANCEL else repr(new)


def _unpacked(message: Mapping[str, Any]) -> Any:
    return pickle.loads(base64.b64decode(message["python"])) if "python" in message else None  # of simsched
