"""Stops and starts a job every second, so that it never gets beyond its restart."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "has progressed"


class Hostile(Policy):
    """Gives the first job GPUs at even seconds and takes them at odd ones."""

    name = "stops-and-starts"

    def decide(self, view, rng) -> Decision:
        first = next(iter(view.jobs.values()))
        held = {} if first.allocation else {first.id: ((0, first.num_gpus),)}
        return Decision(held, wake_at_s=view.now_s + 1)
