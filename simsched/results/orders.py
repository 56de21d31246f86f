"""Whether policies rank as published, at each point of a sweep, by a rule that can fail.

Two policies are compared where their published values lie further apart than `APART`: a published mean that is closer
to another than a simulator comes to its own prints ranks nothing. A rank `matches` where the means of all such pairs
are in the published order; it `differs` where the 95 % interval of some pair's ratio, paired by seed, lies on the other
side of 1. Else, and where there is one seed only, there is `no verdict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from simsched.results.compare import Row, comparison, row_name
from simsched.results.metric_names import find_metric
from simsched.results.reader import Run
from simsched.results.verdicts import DIFFERS, MATCHES, NO_VERDICT, ratio_of_means

#: How far apart two published values must be, relative to the smaller. Today's code of Gavel's artifact is up to 3.5 %
#: away from what its notebooks print.
APART = 0.05


@dataclass(frozen=True)
class Ranked:
    """The pairs of policies at one point of a sweep whose order was published.

    Of `pairs`, `in_order` have their means in that order, `sure` of these with an interval that leaves out 1;
    `reversed_pairs` names the others, as `first > second` where the first should be less.
    """

    point: str
    seeds: int
    pairs: int
    in_order: int
    sure: int
    reversed_pairs: tuple[str, ...]
    verdict: str


def ranks(run: Run, metric: str) -> list[Ranked]:
    """Judge the order of the policies at every point where at least two have published values."""
    key = find_metric(metric).key
    rows = [row for row in comparison(run) if key in row.published and row.values.get(key)]
    points = list(dict.fromkeys(row_name("", row.point) for row in rows))
    judged = [_ranked(point, [row for row in rows if row_name("", row.point) == point], key) for point in points]
    return [one for one in judged if one.pairs]


def _ranked(point: str, rows: Sequence[Row], key: str) -> Ranked:
    by_published = sorted(rows, key=lambda row: row.published[key])
    pairs = in_order = sure = 0
    wrong, surely_wrong, seeds = [], False, min(len(row.values[key]) for row in rows)
    for less, more in combinations(by_published, 2):
        if more.published[key] <= less.published[key] * (1 + APART):
            continue
        ratio = ratio_of_means(more.values[key], less.values[key])
        if ratio is None:
            continue
        pairs += 1
        if ratio.mean > 1:
            in_order += 1
            sure += ratio.low is not None and ratio.low > 1
        else:
            wrong.append(f"{less.policy} > {more.policy}")
            surely_wrong |= ratio.high is not None and ratio.high < 1
    verdict = NO_VERDICT
    if seeds > 1 and (surely_wrong or not wrong):
        verdict = DIFFERS if surely_wrong else MATCHES
    return Ranked(point.strip(" []"), seeds, pairs, in_order, sure, tuple(wrong), verdict)
