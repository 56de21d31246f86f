"""Raises an error of ten million characters."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "RuntimeError in policy 'long-text'"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "long-text"

    def decide(self, view, rng) -> Decision:
        raise RuntimeError("x" * 10_000_000)
