"""Times for which nodes are out of order, and how jobs fail by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np


class Outage(NamedTuple):
    """A node that is down from one second to another, and of what kind that is, in the words of its source."""

    node: int
    down_s: float
    up_s: float
    kind: str = "outage"


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """The attempts of a job that fail by themselves.

    `run_s` are the running seconds of each of them. With `keeps` the next attempt goes on where the failed one ended,
    as in a trace whose attempts have durations of their own; otherwise it begins at the last checkpoint. With
    `gives_up` the job ends, unsuccessful, at the failure of the last of them.
    """

    run_s: tuple[float, ...] = ()
    keeps: bool = False
    gives_up: bool = False


class JobFailures(Protocol):
    """Draws how jobs fail by themselves."""

    def plan(self, num_gpus: int, rng: np.random.Generator) -> AttemptPlan:
        """Return the attempts that fail of a job that asks for so many GPUs."""
        ...
