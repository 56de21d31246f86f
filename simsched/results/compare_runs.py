"""Compares two runs of the same policies on the same workloads, for example under different physics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simsched.errors import input_error
from simsched.results.metric_names import Reading, find_metric
from simsched.results.reader import Cell, Run

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
