"""Shares that need no solver: isolated, proportional, and one GPU-sized slice for everybody."""

from __future__ import annotations

import numpy as np

from simsched.toolkit.programs.problem import Floats, ShareProblem


def isolated(problem: ShareProblem) -> Floats:
    """Return each job's shares in a private n-th of the cluster: N_k / (n scale_factor), rows capped at 1.

    A row above 1 is divided by its sum (Gavel, OSDI'20, its baseline "isolated"). Shape (n, k).
    """
    if not problem.num_jobs:
        return np.zeros(problem.throughput.shape)
    shares = problem.num_gpus / problem.num_jobs / problem.scale_factor[:, None].astype(np.float64)
    return np.asarray(shares / np.maximum(shares.sum(axis=1), 1.0)[:, None])


def proportional(problem: ShareProblem) -> Floats:
    """Return N_k / sum N for every job: all its time, split as the GPUs are. Shape (n, k).

    It pays no heed to capacity: a mechanism that deals out rounds decides who waits.
    """
    return np.tile(problem.num_gpus / problem.num_gpus.sum(), (problem.num_jobs, 1))


def gandiva_fair(problem: ShareProblem) -> Floats:
    """Return min(1, N / n) of the time for every job, whatever its size, split over types as the GPUs are.

    Shockwave (NSDI'23) compares with it under the name Gandiva-Fair, on one type. Shape (n, k).
    """
    if not problem.num_jobs:
        return np.zeros(problem.throughput.shape)
    return proportional(problem) * min(1.0, float(problem.num_gpus.sum()) / problem.num_jobs)
