"""Whether a ratio of two policies is the published one, by a rule that can fail.

A mean over few workloads says little: single jobs move it by half. What can be compared is the ratio of two policies
that faced the same jobs. It `matches` where its 95 % interval is narrower than 10 % of it and contains the ratio that
the published simulator gives; a testbed is no simulator, so nothing matches one. Else it has the `same direction` where
the interval lies on the published side of 1, and `differs` where it does not. One seed gives no interval, and an
interval that contains 1 no direction: `no verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from simsched.errors import input_error, nearest
from simsched.results.compare import Row, comparison
from simsched.results.metric_names import find_metric, ratio_key
from simsched.results.reader import Run
from simsched.results.statistics import CONFIDENCE, Estimate, student_t

MATCHES, SAME_DIRECTION, DIFFERS, NO_VERDICT = "matches", "same direction", "differs", "no verdict"
#: What an interval may span, relative to the ratio, if the ratio is to match.
NARROW = 0.1
#: What the published values of an experiment come from for a ratio to match them.
SIMULATOR = "simulator"
#: The swept key under which the files of a folder of workloads appear; these are replications.
WORKLOAD_FILE = "workload"

Replica = TypeVar("Replica", bound=Hashable)


@dataclass(frozen=True)
class Judged:
    """The ratio of a metric of one row to that of another, beside the published ratio."""

    row: str
    over: str
    ratio: Estimate
    published: float
    verdict: str


def ratio_of_means(
    values: Mapping[Replica, float], reference: Mapping[Replica, float], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Estimate mean(values) / mean(reference) over the replications that both have; None where there is none.

    The interval is that of the ratio estimator (Cochran, Sampling Techniques, 1977, equation 6.13): with R the ratio
    and e = value - R reference, R +- t(n - 1) s(e) / (sqrt(n) mean(reference)). What all jobs of a seed have in common
    is in e only as far as it moves the ratio.
    """
    shared = [key for key in values if key in reference]
    above = np.array([values[key] for key in shared], dtype=float)
    below = np.array([reference[key] for key in shared], dtype=float)
    if not shared or not below.mean():
        return None
    n, ratio = len(shared), float(above.mean() / below.mean())
    if n == 1:
        return Estimate(ratio, 1)
    spread = float((above - ratio * below).std(ddof=1)) / (math.sqrt(n) * float(below.mean()))
    half = student_t(n - 1, confidence) * spread
    return Estimate(ratio, n, ratio - half, ratio + half)


def verdict(ratio: Estimate, published: float, *, simulated: bool) -> str:
    """Judge a ratio by its interval; `simulated` says that the published one comes from a simulator."""
    if ratio.low is None or ratio.high is None:
        return NO_VERDICT
    narrow = ratio.high - ratio.low < NARROW * ratio.mean
    if simulated and narrow and ratio.low <= published <= ratio.high:
        return MATCHES
    if ratio.low <= 1 <= ratio.high:
        return DIFFERS if narrow and not ratio.low <= published <= ratio.high else NO_VERDICT
    return SAME_DIRECTION if (ratio.low > 1) == (published > 1) and published != 1 else DIFFERS


def judge(run: Run, metric: str, over: str | None = None) -> list[Judged]:
    """Judge all rows of a run for which a ratio of a metric is published.

    Seeds and the files of a folder of workloads are replications. Each row is divided by the row named `over` or, by
    default, by the reference policy at the same point of the sweep. Raises `InputError` where there is no such row.
    """
    rows = comparison(run, [key for key in run.swept if key == WORKLOAD_FILE])
    key = find_metric(metric).key
    if over is not None and over not in {row.name for row in rows}:
        raise input_error(run.folder, f"has no row '{over}'", nearest(over, [row.name for row in rows]))
    found = []
    for row in rows:
        other = _reference(rows, row, over, run.reference)
        if other is None or other is row:
            continue
        published = _published_ratio(row, other, key, run.reference)
        ratio = ratio_of_means(row.values.get(key, {}), other.values.get(key, {}))
        if ratio is not None and published is not None:
            simulated = run.experiment.get("published_by") == SIMULATOR
            found.append(Judged(row.name, other.name, ratio, published, verdict(ratio, published, simulated=simulated)))
    return found


def _published_ratio(row: Row, other: Row, key: str, reference: str | None) -> float | None:
    """Return the published ratio of two rows: of two published values, or one published as ratio to the reference."""
    if key in row.published and other.published.get(key):
        return row.published[key] / other.published[key]
    return row.published.get(ratio_key(key)) if other.policy == reference else None


def _reference(rows: list[Row], row: Row, over: str | None, reference: str | None) -> Row | None:
    if over is not None:
        return next(one for one in rows if one.name == over)
    label = reference or rows[0].policy
    return next((one for one in rows if one.policy == label and one.point == row.point), None)
