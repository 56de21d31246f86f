"""Has results written as half a bracket."""

from __future__ import annotations

import json

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "patches-json"

    def decide(self, view, rng):
        json.dumps = lambda *_, **__: "{"
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
