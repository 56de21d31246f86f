"""What a scheduling policy is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Protocol

import numpy as np

from simsched.agent import Agent, configured_agent
from simsched.keys import INFINITE as INFINITE, INPUT_FILE as INPUT_FILE
from simsched.model import ApplicationFacts, Cluster, JobRequest
from simsched.policy.decision import Decision
from simsched.policy.physics import Wants
from simsched.policy.signals import Signal
from simsched.policy.view import JobView, View


@dataclass(frozen=True)
class Triggers:
    """When a policy is asked: every `interval_s` while jobs are active, or when something happens.

    With an interval, decisions fall on its multiples, the first one after time 0. `node_change` means that a node went
    down or came up, `leases_over` that of the jobs that run in leases the last one under way has ended its lease. With
    `quiet` an interval, a completion and an end of leases count while no job is active, too, as long as jobs are still
    to come.
    """

    interval_s: float | None = None
    arrival: bool = False
    completion: bool = False
    node_change: bool = False
    leases_over: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse triggers that would never call the policy."""
        if self.interval_s is None and not self.arrival:
            message = "a policy needs an interval or the arrival trigger, or it would never be called"
            raise ValueError(message)
        if self.interval_s is not None and self.interval_s <= 0:
            message = f"interval_s must be above 0, not {self.interval_s}"
            raise ValueError(message)

    @classmethod
    def on_events(cls) -> Triggers:
        """Ask at every arrival and completion, and when a node goes down or comes up."""
        return cls(arrival=True, completion=True, node_change=True)


class Policy(Protocol):
    """Decides who holds which GPUs; subclass it, or provide the same members.

    One instance serves one run and may keep state of its own. Its constructor's parameters are the `params` of an
    experiment, so they have annotations and defaults.
    """

    #: Short name, as in the registry.
    name: ClassVar[str]
    #: Signals that the policy may read, whatever its parameters; all others are absent from its view.
    needs: ClassVar[frozenset[Signal]] = frozenset()
    #: Physics that the policy counts on, whatever its parameters, and what it becomes in an experiment without.
    wants: ClassVar[Wants] = MappingProxyType({})
    #: Whether a job gets just the GPUs that it asked for, or none.
    rigid: ClassVar[bool] = True
    #: Whether it weighs GPU types against each other, if only with some parameters; otherwise each type is a pool of
    #: its own to it, and which type a job gets does not depend on its speed there. No job gets GPUs of two types.
    type_aware: ClassVar[bool] = False
    #: Whether a guaranteed job keeps all of its speed on a GPU that it shares, the others getting what it leaves of
    #: what they do together; otherwise they divide it as the experiment's model of sharing says.
    guaranteed_first: ClassVar[bool] = False
    #: Whether the policy has nodes come and go (`Decision.nodes`).
    scales: ClassVar[bool] = False

    @property
    def triggers(self) -> Triggers:
        """Return when the policy is asked; by default whenever something happens."""
        return Triggers.on_events()

    @property
    def needs_sharing(self) -> bool:
        """Return whether the policy puts several jobs on a GPU wherever there are more of them than GPUs."""
        return False

    @property
    def knows(self) -> dict[str, str]:
        """Return how a real scheduler would come by each signal that this instance reads, by name."""
        return {signal.name: str(signal.known) for signal in sorted(self.signals, key=str)}

    @property
    def longest_pause_s(self) -> float:
        """Return the seconds for which the policy may leave everything idle on purpose although jobs wait.

        A policy that goes on to do so for a thousand decisions, and for longer than this, is stuck, which ends the run.
        """
        return 0.0

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signals that this instance reads: `needs`, and those that its parameters call for."""
        return self.needs

    @property
    def counts_on(self) -> Wants:
        """Return the physics that this instance counts on: `wants`, but for what its parameters switch off."""
        return {wanted: becomes for wanted, becomes in self.wants.items() if not becomes.switched_off(self)}

    def begin(self, cluster: Cluster) -> None:
        """Learn the cluster, before the first job is submitted."""
        return

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Make the agent that runs beside a job; by default it keeps the batch or the batch rule asked for.

        `facts` is what a user or a profiler knows of the application. Raises `InputError` where the policy cannot
        schedule such a job.
        """
        return configured_agent(request, facts)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse the jobs of a workload for which the policy's input files were not made, by an `InputError`.

        Asked before anything runs, of an instance that is then put away. The views show jobs as they will be submitted,
        in the order of the workload, with the signals declared, as far as these are known before a job has run.
        """
        return

    def artifacts(self) -> Mapping[str, str]:
        """Return texts to be kept with the results, by file name; asked once, after the last job has finished."""
        return {}

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide on the basis of the view; every random draw comes from `rng`."""
        ...
