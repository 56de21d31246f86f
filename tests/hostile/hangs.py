"""Never decides."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "ran for longer than the"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "hangs"

    def decide(self, view, rng) -> Decision:
        while True:
            pass
