"""What a user may say about failures of nodes and jobs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from simsched.model import Outage


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
