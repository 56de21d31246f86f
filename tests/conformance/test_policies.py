"""Every registered policy conforms, and the kit catches those that do not."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from simsched_policies.queues.by_key import Sjf

from simsched.knowledge import Known
from simsched.model.capacity import Capacity
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation
from simsched.policy import Decision, Policy, Traits, UndeclaredSignalError, View, registry, signals
from simsched.policy.signals import GOODPUT, REMAINING_WORK, FileSignal, JobSignal, ViewSignal
from simsched.testing import check_policy
from simsched.toolkit.gang import run_in_order
from simsched.toolkit.placers import PLACERS
from tests.campaigns import WHOLE

#: Policies that solve programs or fit curves at every round: for these one seed of random workloads is enough.
SOLVERS = ("pollux", "gavel-", "sia", "shockwave", "slaq", "optimus-online")

EVERY_SIGNAL = {one for one in vars(signals).values() if isinstance(one, JobSignal | ViewSignal | FileSignal)}


@pytest.mark.parametrize("name", registry.names())
def test_registered_policies_conform(name: str) -> None:
    assert check_policy(registry.load(name), seeds=2 if WHOLE and not name.startswith(SOLVERS) else 1) == []


def failed(make: type[Policy]) -> set[str]:
    return {failure.check for failure in check_policy(make, seeds=1)}


@dataclass
class Good(Policy):
    """Runs whatever fits."""

    name: ClassVar[str] = "good"

    def decide(self, view: View, rng) -> Decision:
        return Decision(run_in_order(view.jobs.values(), view))


class Overcommits(Good):
    """Ignores capacity."""

    def decide(self, view: View, rng) -> Decision:
        return Decision({job.id: ((0, job.num_gpus),) for job in view.jobs.values()})


class Peeks(Good):
    """Reads an oracle without saying so."""

    def decide(self, view: View, rng) -> Decision:
        sorted(view.jobs.values(), key=lambda job: job[REMAINING_WORK].seconds)
        return super().decide(view, rng)


class Gambles(Good):
    """Draws from the global generator."""

    def decide(self, view: View, rng) -> Decision:
        order = sorted(view.jobs.values(), key=lambda job: (not job.running, random.random()))
        return Decision(run_in_order(order, view))


class SortsByName(Good):
    """Lets names decide."""

    def decide(self, view: View, rng) -> Decision:
        order = sorted(view.jobs.values(), key=lambda job: job.id)
        return Decision(run_in_order(order, view))


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
    refused: list[str] = []

    class Asks(Good):
        """Looks whether the oracle is there."""

        def decide(self, view: View, rng) -> Decision:
            for job in view.jobs.values():
                try:
                    refused.append(f"{job[REMAINING_WORK].seconds} s")
                except UndeclaredSignalError as error:
                    refused.append(str(error))
            return super().decide(view, rng)

    assert check_policy(Asks, seeds=1) == []
    assert set(refused) == {"the signal 'remaining_work' is not in the policy's needs"}


class ReadsTheDuration(Good):
    """Is a perfect SJF that declares nothing, by the way into the engine."""

    def decide(self, view: View, rng) -> Decision:
        return Decision(run_in_order(sorted(view.jobs.values(), key=lambda job: job._state.truth.duration_s), view))


class ReadsTheStatus(Good):
    """Runs those first that the trace says will pass."""

    def decide(self, view: View, rng) -> Decision:
        order = sorted(view.jobs.values(), key=lambda job: job._state.truth.status != "Pass")
        return Decision(run_in_order(order, view))


class ReadsThePhysics(Good):
    """Asks the application how long its epochs take."""

    def decide(self, view: View, rng) -> Decision:
        order = sorted(view.jobs.values(), key=lambda job: job._state.app.epoch_end(0))
        return Decision(run_in_order(order, view))


@dataclass
class KeepsAView(Good):
    """Looks at the cluster between its decisions, when it makes an agent."""

    kept: View | None = None

    def agent(self, request, facts):
        if self.kept is not None:
            assert self.kept.now_s >= 0
        return super().agent(request, facts)

    def decide(self, view: View, rng) -> Decision:
        self.kept = view
        return super().decide(view, rng)


@pytest.mark.parametrize("cheat", [ReadsTheDuration, ReadsTheStatus, ReadsThePhysics, KeepsAView])
def test_the_kit_rejects_cheats(cheat: type[Policy]) -> None:
    assert "knows only what it declares" in failed(cheat)


def test_a_request_has_no_truth() -> None:
    job = JobSpec("a", 0, 1, duration_s=60, status="Pass", attempts=2)
    assert not {"duration_s", "status", "attempts", "truth"} & set(dir(job.request))


def test_sjf_fails_without_its_oracle() -> None:
    class Undeclared(Sjf):
        """Is SJF, but does not say what it knows."""

        traits: ClassVar[Traits] = replace(Sjf.traits, needs=frozenset())

    assert any("remaining_work" in failure.reason for failure in check_policy(Undeclared, seeds=1))


class MixesTypes(Good):
    """Fills nodes without looking at their GPUs."""

    def decide(self, view: View, rng) -> Decision:
        single = [node for node, gpus in enumerate(view.free) for _ in range(gpus)]
        started = {}
        for job in view.jobs.values():
            if not job.running and len(single) >= job.num_gpus:
                started[job.id] = tuple(Counter(single[: job.num_gpus]).items())
                del single[: job.num_gpus]
        return Decision.change(started)


class ForgetsLostNodes(Good):
    """Keeps a list of its own of who runs where, and looks at no node again."""

    def __init__(self) -> None:
        self.placed: dict[str, Allocation] = {}

    def decide(self, view: View, rng) -> Decision:
        if any(view.up):
            fresh = run_in_order(view.jobs.values(), view)
            self.placed = {**fresh, **{job_id: held for job_id, held in self.placed.items() if job_id in view.jobs}}
        return Decision(self.placed if any(view.up) else {})


@pytest.mark.parametrize(
    ("policy", "check"),
    [(MixesTypes, "job larger than any GPU type"), (ForgetsLostNodes, "a node is lost while it is held")],
)
def test_the_kit_shows_types_and_lost_nodes(policy: type[Policy], check: str) -> None:
    assert check in failed(policy)


class NeedsAText(Good):
    """Calls by name what it wants to know."""

    traits: ClassVar[Traits] = replace(Good.traits, needs={"remaining_work"})


class NeedsEverything(Good):
    """Reads every signal that there is of the view and of each job."""

    traits: ClassVar[Traits] = Traits(needs=EVERY_SIGNAL)

    def decide(self, view, rng):
        for signal in EVERY_SIGNAL:
            if isinstance(signal, ViewSignal):
                assert view[signal] is not None
            elif isinstance(signal, JobSignal) and signal is not GOODPUT:  # which the agents of Good fit none of
                _ = [job[signal] for job in view.jobs.values()]
        return super().decide(view, rng)


def test_the_kit_provides_every_signal() -> None:
    assert check_policy(NeedsEverything, seeds=1) == []


class NamesNoParameter(Good):
    """Says that a parameter holds its quantum, and has none."""

    traits: ClassVar[Traits] = replace(Good.traits, quantum="quantum_s", reads_tenants=True)


class NeedsWhatNobodyProvides(Good):
    """Makes up a signal of its own."""

    traits: ClassVar[Traits] = replace(
        Good.traits, needs={JobSignal("mood", "what the user feels like today", Known.ORACLE)}
    )


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (NeedsAText, "unknown signals: remaining_work"),
        (NeedsWhatNobodyProvides, "signals that nothing provides: mood"),
        (NamesNoParameter, "parameters that it does not have: quantum_s, tenants"),
    ],
)
def test_the_kit_refuses_unknown_signals_and_parameters(policy: type[Policy], said: str) -> None:
    failures = check_policy(policy, seeds=1)
    assert any(said in failure.reason for failure in failures if failure.check == "declaration")


README = Path(__file__).resolve().parents[2] / "policies" / "README.md"


def test_the_table_of_ties_names_every_policy() -> None:
    section = README.read_text(encoding="utf-8").split("### Where ties go")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    families = tuple(name.removesuffix("*") for name in named if name.endswith("*"))
    shipped = set(registry.names())
    assert {name for name in shipped - named if not name.startswith(families)} == set()
    assert {name for name in named - shipped if not name.endswith("*")} == set()


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_a_placer_gives_a_tie_to_the_first_node(name: str) -> None:
    nodes = Cluster.uniform(4, 4).nodes
    free = Capacity(nodes, [True] * 4, [0, 4, 4, 4])
    assert free.choose(PLACERS[name], 2) == ((1, 2),)
    free = Capacity(nodes, [True] * 4, [4, 4, 4, 4])
    assert free.choose(PLACERS[name], 8) == ((0, 4), (1, 4))
