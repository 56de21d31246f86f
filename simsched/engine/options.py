"""Simulation options: settings, failures, terms of decisions and the random streams of a seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, sqrt
from typing import Any, Literal

import numpy as np

from simsched.keys import MOST_SECONDS, key, problems_with
from simsched.model.outages import Market, Outage, OutageCause
from simsched.plugins import Kind
from simsched.policy import Policy, Signal, Triggers

#: Called occasionally with the simulated second and the number of finished jobs.
ProgressCallback = Callable[[float, int], None]
#: A user's SimPy process beside the cluster: a function of a site, or such a function and its parameters.
Process = Callable[..., Any] | tuple[Callable[..., Any], Mapping[str, Any]]

#: The shortest tick, in seconds.
LEAST_TICK_S = 1e-6
_PROCESS_REMEDY = "write a function with `yield`, or a class whose objects have `send` and `throw`"
#: Users' processes; here and not with these, as checking an experiment does not need SimPy.
PROCESSES = Kind("process", "simsched.processes", "send", ("throw",), _PROCESS_REMEDY, functions=True)


@dataclass(frozen=True)
class EngineOptions:
    """The behaviour of the simulated cluster; what has a description is a key of an experiment's section `engine`.

    Each placement, the first included, costs `restart_delay_s` unless the application sets its own. Distributed jobs
    that share a node run at (1 - `interference`) of their speed (Pollux, section 5.3.2). The run stops with an error
    after `idle_rounds` consecutive decisions that leave every GPU idle with no event pending. A node that is requested
    is billed from the request. Up to `max_jobs_per_gpu` jobs may share a GPU, if a policy places them together; with
    `gpu_shares` each takes its `gpu_share`, in total at most 1. A job that reaches its limit ends as `TimeLimit`.
    """

    restart_delay_s: float = key(30, "seconds that a job pauses when its placement changes", ge=0, le=MOST_SECONDS)
    interference: float = key(0.0, "slow-down of distributed jobs that share a node", ge=0, lt=1)
    idle_rounds: int = 1000
    initial_nodes: int | None = key(
        None, "nodes rented at the start, for policies that scale the cluster; by default all", ge=0, le=100_000
    )
    node_start_s: float = key(0, "seconds until a requested node is up", ge=0, le=MOST_SECONDS)
    tick_s: float = key(1, "seconds of a tick of the clock, from 1e-6 to 1; 0 makes time continuous", ge=0, le=1)
    max_jobs_per_gpu: int = 1
    kill_at_time_limit: bool = key(False, "whether a job ends when it has held GPUs for its time limit")
    fragmentation: bool = key(False, "whether to record the free GPUs that no waiting job can use at each decision")
    gpu_shares: bool = False
    contention: bool = key(False, "whether jobs that communicate over the same uplinks share their bandwidth")
    reasons: bool = key(False, "whether to record each job's rank, score and reason for waiting at each decision")

    def __post_init__(self) -> None:
        for problem in problems_with(self, "engine"):
            raise ValueError(str(problem))
        if 0 < self.tick_s < LEAST_TICK_S:
            raise ValueError(f"tick_s must be 0, or from {LEAST_TICK_S:g} to 1, not {self.tick_s:g}")
        if self.max_jobs_per_gpu < 1:
            raise ValueError(f"max_jobs_per_gpu must be at least 1, not {self.max_jobs_per_gpu}")


@dataclass(frozen=True)
class FailureOptions:
    """How nodes and jobs fail, and how jobs save checkpoints.

    A node fails after a Weibull time of mean `node_mtbf_s` (None: never), or `gpu_mtbf_s` divided by its GPUs, and
    `weibull_shape` (1: exponential; below 1: clustered early failures); repair is log-normal with median
    `repair_median_s` and `repair_sigma` of the logarithm, or that of a cause drawn from `causes`. Racks (groups of
    nodes) fail together in the same way, every `rack_mtbf_s`. `outages` are fixed extra downtimes, and a `market` takes
    its nodes back with notice. The last `hot_spares` nodes are idle and each takes the place of a node that fails,
    which becomes a spare once repaired. A share `slow_nodes` of the nodes runs jobs at `slow_speed`. With `elastic` a
    job with plans whose nodes fail continues at once on those left if no spare stands in, and on all of them again once
    they are repaired.

    A job pauses for `checkpoint_cost_s`, or for the time that writing its own state takes ("by-size"), after every
    `checkpoint_interval_s` of running, or after the interval that is "optimal" for the GPUs asked for. `jobs` sets how
    jobs themselves fail: as the attempts of a trace, or as published for Philly.
    """

    node_mtbf_s: float | None = None
    weibull_shape: float = 1.0
    repair_median_s: float = 0.0
    repair_sigma: float = 0.0
    outages: tuple[Outage, ...] = ()
    racks: tuple[tuple[int, ...], ...] = ()
    rack_mtbf_s: float | None = None
    checkpoint_interval_s: float | Literal["optimal"] | None = None
    checkpoint_cost_s: float | Literal["by-size"] = 0.0
    jobs: Literal["never", "trace", "philly"] = "never"
    gpu_mtbf_s: float | None = None
    causes: tuple[OutageCause, ...] = ()
    hot_spares: int = 0
    slow_nodes: float = 0.0
    slow_speed: float = 1.0
    elastic: bool = False
    market: Market | None = None

    def __post_init__(self) -> None:
        for name in ("node_mtbf_s", "gpu_mtbf_s", "rack_mtbf_s", "checkpoint_interval_s"):
            value = getattr(self, name)
            if value not in (None, "optimal") and not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} must be above 0, not {value}")
        if not self.weibull_shape > 0 or self.repair_median_s < 0 or self.repair_sigma < 0:
            raise ValueError("weibull_shape must be above 0, repair_median_s and repair_sigma must not be negative")
        interval_s = self.checkpoint_interval_s
        fixed_s = inf if interval_s is None or interval_s == "optimal" else interval_s
        if not isinstance(self.checkpoint_cost_s, str) and not 0 <= self.checkpoint_cost_s < fixed_s:
            message = f"a checkpoint must cost less than its interval of {interval_s} s, not {self.checkpoint_cost_s} s"
            raise ValueError(message)
        both = self.gpu_mtbf_s is not None and self.node_mtbf_s is not None
        if both or (interval_s == "optimal" and not (self.fails and self.checkpoint_cost_s)):
            raise ValueError("give node_mtbf_s or gpu_mtbf_s; an optimal interval needs one and a checkpoint_cost_s")
        if self.hot_spares < 0 or not 0 <= self.slow_nodes <= 1 or not 0 < self.slow_speed <= 1:
            raise ValueError("hot_spares must not be negative, slow_nodes must be in [0, 1] and slow_speed in (0, 1]")

    @property
    def fails(self) -> bool:
        """Whether nodes fail at random."""
        return self.node_mtbf_s is not None or self.gpu_mtbf_s is not None

    def mtbf_s(self, gpus: int) -> float | None:
        """Return the mean seconds between failures of a node with `gpus` GPUs, None if it never fails."""
        return self.node_mtbf_s if self.gpu_mtbf_s is None else self.gpu_mtbf_s / gpus

    def interval_s(self, num_gpus: int, gpus_per_node: int) -> float | None:
        """Return the running seconds between checkpoints of a job (None: none).

        The optimum is sqrt(2 w / (nodes r)), with w the cost and r a node's failures per second (Young, 1974).
        """
        if self.checkpoint_interval_s != "optimal":
            return self.checkpoint_interval_s
        nodes = -(-num_gpus // gpus_per_node)
        mean_s = self.gpu_mtbf_s / num_gpus if self.gpu_mtbf_s is not None else (self.node_mtbf_s or 0) / nodes
        cost_s = self.cost_s
        return max(sqrt(2 * cost_s * mean_s), cost_s)

    @property
    def cost_s(self) -> float:
        """Return the seconds of a checkpoint; if each job has its own, call it on the options `of` a job."""
        assert not isinstance(self.checkpoint_cost_s, str)
        return self.checkpoint_cost_s

    def of(self, checkpoint_s: float | None) -> FailureOptions:
        """Return the options of a job that writes its state in `checkpoint_s`; `ValueError` if they do not fit."""
        if self.checkpoint_cost_s != "by-size":
            return self
        if checkpoint_s is None:
            raise ValueError("how large its checkpoints are is not known; give 'checkpoint_cost_s' in seconds")
        return replace(self, checkpoint_cost_s=checkpoint_s)


@dataclass(frozen=True)
class Terms:
    """The terms on which a decision maker acts; a `Policy` declares them itself.

    `name` appears in messages, `triggers` say when a decision is due and `signals` what views show. A `rigid` one
    grants full requests or nothing. The cluster may idle on purpose for `longest_pause_s`.
    """

    name: str = "driver"
    triggers: Triggers = field(default_factory=Triggers.on_events)
    signals: Collection[Signal] = frozenset()
    rigid: bool = True
    longest_pause_s: float = 0.0

    @classmethod
    def of(cls, policy: Policy) -> Terms:
        """Return the terms of a policy."""
        return cls(policy.name, policy.triggers, policy.signals, policy.rigid, policy.longest_pause_s)


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of the stream `name` under a non-negative seed.

    Each stream depends only on seed and name: an extra draw from one shifts no other, and policies face the same
    arrivals.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
