"""Calls itself for ever."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "RecursionError in policy 'recurses'"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "recurses"

    def decide(self, view, rng) -> Decision:
        return self.decide(view, rng)
