"""What a simulation is told: settings, failures, the terms of decisions, and the random streams of its seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, Protocol, TypedDict

import numpy as np

from simsched.agent import AgentFactory
from simsched.model import JobSpec, Outage
from simsched.model.colocation import Colocation
from simsched.policy import Decision, Policy, Signal, Triggers, View, known_by
from simsched.results import JobRecord

#: Called now and then with the simulated second and the number of finished jobs.
ProgressCallback = Callable[[float, int], None]

#: Says which jobs follow a finished one; they arrive at the second of its end or later.
OnFinish = Callable[[JobRecord], Sequence[JobSpec]]

#: The shortest tick, in seconds.
LEAST_TICK_S = 1e-6


@dataclass(frozen=True)
class EngineOptions:
    """How the simulated cluster behaves.

    `restart_delay_s` is what every change of placement costs, the first start included, unless the application says
    otherwise. A distributed job that shares a node with another one runs at (1 - `interference`) of its speed (Pollux,
    section 5.3.2). `idle_rounds` is how many decisions in a row may leave every GPU idle, with nothing else due to
    happen, before the run is given up.

    In a cloud, nodes come and go: `initial_nodes` is how many of the cluster's nodes (the first ones) are rented at the
    start (None: all), and a node that a policy asks for is up after `node_start_s`, paid for from the moment of asking.

    Up to `max_jobs_per_gpu` jobs may hold one GPU, where a policy places them beside each other. With `gpu_shares` each
    of them takes its `gpu_share` of it, and those add up to at most 1.

    With `kill_at_time_limit` a job that has held GPUs for as long as its time limit ends then, with the final state
    `TimeLimit`.

    With `fragmentation` every decision is recorded with the free GPUs that no waiting job can use.

    Time passes in ticks of `tick_s` seconds, from a microsecond to a second; 0 makes it continuous, in double
    precision.
    """

    restart_delay_s: float = 30
    interference: float = 0.0
    idle_rounds: int = 1000
    initial_nodes: int | None = None
    node_start_s: float = 0
    tick_s: float = 1
    max_jobs_per_gpu: int = 1
    kill_at_time_limit: bool = False
    fragmentation: bool = False
    gpu_shares: bool = False

    def __post_init__(self) -> None:
        """Refuse what no cluster can be like."""
        if self.restart_delay_s < 0:
            message = f"restart_delay_s must not be negative, not {self.restart_delay_s}"
            raise ValueError(message)
        if self.node_start_s < 0 or (self.initial_nodes is not None and self.initial_nodes < 0):
            message = "node_start_s and initial_nodes must not be negative"
            raise ValueError(message)
        if self.tick_s != 0 and not LEAST_TICK_S <= self.tick_s <= 1:
            message = f"tick_s must be 0, or from {LEAST_TICK_S} to 1, not {self.tick_s}"
            raise ValueError(message)
        if self.max_jobs_per_gpu < 1:
            message = f"max_jobs_per_gpu must be at least 1, not {self.max_jobs_per_gpu}"
            raise ValueError(message)
        if not 0 <= self.interference < 1:
            message = f"interference must be in [0, 1), not {self.interference}"
            raise ValueError(message)


@dataclass(frozen=True)
class FailureOptions:
    """How nodes and jobs fail, and how jobs save themselves.

    A node works for `node_mtbf_s` in the mean (None: for ever), Weibull with `weibull_shape` (1: exponential, below 1:
    early failures cluster), and is then repaired for a log-normal time of median `repair_median_s` and `repair_sigma`
    of its logarithm. Racks, groups of nodes, fail together every `rack_mtbf_s` in the same manner. `outages` are times
    for which nodes are down besides. Jobs write a checkpoint whenever they have run for `checkpoint_interval_s`, and
    pause for `checkpoint_cost_s` meanwhile. `jobs` says how jobs fail by themselves: as the attempts of a trace, or
    as published for Philly.
    """

    node_mtbf_s: float | None = None
    weibull_shape: float = 1.0
    repair_median_s: float = 0.0
    repair_sigma: float = 0.0
    outages: tuple[Outage, ...] = ()
    racks: tuple[tuple[int, ...], ...] = ()
    rack_mtbf_s: float | None = None
    checkpoint_interval_s: float | None = None
    checkpoint_cost_s: float = 0.0
    jobs: Literal["never", "trace", "philly"] = "never"

    def __post_init__(self) -> None:
        """Refuse what nothing can be like."""
        for name in ("node_mtbf_s", "rack_mtbf_s", "checkpoint_interval_s"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                message = f"{name} must be above 0, not {value}"
                raise ValueError(message)
        if not self.weibull_shape > 0 or self.repair_median_s < 0 or self.repair_sigma < 0:
            message = "weibull_shape must be above 0, repair_median_s and repair_sigma must not be negative"
            raise ValueError(message)
        interval_s = self.checkpoint_interval_s
        if self.checkpoint_cost_s < 0 or (interval_s is not None and self.checkpoint_cost_s >= interval_s):
            message = f"a checkpoint must cost less than its interval of {interval_s} s, not {self.checkpoint_cost_s} s"
            raise ValueError(message)


@dataclass(frozen=True)
class Terms:
    """What a simulation needs to know of whoever decides in it, as a `Policy` says it of itself.

    `name` stands in messages. `triggers` say when a decision is due, `signals` what its views show. `rigid` promises
    every job the GPUs that it asks for, or none. With `guaranteed_first` a guaranteed job keeps all of its speed on a
    GPU that it shares. It may leave everything idle on purpose for `longest_pause_s`.
    """

    name: str = "driver"
    triggers: Triggers = field(default_factory=Triggers.on_events)
    signals: Collection[Signal] = frozenset()
    rigid: bool = True
    guaranteed_first: bool = False
    longest_pause_s: float = 0.0

    @property
    def knows(self) -> dict[str, str]:
        """Return how a real scheduler would come by each signal, by name."""
        return known_by(self.signals)

    @classmethod
    def of(cls, policy: Policy) -> Terms:
        """Return those of a policy."""
        first = policy.traits.guaranteed_first
        return cls(policy.name, policy.triggers, policy.signals, policy.rigid, first, policy.longest_pause_s)


class Decides(Protocol):
    """Whatever makes decisions: a policy, or the part of one."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide on the basis of the view."""
        ...


class Settings(TypedDict, total=False):
    """What a simulation may be given besides, by name."""

    #: Called now and then with the simulated second and the number of finished jobs.
    progress: ProgressCallback | None
    #: Makes the agents instead of the policy.
    agents: AgentFactory | None
    #: How fast jobs are that share a GPU, where the options let them (None: at 1/k among k jobs).
    colocation: Colocation | None
    #: Whether the numbered invariants are checked as the run goes (None: if the environment says so).
    check_invariants: bool | None
    #: Asked at every completion for jobs submitted in reply, then or later; the run ends when these are complete too.
    on_finish: OnFinish | None
    #: How nodes and jobs fail (None: never).
    failures: FailureOptions | None


def stream(seed: int, name: str) -> np.random.Generator:
    """Make the generator of the stream `name` under a non-negative seed.

    Each stream is its own function of seed and name: a draw more in one of them shifts no other, and two policies under
    one seed face the same arrivals.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
