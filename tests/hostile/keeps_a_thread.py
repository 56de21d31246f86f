"""Leaves a thread that would keep its process for ever, and something to do at the end that never ends."""

from __future__ import annotations

import atexit
import threading

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "keeps-a-thread"

    def decide(self, view, rng):
        never = threading.Event()
        atexit.register(never.wait)
        threading.Thread(target=never.wait).start()
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
