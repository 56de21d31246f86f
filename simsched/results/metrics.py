"""The metrics computed from the result tables, each with its name, unit, formula and direction.

A metric is a pure function of the tables of one cell and of the number of GPUs in the cluster. `summarise` computes all
metrics that the tables allow. Means per application and per tenant are added under `jct_mean_s[NAME]`: the 99th
percentile in Table 2 of the Pollux paper is the mean JCT of its ImageNet jobs, `jct_mean_s[imagenet]` here. A time
divided by that of the reference policy under the same seed ends in `_ratio`, as in `jct_mean_ratio`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from simsched.results.energy import ENERGY_METRICS
from simsched.results.metric import ALWAYS, IF_THERE, Columns, LossTable, Metric, Tables, means_by
from simsched.results.occasional_metrics import DEADLINE_METRICS, FAILURE_METRICS
from simsched.results.placement_metrics import PLACEMENT_METRICS
from simsched.results.power import Power
from simsched.results.quality import QUALITY_METRICS
from simsched.results.rho_metrics import RHO_METRICS
from simsched.results.time_metrics import COMPLETION_METRICS, RUNNING_METRICS, WAITING_METRICS
from simsched.results.trials import TRIAL_METRICS
from simsched.results.usage_metrics import HOURS_METRICS, SHARING_METRICS, UTILISATION_METRICS

if TYPE_CHECKING:
    import pandas as pd


def _finished(tables: Tables) -> float | None:
    return float(len(tables.done))


def _decisions(tables: Tables) -> float | None:
    return None if tables.decided is None else float(len(tables.decided))


_ALL = (
    *COMPLETION_METRICS,
    *UTILISATION_METRICS,
    *WAITING_METRICS,
    *HOURS_METRICS,
    *ENERGY_METRICS,
    *TRIAL_METRICS,
    *SHARING_METRICS,
    *RUNNING_METRICS,
    *RHO_METRICS,
    *FAILURE_METRICS,
    *PLACEMENT_METRICS,
    *QUALITY_METRICS,
    *DEADLINE_METRICS,
    Metric("finished_jobs", "finished jobs", "", "", "rows of the table of jobs", _finished),
    Metric("decisions", "decisions", "", "", "rows of the table of rounds", _decisions),
)

#: The metrics by name, in the order in which tables show them.
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})

#: The default metrics of a comparison; those that only some runs have come last.
HEADLINE = tuple(metric.name for how in (ALWAYS, IF_THERE) for metric in _ALL if metric.shown == how)


def summarise(
    jobs: pd.DataFrame | Columns,
    allocations: pd.DataFrame | Columns | None,
    rounds: pd.DataFrame | Columns | None,
    total_gpus: int,
    *,
    node_price_per_h: float | None = None,
    accuracies: Sequence[float] | None = None,
    losses: Mapping[str, LossTable] | None = None,
    power: Power | None = None,
    gpu_price_per_h: Sequence[float] = (),
) -> dict[str, float]:
    """Compute every metric that the tables allow, and the mean JCT of each application and of each tenant.

    If nodes or jobs may fail, also that of each final state (`jct_mean_s[Failed]`). A metric without a value (no job,
    no table) is left out rather than NaN. Percentiles are interpolated linearly.
    """
    tables = Tables(
        jobs, allocations, rounds, total_gpus, node_price_per_h, accuracies, None, losses, power, gpu_price_per_h
    )
    values = {name: metric.compute(tables) for name, metric in METRICS.items()}
    summary = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    for column in ("tenant", "application", *(("status",) if "failures" in tables.done else ())):
        means = means_by(tables.done[column], tables.done["jct_s"])
        summary |= {f"jct_mean_s[{name}]": float(mean) for name, mean in means.items() if name}
    return summary


def metrics_markdown() -> str:
    """Format the metrics as the Markdown table in `docs/results.md`."""
    lines = ["| metric | unit | better | formula |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.unit} | {m.better} | {m.meaning} |" for m in METRICS.values()]
    return "\n".join(lines) + "\n"
