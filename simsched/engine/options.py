"""Settings of the engine that belong to the experiment, not to a policy."""

from __future__ import annotations

from dataclasses import dataclass

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
