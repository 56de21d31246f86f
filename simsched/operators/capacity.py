"""Finds how many nodes of a type a log needs to meet a target, by a search over runs that checks its assumptions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from simsched.errors import input_error
from simsched.operators.calibrate import Calibration
from simsched.operators.changes import group_names
from simsched.operators.log_input import largest_type, total_gpus
from simsched.operators.replays import Progress, ReplayPlan, run_replay
from simsched.results import Cell, Estimate, estimate, find_metric, summarise
from simsched.results.metric import Tables

_TARGET = re.compile(r"\s*([\w\[\]().-]+?)\s*(<=|>=)\s*([-+.\deE]+)\s*")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}
#: The search stops beyond this multiple of the initial nodes.
MOST_TIMES = 64
MONTH_H = 730


@dataclass(frozen=True)
class Target:
    """A bound on a metric, named as in `simsched list metrics`."""

    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse a target such as `queueing_p90_h<=1`; raises `InputError`."""
        match = _TARGET.fullmatch(text)
        if match is None:
            raise input_error("--target", f"'{text}' is not a target", "write METRIC<=NUMBER, as in queueing_p90_h<=1")
        try:
            bound = float(match[3])
        except ValueError:
            raise input_error("--target", f"'{match[3]}' is not a number", "write METRIC<=NUMBER") from None
        find_metric(match[1])
        return cls(match[1], match[2], bound)

    def met(self, value: float) -> bool:
        """Return whether a value meets the bound."""
        return _COMPARE[self.sign](value, self.bound)


@dataclass(frozen=True)
class Point:
    """The metric at a number of nodes, in the target's unit and over all seeds, and whether it meets the target.

    `estimate` is the replay's; `value`, which counts, adds the misfit, or is the value that the log `recorded`.
    `cost_per_month` covers the whole cluster for 730 hours, None without prices.
    """

    nodes: int
    gpus: int
    estimate: Estimate
    met: bool
    cost_per_month: float | None = None
    value: float = float("nan")
    recorded: bool = False


@dataclass(frozen=True)
class Answer:
    """The nodes needed, None if no number tried suffices, those `now`, and all points tried by nodes.

    `nodes` is the least number from which all larger ones tried meet the target; `monotone` means that more nodes never
    did worse.
    """

    gpu_type: str
    now: int
    nodes: int | None
    points: tuple[Point, ...]
    monotone: bool
    cost_per_month: float | None = None


@dataclass
class Search:
    """Finds the least number that meets a target, with a few evaluations at a time."""

    measure: Callable[[Sequence[int]], Mapping[int, bool]]
    at_once: int = 1
    known: dict[int, bool] = field(default_factory=dict)

    def find(self, least: int, first: int, most: int) -> int | None:
        """Return the least number from `least` to `most` that meets the target, starting at `first`.

        Also evaluates the answer's neighbours to detect curves that are not monotone.
        """
        low, high = least - 1, max(first, least)
        while not self._met(high):
            low, high = high, min(2 * high, most)
            if low == high:
                return None
        while high - low > 1:
            inside = self._between(low, high)
            self._ask(inside)
            met = [number for number in inside if self.known[number]]
            high = min(met, default=high)
            low = max((number for number in inside if number < high), default=low)
        self._ask([number for number in (high + 1, high + 2) if number <= most])
        self._ask([number for number in (high - 2,) if number >= least])
        answer = self._safe()
        while answer is not None and self._failing is not None and answer - self._failing > 1:
            self._ask(self._between(self._failing, answer))
            answer = self._safe()
        return answer

    @property
    def _failing(self) -> int | None:
        return max((number for number, met in self.known.items() if not met), default=None)

    def _safe(self) -> int | None:
        """Return the least evaluated number from which all larger ones meet the target."""
        above = [number for number in self.known if self._failing is None or number > self._failing]
        return min(above, default=None)

    def _between(self, low: int, high: int) -> list[int]:
        count = min(self.at_once, high - low - 1)
        return sorted({low + (high - low) * (i + 1) // (count + 1) for i in range(count)} - {low, high})

    def _met(self, number: int) -> bool:
        self._ask([number])
        return self.known[number]

    def _ask(self, numbers: Sequence[int]) -> None:
        new = [number for number in numbers if number not in self.known]
        if new:
            self.known |= self.measure(new)


def find_capacity(found: Calibration, target: Target, *, group: int = 0, progress: Progress | None = None) -> Answer:
    """Find the fewest nodes of one group, with the others fixed, that meet a target for the judged jobs.

    If the log records that today's nodes miss the target, fewer are not tried; otherwise the misfit of today's replay
    counts against the answer. Runs several numbers at once if the plan has several workers. Raises `InputError` as a
    run does.
    """
    plan, reader = found.plan, _Reader(found, target)
    groups = [dict(one) for one in plan.groups]
    per_node, now = int(groups[group].get("gpus_per_node", 4)), int(groups[group]["nodes"])
    points: dict[int, Point] = {}

    def cost(number: int) -> float | None:
        price, others = plan.node_price_per_h, _nodes(groups) - now
        return None if price is None else price * MONTH_H * (others + number)

    def measure(numbers: Sequence[int]) -> Mapping[int, bool]:
        refuted = {number: False for number in numbers if number <= now and reader.refuted}
        new = [number for number in numbers if number not in refuted or number == now]
        for number, one in _values(plan, reader, group, new, progress).items() if new else ():
            gpus = total_gpus(groups) + (number - now) * per_node
            known = number == now and reader.recorded is not None
            value = reader.recorded if known and reader.recorded is not None else reader.carried(one.mean)
            met = target.met(value)
            points[number] = Point(number, gpus, one, met, cost(number), value, known)
        return refuted | {number: points[number].met for number in new}

    least = _least(plan.log.trace.table, groups, group)
    nodes = Search(measure, plan.workers).find(least, max(now, least), max(now, least) * MOST_TIMES)
    tried = tuple(points[number] for number in sorted(points))
    values = [point.value for point in tried]
    order = operator.ge if target.sign == "<=" else operator.le
    monotone = all(order(one, other) for one, other in pairwise(values))
    price = None if nodes is None else cost(nodes)
    return Answer(group_names(groups)[group], now, nodes, tried, monotone, price)


def _least(table: pd.DataFrame, groups: Sequence[Mapping[str, Any]], group: int) -> int:
    """Return the fewest nodes of a group such that every job of a trace fits on it or on another group."""
    per_node = int(groups[group].get("gpus_per_node", 4))
    others = [one for place, one in enumerate(groups) if place != group]
    nodes = table.get("num_nodes", 0)
    least = np.maximum(nodes, np.ceil(table["num_gpus"] / per_node))
    types = table["gpu_types"] if "gpu_types" in table else pd.Series("", index=table.index)
    alone = 1
    for (queue, kinds), largest in least.groupby([table["queue"], types]).max().items():
        jobs = table[(table["queue"] == queue) & (types == kinds)]
        room = [one for one in others if _serves(one, others, str(queue), str(kinds))]
        if not (room and largest_type(room) >= int(jobs["num_gpus"].max())) and _serves(
            groups[group], groups, str(queue), str(kinds)
        ):
            alone = max(alone, int(largest))
    return alone


def _serves(one: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], queue: str, types: str) -> bool:
    """Return whether jobs of a queue and some GPU types may run on a group; a queue that no group names may use any."""
    named = any(queue in other.get("partitions", ()) for other in groups)
    return (not types or one.get("gpu_type") in types.split("|")) and (not named or queue in one.get("partitions", ()))


def _nodes(groups: Sequence[Mapping[str, object]]) -> int:
    return sum(int(str(one["nodes"])) for one in groups)


class _Reader:
    """Reads a target's metric of the judged jobs in its unit; `recorded` is that of the log, for metrics of waits."""

    def __init__(self, found: Calibration, target: Target) -> None:
        self.reading, self.target = find_metric(target.metric), target
        self._jobs = found.jobs.set_index("job_id")
        unrecorded = found.plan.unrecorded
        self.recorded = None if unrecorded else self._of_jobs(found.cell, self._jobs["recorded_s"])
        self.simulated = self._of_jobs(found.cell, self._jobs["simulated_s"])

    @property
    def refuted(self) -> bool:
        """Return whether the log records that today's nodes miss the target."""
        return self.recorded is not None and not self.target.met(self.recorded)

    def of(self, cell: Cell) -> float | None:
        """Return the metric of a replay."""
        value = self._of_jobs(cell)
        return (
            value
            if value is not None or self.reading.key not in cell.summary
            else (cell.summary[self.reading.key] * self.reading.factor)
        )

    def carried(self, value: float) -> float:
        """Return a replay's value, with the misfit if that counts against the target."""
        if self.recorded is None or not self.simulated:
            return value
        moved = value * self.recorded / self.simulated
        return max(value, moved) if self.target.sign == "<=" else min(value, moved)

    def _of_jobs(self, cell: Cell, waits_s: pd.Series | None = None) -> float | None:
        jobs = cell.jobs[cell.jobs["job_id"].isin(self._jobs.index)]
        if waits_s is not None:
            waits = jobs["job_id"].map(waits_s)
            jobs = jobs.assign(queueing_s=waits, jct_s=jobs["held_s"] + waits)
        gpus = sum(one["nodes"] * one["gpus_per_node"] for one in cell.manifest["cluster"])
        value = summarise(Tables(jobs, None, None, gpus)).get(self.reading.key)
        return None if value is None else value * self.reading.factor


def _values(
    plan: ReplayPlan, reader: _Reader, group: int, numbers: Sequence[int], progress: Progress | None
) -> dict[int, Estimate]:
    key = f"cluster.groups.{group}.nodes"
    largest = int(plan.log.trace.table["num_gpus"].max())
    smallest = [dict(one) for one in plan.groups]
    smallest[group]["nodes"] = min(numbers)
    replay = replace(plan, groups=smallest, max_gpus=largest)
    run = run_replay(replay, "capacity", sweep={key: list(numbers)}, progress=progress)
    found: dict[int, Estimate] = {}
    for number in numbers:
        values = [reader.of(cell) for cell in run.cells if cell.point[key] == number]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not known:
            raise input_error("--target", f"the runs give no '{reader.target.metric}'", "choose another metric")
        found[number] = estimate(known)
    return found
