"""A job as the workload describes it."""

from __future__ import annotations

from dataclasses import dataclass

#: The application name of jobs that know only GPUs and seconds.
FIXED_DURATION = "fixed-duration"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user submits, and what a trace remembers of it.

    `submit_time_s` counts whole seconds from the start of the workload. `num_gpus` and `batch_size` are what the user
    asked for (a policy may grant others; `batch_size` 0 means not given). `duration_s` is the service time in seconds
    on `num_gpus` GPUs as the trace recorded it; it drives jobs of the application `fixed-duration` and is otherwise
    only remembered (0: unknown). `status` is the final state in the trace (`Pass`, `Killed`, `Failed`, or empty).
    """

    id: str
    submit_time_s: int
    num_gpus: int
    application: str = FIXED_DURATION
    batch_size: int = 0
    duration_s: int = 0
    tenant: str = ""
    user: str = ""
    status: str = ""
    attempts: int = 1
