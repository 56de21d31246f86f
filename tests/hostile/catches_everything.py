"""Never decides, and catches whatever would stop it."""

from __future__ import annotations

import contextlib
import time

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "ran for longer than the"


class Hostile(Policy):
    """Decides nothing."""

    name = "catches-everything"

    def decide(self, view, rng) -> Decision:
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)
