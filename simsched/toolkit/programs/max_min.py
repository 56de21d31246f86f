"""Max-min fairness and makespan: one level for all jobs, raised as far as possible."""

from __future__ import annotations

import numpy as np

from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.level import Levels, can_run
from simsched.toolkit.programs.problem import Floats, ShareProblem
from simsched.toolkit.programs.solver import Method, Program


def max_min(problem: ShareProblem, method: Method = "auto", program: Program | None = None) -> Floats:
    """Return the shares that maximise the least weighted rate, relative to the proportional share.

    The objective is min_i scale_factor_i / (weight_i p_i) x rate_i, where p_i is the rate under proportional shares
    (Gavel, OSDI'20, section 4.1, with the scale factor of its simulator). Among the best shares, those with the least
    GPU time win (`Classes.second_criterion`). A job that cannot run anywhere gets 0. Pass `problem.agnostic()` for the
    form without rates, and reuse `program` to save building one.
    """
    required = problem.weights * problem.proportional_rate() / problem.scale_factor
    return _at_level(classify(problem), required, method, program)


def makespan(
    problem: ShareProblem, remaining_steps: Floats, method: Method = "auto", program: Program | None = None
) -> Floats:
    """Return the shares under which the last job ends as early as possible (Gavel, OSDI'20, section 4.2).

    The objective is the largest s with rate_i >= s x remaining_i: the makespan is 1/s. `remaining_steps`, shape (n,),
    is in the unit of the rates; jobs without steps left or a type to run on do not count. Second criterion as in
    `max_min`.
    """
    return _at_level(classify(problem, remaining_steps), remaining_steps, method, program)


def _at_level(classes: Classes, required: Floats, method: Method, program: Program | None) -> Floats:
    if not classes.num_classes:
        return classes.spread(np.zeros(0))
    due = classes.of(required) * can_run(classes)
    levels = Levels(classes, due, method, program)
    return classes.spread(*levels.settled(levels.raised().level))
