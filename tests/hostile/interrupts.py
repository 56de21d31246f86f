"""Pretends that the user has stopped the run."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "KeyboardInterrupt in policy 'interrupts'"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "interrupts"

    def decide(self, view, rng) -> Decision:
        raise KeyboardInterrupt
