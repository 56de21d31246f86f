"""The contract between a scheduling policy and the engine, and the pieces that policies share."""

from simsched.policy.contract import INPUT_FILE, Policy, Triggers
from simsched.policy.decision import Decision
from simsched.policy.signals import Signal, UndeclaredSignalError
from simsched.policy.view import JobView, View

__all__ = ["INPUT_FILE", "Decision", "JobView", "Policy", "Signal", "Triggers", "UndeclaredSignalError", "View"]
