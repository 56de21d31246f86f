"""The contract between a scheduling policy and the engine, and the pieces that policies share; never the engine."""

from simsched.keys import INFINITE, INPUT_FILE
from simsched.policy.contract import Policy, Triggers
from simsched.policy.decision import Decision
from simsched.policy.signals import JobSignal, Signal, UndeclaredSignalError, ViewSignal
from simsched.policy.view import JobView, View

__all__ = [
    "INFINITE",
    "INPUT_FILE",
    "Decision",
    "JobSignal",
    "JobView",
    "Policy",
    "Signal",
    "Triggers",
    "UndeclaredSignalError",
    "View",
    "ViewSignal",
]
