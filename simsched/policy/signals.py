"""What a policy may know beyond the queue and the cluster, by name."""

from __future__ import annotations

from enum import StrEnum


class Signal(StrEnum):
    """A kind of knowledge that a policy must declare in `needs` before the view shows it."""

    GOODPUT = "goodput"  # the job's own fitted model, as its agent reports it
    STEP_TIMES = "step_times"  # the true step time on any placement: an oracle
    REMAINING_WORK = "remaining_work"  # the true work left: an oracle
    SERVICE_HISTORY = "service_history"  # attained service of jobs that have finished


class UndeclaredSignalError(AttributeError):
    """A policy read a signal that it does not declare; for the policy, the attribute does not exist."""
