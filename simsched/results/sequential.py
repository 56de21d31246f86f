"""How many seeds a comparison needs: a rule that adds seeds while it runs, and a plan from a pilot.

The rule looks at the paired ratios after 8, 16, 32, ... seeds, up to a budget. With L planned looks and m comparisons,
each interval at each look has confidence 1 - 0.05 / (m L). By Bonferroni's inequality all of them hold jointly with a
probability of at least 95 %, whenever the rule stops, so repeated looks do not inflate the error. A comparison is
decided when its interval lies on one side of 1, or within `margin` of 1; decisions are final.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simsched.errors import input_error
from simsched.results.compare import Row, comparison, reference_of
from simsched.results.metric_names import find_metric
from simsched.results.reader import Run
from simsched.results.statistics import FIRST_LOOK, Estimate, ratio, student_t

#: The probability of any false decision.
LEVEL = 0.05
#: The power of a planned comparison, and the confidence of the bound on the pilot's spread.
POWER, SPREAD_CONFIDENCE = 0.8, 0.8
_MOST_PLANNED = 100_000

LOWER, HIGHER, ALIKE, OPEN = "lower", "higher", "alike", "open"


def looks(most: int) -> tuple[int, ...]:
    """Return the numbers of seeds of the looks, the budget last."""
    found = [FIRST_LOOK]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return tuple(min(one, most) for one in found)


@dataclass(frozen=True)
class SeedDecision:
    """The ratio of a row's metric to the reference's at a look, and the decision: `OPEN` if there is none yet."""

    row: str
    reference: str
    ratio: Estimate | None
    verdict: str


def decide(run: Run, metric: str, planned: Sequence[int], margin: float) -> list[SeedDecision]:
    """Decide each comparison of a run with its reference at one of the `planned` looks.

    An undefined ratio stays open. Raises `InputError` if nothing is compared.
    """
    pairs = _pairs(run, metric)
    confidence = 1 - LEVEL / (len(pairs) * len(planned))
    key = find_metric(metric).key
    found = []
    for row, other in pairs:
        estimate = ratio(row.values.get(key, {}), other.values.get(key, {}), confidence)
        found.append(SeedDecision(row.shown_name, other.shown_name, estimate, _verdict(estimate, margin)))
    return found


def kept(before: Sequence[SeedDecision], now: Sequence[SeedDecision]) -> list[SeedDecision]:
    """Return the decisions of a look, keeping the verdicts of earlier ones."""
    known = {one.row: one.verdict for one in before if one.verdict != OPEN}
    return [replace(one, verdict=known.get(one.row, one.verdict)) for one in now]


def _verdict(found: Estimate | None, margin: float) -> str:
    if found is None or found.low is None or found.high is None:
        return OPEN
    if 1 - margin <= found.low and found.high <= 1 + margin:
        return ALIKE
    return LOWER if found.high < 1 else HIGHER if found.low > 1 else OPEN


def _pairs(run: Run, metric: str) -> list[tuple[Row, Row]]:
    rows = comparison(run, run.replicated_over)
    label = run.reference or rows[0].policy
    found = [(row, other) for row in rows if (other := reference_of(row, rows, label)) is not None and other is not row]
    if not found:
        raise input_error(run.folder, f"compares nothing with '{label}'", "run two policies or more")
    return found


@dataclass(frozen=True)
class Planned:
    """The seeds that a comparison needs to detect a difference, from a pilot of `seeds`; None if unknown.

    `spread` is the standard deviation of the logarithms of the paired ratios.
    """

    row: str
    reference: str
    seeds: int
    ratio: Estimate | None
    spread: float | None
    needed: int | None


def plan(run: Run, metric: str, difference: float) -> list[Planned]:
    """Return how many seeds each comparison of a pilot needs to detect that two means differ by a share `difference`.

    Jointly at `LEVEL` (Bonferroni), each with power `POWER`. The spread is the upper confidence bound of the
    pilot's (Browne, Statistics in Medicine 14, 1995), since an estimate from few seeds is too low as often as too high;
    the effect is the one of interest rather than the pilot's, which may not be real.
    """
    pairs = _pairs(run, metric)
    key = find_metric(metric).key
    found = []
    for row, other in pairs:
        values, reference = row.values.get(key, {}), other.values.get(key, {})
        both = [(values[one], reference[one]) for one in values if one in reference]
        logs = [math.log(a / b) for a, b in both if a > 0 and b > 0]
        usable = len(logs) == len(both) > 1
        spread = float(np.std(logs, ddof=1)) if usable else None
        needed = None if spread is None else seeds_needed(spread, len(logs), difference, LEVEL / len(pairs))
        estimate = ratio(values, reference)
        found.append(Planned(row.shown_name, other.shown_name, len(both), estimate, spread, needed))
    return found


def seeds_needed(spread: float, pilot: int, difference: float, level: float) -> int | None:
    """Return the least n with sqrt(n) log(1 + difference) / s >= t(1 - level / 2) + t(POWER), n - 1 degrees.

    s is the upper bound of the `spread` of a `pilot` with this many seeds. None if n would be very large.
    """
    from scipy.special import chdtri  # slow to load

    bound = spread * math.sqrt((pilot - 1) / float(chdtri(pilot - 1, SPREAD_CONFIDENCE)))
    effect = math.log1p(difference)

    def enough(n: int) -> bool:
        quantiles = student_t(n - 1, 1 - level) + student_t(n - 1, 2 * POWER - 1)
        return math.sqrt(n) * effect >= bound * quantiles

    high = 2
    while not enough(high):
        high *= 2
        if high > _MOST_PLANNED:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def undecided(found: Sequence[SeedDecision]) -> Mapping[str, SeedDecision]:
    """Return the open decisions, by row."""
    return {one.row: one for one in found if one.verdict == OPEN}
