"""Has tables written by nothing."""

from __future__ import annotations

from simsched.policy import Decision, Policy
from simsched.results import TableWriter

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "its code had replaced TableWriter."


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "patches-results"

    def decide(self, view, rng):
        for name in [name for name in vars(TableWriter) if not name.startswith("_")]:
            setattr(TableWriter, name, None)
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
