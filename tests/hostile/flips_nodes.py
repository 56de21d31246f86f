"""Asks for nodes and lets them go before they are up."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "has progressed"


class Hostile(Policy):
    """Wants all nodes at one second and none at the next."""

    name = "flips-nodes"

    def decide(self, view, rng) -> Decision:
        self.wanted = not getattr(self, "wanted", False)
        nodes = range(len(view.nodes)) if self.wanted else ()
        return Decision({}, nodes=tuple(nodes), wake_at_s=view.now_s + 1)
