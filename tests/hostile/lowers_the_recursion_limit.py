"""Leaves hardly a level to call anything."""

from __future__ import annotations

import sys

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "lowers-the-recursion-limit"

    def decide(self, view, rng):
        sys.setrecursionlimit(60)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
