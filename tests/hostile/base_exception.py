"""Raises what `except Exception` does not catch."""

from __future__ import annotations

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = "Beyond in policy 'base-exception'"


class Beyond(BaseException):
    """No Exception."""


class Hostile(Policy):
    """Decides nothing."""

    name = "base-exception"

    def decide(self, view, rng) -> Decision:
        raise Beyond("over there")
