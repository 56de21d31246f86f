"""One scheduling round as plain arrays, its fitness, and what makes an allocation feasible.

Source: Pollux (OSDI'21) section 4.2; the floor, the weight and the restart factor are those of the published simulator.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import exp, log

FloatArray = NDArray[np.float64]
AnyIntArray = NDArray[np.integer[Any]]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AllocationProblem:
    """The jobs, the nodes and the exponent of one scheduling round.

    A job holds no GPU or between ``min_gpus`` and ``max_gpus`` of them (a pinned job: exactly its current row). Shapes:
    J jobs, N nodes, K node classes (class ``min(nodes, K) - 1``), W = 1 + the largest GPU count of the table.

    Attributes:
        speedup: [J, K, W] speedup over the fair share for a node class and a number of GPUs; 0 at 0 GPUs. Entries
            beyond a job's cap are padding and never read, like cells that no placement can have (two nodes, one GPU). A
            single class (nodes do not matter) is stored as two equal ones.
        max_gpus: [J] cap on the GPUs of a job.
        node_gpus: [N] GPUs of each node; sizes may differ, 0 is a node that is down.
        current: [J, N] GPUs that each job holds on each node now; kept as 16-bit integers if they suffice.
        restart_factor: [J] in [0, 1]; multiplies the scaled speedup of a row that differs at all from ``current``.
        min_gpus: [J] fewest GPUs that a job can run on; None for no minimum.
        pinned: [J] jobs whose row must stay as it is; None for none.
        weight: scalar or [J]; the scaled speedup is ``speedup * weight`` (nodes / GPUs of the cluster in the published
            search).
        fairness: the exponent p of the power mean, any finite number; 0 is the geometric mean.
        avoid_interference: at most one distributed job (a job on two or more nodes) touches any node.
        floor: added to every scaled speedup; gives a job without GPUs a finite term.

    Raises:
        ValueError: if shapes, ranges or pinned rows are inconsistent; the message names the array.
    """

    speedup: FloatArray
    max_gpus: IntArray
    node_gpus: IntArray
    current: AnyIntArray
    restart_factor: FloatArray
    min_gpus: IntArray | None = None
    pinned: BoolArray | None = None
    weight: float | FloatArray = 1.0
    fairness: float = -1.0
    avoid_interference: bool = True
    floor: float = 1e-3

    def __post_init__(self) -> None:
        """Convert the arrays to contiguous ones of fixed types and check them."""
        for name in ("speedup", "restart_factor"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        for name in ("max_gpus", "node_gpus"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        current = np.asarray(self.current)
        extremes = (current.min(initial=0), current.max(initial=0), self.node_gpus.max(initial=0))
        object.__setattr__(self, "current", np.ascontiguousarray(current, dtype=counts_up_to(*extremes)))
        if self.speedup.ndim == 3 and self.speedup.shape[1] == 1:
            object.__setattr__(self, "speedup", np.repeat(self.speedup, 2, axis=1))
        jobs = self.max_gpus.shape[0]
        low = np.zeros(jobs) if self.min_gpus is None else self.min_gpus
        held = np.zeros(jobs) if self.pinned is None else self.pinned
        object.__setattr__(self, "min_gpus", np.ascontiguousarray(low, dtype=np.int64))
        object.__setattr__(self, "pinned", np.ascontiguousarray(held, dtype=np.bool_))
        _check_shapes(self)
        _check_values(self)

    @property
    def jobs(self) -> int:
        """The number of jobs, J."""
        return int(self.max_gpus.shape[0])

    @property
    def nodes(self) -> int:
        """The number of nodes, N."""
        return int(self.node_gpus.shape[0])

    @property
    def lowest(self) -> IntArray:
        """[J] the fewest GPUs that a job can run on, never None."""
        assert self.min_gpus is not None
        return self.min_gpus

    @property
    def held(self) -> BoolArray:
        """[J] the pinned jobs, never None."""
        assert self.pinned is not None
        return self.pinned

    @cached_property
    def places(self) -> tuple[IntArray, IntArray, IntArray]:
        """The job, the node and the GPUs of every place held now, by job, then by node."""
        return places_of(self.current)

    @cached_property
    def current_gpus(self) -> IntArray:
        """[J] the GPUs that each job holds now."""
        job, _, gpus = self.places
        return np.bincount(job, gpus, self.jobs).astype(np.int64)

    @cached_property
    def current_nodes(self) -> IntArray:
        """[J] the nodes on which each job holds GPUs now."""
        return np.bincount(self.places[0], minlength=self.jobs)

    @cached_property
    def scaled(self) -> FloatArray:
        """[J, K, W] ``speedup * weight + floor`` without the restart factor."""
        return self.speedup * self._weights() + self.floor

    @cached_property
    def scaled_after_restart(self) -> FloatArray:
        """[J, K, W] ``speedup * weight * restart_factor + floor``: what a changed row is worth."""
        return self.speedup * self._weights() * self.restart_factor[:, None, None] + self.floor

    @cached_property
    def keepable(self) -> BoolArray:
        """[J] whether the current row of a job is allowed on its own; always true of pinned jobs."""
        job, node, gpus = self.places
        fits = np.ones(self.jobs, np.bool_)
        fits[job[gpus > self.node_gpus[node]]] = False
        total = self.current_gpus
        return np.asarray((fits & (total <= self.max_gpus) & (total >= self.lowest)) | self.held)

    @cached_property
    def current_values(self) -> FloatArray:
        """[J] scaled speedup plus floor of the current rows; the floor if a row may not be kept."""
        total = np.where(self.keepable, self.current_gpus, 0)
        group = np.clip(self.current_nodes, 1, self.speedup.shape[1]) - 1
        return np.asarray(self.scaled[np.arange(self.jobs), group, total])

    @cached_property
    def attainable(self) -> FloatArray:
        """[J] an upper bound of the scaled speedup plus floor that each job could reach on its own."""
        gpus = np.arange(self.speedup.shape[2])
        most = np.minimum(self.max_gpus, self.node_gpus.sum())
        allowed = (gpus >= self.lowest[:, None]) & (gpus <= most[:, None]) & ~self.held[:, None]
        changed = np.where(allowed[:, None, :], self.scaled_after_restart, self.floor)
        return np.asarray(np.maximum(changed.max(axis=(1, 2)), self.current_values))

    def _weights(self) -> FloatArray:
        return np.broadcast_to(np.asarray(self.weight, dtype=np.float64), (self.jobs,))[:, None, None]


def counts_up_to(*extremes: int) -> type[np.integer[Any]]:
    """Return the smaller of two integer types that holds these numbers."""
    return np.int16 if min(extremes) >= 0 and max(extremes) < 2**15 else np.int64


def places_of(allocation: AnyIntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the job, the node and the GPUs of every place in an allocation [J, N], by job, then by node."""
    job, node = np.nonzero(allocation)
    return job, node, allocation[job, node].astype(np.int64)


def _check_shapes(problem: AllocationProblem) -> None:
    jobs, nodes = problem.jobs, problem.nodes
    if problem.speedup.ndim != 3 or problem.speedup.shape[0] != jobs or 0 in problem.speedup.shape[1:]:
        raise ValueError(f"speedup must have shape [{jobs}, classes, GPUs + 1], not {problem.speedup.shape}")
    if problem.current.shape != (jobs, nodes):
        raise ValueError(f"current must have shape {(jobs, nodes)}, not {problem.current.shape}")
    for name in ("restart_factor", "min_gpus", "pinned"):
        if getattr(problem, name).shape != (jobs,):
            raise ValueError(f"{name} must have shape {(jobs,)}, not {getattr(problem, name).shape}")
    if np.ndim(problem.weight) and np.shape(problem.weight) != (jobs,):
        raise ValueError(f"weight must be a number or have shape {(jobs,)}")


def _check_values(problem: AllocationProblem) -> None:
    for name in ("max_gpus", "min_gpus", "node_gpus", "current"):
        if getattr(problem, name).min(initial=0) < 0:
            raise ValueError(f"{name} must not be negative")
    for name in ("speedup", "restart_factor", "weight"):
        values = np.asarray(getattr(problem, name))
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            raise ValueError(f"{name} must be finite and not negative")
    if np.any(problem.speedup[:, :, 0] != 0.0):
        raise ValueError("speedup must be 0 at 0 GPUs")
    if not np.isfinite(problem.fairness) or not problem.floor > 0:
        raise ValueError("fairness must be finite and floor positive")
    most = max(problem.max_gpus.max(initial=0), problem.current[problem.held].sum(axis=1).max(initial=0))
    if most >= problem.speedup.shape[2]:
        raise ValueError(f"speedup ends at {problem.speedup.shape[2] - 1} GPUs but a job may hold {most}")
    if problem.held.any():
        fault = violations(problem, np.where(problem.held[:, None], problem.current, 0))
        if fault:
            raise ValueError("pinned jobs cannot stay as they are: " + fault[0])


def power_mean(values: FloatArray, exponent: float) -> float:
    """Return the power mean of positive values, 0.0 for none; scaled so that no exponent overflows.

    Pollux (OSDI'21) section 4.2, FITNESS_p; exponent 0 is the geometric mean.
    """
    if values.size == 0:
        return 0.0
    logs = log(values)
    if exponent == 0:
        return exp(float(logs.mean()))
    powers = exponent * logs
    largest = float(powers.max())
    return exp((largest + log(float(exp(powers - largest).mean()))) / exponent)


def job_values(problem: AllocationProblem, allocation: AnyIntArray) -> FloatArray:
    """[J] scaled speedup plus floor of every job under an allocation [J, N]; the terms of the power mean."""
    if problem.jobs == 0:
        return np.zeros(0)
    allocation = np.asarray(allocation)
    job, node, given = places_of(allocation)
    gpus, nodes = np.bincount(job, given, problem.jobs).astype(np.int64), np.bincount(job, minlength=problem.jobs)
    group = np.clip(nodes, 1, problem.speedup.shape[1]) - 1
    kept = np.bincount(job[given == problem.current[job, node]], minlength=problem.jobs)
    changed = (kept < nodes) | (nodes != problem.current_nodes)
    factor = np.where(changed, problem.restart_factor, 1.0)
    speedup = problem.speedup[np.arange(problem.jobs), group, gpus]
    return np.asarray(speedup * problem.weight * factor + problem.floor, dtype=np.float64)


def fitness(problem: AllocationProblem, allocation: AnyIntArray) -> float:
    """Return the fitness of an allocation [J, N]; the reference that checks every search."""
    return power_mean(job_values(problem, allocation), problem.fairness)


def violations(problem: AllocationProblem, allocation: AnyIntArray) -> list[str]:
    """List the reasons why an allocation [J, N] is infeasible; empty if it is feasible."""
    allocation = np.asarray(allocation)
    if allocation.shape != problem.current.shape:
        return [f"allocation has shape {allocation.shape}, not {problem.current.shape}"]
    found = []
    if np.any(allocation < 0):
        found.append("a job holds a negative number of GPUs")
    used = allocation.sum(axis=0)
    full = np.flatnonzero(used > problem.node_gpus)
    found += [f"node {n} has {problem.node_gpus[n]} GPUs, {used[n]} are given" for n in full]
    held = allocation.sum(axis=1)
    free = ~problem.held
    over, under = held > problem.max_gpus, (held > 0) & (held < problem.lowest)
    found += [f"job {j} holds {held[j]} GPUs, at most {problem.max_gpus[j]}" for j in np.flatnonzero(over & free)]
    found += [f"job {j} holds {held[j]} GPUs, at least {problem.lowest[j]}" for j in np.flatnonzero(under & free)]
    moved = problem.held & (allocation != problem.current).any(axis=1)
    found += [f"job {j} is pinned and was moved" for j in np.flatnonzero(moved)]
    if problem.avoid_interference:
        spread = allocation[(allocation > 0).sum(axis=1) >= 2] > 0
        found += [f"node {n} has {c} distributed jobs" for n, c in enumerate(spread.sum(axis=0)) if c > 1]
    return found


def is_feasible(problem: AllocationProblem, allocation: AnyIntArray) -> bool:
    """Return whether an allocation [J, N] breaks no rule of the round."""
    return not violations(problem, allocation)


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
