"""Whether policies rank as published, at each point of a sweep, by a rule that can fail.

Two policies are compared if their published values lie further apart than `APART`: means closer to each other than a
simulator comes to its own prints rank nothing. A pair is *separated* if the 95 % interval of its ratio, paired by seed,
excludes 1; all other pairs are undecided, whatever their means. The order `differs` if a separated pair stands the
other way round than published. It `matches` if none does and at least `ENOUGH` of the pairs are separated, and is
`undecided` if fewer are: pairs that nobody can tell apart match nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from simsched.results.compare import Row, comparison, row_name
from simsched.results.metric_names import find_metric
from simsched.results.reader import Run
from simsched.results.statistics import ratio
from simsched.results.verdicts import DIFFERS, MATCHES, UNDECIDED

#: How far apart two published values must be, relative to the smaller. Today's code of Gavel's artifact is up to 3.5 %
#: away from what its notebooks print.
APART = 0.05
#: Which share of the pairs must be separated for their order to match.
ENOUGH = 0.5


@dataclass(frozen=True)
class Ranked:
    """The pairs of policies at one point of a sweep whose order was published.

    Of `pairs`, `in_order` are separated and stand as published, `reversed_pairs` are separated and reversed (as `first
    > second` where the first should be less), and `undecided_pairs` are not separated.
    """

    point: str
    seeds: int
    pairs: int
    in_order: int
    reversed_pairs: tuple[str, ...]
    undecided_pairs: tuple[str, ...]

    @property
    def separated(self) -> int:
        """Count the pairs whose ratio has an interval beyond 1."""
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
