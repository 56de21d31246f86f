"""Pollux: co-adaptive scheduling for goodput (see `policy`), its goodput tables, and the allocation search."""

from simsched_policies.pollux.policy import Pollux

__all__ = ["Pollux"]
