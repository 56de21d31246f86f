"""Outages of nodes, and failures that jobs cause themselves."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import NamedTuple, Protocol

import numpy as np

#: The kind of an outage that is announced beforehand.
PLANNED = "maintenance"


class Outage(NamedTuple):
    """The seconds between which a node is down, and the kind of outage as its source calls it.

    With `notice`, its jobs save their progress before.
    """

    node: int
    down_s: float
    up_s: float
    kind: str = "outage"
    notice: bool = False


class OutageCause(NamedTuple):
    """A cause of outages: its share of them, and the median and sigma of its log-normal repair time."""

    name: str
    share: float
    repair_median_s: float = 0.0
    repair_sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """The attempts of a job that fail on their own.

    `run_s` are the running seconds of each. With `keeps` the next attempt continues where the failed one ended, as in a
    trace that records the duration of each attempt; otherwise it starts from the last checkpoint. With `gives_up` the
    job ends unsuccessfully when the last of them fails.
    """

    run_s: tuple[float, ...] = ()
    keeps: bool = False
    gives_up: bool = False


class JobFailures(Protocol):
    """Draws the failures that jobs cause themselves."""

    def plan(self, num_gpus: int, rng: np.random.Generator) -> AttemptPlan:
        """Return the failing attempts of a job that asks for `num_gpus` GPUs."""
        ...


#: The 90th percentile of the standard normal distribution.
_Z90 = 1.2815515655446004


class Cause(NamedTuple):
    """A cause of failures: median and 90th percentile of the minutes to failure, and trials with 1, 2-4, >4 GPUs."""

    name: str
    median_min: float
    p90_min: float
    trials: tuple[int, int, int]

    def draw_s(self, rng: np.random.Generator) -> float:
        """Draw the seconds to a failure, log-normal with the published median and 90th percentile."""
        sigma = log(self.p90_min / self.median_min) / _Z90
        return 60 * self.median_min * exp(sigma * rng.standard_normal())


#: Table 7 of Jeon et al. (ATC'19), the causes with more than 100 trials.
CAUSES = (
    Cause("CPU out of memory", 13.45, 17.73, (11465, 235, 376)),
    Cause("incorrect inputs", 1.87, 404.83, (5844, 2638, 1208)),
    Cause("semantic error", 2.72, 376.0, (1603, 494, 846)),
    Cause("core dump", 0.85, 72.75, (1936, 496, 480)),
    Cause("invalid memory access", 1.03, 403.5, (712, 774, 1116)),
    Cause("model checkpoint error", 181.67, 3728.93, (743, 384, 868)),
    Cause("CUDA failure", 1.32, 19.87, (133, 1153, 198)),
    Cause("syntax error", 0.58, 5.02, (780, 184, 168)),
    Cause("traceback", 1.02, 894.33, (356, 277, 144)),
    Cause("MPI error", 1.62, 3015.27, (456, 54, 124)),
    Cause("GPU out of memory", 18.53, 353.62, (237, 70, 180)),
    Cause("MPI runtime failure", 1389.48, 13778.6, (240, 141, 97)),
    Cause("permission error", 1.0, 8.15, (56, 202, 41)),
    Cause("import error", 0.67, 4.58, (108, 30, 10)),
    Cause("job preempted", 559.08, 2682.85, (25, 95, 27)),
    Cause("CUDA initialisation failed", 1.08, 2.18, (16, 66, 59)),
    Cause("no signature", 1.87, 28.0, (1235, 294, 155)),
)

#: Figure 9, for 1, 2-4, 5-8 and more than 8 GPUs: mean number of retries, and share of jobs that end unsuccessfully.
RETRIES = (0.33, 0.98, 1.09, 1.11)
UNSUCCESSFUL = (0.13, 0.37, 0.42, 0.47)


@dataclass(frozen=True)
class PhillyFailures:
    """Draws failing attempts: the mean number of retries from Figure 9, causes and times from Table 7.

    Assumed: the number of retries is geometric, and causes within a job are independent (the paper finds that users
    repeat their errors). An attempt does not fail if the job completes first. Source: Jeon et al., "Analysis of
    Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC'19.
    """

    def plan(self, num_gpus: int, rng: np.random.Generator) -> AttemptPlan:
        """Return the failing attempts of a job that asks for `num_gpus` GPUs."""
        size = _band(num_gpus, (1, 4, 8))
        retries = int(rng.geometric(1 / (1 + RETRIES[size]))) - 1
        gives_up = bool(rng.random() < UNSUCCESSFUL[size])
        demand = _band(num_gpus, (1, 4))
        weights = np.array([cause.trials[demand] for cause in CAUSES], dtype=float)
        chosen = rng.choice(len(CAUSES), size=retries + gives_up, p=weights / weights.sum())
        return AttemptPlan(tuple(CAUSES[i].draw_s(rng) for i in chosen.tolist()), gives_up=gives_up)


def _band(num_gpus: int, limits: tuple[int, ...]) -> int:
    """Return the index of the first limit that `num_gpus` does not exceed."""
    return next((i for i, limit in enumerate(limits) if num_gpus <= limit), len(limits))
