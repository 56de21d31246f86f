"""Errors while an experiment runs, as opposed to errors in its input."""

from __future__ import annotations


class EngineError(Exception):
    """A run cannot continue."""


class InfeasibleDecisionError(EngineError):
    """A policy made a decision that the cluster or a job cannot follow; the engine never repairs it."""

    def __init__(self, policy: str, now_s: float, reasons: list[str]) -> None:
        super().__init__(f"policy '{policy}' at t={now_s} s: " + "; ".join(reasons))
        self.policy = policy
        self.now_s = now_s
        self.reasons = reasons


class StuckError(EngineError):
    """The policy never places the remaining jobs."""


class StalledError(EngineError):
    """Events keep occurring, but no job makes progress."""


class InvariantError(EngineError):
    """The engine violated an invariant; the message gives its number."""
