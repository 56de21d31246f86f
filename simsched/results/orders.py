"""Whether policies rank as published, at each point of a sweep, by a rule that can fail.

Two policies are compared if their published values differ by more than `APART`: closer means, within the
reproducibility of a simulator's own printed values, give no ranking. A pair is *separated* if the 95 % interval of its
ratio, paired by seed, excludes 1; all other pairs are undecided, whatever their means. The order `differs` if a
separated pair is reversed relative to the published one. It `matches` if none is and at least `ENOUGH` of the pairs are
separated, and is `undecided` if fewer are: indistinguishable pairs match nothing.
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

#: Required distance of two published values, relative to the smaller. The current code of Gavel's artifact deviates by
#: up to 3.5 % from its notebooks.
APART = 0.05
#: The share of the pairs that must be separated for their order to match.
ENOUGH = 0.5


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
