"""The input of every program of shares: rates, GPUs asked for and GPUs available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import times
from simsched.errors import input_error

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Pairs of jobs that may share GPUs; both ask for the same number of GPUs.

    `jobs[pairs, 2]` are positions of jobs; `throughput[pairs, 2, types]` are the rates of both when they run together,
    in the unit of `ShareProblem.throughput`.
    """

    jobs: Integers
    throughput: Floats


@dataclass(frozen=True)
class ShareProblem:
    """An instance: n jobs on k GPU types.

    `throughput[n, k]` is the rate of a whole job on each type (for example steps per second; 0 if it cannot run),
    `scale_factor[n]` the GPUs that it holds when it runs, `num_gpus[k]` the GPUs of each type and `weights[n]` its
    weight, default 1. With `pairs`, `kinds[n]` may number the kinds of jobs: jobs of one kind have equal rates, alone
    and in pairs.

    A solution is an array of shares of time, one row for each job and then for each pair, one column for each type. The
    rows that contain a job add up to at most 1, and the use of no type exceeds its GPUs.
    """

    throughput: Floats
    scale_factor: Integers
    num_gpus: Integers | Floats
    weights: Floats = field(default_factory=lambda: np.ones(0))
    pairs: Pairs | None = None
    kinds: Integers | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` if shapes or values are invalid."""
        jobs, types = self.throughput.shape
        if not len(self.weights):
            object.__setattr__(self, "weights", np.ones(jobs))
        shapes: Mapping[str, tuple[int, ...]] = {"scale_factor": (jobs,), "weights": (jobs,), "num_gpus": (types,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise input_error("program", f"{name} has shape {getattr(self, name).shape}", f"give {shape}")
        if jobs and (self.scale_factor.min() < 1 or self.weights.min() <= 0):
            raise input_error("program", "a job has no GPUs or no weight", "give at least 1 GPU and a weight above 0")
        if not np.isfinite(self.throughput).all() or (self.throughput < 0).any():
            raise input_error("program", "a rate is negative or no number", "give rates of at least 0")
        if self.pairs is not None and len(self.pairs.jobs):
            first, second = self.scale_factor[self.pairs.jobs].T
            if (first != second).any():
                raise input_error("program", "a pair's jobs ask for different numbers of GPUs", "leave such pairs out")

    @property
    def num_jobs(self) -> int:
        """Count the jobs."""
        return len(self.throughput)

    def agnostic(self) -> ShareProblem:
        """Return the same instance with rate 1 everywhere and without pairs, for policies without rates."""
        return ShareProblem(np.ones_like(self.throughput), self.scale_factor, self.num_gpus, self.weights)

    def usable(self, rates: Floats) -> Floats:
        """Return rates by type (the last axis), 0 for types without GPUs."""
        return np.where(self.num_gpus > 0, rates, 0.0)

    def proportional_rate(self) -> Floats:
        """Return the rate of each job when its time is split over types in proportion to their GPUs, shape (n,)."""
        return times(self.throughput, self.num_gpus / self.num_gpus.sum())

    def rates(self, shares: Floats) -> Floats:
        """Return the rate of each job under `shares`, pairs included, shape (n,)."""
        jobs = self.num_jobs
        rates: Floats = np.asarray((self.throughput * shares[:jobs]).sum(axis=1))
        if self.pairs is not None:
            for side in (0, 1):
                gained = (self.pairs.throughput[:, side] * shares[jobs:]).sum(axis=1)
                np.add.at(rates, self.pairs.jobs[:, side], gained)
        return rates


def pairs_of_kinds(kinds: Integers, scale_factor: Integers, beside: Floats, slack: float = 0.0) -> Pairs:
    """Return all pairs of jobs of equal size with rates in the table of their kinds.

    `beside[kinds, kinds, types]` is the rate of the first kind next to the second, 0 if not measured. A pair is kept if
    both rates exceed `slack` on some type; its rates are 0 on the other types.
    """
    first, second = np.triu_indices(len(kinds), k=1)
    equal = scale_factor[first] == scale_factor[second]
    first, second = first[equal], second[equal]
    rates = np.stack([beside[kinds[first], kinds[second]], beside[kinds[second], kinds[first]]], axis=1)
    live = np.asarray(rates > slack).all(axis=1).reshape(len(rates), beside.shape[2])
    rates = np.where(live[:, None, :], rates, 0.0)
    some = np.asarray(live.any(axis=1))
    return Pairs(np.stack([first, second], axis=1)[some].astype(np.int64), rates[some])


def isolated(problem: ShareProblem) -> Floats:
    """Return each job's shares in a private n-th of the cluster: N_k / (n scale_factor), rows capped at 1.

    A row above 1 is divided by its sum (Gavel, OSDI'20, baseline "isolated"). Shape (n, k).
    """
    if not problem.num_jobs:
        return np.zeros(problem.throughput.shape)
    shares = problem.num_gpus / problem.num_jobs / problem.scale_factor[:, None].astype(np.float64)
    return np.asarray(shares / np.maximum(shares.sum(axis=1), 1.0)[:, None])


def proportional(problem: ShareProblem) -> Floats:
    """Return N_k / sum N for every job: all its time, split as the GPUs are. Shape (n, k).

    Ignores capacity: the round mechanism decides which jobs wait.
    """
    return np.tile(problem.num_gpus / problem.num_gpus.sum(), (problem.num_jobs, 1))


def gandiva_fair(problem: ShareProblem) -> Floats:
    """Return min(1, N / n) of the time for every job, whatever its size, split over types as the GPUs are.

    Shockwave (NSDI'23) compares with it under the name Gandiva-Fair, on one type. Shape (n, k).
    """
    if not problem.num_jobs:
        return np.zeros(problem.throughput.shape)
    return proportional(problem) * min(1.0, float(problem.num_gpus.sum()) / problem.num_jobs)
