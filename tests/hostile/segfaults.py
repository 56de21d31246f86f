"""Reads memory that is not there."""

from __future__ import annotations

import ctypes

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "was killed (SIGSEGV)"


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "segfaults"

    def decide(self, view, rng):
        ctypes.string_at(0)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
