"""Makes a copy of its process, which goes on as the original does."""

from __future__ import annotations

import os

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "copies-its-process"

    def decide(self, view, rng):
        if not getattr(self, "copied", False):
            self.copied = True
            os.fork()
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
