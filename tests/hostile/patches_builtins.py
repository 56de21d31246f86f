"""Breaks what Python and numpy offer to all."""

from __future__ import annotations

import builtins

import numpy as np

from simsched.policy import Decision, Policy


def broken(*_, **__):
    raise RuntimeError("broken")


#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "RuntimeError"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "patches-builtins"

    def decide(self, view, rng):
        builtins.sum = np.mean = np.sum = builtins.sorted = broken
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
