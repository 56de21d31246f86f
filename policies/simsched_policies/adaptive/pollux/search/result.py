"""The options of a search, its result, and the population between rounds.

The options of a search and its result.

Carry a population over from one round to the next.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .allocation_problem import AnyIntArray


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


def match_population(population: AnyIntArray, old_ids: Sequence[Hashable], new_ids: Sequence[Hashable]) -> AnyIntArray:
    """Rearrange the rows of a population [P, old jobs, N] for new jobs: new ones get zero rows, others are dropped.

    The published simulator pairs rows by position, which gives rows to the wrong jobs when their order changes.

    Raises:
        ValueError: if the ids do not name each row exactly once.
    """
    if population.ndim != 3 or population.shape[1] != len(old_ids):
        raise ValueError(f"population has shape {population.shape} but there are {len(old_ids)} old ids")
    place = {job: i for i, job in enumerate(old_ids)}
    if len(place) != len(old_ids) or len(set(new_ids)) != len(new_ids):
        raise ValueError("every job must have an id of its own")
    matched = np.zeros((population.shape[0], len(new_ids), population.shape[2]), population.dtype)
    pairs = [(new, place[job]) for new, job in enumerate(new_ids) if job in place]
    if pairs:
        new, old = np.array(pairs).T
        matched[:, new] = population[:, old]
    return matched
