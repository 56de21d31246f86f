"""Carry a population over from one round to the next."""

from collections.abc import Hashable, Sequence

import numpy as np

from .allocation_problem import AnyIntArray


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
