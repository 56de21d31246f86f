"""The section `failures`: how nodes and jobs fail, by keys or by the name of published statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from simsched.documents import Section
from simsched.engine import FailureOptions
from simsched.errors import input_error
from simsched.model import Cluster
from simsched.model.outages import Market, OutageCause
from simsched.model.topology import check_nodes, consecutive
from simsched.workload import read_outages

_HOUR_S, _DAY_H = 3600, 24
_HOURS_OF_1000_NODE_DAYS = 24_000


@dataclass(frozen=True)
class FailureSetting:
    """A named setting: its keys, the source of its numbers, and its assumptions."""

    keys: Mapping[str, Any]
    source: str


def _per_1000_node_days(failures: float) -> float:
    """Return a node's mean hours between failures."""
    return _HOURS_OF_1000_NODE_DAYS / failures


#: Median 20.4 h and mean 132.8 h of 584 repairs give the sigma of the log-normal distribution.
_REPAIR = MappingProxyType({"repair_median_h": 20.4, "repair_sigma": 1.936})

FAILURE_SETTINGS: Mapping[str, FailureSetting] = MappingProxyType(
    {
        "pretraining-cluster": FailureSetting(
            {"node_mtbf_h": _per_1000_node_days(4.23), **_REPAIR},
            "584 faults of 400 servers in 345 days, InfiniteHBD-Trace (Shou et al., SIGCOMM'25)",
        ),
        "research-cluster": FailureSetting(
            {"node_mtbf_h": _per_1000_node_days(6.5), **_REPAIR},
            "6.50 failures per 1,000 node-days of RSC-1 (Kokolis et al., HPCA'25); repair times assumed to be those of "
            "InfiniteHBD-Trace, as none are published",
        ),
        "frontier-run": FailureSetting(
            {"node_mtbf_h": _per_1000_node_days(3.79), "repair_median_h": 0.17, "repair_sigma": 0.0},
            "419 unplanned interruptions of 2,048 nodes in 54 days (Llama Team, The Llama 3 Herd of Models, 2024); "
            "that a spare node takes over within ten minutes is assumed",
        ),
        "llama3-run": FailureSetting(
            {
                "gpu_failures_per_day": 4.74e-4,
                "causes": tuple(
                    {"cause": cause, "failures": count, **(_REPAIR if broken else {})}
                    for cause, count, broken in (
                        ("GPU", 268, True),
                        ("host", 21, True),
                        ("network", 35, True),
                        ("unplanned maintenance", 32, True),
                        ("dependency", 56, False),
                        ("unknown", 7, False),
                    )
                ),
            },
            "419 unplanned interruptions of 16,384 GPUs in 54 days by cause (The Llama 3 Herd of Models, 2024, table "
            "5); no repair times are published: that hardware takes as long as in InfiniteHBD-Trace and software needs "
            "no repair is assumed",
        ),
        "philly": FailureSetting(
            {"jobs": "philly"},
            "causes and times to failure of Table 7, retries and unsuccessful jobs of Figure 9 (Jeon et al., ATC'19)",
        ),
    }
)


class CauseSpec(Section):
    """A cause of failures of nodes."""

    cause: str = Field(min_length=1, max_length=40, description="name in the table of outages")
    failures: float = Field(gt=0, description="frequency relative to the other causes")
    repair_median_h: float = Field(default=0.0, ge=0, description="median hours of its repair")
    repair_sigma: float = Field(default=0.0, ge=0, le=5, description="sigma of its log-normal repair times")

    def build(self) -> OutageCause:
        """Return the cause for the engine."""
        return OutageCause(self.cause, self.failures, self.repair_median_h * _HOUR_S, self.repair_sigma)


class FailuresSpec(Section):
    """Failures of nodes and jobs, and checkpoints; by default nothing fails."""

    setting: Literal["pretraining-cluster", "research-cluster", "frontier-run", "llama3-run", "philly"] | None = Field(
        default=None, description="published statistics; other keys override theirs"
    )
    node_mtbf_h: float | None = Field(default=None, ge=0.001, description="mean hours between failures of a node")
    gpu_failures_per_day: float | None = Field(
        default=None, gt=0, le=100, description="failures per GPU and day, instead of 'node_mtbf_h'; its node fails"
    )
    causes: tuple[CauseSpec, ...] = Field(
        default=(), description="causes of failures of nodes with their own repair times, instead of 'repair_median_h'"
    )
    hot_spares: int = Field(
        default=0, ge=0, description="the last nodes of the cluster, idle until each replaces a failed node at once"
    )
    elastic: bool = Field(
        default=False,
        description="a job with plans continues at once on its remaining nodes, unless a spare replaces the failed "
        "one, and returns to all of them after the repair",
    )
    slow_nodes_share: float = Field(default=0.0, ge=0, le=1, description="share of nodes that are slow")
    slow_nodes_speed: float = Field(
        default=0.9, gt=0, le=1, description="speed of a job that has a slow node, relative to its own"
    )
    weibull_shape: float = Field(
        default=1.0, gt=0.1, le=10, description="shape of the times to failure; 1 is exponential"
    )
    repair_median_h: float = Field(default=0.0, ge=0, description="median hours of a repair")
    repair_sigma: float = Field(
        default=0.0, ge=0, le=5, description="sigma of the log-normal repair times; 0: all equal"
    )
    outages_path: str | None = Field(
        default=None,
        min_length=1,
        description="CSV (node,down,up; seconds) or fault trace (.json), in addition to drawn failures",
    )
    rack_nodes: int | None = Field(
        default=None, ge=1, description="consecutive nodes of a rack, whose nodes fail together"
    )
    racks: tuple[tuple[int, ...], ...] | None = Field(
        default=None, description="lists of nodes that fail together, instead of 'rack_nodes'"
    )
    rack_level: str | None = Field(
        default=None, min_length=1, description="level of 'cluster.topology' whose domains fail together, instead"
    )
    rack_mtbf_h: float | None = Field(default=None, gt=0, description="mean hours between failures of a rack")
    checkpoint_interval_s: Annotated[float, Field(gt=0)] | Literal["optimal"] | None = Field(
        default=None,
        description="running seconds after which a job writes a checkpoint, 'optimal' for the best interval for its "
        "requested GPUs; by default no checkpoints",
    )
    checkpoint_cost_s: Annotated[float, Field(ge=0)] | Literal["by-size"] = Field(
        default=0.0,
        description="seconds that it pauses to write one; 'by-size': the time to write its model's state",
    )
    jobs: Literal["never", "trace", "philly"] = Field(
        default="never", description="failures of jobs themselves: as in their trace, or by statistics"
    )

    def _conflicts(self) -> Iterator[str]:
        ways = ("rack_nodes", "racks", "rack_level")
        given = [f"'{name}'" for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            yield f"give either {' or '.join(given)}, not both"
        if (self.rack_mtbf_h is None) != (not given):
            yield "racks that fail need both 'rack_mtbf_h' and 'rack_nodes', 'racks' or 'rack_level'"
        nodes = [f"'{name}'" for name in ("node_mtbf_h", "gpu_failures_per_day") if getattr(self, name) is not None]
        if len(nodes) > 1:
            yield f"give either {' or '.join(nodes)}, not both"
        if self.causes and (self.repair_median_h or self.repair_sigma):
            yield "'causes' have their own repair times; leave out 'repair_median_h' and 'repair_sigma'"
        interval_s, cost_s = self.checkpoint_interval_s, self.checkpoint_cost_s
        draws = bool(nodes) or self.setting not in (None, "philly")
        if interval_s == "optimal" and not (cost_s and draws):
            yield "an optimal interval needs 'checkpoint_cost_s', and 'node_mtbf_h' or 'gpu_failures_per_day'"
        if isinstance(interval_s, float) and isinstance(cost_s, float) and cost_s >= interval_s:
            yield f"a checkpoint of {cost_s:g} s takes longer than its interval of {interval_s:g} s; save less often"

    def resolved(self) -> FailuresSpec:
        """Return the named setting overridden by these keys."""
        if self.setting is None:
            return self
        given = self.model_dump(exclude_unset=True, exclude={"setting"})
        instead = {"node_mtbf_h": "gpu_failures_per_day", "gpu_failures_per_day": "node_mtbf_h"}
        instead |= {"repair_median_h": "causes", "repair_sigma": "causes"}
        left = {instead[key] for key in given if key in instead}
        if "causes" in given:
            left |= {"repair_median_h", "repair_sigma"}
        keys = {key: value for key, value in FAILURE_SETTINGS[self.setting].keys.items() if key not in left}
        return FailuresSpec.model_validate({**keys, **given})


def failure_options(spec: FailuresSpec, cluster: Cluster, market: Market | None = None) -> FailureOptions | None:
    """Return the engine's failure options, None if nothing fails, no checkpoints are written, and there is no market.

    Raises `InputError` for a bad list of outages or racks that the cluster lacks.
    """
    found = spec.resolved()
    count = len(cluster.nodes)
    if found.hot_spares >= count:
        message = f"{found.hot_spares} spares leave none of {count} nodes"
        raise input_error("failures.hot_spares", message, "keep fewer nodes as spares")
    options = FailureOptions(
        node_mtbf_s=_seconds(found.node_mtbf_h),
        gpu_mtbf_s=None if found.gpu_failures_per_day is None else _DAY_H * _HOUR_S / found.gpu_failures_per_day,
        causes=tuple(cause.build() for cause in found.causes),
        hot_spares=found.hot_spares,
        elastic=found.elastic,
        slow_nodes=found.slow_nodes_share,
        slow_speed=found.slow_nodes_speed if found.slow_nodes_share else 1.0,
        weibull_shape=found.weibull_shape,
        repair_median_s=found.repair_median_h * _HOUR_S,
        repair_sigma=found.repair_sigma,
        outages=() if found.outages_path is None else read_outages(Path(found.outages_path), count),
        racks=_racks(found, cluster),
        rack_mtbf_s=_seconds(found.rack_mtbf_h),
        checkpoint_interval_s=found.checkpoint_interval_s,
        checkpoint_cost_s=found.checkpoint_cost_s,
        jobs=found.jobs,
        market=market,
    )
    return None if options == FailureOptions() else options


def _racks(spec: FailuresSpec, cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    if spec.rack_level is not None:
        found = next((level.domains for level in cluster.levels if level.name == spec.rack_level), None)
        if found is None:
            message = f"the cluster has no level '{spec.rack_level}'"
            raise input_error("failures.rack_level", message, "name a level of 'cluster.topology'")
        return found
    if spec.rack_nodes is not None:
        return consecutive(spec.rack_nodes, len(cluster.nodes))
    racks = spec.racks or ()
    try:
        check_nodes(racks, len(cluster.nodes))
    except ValueError as error:
        raise input_error("failures.racks", str(error)) from error
    return racks


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * _HOUR_S
