"""What failures cost: metrics that are there only where nodes or jobs may fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simsched.results.metric import HIGHER, IF_THERE, LOWER, SECONDS_PER_HOUR, Columns, Metric, Tables, ratio


def _if_failing(compute: Callable[[Columns], float | None]) -> Callable[[Tables], float | None]:
    """Return a metric of the jobs that is there only where nodes or jobs may fail."""
    return lambda tables: compute(tables.done) if "failures" in tables.done and len(tables.done) else None


def _effective(jobs: Columns) -> float | None:
    productive_s = jobs["held_s"] - jobs["restart_s"] - jobs["checkpoint_s"] - jobs["lost_s"]
    return ratio(float(productive_s.sum()), float((jobs["end_time_s"] - jobs["start_time_s"]).sum()))


def _productive_gpus(jobs: Columns) -> float | None:
    """Return the mean number of GPUs that did work that lasted, over the makespan."""
    held_s = np.where(jobs["held_s"] > 0, jobs["held_s"], 1)
    gpus = jobs["attained_gpu_s"] / held_s
    idle_gpu_s = gpus * (jobs["restart_s"] + jobs["checkpoint_s"])
    worth_gpu_s = float((jobs["attained_gpu_s"] - idle_gpu_s - jobs["lost_gpu_s"]).sum())
    return ratio(worth_gpu_s, float(jobs["end_time_s"].max()))


FAILURE_METRICS = (
    Metric("lost_gpu_hours", "GPU hours lost", "GPU h", LOWER,
           "sum of `lost_gpu_s` / 3600: work whose progress was lost to failures",
           _if_failing(lambda jobs: float(jobs["lost_gpu_s"].sum()) / SECONDS_PER_HOUR), shown=IF_THERE),
    Metric("effective_training_ratio", "effective training time", "share", HIGHER,
           "sum of `held_s - restart_s - checkpoint_s - lost_s` / sum of `end_time_s - start_time_s`",
           _if_failing(_effective)),
    Metric("productive_gpus", "productive GPUs", "GPU", HIGHER,
           "sum of `attained_gpu_s - lost_gpu_s`, less the mean GPUs of each job times its `restart_s + checkpoint_s`, "
           "/ `makespan_s`", _if_failing(_productive_gpus)),
    Metric("failures_met", "failures met", "", LOWER,
           "sum of `failures`: times that a failing node took a job off its GPUs",
           _if_failing(lambda jobs: float(jobs["failures"].sum()))),
    Metric("attempts_mean", "attempts per job", "", LOWER, "mean of `attempts`",
           _if_failing(lambda jobs: float(jobs["attempts"].mean()))),
)  # fmt: skip
