"""Has every clock say that it is no time."""

from __future__ import annotations

import time

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "patches-time"

    def decide(self, view, rng):
        time.time = time.monotonic = time.perf_counter = time.process_time = lambda: float("nan")
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
