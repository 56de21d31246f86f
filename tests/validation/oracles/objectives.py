"""What programs of shares maximise, as the papers have it: the value of any shares."""

from __future__ import annotations

import numpy as np

from simsched.toolkit.programs.problem import Floats, ShareProblem


def fair_value(problem: ShareProblem, shares: Floats) -> float:
    """Return the objective of `max_min` under `shares`; infinite without jobs that can run."""
    required = problem.weights * problem.proportional_rate() / problem.scale_factor
    return _least(problem.rates(shares), required)


def makespan_value(problem: ShareProblem, remaining_steps: Floats, shares: Floats) -> float:
    """Return the time at which the last job ends if `shares` stay, in the unit of the rates' denominator."""
    level = _least(problem.rates(shares), remaining_steps)
    return 1.0 / level if level > 0 else np.inf


def _least(rates: Floats, required: Floats) -> float:
    asked = required > 0
    return float((rates[asked] / required[asked]).min()) if asked.any() else np.inf


def jct_value(problem: ShareProblem, remaining_steps: Floats, shares: Floats) -> float:
    """Return the sum of remaining / rate under `shares`; infinite where a job with steps left has no rate."""
    live = remaining_steps > 0
    rates = problem.rates(shares)[live]
    return float((remaining_steps[live] / rates).sum()) if (rates > 0).all() else np.inf
