"""Raises an error whose text no file can hold, with a terminal's commands in it."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "RuntimeError in policy 'surrogate'"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "surrogate"

    def decide(self, view, rng) -> Decision:
        raise RuntimeError("\ud800 \x1b]0;title\x07")
