"""What can go wrong while an experiment runs, as opposed to what is wrong with its input."""

from __future__ import annotations


class EngineError(Exception):
    """A run cannot go on."""


class InfeasibleDecisionError(EngineError):
    """A policy decided something that the cluster or a job cannot do; the engine never repairs it."""

    def __init__(self, policy: str, now_s: float, reasons: list[str]) -> None:
        """Name the policy, the time, and every reason with its node and jobs."""
        super().__init__(f"policy '{policy}' at t={now_s} s: " + "; ".join(reasons))
        self.policy = policy
        self.now_s = now_s
        self.reasons = reasons


class StuckError(EngineError):
    """Jobs are left that the policy never places."""


class StalledError(EngineError):
    """Things happen for ever, but no job comes nearer to its end."""


class InvariantError(EngineError):
    """The engine contradicted itself; names the invariant by its number."""
