"""Every registered policy conforms, and the kit catches those that do not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import pytest

from simsched.policy import Decision, Policy, Signal, View, registry
from simsched.policy.gang import admit, available_gpus, keep_and_place
from simsched.testing import check_policy


@pytest.mark.parametrize("name", registry.names())
def test_registered_policies_conform(name: str) -> None:
    assert check_policy(registry.load(name)) == []


def failed(make: type[Policy]) -> set[str]:
    return {failure.check for failure in check_policy(make, seeds=1)}


@dataclass
class Good(Policy):
    """Runs whatever fits."""

    name: ClassVar[str] = "good"

    def decide(self, view: View, rng) -> Decision:
        return Decision(keep_and_place(admit(view.jobs.values(), available_gpus(view)), view))


class Overcommits(Good):
    """Ignores capacity."""

    def decide(self, view: View, rng) -> Decision:
        return Decision({job.id: ((0, job.num_gpus),) for job in view.jobs.values()})


class Peeks(Good):
    """Reads an oracle without saying so."""

    def decide(self, view: View, rng) -> Decision:
        sorted(view.jobs.values(), key=lambda job: job.remaining.seconds)
        return super().decide(view, rng)


class Gambles(Good):
    """Draws from the global generator."""

    def decide(self, view: View, rng) -> Decision:
        order = sorted(view.jobs.values(), key=lambda job: (not job.running, random.random()))
        return Decision(keep_and_place(admit(order, available_gpus(view)), view))


class SortsByName(Good):
    """Lets names decide."""

    def decide(self, view: View, rng) -> Decision:
        order = sorted(view.jobs.values(), key=lambda job: job.id)
        return Decision(keep_and_place(admit(order, available_gpus(view)), view))


class Trims(Good):
    """Gives a rigid job less than it asked for."""

    def decide(self, view: View, rng) -> Decision:
        first = next(iter(view.jobs.values()), None)
        return Decision({first.id: ((0, 1),)} if first and any(view.up) else {})


class HasNoName(Good):
    """Says nothing of itself."""

    name = ""


class Crashes(Good):
    """Cannot stand an empty queue."""

    def decide(self, view: View, rng) -> Decision:
        next(iter(view.jobs.values()))
        return super().decide(view, rng)


class IgnoresNodesDown(Good):
    """Counts on every node."""

    def decide(self, view: View, rng) -> Decision:
        first = next(iter(view.jobs.values()), None)
        return Decision({first.id: ((0, first.num_gpus),)} if first else {})


FEASIBLE = "feasible decisions, every job finishes, nothing undeclared read"


@pytest.mark.parametrize(
    ("policy", "check"),
    [
        (Overcommits, FEASIBLE),
        (Peeks, FEASIBLE),
        (Gambles, "no global random generator"),
        (SortsByName, "names are labels"),
        (Trims, "rigid jobs get what they asked for"),
        (HasNoName, "declaration"),
        (Crashes, "empty queue"),
        (IgnoresNodesDown, "all nodes down"),
    ],
)
def test_the_kit_catches(policy: type[Policy], check: str) -> None:
    assert check in failed(policy)


def test_the_kit_passes_a_good_policy() -> None:
    assert failed(Good) == set()


def test_undeclared_signals_are_absent() -> None:
    found: list[bool] = []

    class Asks(Good):
        """Looks whether the oracle is there."""

        needs: ClassVar[frozenset[Signal]] = frozenset()

        def decide(self, view: View, rng) -> Decision:
            found.extend(hasattr(job, "remaining") for job in view.jobs.values())
            return super().decide(view, rng)

    assert check_policy(Asks, seeds=1) == []
    assert found
    assert not any(found)
