"""What a scheduling policy is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import numpy as np

from simsched.agent.agent import Agent
from simsched.agent.fixed_agent import fixed_agent
from simsched.model.application import Application
from simsched.model.job import JobSpec
from simsched.policy.decision import Decision
from simsched.policy.signals import Signal
from simsched.policy.view import View

#: Marks a parameter that names an input file, as in `pool_path: Annotated[str | None, INPUT_FILE] = None`: experiments
#: resolve it against their own folder, and the file's content becomes part of what determines a result.
INPUT_FILE: Final = "simsched: input file"


@dataclass(frozen=True)
class Triggers:
    """When a policy is asked: every `interval_s` while jobs are active, or when something happens.

    With an interval, decisions fall on its multiples, the first one after time 0. `capacity` means that a node went
    down or came back.
    """

    interval_s: int | None = None
    arrival: bool = False
    completion: bool = False
    capacity: bool = False

    def __post_init__(self) -> None:
        """Refuse triggers that would never call the policy."""
        if self.interval_s is None and not self.arrival:
            message = "a policy needs an interval or the arrival trigger, or it would never be called"
            raise ValueError(message)
        if self.interval_s is not None and self.interval_s < 1:
            message = f"interval_s must be at least 1, not {self.interval_s}"
            raise ValueError(message)

    @classmethod
    def on_events(cls) -> Triggers:
        """Ask at every arrival, completion and change of capacity."""
        return cls(arrival=True, completion=True, capacity=True)


class Policy(Protocol):
    """Decides who holds which GPUs; subclass it, or provide the same members.

    One instance serves one run and may keep state of its own. Its constructor's parameters are the `params` of an
    experiment, so they have annotations and defaults.
    """

    #: Short name, as in the registry.
    name: ClassVar[str]
    #: Signals that the policy reads; all others are absent from its view.
    needs: ClassVar[frozenset[Signal]] = frozenset()
    #: Whether a job gets just the GPUs that it asked for, or none.
    rigid: ClassVar[bool] = True

    @property
    def triggers(self) -> Triggers:
        """Say when the policy is asked; by default whenever something happens."""
        return Triggers.on_events()

    def agent(self, job: JobSpec, application: Application) -> Agent:
        """Make the agent that runs beside a job; by default the batch size stays as submitted."""
        return fixed_agent(job, application)

    @property
    def informed_by(self) -> tuple[str, ...]:
        """Say what the policy and its agents know besides `needs` and what jobs measure; the manifest records it."""
        return ()

    def artifacts(self) -> Mapping[str, str]:
        """Give texts to be kept with the results, by file name; asked once, after the last job has finished."""
        return {}

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide on the basis of the view; every random draw comes from `rng`."""
        ...
