"""Wants to decide again before the clock can go on."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "nothing runs and nothing is due to happen"


class Hostile(Policy):
    """Asks to be woken a thousandth of a second later, where a tick is a second."""

    name = "wakes-at-once"

    def decide(self, view, rng) -> Decision:
        return Decision.change({}, wake_at_s=view.now_s + 0.001)
