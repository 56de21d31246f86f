"""The options of a search and its result."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SearchOptions:
    """How long to search. The defaults meet the targets on the captured rounds.

    Attributes:
        effort: moves of the hybrid search, as a factor of the default; time grows in proportion.
        starts: how many individuals of the previous population the hybrid search starts from, besides the current
        allocation. fill_idle: give idle GPUs to jobs that gain nothing from them in this round (restart factor 0, as on
        arrival)
            but will in the next; the fitness is unchanged.
        population_size: individuals of the genetic search.
        generations: largest number of generations of the genetic search.
        stagnation: generations without a better individual after which the genetic search stops.
    """

    effort: float = 1.0
    starts: int = 4
    fill_idle: bool = True
    population_size: int = 100
    generations: int = 100
    stagnation: int = 30


@dataclass(frozen=True, eq=False)
class SearchResult:
    """An allocation and how it was found.

    Attributes:
        allocation: [J, N] GPUs of each job on each node.
        fitness: the power mean of that allocation, as ``fitness`` computes it.
        population: [P, J, N] distinct good allocations, best first, to start the next round's search from.
        generations: generations of the genetic search; annealing runs of the hybrid one.
        evaluations: allocations evaluated (genetic), or tried by changing some rows (hybrid).
    """

    allocation: NDArray[np.integer[Any]]
    fitness: float
    population: NDArray[np.integer[Any]]
    generations: int
    evaluations: int
