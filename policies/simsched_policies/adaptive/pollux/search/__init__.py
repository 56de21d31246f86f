"""The allocation search of Pollux as a pure function of arrays, independent of the simulator.

``search`` takes an ``AllocationProblem`` (speedups, caps, nodes, the current allocation) and returns an allocation, its
fitness and a population to start the next round from; ``upper_bound`` bounds the fitness of any allocation.
Importing this package loads numpy only; numba and scipy are loaded at the first search and the first bound.
"""

from .allocation_problem import (
    AllocationProblem,
    AnyIntArray,
    SearchOptions,
    SearchResult,
    counts_up_to,
    fitness,
    is_feasible,
    job_values,
    match_population,
    power_mean,
    violations,
)
from .run import Method, search

__all__ = [
    "AllocationProblem",
    "Method",
    "SearchOptions",
    "SearchResult",
    "counts_up_to",
    "fitness",
    "is_feasible",
    "job_values",
    "match_population",
    "power_mean",
    "search",
    "upper_bound",
    "violations",
]


def upper_bound(problem: AllocationProblem, time_limit_s: float = 10.0, allocation: AnyIntArray | None = None) -> float:
    """Return a number that the fitness of no feasible allocation of this round exceeds; see ``bound.upper_bound``."""
    from . import bound

    return bound.upper_bound(problem, time_limit_s, allocation)
