"""The definition of a metric, a pure function of the tables of one cell, and what metrics are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import Series, dot, ordered_sum

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class NodeMake:
    """A number of equal nodes."""

    nodes: int
    gpus_per_node: int
    gpu_type: str


@dataclass(frozen=True)
class Power:
    """What GPUs and nodes draw, in watts; `makes` are runs of equal nodes in the order of their indices."""

    makes: tuple[NodeMake, ...]
    idle_w: Mapping[str, float]
    busy_w: Mapping[str, float]
    node_w: float = 0.0
    asleep_w: float = 0.0

    @classmethod
    def of(cls, cluster: Iterable[Mapping[str, Any]], power: Mapping[str, Any]) -> Power:
        """Read it from the sections `cluster` and `power` of a cell's manifest."""
        makes = tuple(NodeMake(run["nodes"], run["gpus_per_node"], run["gpu_type"]) for run in cluster)
        idle_w, busy_w = ({kind: gpu[state] for kind, gpu in power["gpus"].items()} for state in ("idle_w", "busy_w"))
        return cls(makes, idle_w, busy_w, power["node_w"], power["asleep_w"])

    @property
    def nodes(self) -> int:
        """Count the nodes."""
        return sum(make.nodes for make in self.makes)

    @property
    def types(self) -> list[str]:
        """List the GPU types."""
        return sorted({make.gpu_type for make in self.makes})


SECONDS_PER_HOUR = 3600
#: The greatest values of bounded units.
_GREATEST = MappingProxyType({"share": 1.0, "%": 100.0})
#: Which values of a metric are better.
LOWER, HIGHER = "lower", "higher"
#: Which metrics comparisons show by default: of every run, or only of runs that have them.
ALWAYS: Literal["always"] = "always"
IF_THERE: Literal["if there"] = "if there"

#: The percentiles that metrics name.
PERCENTS = (50, 90, 95, 99)

#: The number of rows above which a table keeps few columns, and how many.
_LONG, _KEPT_OF_LONG = 500_000, 2

#: A column of numbers, truth values or texts, without gaps.
Column = npt.NDArray[Any]


class Columns:
    """A table as arrays by name, faster than a short DataFrame. A column is read on first use, and kept.

    Of a table of over `_LONG` rows only the last few read are kept.
    """

    def __init__(self, names: Collection[str], rows: int, read: Callable[[str], Column]) -> None:
        """Take the names of the columns, the number of rows, and a function that returns a column."""
        self._names = names
        self._rows = rows
        self._read = read
        self._arrays: dict[str, Column] = {}
        self._percentiles: dict[str, dict[float, float]] = {}

    @classmethod
    def of(cls, table: pd.DataFrame | Columns) -> Columns:
        """Return the columns of a DataFrame unchanged."""
        return (
            table if isinstance(table, Columns) else cls(table.columns, len(table), lambda name: table[name].to_numpy())
        )

    def frame(self, names: Iterable[str]) -> pd.DataFrame:
        """Return some columns as a DataFrame, for the few metrics that group rows."""
        import pandas as pd  # slow to load

        return pd.DataFrame({name: self[name] for name in names})

    def percentile(self, name: str, percent: float) -> float:
        """Return a percentile of a column of numbers, interpolated linearly; `percent` is one of `PERCENTS`."""
        if name not in self._percentiles:  # computing all at once takes hardly longer than one
            found = np.percentile(self[name], PERCENTS)
            self._percentiles[name] = dict(zip(PERCENTS, found.tolist(), strict=True))
        return self._percentiles[name][percent]

    def where(self, mask: Column) -> Columns:
        """Return the rows where `mask` holds."""
        return Columns(self._names, int(np.count_nonzero(mask)), lambda name: self[name][mask])

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __contains__(self, name: str) -> bool:
        """Return whether there is a column of that name."""
        return name in self._names

    def __getitem__(self, name: str) -> Column:
        """Return a column; `KeyError` if there is none."""
        if name not in self._arrays:
            if name not in self._names:
                raise KeyError(name)
            if self._rows > _LONG and len(self._arrays) == _KEPT_OF_LONG:
                del self._arrays[next(iter(self._arrays))]
            self._arrays[name] = self._read(name)
        return self._arrays[name]


#: An empty table.
NO_ROWS = Columns((), 0, dict[str, Column]().__getitem__)


#: Rows held as lists of Python numbers at a time.
_AT_ONCE = 65_536


def means_by(names: Column, values: Column) -> dict[str, float]:
    """Return the mean of the values of each name, with compensated sums (Kahan 1965)."""
    found: dict[str, tuple[Any, Any, int]] = {}
    for at in range(0, len(names), _AT_ONCE):
        some = slice(at, at + _AT_ONCE)
        for name, value in zip(names[some].tolist(), values[some].tolist(), strict=True):
            total, lost, number = found.get(name, (0, 0, 0))
            step = value - lost
            after = total + step
            found[name] = after, (after - total) - step, number + 1
    return {name: total / number for name, (total, _, number) in sorted(found.items())}


class LossTable(NamedTuple):
    """The normalised loss of an application at ascending progress, interpolated linearly."""

    progress: Sequence[float]
    loss: Sequence[float]


@dataclass(frozen=True)
class Tables:
    """The tables of one cell, None if not recorded, and the number of GPUs in the cluster.

    Metrics read the tables as arrays: `done`, `held` and `decided` are those of jobs, allocations and rounds.
    `node_price_per_h` is the price of a node-hour, `gpu_price_per_h` that of a GPU-hour on each node (empty: unknown),
    `power` what GPUs and nodes draw, `accuracies` are those of the trials of hyper-parameter tuning, in per cent, `rho`
    the ratios of finish-time fairness, and `losses` those of the applications over progress; None if there are none.
    """

    jobs: pd.DataFrame | Columns
    allocations: pd.DataFrame | Columns | None
    rounds: pd.DataFrame | Columns | None
    total_gpus: int
    node_price_per_h: float | None = None
    accuracies: Sequence[float] | None = None
    rho: Sequence[float] | None = None
    losses: Mapping[str, LossTable] | None = None
    power: Power | None = None
    gpu_price_per_h: Sequence[float | Series] = ()

    @cached_property
    def done(self) -> Columns:
        """The table of jobs as arrays."""
        return Columns.of(self.jobs)

    @cached_property
    def held(self) -> Columns | None:
        """The table of allocations as arrays."""
        return None if self.allocations is None else Columns.of(self.allocations)

    @cached_property
    def decided(self) -> Columns | None:
        """The table of rounds as arrays."""
        return None if self.rounds is None else Columns.of(self.rounds)


@dataclass(frozen=True)
class Metric:
    """One number about a cell.

    `unit` is `s`, `GPU h`, `node h`, `1/h`, `$`, `kWh`, `%`, `share` (of 1) or empty (a plain count); `better` is
    `lower`, `higher` or empty if neither is. `compute` returns None if the tables do not allow the metric. `greatest`
    is the greatest possible value, unless the unit implies it. `shown` says whether comparisons show it by default.
    `of` lists the parts of runs for which it exists too, in brackets after its name.
    """

    name: str
    title: str
    unit: str
    better: str
    meaning: str
    compute: Callable[[Tables], float | None]
    greatest: float = math.inf
    shown: Literal["", "always", "if there"] = ""
    of: Literal["", "groups and types", "types", "all but an application"] = ""

    @property
    def range(self) -> tuple[float, float]:
        """The range of its values: shares up to 1, percentages up to 100, none below 0."""
        return 0.0, _GREATEST.get(self.unit, self.greatest)


def ratio(above: float, below: float) -> float | None:
    """Return a ratio, None if the denominator is 0."""
    return above / below if below > 0 else None


def makespan_s(tables: Tables) -> float | None:
    """Return the second of the last completion, None if no job has finished."""
    return float(tables.done["end_time_s"].max()) if len(tables.done) else None


def total(tables: Tables, column: str) -> float:
    """Return the sum of a column over the finished jobs."""
    return float(tables.done[column].sum())


def jain_index(values: Sequence[float]) -> float:
    """Return Jain's fairness index, (sum x)^2 / (n sum x^2); 1 for no values. Source: Jain et al. (1984)."""
    squares = ordered_sum(value * value for value in values)
    return ordered_sum(values) ** 2 / (len(values) * squares) if squares else 1.0


Floats = npt.NDArray[np.float64]


def integral(rounds: pd.DataFrame | Columns, column: str, until_s: int) -> int:
    """Integrate an integer column of the table of rounds from second 0 to `until_s`.

    The unit is that of the column times seconds; 0 without decisions.
    """
    start, end, value = held_between_rounds(rounds, column, until_s)
    end -= start
    return round(dot(end, value))


def held_between_rounds(rounds: pd.DataFrame | Columns, column: str, until_s: float) -> tuple[Floats, Floats, Floats]:
    """Return start, end (seconds) and value of the intervals up to `until_s` in which a column of the rounds holds.

    A value holds from its decision to the next one, the first from second 0; of several decisions in one second the
    last counts.
    """
    start = np.array(rounds["time_s"], dtype=np.float64)
    np.minimum(start, until_s, out=start)
    start[:1] = 0.0
    end = np.append(start[1:], until_s)[: len(start)]
    lasting = end > start
    start, end = start[lasting], end[lasting]
    return start, end, np.asarray(rounds[column])[lasting].astype(np.float64, copy=False)


def integrals(start: Floats, end: Floats, weight: Floats, edges: Floats) -> Floats:
    """Integrate over each bin the sum of the weights of the intervals that cover an instant."""
    return np.diff(integral_until(start, end, weight, edges))


def integral_until(start: Floats, end: Floats, weight: Floats, until: Floats) -> Floats:
    """Integrate from the left, up to each of some instants, the sum of the weights of the intervals that cover one.

    The sum is a step function of time: its integral is piecewise linear between the breakpoints.
    """
    if not len(start):
        return np.zeros(until.shape)
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    level = np.cumsum(np.bincount(place, weights=np.concatenate([weight, -weight])))
    sums = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    return np.asarray(np.interp(until, times, sums), dtype=np.float64)
