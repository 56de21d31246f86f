"""Breaks what numpy offers where only the tables and metrics ask for it."""

from __future__ import annotations

import numpy as np

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "patches-numpy"

    def decide(self, view, rng):
        np.mean = np.sum = np.array = lambda *_, **__: 1 / 0
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
