"""The metrics computed from the result tables, each with its name, unit, formula and direction.

A metric is a pure function of the tables of one cell and of the number of GPUs in the cluster. `summarise` computes all
metrics that the tables allow. Means per application and per tenant are added under `jct_mean_s[NAME]`: the 99th
percentile in Table 2 of the Pollux paper is the mean JCT of its ImageNet jobs, `jct_mean_s[imagenet]` here. A time
divided by that of the reference policy under the same seed ends in `_ratio`, as in `jct_mean_ratio`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from simsched.errors import InputError, input_error, nearest
from simsched.results.fairness import RHO_METRICS
from simsched.results.job_metrics import (
    COMPLETION_METRICS,
    DEADLINE_METRICS,
    FAILURE_METRICS,
    RUNNING_METRICS,
    WAITING_METRICS,
)
from simsched.results.metric import (
    ALWAYS,
    IF_THERE,
    SECONDS_PER_HOUR,
    Metric,
    Tables,
    means_by,
)
from simsched.results.quality import QUALITY_METRICS
from simsched.results.sheets import TRIAL_METRICS
from simsched.results.statistics import ANY_VALUE, Range
from simsched.results.usage_metrics import (
    ENERGY_METRICS,
    HOURS_METRICS,
    PLACEMENT_METRICS,
    SHARING_METRICS,
    UTILISATION_METRICS,
)

if TYPE_CHECKING:
    pass


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


def summarise(tables: Tables) -> dict[str, float]:
    """Compute every metric that the tables allow, and the mean JCT of each application and of each tenant.

    If nodes or jobs may fail, also that of each final state (`jct_mean_s[Failed]`). A metric without a value (no job,
    no table) is left out rather than NaN. Percentiles are interpolated linearly.
    """
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


_NAME = re.compile(r"(?P<name>\w+)(\[(?P<application>[^\]]+)\])?")
_RATIO = "_ratio"
_SECONDS = {"_s": 1, "_min": 60, "_h": SECONDS_PER_HOUR}


@dataclass(frozen=True)
class Reading:
    """A metric as a user named it.

    Summaries store it under `key`, in `stored_unit`; multiplied by `factor` it is in the requested `unit`.
    """

    key: str
    title: str
    unit: str
    better: str
    factor: float
    stored_unit: str


def find_metric(name: str) -> Reading:
    """Look up a metric by the name that a user wrote.

    The suffix of a time gives its unit (seconds, minutes or hours): `makespan_h` reads `makespan_s` divided by
    3600. A bracket selects an application, a tenant or a GPU type, `jct_mean_h[imagenet]`, or, of rho, leaves one out:
    `rho_above_1[all but ncf]`. The unit `_ratio` divides by the reference policy's: `makespan_ratio`. Raises
    `InputError` on other names.
    """
    match = _NAME.fullmatch(name)
    stem, application = (match["name"], match["application"]) if match else (name, None)
    for ending, seconds in _SECONDS.items():
        metric = METRICS.get(stem.removesuffix(ending) + "_s") if stem.endswith(ending) else None
        if metric is not None and (application is None or _can_be_of(metric, application)):
            unit = ending.removeprefix("_")
            return _reading(metric, application, unit, 1 / seconds)
    divided = stem.removesuffix(_RATIO)
    metric = METRICS.get(divided + "_s", METRICS.get(divided)) if stem.endswith(_RATIO) else None
    if metric is not None and (application is None or metric.of == "groups and types"):
        whole = _reading(metric, application, "", 1.0)
        return replace(whole, key=ratio_key(whole.key), title=f"{whole.title} / reference's", stored_unit="")
    if stem in METRICS and (application is None or _can_be_of(METRICS[stem], application)):
        return _reading(METRICS[stem], application, METRICS[stem].unit, 1.0)
    raise _unknown(name)


def _can_be_of(metric: Metric, part: str) -> bool:
    """Return whether a metric exists for a part of a run."""
    return bool(metric.of) and part.startswith("all but ") == (metric.of == "all but an application")


def range_of(key: str) -> Range:
    """Return the range of a metric of the summaries, including metrics of one application, tenant or type."""
    metric = METRICS.get(key.partition("[")[0])
    return ANY_VALUE if metric is None else metric.range


def ratio_key(key: str) -> str:
    """Return the key of the ratio of a metric to the reference's: `jct_mean_ratio[a]` for `jct_mean_s[a]`."""
    name, bracket, rest = key.partition("[")
    return name.removesuffix("_s") + _RATIO + bracket + rest


def is_ratio(key: str) -> bool:
    """Return whether a key of the summaries is that of a ratio to the reference's."""
    return key not in METRICS and key.partition("[")[0].endswith(_RATIO)


def _reading(metric: Metric, application: str | None, unit: str, factor: float) -> Reading:
    key = metric.name if application is None else f"{metric.name}[{application}]"
    title = metric.title if application is None else f"{metric.title} of {application}"
    return Reading(key, title, unit, metric.better, factor, metric.unit)


def _unknown(name: str) -> InputError:
    return input_error("metric", f"there is no metric '{name}'", nearest(name, METRICS))
