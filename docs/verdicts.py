"""Checks whether a ratio of two policies is the published one, by a rule that can fail.

A mean over few workloads says little: single jobs can change it by half. What can be compared is the ratio of two
policies on the same jobs, seed by seed, and its 95 % interval (`simsched.results.statistics.ratio`):

- `differs`: it lies on the other side of 1 than the published ratio, or it contains 1 and excludes the published ratio;
- `matches`: it is narrower than 10 % of the ratio and contains the ratio that the published simulator gives (nothing
  matches a testbed);
- `same direction`: it lies on the published side of 1 and contains the published ratio;
- `direction right, ratio excluded`: it lies on the published side of 1, without the published ratio;
- `undecided`: there is none (one seed), it is wider than 20 % of the ratio, or it contains both 1 and the published
  ratio. Width does not excuse an interval on the wrong side of 1.

Whether policies rank as published is judged at each point of a sweep. Two policies are compared if their
published values differ by more than `APART`: closer means, within the reproducibility of a simulator's own printed
values, give no ranking. A pair is *separated* if its interval excludes 1; all other pairs are undecided, whatever their
means. The order `differs` if a separated pair is reversed relative to the published one. It `matches` if none is and at
least `ENOUGH` of the pairs are separated, and is `undecided` if fewer are: indistinguishable pairs match nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from simsched.errors import input_error, nearest
from simsched.results.compare import Row, comparison, row_name
from simsched.results.metrics import find_metric, ratio_key
from simsched.results.reader import Run
from simsched.results.statistics import Estimate, ratio, ratio_of_means

MATCHES, SAME_DIRECTION, DIFFERS, UNDECIDED = "matches", "same direction", "differs", "undecided"
EXCLUDED = "direction right, ratio excluded"
#: The widest interval, relative to the ratio, for a match.
NARROW = 0.1
#: The widest interval, relative to the ratio, that can decide in favour.
WIDE = 0.2
#: The source of published values that a ratio can match.
SIMULATOR = "simulator"
#: Required distance of two published values, relative to the smaller. The current code of Gavel's artifact deviates by
#: up to 3.5 % from its notebooks.
APART = 0.05
#: The share of the pairs that must be separated for their order to match.
ENOUGH = 0.5


@dataclass(frozen=True)
class Judged:
    """The ratio of a metric of one row to that of another, with the published ratio.

    `ratio` and `of_means` may be None. `means` are the means of the metric of the two rows and `published_levels` their
    published values, None if only a ratio was published, in `unit`.
    """

    row: str
    over: str
    ratio: Estimate | None
    of_means: float | None
    published: float
    means: tuple[float | None, float | None]
    published_levels: tuple[float, float] | None
    unit: str
    verdict: str

    @property
    def doubt(self) -> str:
        """Why it is undecided; empty if it is not."""
        if self.verdict != UNDECIDED:
            return ""
        if self.ratio is None:
            return "no ratio"
        if self.ratio.low is None or self.ratio.high is None:
            return "no interval"
        width = (self.ratio.high - self.ratio.low) / self.ratio.mean
        if width <= WIDE:
            return "contains 1 and the published"
        outside = "" if self.ratio.low <= self.published <= self.ratio.high else ", without the published"
        return f"interval {100 * width:.0f} % wide{outside}"


def verdict(found: Estimate | None, published: float, *, simulated: bool) -> str:
    """Judge a ratio by its interval; `simulated` if the published one comes from a simulator."""
    if found is None or found.low is None or found.high is None:
        return UNDECIDED
    contains_published, contains_1 = found.low <= published <= found.high, found.low <= 1 <= found.high
    if found.low > 1 >= published or found.high < 1 <= published:
        return DIFFERS
    width = found.high - found.low
    if width > WIDE * found.mean:
        return UNDECIDED
    if contains_published:
        if simulated and width < NARROW * found.mean:
            return MATCHES
        return UNDECIDED if contains_1 else SAME_DIRECTION
    return DIFFERS if contains_1 else EXCLUDED


def judge(run: Run, metric: str, over: str | None = None) -> list[Judged]:
    """Judge all rows of a run for which a ratio of a metric is published.

    Seeds and the files of a folder of workloads are replications. Each row is divided by the row named `over` or, by
    default, by the reference policy at the same point of the sweep. Raises `InputError` if there is no such row.
    """
    rows = comparison(run, run.replicated_over)
    if over is not None and over not in {row.name for row in rows}:
        raise input_error(run.folder, f"has no row '{over}'", nearest(over, [row.name for row in rows]))
    others = ((row, _reference(rows, row, over, run.reference)) for row in rows)
    judged = (_judged(run, metric, row, other) for row, other in others if other is not None and other is not row)
    return [one for one in judged if one is not None]


def _judged(run: Run, metric: str, row: Row, other: Row) -> Judged | None:
    """Judge the ratio of two rows, None if none is published."""
    reading = find_metric(metric)
    key = reading.key
    levels = row.published.get(key), other.published.get(key)
    both = None if levels[0] is None or not levels[1] else (levels[0], levels[1])
    if both is not None:
        published: float | None = both[0] / both[1]
    else:  # one that was published as a ratio to the reference
        published = row.published.get(ratio_key(key)) if other.policy == run.reference else None
    if published is None:
        return None
    values, reference = row.values.get(key, {}), other.values.get(key, {})
    found, of_means = ratio(values, reference), ratio_of_means(values, reference)
    means = tuple(
        None if one is None else one.mean * reading.factor for one in (row.estimate(key), other.estimate(key))
    )
    return Judged(
        row.shown_name,
        other.shown_name,
        found,
        None if of_means is None else of_means.mean,
        published,
        (means[0], means[1]),
        None if both is None else (both[0] * reading.factor, both[1] * reading.factor),
        reading.unit,
        verdict(found, published, simulated=run.experiment.get("published_by") == SIMULATOR),
    )


def _reference(rows: list[Row], row: Row, over: str | None, reference: str | None) -> Row | None:
    if over is not None:
        return next(one for one in rows if one.name == over)
    label = reference or rows[0].policy
    return next((one for one in rows if one.policy == label and one.point == row.point), None)


@dataclass(frozen=True)
class Ranked:
    """The pairs of policies at one point of a sweep whose order was published.

    Of `pairs`, `in_order` are separated and as published, `reversed_pairs` are separated and reversed (`first > second`
    although the first should be less), and `undecided_pairs` are not separated.
    """

    point: str
    seeds: int
    pairs: int
    in_order: int
    reversed_pairs: tuple[str, ...]
    undecided_pairs: tuple[str, ...]

    @property
    def separated(self) -> int:
        """Count the pairs whose interval of the ratio excludes 1."""
        return self.in_order + len(self.reversed_pairs)

    @property
    def verdict(self) -> str:
        """Judge the order by its separated pairs."""
        if self.reversed_pairs:
            return DIFFERS
        return MATCHES if self.separated >= ENOUGH * self.pairs else UNDECIDED


def ranks(run: Run, metric: str) -> list[Ranked]:
    """Judge the order of the policies at every point where at least two have published values."""
    key = find_metric(metric).key
    rows = [row for row in comparison(run) if key in row.published and row.values.get(key)]
    points = list(dict.fromkeys(row_name("", row.point) for row in rows))
    judged = [_ranked(point, [row for row in rows if row_name("", row.point) == point], key) for point in points]
    return [one for one in judged if one.pairs]


def _ranked(point: str, rows: Sequence[Row], key: str) -> Ranked:
    in_order, wrong, undecided = 0, [], []
    for less, more in combinations(sorted(rows, key=lambda row: row.published[key]), 2):
        if more.published[key] <= less.published[key] * (1 + APART):
            continue
        found = ratio(more.values[key], less.values[key])
        if found is None or found.low is None or found.high is None or found.low <= 1 <= found.high:
            undecided.append(f"{less.shown_policy} < {more.shown_policy}")
        elif found.low > 1:
            in_order += 1
        else:
            wrong.append(f"{less.shown_policy} > {more.shown_policy}")
    pairs, seeds = in_order + len(wrong) + len(undecided), min(len(row.values[key]) for row in rows)
    return Ranked(point.strip(" []"), seeds, pairs, in_order, tuple(wrong), tuple(undecided))
