"""Compares policies seed by seed, two runs with each other, and decides how many seeds a comparison needs.

The rule that adds seeds looks at the paired ratios after 8, 16, 32, ... seeds, up to a budget. With L planned looks
and m comparisons, each interval at each look has confidence 1 - 0.05 / (m L). By Bonferroni's inequality all of them
hold jointly with a probability of at least 95 %, whenever the rule stops, so repeated looks do not inflate the error. A
comparison is decided when its interval lies on one side of 1, or within `margin` of 1; decisions are final.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from simsched.errors import input_error, nearest
from simsched.results.metrics import HEADLINE, METRICS, Reading, find_metric, is_ratio, range_of, ratio_key
from simsched.results.reader import Cell, Run
from simsched.results.statistics import (
    FIRST_LOOK,
    Difference,
    Estimate,
    estimate,
    geometric,
    paired_difference,
    ratio,
    student_t,
)

#: The replication of a cell: its seed, and the values of swept keys that count as replications.
Replica = tuple[Hashable, ...]


@dataclass(frozen=True)
class Row:
    """One policy at one point of the sweep, over all its seeds.

    `values` has one value per replication for each metric of the summaries; `published` holds the published values, in
    the units of the summaries.
    """

    policy: str
    policy_name: str
    point: Mapping[str, Any]
    cells: tuple[Cell, ...]
    values: Mapping[str, Mapping[Replica, float]]
    published: Mapping[str, float]

    @property
    def name(self) -> str:
        """The label, followed by the point of the sweep, if any: `pollux [load=2.0]`."""
        return row_name(self.policy, self.point)

    @property
    def shown_name(self) -> str:
        """The name with the mark of the policy's knowledge: `srtf † [load=2.0]`."""
        return row_name(self.shown_policy, self.point)

    @property
    def shown_policy(self) -> str:
        """The label with the mark of the policy's knowledge."""
        return self.cells[0].shown_policy if self.cells else self.policy

    @property
    def knows(self) -> Mapping[str, str]:
        """How a real scheduler would obtain each signal that the policy reads: `{'remaining_work': 'oracle'}`."""
        return self.cells[0].knows if self.cells else {}

    @property
    def copies(self) -> bool:
        """Whether all its cells are copies of one run: the same jobs with the same results under every seed."""
        first = self.cells[0]
        jobs = first.manifest.get("jobs_hash")
        return len(self.cells) > 1 and all(
            cell.summary == first.summary and cell.manifest.get("jobs_hash") == jobs for cell in self.cells[1:]
        )

    def estimate(self, metric: str) -> Estimate | None:
        """Average a metric (named as in the summaries) over the replications; None if no summary has it.

        The interval stays within the range of the metric. Ratios use the geometric mean. Copies of one run count once.
        """
        values = self.values.get(metric)
        if not values:
            return None
        chosen = list(values.values())[:1] if self.copies else list(values.values())
        if is_ratio(metric) and min(chosen) > 0:
            return geometric(chosen)
        return estimate(chosen, within=range_of(metric))

    def spread(self, metric: str) -> Spread | None:
        """Return the mean of a metric with what is shown of its uncertainty; None if no summary has it."""
        found = self.estimate(metric)
        if found is None:
            return None
        if found.half_width is None or found.half_width <= abs(found.mean) or not found.mean:
            return Spread(found.mean, found.low, found.high, found.n)
        values = self.values[metric].values()
        return Spread(found.mean, min(values), max(values), found.n, is_range=True)


class Spread(NamedTuple):
    """A mean over `n` replications and the ends of its 95 % interval.

    If the interval is wider than the mean, they are the least and the most of the replications, and `is_range` is true.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    is_range: bool = False


@dataclass(frozen=True)
class DifferenceRow:
    """The difference of a row from the reference policy at the same point, by metric."""

    row: Row
    reference: Row
    differences: Mapping[str, Difference]


def short_keys(keys: Collection[str]) -> dict[str, str]:
    """Shorten swept keys to their last part (`workload.load` to `load`) if that is unambiguous."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}


def row_name(policy: str, point: Mapping[str, Any]) -> str:
    """Name a row by its policy and its point of the sweep."""
    if not point:
        return policy
    short = short_keys(list(point))
    return f"{policy} [{', '.join(f'{short[key]}={value}' for key, value in point.items())}]"


def comparison(run: Run, replicate_over: Collection[str] = ()) -> list[Row]:
    """Gather the cells of a run into rows, one per policy and sweep point, in the order of the grid.

    Swept keys in `replicate_over` (for instance a list of workload files) count as replications, like seeds, not as
    points. Published values are looked up under the name of the row, else under the label of the policy if it has only
    one row. `InputError` for a key that is not swept.
    """
    unknown = [key for key in replicate_over if key not in run.swept]
    if unknown:
        raise input_error(run.folder, f"'{unknown[0]}' is not swept in this run", nearest(unknown[0], run.swept))
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in run.cells:
        groups.setdefault((cell.policy, str(_point(cell, replicate_over))), []).append(cell)
    rows = [
        _row(run, cells, replicate_over, _published(run, cells[0], replicate_over, groups)) for cells in groups.values()
    ]
    return _with_ratios(rows, run.reference or rows[0].policy) if rows else []


def usual_metrics(rows: Iterable[Row]) -> list[str]:
    """List the default metrics of a comparison: the usual ones that rows have.

    With several GPU types, metrics by type are included for each.
    """
    there = sorted({key for row in rows for key in row.values})
    found: list[str] = []
    for name in HEADLINE:
        of_types = METRICS[name].of == "types"
        found += [key for key in there if key == name or (of_types and key.startswith(f"{name}["))]
    return found


def _point(cell: Cell, replicate_over: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in cell.point.items() if key not in replicate_over}


def _row(run: Run, cells: Sequence[Cell], replicate_over: Collection[str], published: Mapping[str, float]) -> Row:
    values: dict[str, dict[Replica, float]] = {}
    for cell in cells:
        replica = (cell.seed, *(str(cell.point[key]) for key in replicate_over if key in cell.point))
        for metric, value in cell.summary.items():
            of_metric = values.setdefault(metric, {})
            if replica in of_metric:
                message = f"'{row_name(cell.policy, cell.point)}' has seed {cell.seed} twice"
                raise input_error(run.folder, message, "give each policy its own label")
            of_metric[replica] = value
    first = cells[0]
    return Row(first.policy, first.policy_name, _point(first, replicate_over), tuple(cells), values, published)


def _published(
    run: Run, cell: Cell, replicate_over: Collection[str], groups: Iterable[tuple[str, str]]
) -> dict[str, float]:
    """Find the published values of a row, converted to the units of the summaries."""
    rows_of_policy = [policy for policy, _ in groups].count(cell.policy)
    names = [row_name(cell.policy, _point(cell, replicate_over))]
    if rows_of_policy == 1:
        names.append(cell.policy)
    found: Mapping[str, float] = next((run.published[name] for name in names if name in run.published), {})
    readings = {name: find_metric(name) for name in found}
    return {reading.key: float(found[name]) / reading.factor for name, reading in readings.items()}


def _with_ratios(rows: list[Row], reference: str) -> list[Row]:
    """If ratios to the reference policy were published, add those of all rows, by replication."""
    wanted = {ratio_key(key): key for row in rows for key in row.values}
    wanted = {ratio: wanted[ratio] for row in rows for ratio in row.published if ratio in wanted}
    references = [row for row in rows if row.policy == reference]
    found = []
    for row in rows:
        other = reference_of(row, references, reference)
        ratios = {name: ratios_to(other, row, key) for name, key in wanted.items()}
        found.append(replace(row, values={**row.values, **{name: one for name, one in ratios.items() if one}}))
    return found


def ratios_to(other: Row | None, row: Row, metric: str) -> dict[Replica, float]:
    """Return the ratios of a row's values of a metric to those of another, by replication."""
    below = {} if other is None else other.values.get(metric, {})
    above = row.values.get(metric, {})
    return {replica: above[replica] / below[replica] for replica in above if below.get(replica)}


def paired_differences(
    rows: Sequence[Row], reference: str, metrics: Collection[str] | None = None
) -> list[DifferenceRow]:
    """Compare every row with the row of the policy labelled `reference` at the same point, seed by seed.

    A reference that does not depend on a swept key serves all values of that key. `metrics` are named as in the
    summaries (default: all). Raises `InputError` if no policy has that label.
    """
    references = [row for row in rows if row.policy == reference]
    if not references:
        raise input_error(
            "reference policy", f"no policy is labelled '{reference}'", nearest(reference, {r.policy for r in rows})
        )
    found = []
    for row in rows:
        other = reference_of(row, references, reference)
        if other is None or other is row:
            continue
        names = row.values if metrics is None else metrics
        pairs = {name: _paired(row, other, name) for name in names}
        found.append(DifferenceRow(row, other, {name: pair for name, pair in pairs.items() if pair is not None}))
    return found


def reference_of(row: Row, rows: Sequence[Row], reference: str) -> Row | None:
    """Return the row of the policy labelled `reference` at the point of a row, None if there is none."""
    return next((one for one in rows if one.policy == reference and _same_point(row, one)), None)


def _paired(row: Row, other: Row, name: str) -> Difference | None:
    """Compare two rows seed by seed, only once if both are copies of one run."""
    values, reference = row.values.get(name, {}), other.values.get(name, {})
    if row.copies and other.copies:
        values = dict(list(values.items())[:1])
    return paired_difference(values, reference)


def _same_point(row: Row, reference: Row) -> bool:
    return all(key in row.point and row.point[key] == value for key, value in reference.point.items())


#: The metrics compared by default.
COMPARED_METRICS = ("jct_mean_h", "jct_p99_h", "makespan_h")
_RANKED = "jct_mean_s"


@dataclass(frozen=True)
class Pair:
    """A value in both runs."""

    one: float
    other: float

    @property
    def relative(self) -> float:
        """The first relative to the second, as a fraction above or below it."""
        return self.one / self.other - 1 if self.other else 0.0


@dataclass(frozen=True)
class PolicyLine:
    """A metric of one policy: the means over all workloads, and the pairs for each workload."""

    policy: str
    metric: Reading
    mean: Pair
    by_workload: Mapping[str, Pair]

    @property
    def largest(self) -> float:
        """The largest relative difference of any workload, with its sign."""
        return max((pair.relative for pair in self.by_workload.values()), key=abs)


@dataclass(frozen=True)
class Ranking:
    """The policies by mean JCT, best first, in both runs."""

    workload: str
    one: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both runs rank the policies alike."""
        return self.one == self.other


@dataclass(frozen=True)
class TwoRuns:
    """A comparison of two runs; each value is the mean over a run's seeds of a policy and a workload."""

    lines: tuple[PolicyLine, ...]
    rankings: tuple[Ranking, ...]


def compare_runs(one: Run, other: Run, metrics: Sequence[str] = COMPARED_METRICS) -> TwoRuns:
    """Compare two runs on what they have in common: policies by label, workloads by their names in the manifests.

    Raises `InputError` for an unknown metric, a run with a sweep, and runs without anything in common.
    """
    readings = [find_metric(name) for name in metrics]
    found, beside = _by_workload(one), _by_workload(other)
    workloads = [name for name in found if name in beside]
    policies = [
        label for label in one.policies if any(label in found[name] and label in beside[name] for name in workloads)
    ]
    if not policies:
        remedy = f"{one.folder} has {_listed(found)}; {other.folder} has {_listed(beside)}"
        raise input_error(one.folder, f"has no policy on a workload that {other.folder} has too", remedy)
    lines = [
        _line(
            label,
            reading,
            {w: (found[w][label], beside[w][label]) for w in workloads if label in found[w] and label in beside[w]},
        )
        for label in policies
        for reading in readings
    ]
    rankings = [_ranking(name, found[name], beside[name]) for name in workloads]
    return TwoRuns(tuple(lines), tuple(rankings))


def _by_workload(run: Run) -> dict[str, dict[str, list[Cell]]]:
    """Sort the cells of a run by workload and policy."""
    gathered: dict[str, dict[str, list[Cell]]] = {}
    for cell in run.cells:
        swept = [key for key in cell.point if key != "workload"]
        if swept:
            raise input_error(
                run.folder, f"sweeps '{swept[0]}', so a policy has several results", "compare runs without a sweep"
            )
        gathered.setdefault(cell.workload_name, {}).setdefault(cell.policy, []).append(cell)
    return gathered


def _listed(found: Mapping[str, Mapping[str, object]]) -> str:
    policies = sorted({label for labels in found.values() for label in labels})
    return f"{', '.join(policies)} on {', '.join(sorted(found))}"


def _line(label: str, reading: Reading, cells: Mapping[str, tuple[list[Cell], list[Cell]]]) -> PolicyLine:
    pairs = {name: Pair(_mean(a, reading), _mean(b, reading)) for name, (a, b) in cells.items()}
    mean = Pair(fmean(pair.one for pair in pairs.values()), fmean(pair.other for pair in pairs.values()))
    return PolicyLine(label, reading, mean, pairs)


def _mean(cells: Sequence[Cell], reading: Reading) -> float:
    values = [cell.summary[reading.key] * reading.factor for cell in cells if reading.key in cell.summary]
    if not values:
        raise input_error(cells[0].folder, f"its summary has no '{reading.key}'", "name a metric that both runs have")
    return fmean(values)


def _ranking(workload: str, one: Mapping[str, list[Cell]], other: Mapping[str, list[Cell]]) -> Ranking:
    reading = find_metric(_RANKED)
    both = [label for label in one if label in other]
    return Ranking(
        workload,
        tuple(sorted(both, key=lambda label: _mean(one[label], reading))),
        tuple(sorted(both, key=lambda label: _mean(other[label], reading))),
    )


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
