"""Writes into every file and pipe of its process."""

from __future__ import annotations

import contextlib
import os

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "its process "


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "writes-everywhere"

    def decide(self, view, rng):
        for descriptor in range(3, 100):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"hello, hello, hello")
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
