"""Metrics as users name them: in hours, of one application, relative to the reference policy."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from simsched.errors import InputError, input_error, nearest
from simsched.results.metric import SECONDS_PER_HOUR, Metric
from simsched.results.metrics import METRICS
from simsched.results.statistics import ANY_VALUE, Range

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
