"""Starts threads that raise, some without a text."""

from __future__ import annotations

import threading
import time

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "threads-raise"

    def decide(self, view, rng):
        threading.Thread(target=lambda: [][0], daemon=True).start()
        threading.Thread(target=lambda: 1 / 0).start()
        time.sleep(0.01)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
