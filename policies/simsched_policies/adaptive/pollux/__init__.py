"""Pollux: co-adaptive scheduling for goodput (`policy`), its autoscaling, goodput tables, and the allocation search."""

from simsched_policies.adaptive.pollux.autoscale import PolluxAutoscale
from simsched_policies.adaptive.pollux.policy import Pollux

__all__ = ["Pollux", "PolluxAutoscale"]
