"""Proves that a policy reads only what it declares: truth and physics raise when a policy reads them.

The objects raise only while the policy itself runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from simsched.agent import Agent
from simsched.model import Application, ApplicationFacts, ApplicationSource, Cluster, JobRequest, JobSpec
from simsched.model.job import JobTruth
from simsched.policy import Decision, Policy, View
from simsched.policy.signals import OFFLINE_PROFILES, RECORDED_DURATION, FileSignal

_TRUTH = ("duration_s", "status", "attempts", "truth")
_PHYSICS = ("run", "step_time", "iterations", "epoch_end", "epochs", "duration_s", "loss_curve")


class LeakError(Exception):
    """A policy read what it does not declare, or a view that it must not keep."""


class Guard:
    """Tracks whether the policy is running, and its current decision."""

    def __init__(self) -> None:
        self.inside = False
        self.decision = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Attribute what happens in the block to the policy."""
        self.inside = True
        try:
            yield
        finally:
            self.inside = False


class _Guarded:
    """A proxy with attributes that must not be read while the policy runs."""

    def __init__(self, inner: Any, guard: Guard, secret: Iterable[str], what: str) -> None:
        self._inner = inner
        self._guard = guard
        self._secret = frozenset(secret)
        self._what = what

    def __getattr__(self, name: str) -> Any:
        if name in self._secret and self._guard.inside:
            raise LeakError(f"it reads '{name}' of {self._what}, which it does not declare in its needs")
        value = getattr(self._inner, name)
        return _Guarded(value, self._guard, self._secret, self._what) if isinstance(value, JobTruth) else value


def guarded_jobs(jobs: Sequence[JobSpec], guard: Guard, policy: Policy) -> list[JobSpec]:
    """Return jobs whose truth a policy cannot read, except the duration if it declares that."""
    secret = set(_TRUTH) - ({"duration_s"} if RECORDED_DURATION in policy.signals else set())
    return [_Guarded(job, guard, secret, "a job's truth") for job in jobs]  # type: ignore[misc]  # it acts as one


class GuardedApplications:
    """Applications whose physics a policy cannot read unless it declares an oracle or an offline profile."""

    def __init__(self, inner: ApplicationSource, guard: Guard, policy: Policy) -> None:
        """Guard the applications of `inner` from `policy`."""
        knows = [s for s in policy.signals if not isinstance(s, FileSignal) and (s.oracle or s is OFFLINE_PROFILES)]
        self._inner = inner
        self._guard = guard
        self._secret = () if knows else _PHYSICS

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        """Return the application of a job."""
        app = self._inner.for_job(request, truth)
        return _Guarded(app, self._guard, self._secret, "an application's physics")  # type: ignore[return-value]


class _Expiring:
    """A view, or the view of a job, that can be read only during one decision."""

    def __init__(self, inner: Any, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard
        self._decision = guard.decision

    def _check(self) -> None:
        if self._guard.decision != self._decision or not self._guard.inside:
            raise LeakError("it keeps a view and reads it after the decision, when the view shows later events")

    def __getattr__(self, name: str) -> Any:
        self._check()
        return getattr(self._inner, name)

    def __getitem__(self, signal: Any) -> Any:
        self._check()
        return self._inner[signal]


class _ExpiringView(_Expiring):
    """A view whose jobs expire with it."""

    def __init__(self, inner: View, guard: Guard) -> None:
        super().__init__(inner, guard)
        jobs = {job_id: _Expiring(job, guard) for job_id, job in inner.jobs.items()}
        lists = ("arrived", "reached_threshold", "lost")
        self._own = {"jobs": jobs} | {name: [jobs[job.id] for job in getattr(inner, name)] for name in lists}

    def __getattr__(self, name: str) -> Any:
        self._check()
        return self._own[name] if name in self._own else getattr(self._inner, name)


class GuardedPolicy:
    """A guarded policy: everything that it reads while it runs is checked."""

    def __init__(self, inner: Policy, guard: Guard) -> None:
        """Guard `inner`."""
        self._inner = inner
        self._guard = guard

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the policy."""
        return getattr(self._inner, name)

    def begin(self, cluster: Cluster) -> None:
        """Pass the cluster to the policy."""
        with self._guard.at_work():
            self._inner.begin(cluster)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Let the policy create an agent."""
        with self._guard.at_work():
            return self._inner.agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Let the policy decide on a view that expires."""
        try:
            with self._guard.at_work():
                return self._inner.decide(_ExpiringView(view, self._guard), rng)
        finally:
            self._guard.decision += 1  # expires all earlier views
