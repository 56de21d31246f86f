"""Never decides."""

from __future__ import annotations

import time

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "ran for longer than the"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "hangs"

    def decide(self, view, rng) -> Decision:
        while True:
            time.sleep(3600)  # and not `pass`, which would take a processor from the other tests
