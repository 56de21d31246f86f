"""The contract of a scheduling policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np

from simsched.agent import Agent, configured_agent
from simsched.errors import input_error
from simsched.keys import INFINITE as INFINITE, INPUT_FILE as INPUT_FILE
from simsched.model import ApplicationFacts, Cluster, JobRequest
from simsched.policy.decision import Decision
from simsched.policy.physics import Wants
from simsched.policy.signals import Signal
from simsched.policy.view import JobView, View


@dataclass(frozen=True)
class Triggers:
    """When a policy decides: every `interval_s` while jobs are active, or on events.

    Intervals fall on multiples of `interval_s`, the first after time 0. `node_change` fires when a node goes down or
    comes up, `leases_over` when the last lease of the running jobs ends. With `quiet`, intervals, completions and ends
    of leases also count without active jobs, as long as jobs are still to come.
    """

    interval_s: float | None = None
    arrival: bool = False
    completion: bool = False
    node_change: bool = False
    leases_over: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Reject triggers that would never call the policy."""
        if self.interval_s is None and not self.arrival:
            raise ValueError("a policy needs an interval or the arrival trigger, or it would never be called")
        if self.interval_s is not None and self.interval_s <= 0:
            raise ValueError(f"interval_s must be above 0, not {self.interval_s}")

    @classmethod
    def on_events(cls) -> Triggers:
        """Decide at every arrival and completion, and when a node goes down or comes up."""
        return cls(arrival=True, completion=True, node_change=True)


@dataclass(frozen=True)
class Traits:
    """The properties of a policy, whatever its parameters.

    `needs` are the signals that it always reads; its view lacks all others. `wants` is the physics that it counts on,
    with what it becomes without. A `rigid` policy gives a job exactly the GPUs that it asked for, or none. A
    `type_aware` one weighs GPU types against each other, at least with some parameters; for others each type is a
    separate pool. No job gets GPUs of two types. One that `scales` starts and stops nodes (`Decision.nodes`). One that
    `forgets` restarts whenever no job is active: neither completed jobs nor random draws affect its later decisions, so
    a trace can be cut there.

    Four traits concern parameters: one that `reads_tenants` has a parameter `tenants`, filled by the experiment's
    section of that name; `interval`, `quantum` and `diagnostics` name the parameters that hold the seconds between its
    decisions (None in it: it decides at every event), those of its time slice, longer than a restart, and the further
    diagnostics to record (empty: none).
    """

    needs: Set[Signal] = frozenset()
    wants: Wants = field(default_factory=dict)
    rigid: bool = True
    type_aware: bool = False
    scales: bool = False
    forgets: bool = False
    reads_tenants: bool = False
    interval: str = ""
    quantum: str = ""
    diagnostics: str = ""


#: Traits that a class may also set as attributes, as in `rigid = False`.
_ATTRIBUTES = ("needs", "wants", "rigid", "type_aware", "scales", "forgets")


class Policy(Protocol):
    """Decides who holds which GPUs; subclass it, or provide the same members.

    One instance serves one run and may keep state. Its constructor's parameters are the `params` of an experiment and
    need annotations and defaults.
    """

    #: Short name, as in the registry.
    name: ClassVar[str]
    traits: ClassVar[Traits] = Traits()

    def __init_subclass__(cls) -> None:
        """Turn class attributes with the names of traits into its traits."""
        super().__init_subclass__()
        own = {name: value for name, value in vars(cls).items() if name in _ATTRIBUTES}
        given = {name: value for name, value in own.items() if not isinstance(value, property)}
        if given:
            cls.traits = replace(cls.traits, **given)

    @property
    def triggers(self) -> Triggers:
        """Return when the policy decides: at the interval that its traits name, else on every event."""
        every_s = getattr(self, self.traits.interval) if self.traits.interval else None
        return Triggers.on_events() if every_s is None else Triggers(interval_s=every_s)

    @property
    def rigid(self) -> bool:
        """Return whether this instance is rigid: as its traits say, unless a parameter overrides them."""
        return self.traits.rigid

    @property
    def forgets(self) -> bool:
        """Return whether this instance forgets: as its traits say, unless a parameter makes it remember."""
        return self.traits.forgets

    @property
    def needs_sharing(self) -> bool:
        """Return whether the policy places several jobs on a GPU whenever jobs outnumber GPUs."""
        return False

    @property
    def own_agents(self) -> bool:
        """Return whether the policy talks to its own agents, so that an experiment cannot name others."""
        return False

    @property
    def follows(self) -> str:
        """Return the version of a released scheduler that this instance models, and the conditions that it adds."""
        return ""

    @property
    def longest_pause_s(self) -> float:
        """Return the seconds for which the policy may idle on purpose although jobs wait.

        A policy that idles for longer than this, over a thousand decisions, is stuck, which ends the run.
        """
        return 0.0

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signals that this instance reads: those that it needs, and those that its parameters require."""
        return frozenset(self.traits.needs)

    @property
    def counts_on(self) -> Wants:
        """Return the physics that this instance counts on: what it wants, less what its parameters switch off."""
        return {wanted: becomes for wanted, becomes in self.traits.wants.items() if not becomes.switched_off(self)}

    def begin(self, cluster: Cluster) -> None:
        """Receive the cluster, before the first job is submitted."""
        return

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent that runs with a job; by default it keeps the requested batch or batch rule.

        `facts` is what a user or a profiler knows of the application. Raises `InputError` for a job that the policy
        cannot schedule.
        """
        return configured_agent(request, facts)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Raise `InputError` for a workload that does not match the policy's input files.

        Called before the run, on an instance that is then discarded. The views show jobs as they will be submitted, in
        the order of the workload, with the declared signals that are known before a job runs.
        """
        return

    def artifacts(self) -> Mapping[str, str]:
        """Return texts to store with the results, by file name; called once, after the last job has finished."""
        return {}

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide based on the view; every random draw comes from `rng`."""
        ...


class Quantum:
    """Time divided into slices of `quantum_s` seconds that start at its multiples."""

    def __init__(self, policy: str, quantum_s: float) -> None:
        """Start in the first slice; messages name `policy`. Raises `ValueError` for less than a second."""
        if quantum_s < 1:
            raise ValueError(f"quantum_s must be at least 1, not {quantum_s}")
        self._policy = policy
        self._quantum_s = quantum_s
        self._slice: float = 0

    def check(self, restart_delay_s: float) -> None:
        """Raise `InputError` if a slice is no longer than a restart: jobs would take turns and make no progress."""
        if restart_delay_s >= self._quantum_s:
            message = (
                f"a quantum of {self._quantum_s} s is no longer than a restart, so that no job would make progress"
            )
            remedy = f"give a quantum_s above engine.restart_delay_s, which is {restart_delay_s}"
            raise input_error(f"policy '{self._policy}'", message, remedy)

    def over(self, view: View) -> bool:
        """Return whether a slice has ended since the last call; raises `InputError` as `check` does."""
        self.check(view.restart_delay_s)
        before, self._slice = self._slice, view.now_s // self._quantum_s
        return self._slice != before

    def end_s(self, now_s: float) -> float:
        """Return when the current slice ends."""
        return (now_s // self._quantum_s + 1) * self._quantum_s
