"""Kills its process."""

from __future__ import annotations

import os
import signal

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "was killed (SIGKILL)"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "kills-its-process"

    def decide(self, view, rng):
        os.kill(os.getpid(), signal.SIGKILL)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
