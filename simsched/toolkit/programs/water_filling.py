"""Water filling: raise all jobs together, freeze those that can rise no further, and continue with the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error
from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.objectives import SLACK, can_run, settle
from simsched.toolkit.programs.problem import Floats, Integers, ShareProblem
from simsched.toolkit.programs.solver import (
    Method,
    SolverError,
    maximise,
    on_top,
    scale_columns,
    scale_rows,
    with_column,
)

Flags = npt.NDArray[np.bool_]

RULES = ("fairness", "fifo")

#: The least part of the total price at which a class counts as unable to rise; prices add up to 1.
_PRICED = 1e-6

#: The most times that levels drop by `SLACK` when the solver's answer is not quite feasible.
_MOST_LOWERED = 100

#: With more classes than this, the search for those that reach their best rate handles them together.
_MANY_CLASSES = 250


@dataclass(frozen=True)
class Entities:
    """Groups of jobs that share the cluster by weight, each with a rule for its members.

    `member[n]` numbers each job's entity; `weights[entities]` are above 0; `rules` says how an entity's jobs share: by
    their weights (`fairness`) or in the order listed (`fifo`).
    """

    member: Integers
    weights: Floats
    rules: Sequence[str]

    def __post_init__(self) -> None:
        """Raise `InputError` for an unknown rule, a weight not above 0, or a job of an unknown entity."""
        unknown = sorted(set(self.rules) - set(RULES))
        if unknown:
            raise input_error("entities", f"rule '{unknown[0]}' is not known", f"known: {', '.join(RULES)}")
        if len(self.rules) != len(self.weights) or (self.weights <= 0).any():
            raise input_error("entities", "each needs one rule and one weight above 0", "give lists of equal length")
        if len(self.member) and not 0 <= self.member.min() <= self.member.max() < len(self.weights):
            raise input_error(
                "entities", "a job belongs to none of them", f"number them from 0 to {len(self.weights) - 1}"
            )


def water_filling(problem: ShareProblem, entities: Entities | None = None, method: Method = "auto") -> Floats:
    """Return the shares whose weighted normalised rates are lexicographically max-min (Gavel, OSDI'20, section 4.3).

    Normalised is a job's rate divided by its rate under proportional shares, times its scale factor, as in `max_min`.
    With `entities`, each pass splits an entity's weight over its jobs that can still rise: by their weights, or all of
    it to the first in the queue. A class freezes when its row has a price, that is, when no best solution gives it
    more; Gavel finds those jobs by a mixed-integer program. Second criterion as in `max_min`.
    """
    facts = _facts(entities, problem.num_jobs)
    classes = classify(problem, *facts)
    if not classes.num_classes:
        return classes.spread(np.zeros(0))
    levels = _fill(classes, entities, facts, method)
    return classes.spread(*settle(classes, levels * (1.0 - SLACK) * classes.of(problem.proportional_rate()), method))


def _facts(entities: Entities | None, jobs: int) -> list[Floats]:
    """Return, by job, what distinguishes jobs besides the problem: the entity and the position in a queue."""
    if entities is None:
        return []
    queued = np.array([rule == "fifo" for rule in entities.rules])[entities.member]
    return [entities.member.astype(np.float64), np.where(queued, np.arange(1.0, jobs + 1), 0.0)]


def _fill(classes: Classes, entities: Entities | None, facts: list[Floats], method: Method) -> Floats:
    """Return the normalised rate (before scale factors) at which each class freezes."""
    problem = classes.problem
    usual = classes.of(problem.proportional_rate())
    scale = classes.of(problem.scale_factor.astype(np.float64))
    level = np.zeros(classes.num_classes)
    rising = can_run(classes) > 0
    unit = np.where(usual > 0, usual, 1.0)
    most = classes.best_rates / unit
    lowered = 0
    while rising.any():
        step = _weights(classes, entities, facts, rising) / scale
        if entities is None and classes.num_classes > _MANY_CLASSES:
            done = _capped(classes, unit, level, step, method)
            level[done] = most[done]
            rising &= ~done
            step = step * rising
            if not rising.any():
                break
        raised = _raise(classes, unit, level, step, method)
        while raised is None:  # solutions are exact to an absolute tolerance only, which may be more than the slack
            level *= 1.0 - SLACK
            lowered += 1
            if lowered > _MOST_LOWERED:
                raise SolverError("water filling lost its footing: the levels reached are not feasible")
            raised = _raise(classes, unit, level, step, method)
        height, stuck = raised
        level += height * step
        rising &= ~stuck
    return level


def _raise(classes: Classes, unit: Floats, level: Floats, step: Floats, method: Method) -> tuple[float, Flags] | None:
    """Return how far all can rise in proportion to `step`, and which classes are then stuck; None below the levels.

    Rates are in units of `unit`; the program is in units of the height at which the first class reaches its best rate.
    """
    rising = step > 0
    most = classes.best_rates / unit
    top = float((most[rising] / step[rising]).min())
    columns = classes.columns(np.minimum(level + step * top, most) * unit)
    rows, bound = classes.capacity
    rates = scale_rows(classes.rates, 1.0 / unit)
    kept = with_column(scale_columns(rows, columns), np.zeros(rows.shape[0]))
    every = on_top(kept, with_column(scale_columns(-rates, columns), step * top))
    objective = np.zeros(every.shape[1])
    objective[-1] = 1.0
    best = maximise(objective, every, np.concatenate([bound, -level * (1.0 - SLACK)]), method)
    if best is None:
        return None
    paid = best.prices[-len(level) :] * step * top
    return max(best.value, 0.0) * top, paid > _PRICED


def _capped(classes: Classes, unit: Floats, level: Floats, step: Floats, method: Method) -> Flags:
    """Return the classes that reach their best rate before any GPU is short.

    As all rise, one class after the other gets its fastest type all the time; bisection finds how many do. Not for
    entities, which split weights again after each class.
    """
    most = classes.best_rates / unit
    rising = np.flatnonzero(step > 0)
    heights = (most[rising] - level[rising]) / step[rising]
    order = np.argsort(heights, kind="stable")

    def fits(number: int) -> bool:
        reached = np.minimum(most, level + step * heights[order[number - 1]])
        raised = _raise(classes, unit, np.zeros(len(level)), reached, method)
        return raised is not None and raised[0] >= 1.0 - SLACK

    flags = np.zeros(len(level), dtype=np.bool_)
    if fits(1):  # often not even the first does
        too_many = bisect_left(range(len(order) + 1), True, lo=2, key=lambda number: not fits(number))
        flags[rising[order[: too_many - 1]]] = True
    return flags


def _weights(classes: Classes, entities: Entities | None, facts: list[Floats], rising: Flags) -> Floats:
    """Return the weight of a member of each class in this pass, 0 for those that do not rise."""
    weights = classes.of(classes.problem.weights) * rising
    if entities is None:
        return weights
    entity, place = classes.of(facts[0]).astype(np.int64), classes.of(facts[1])
    split = np.zeros(len(weights))
    for number, total in enumerate(entities.weights):
        inside = (entity == number) & rising
        if not inside.any():
            continue
        if entities.rules[number] == "fifo":
            queue = np.flatnonzero(inside)
            split[queue[np.argmin(place[queue])]] = total
        else:
            split[inside] = total * weights[inside] / (weights * classes.count)[inside].sum()
    return split
