"""Has its process end as a system that shuts down does."""

from __future__ import annotations

import os
import signal

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "was killed (SIGTERM)"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "terminates"

    def decide(self, view, rng):
        os.kill(os.getpid(), signal.SIGTERM)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
