"""Decides which cells can be cut into shards, and stores their jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkstemp

from simsched.errors import Problem
from simsched.experiment.spec import ExperimentSpec
from simsched.experiment.stored_jobs import StoredJobs
from simsched.experiment.task import Task
from simsched.model import JobSpec
from simsched.policy import Policy


def stored(jobs: Iterator[JobSpec]) -> StoredJobs:
    """Write jobs to a temporary file as they arrive."""
    handle, name = mkstemp(prefix="simsched-jobs-")
    os.close(handle)
    return StoredJobs.write(Path(name), jobs, temporary=True)


def why_whole(task: Task, policy: Policy, spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield problems with parts of a cell that need all of its jobs in one simulation."""
    remedy = "leave the section 'shards' out"
    if not policy.forgets:
        message = f"the policy '{policy.name}' may remember completed jobs, so its jobs cannot be cut"
        yield Problem("shards", message, f"{remedy}; a policy of your own that forgets them declares 'forgets = True'")
    whole = {
        "tuning": task.tuning is not None,
        "failures": task.failures is not None,
        "finish_time_fairness": spec.finish_time_fairness is not None,
        "losses": task.losses,
        "engine.initial_nodes": task.engine.initial_nodes is not None,
        "policies.agent": task.agent is not None,
    }
    for key, there in whole.items():
        if there:
            yield Problem("shards", f"'{key}' needs all jobs in one simulation", f"{remedy}, or '{key}'")
