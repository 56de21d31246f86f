"""Raises an error that cannot say what it is."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "Mute in policy 'text-raises'"


class Mute(Exception):  # noqa: N818
    """Has no text."""

    def __str__(self):
        raise SystemExit

    __repr__ = __str__


class Hostile(Policy):
    """Decides nothing."""

    name = "text-raises"

    def decide(self, view, rng) -> Decision:
        raise Mute
