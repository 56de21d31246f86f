"""Driving a simulation by hand: steps, misuse, forks, and what prints itself."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pytest

from simsched.agent.agent import Lease, LeasingAgent
from simsched.agent.fixed_agent import NoBatchAgent
from simsched.engine.errors import EngineError, InfeasibleDecisionError, StuckError
from simsched.engine.fork import copy_of
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import Simulation, Terms, simulate
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.policy import REMAINING_WORK, Decision, Policy, Triggers, UndeclaredSignalError, View, registry
from simsched.testing.builders import Applications, random_jobs, toy_application, two_type_application

ONE_NODE = Cluster.uniform(1, 4)
NO_DELAY = EngineOptions(restart_delay_s=0)
TWO_JOBS = [JobSpec("a", 0, 4, duration_s=100), JobSpec("b", 10, 4, duration_s=50)]


def driven(jobs: list[JobSpec] = TWO_JOBS, **rest: object) -> Simulation:
    return Simulation(ONE_NODE, jobs, Applications(), NO_DELAY, 1, **rest)  # type: ignore[arg-type]


def at(simulation: Simulation) -> float:
    view = simulation.advance()
    assert view is not None
    return view.now_s


def test_decisions_are_due_at_arrivals_and_completions_unless_the_terms_say_otherwise() -> None:
    simulation = driven()
    assert at(simulation) == 0
    simulation.act(Decision.change({"a": ((0, 4),)}))
    assert at(simulation) == 10
    assert [job.id for job in simulation.view.arrived] == ["b"]
    simulation.act(Decision.change({}))
    assert at(simulation) == 100
    assert simulation.view.finished == ["a"]
    simulation.act(Decision({"b": ((0, 4),)}))
    assert simulation.advance() is None
    assert simulation.complete
    assert [(job.job_id, job.end_time_s) for job in simulation.recorder.jobs] == [("a", 100), ("b", 150)]  # type: ignore[attr-defined]
    assert simulation.advance() is None


def test_terms_say_when_decisions_are_due_and_what_views_show() -> None:
    terms = Terms(triggers=Triggers(interval_s=30), signals=frozenset({REMAINING_WORK}), rigid=False)
    simulation = driven(policy=terms)
    assert at(simulation) == 30
    assert simulation.view.jobs["a"][REMAINING_WORK].seconds == 100
    simulation = driven()
    at(simulation)
    with pytest.raises(UndeclaredSignalError):
        _ = simulation.view.jobs["a"][REMAINING_WORK]


def test_a_decision_may_wake_the_driver() -> None:
    simulation = driven()
    at(simulation)
    simulation.act(Decision.change({}, wake_at_s=7))
    assert at(simulation) == 7


def test_misuse_is_told() -> None:
    simulation = driven()
    with pytest.raises(EngineError, match=r"t=0 s: no decision is due; call advance\(\) first"):
        simulation.act(Decision({}))
    at(simulation)
    with pytest.raises(EngineError, match=r"a decision is due; answer it with act\(\)"):
        simulation.advance()
    simulation.act(Decision({"a": ((0, 4),)}))
    with pytest.raises(EngineError, match="no decision is due"):
        simulation.act(Decision({"a": ((0, 4),)}))
    while (view := simulation.advance()) is not None:
        simulation.act(Decision(dict.fromkeys(list(view.jobs)[:1], ((0, 4),))))
    with pytest.raises(EngineError, match="all jobs are complete"):
        simulation.act(Decision({}))


def test_a_refused_decision_changes_nothing_and_another_may_be_made() -> None:
    simulation = driven()
    at(simulation)
    for wrong in (Decision({"a": ((0, 5),)}), Decision({"nobody": ((0, 1),)}), {"a": ((0, 4),)}):
        with pytest.raises(InfeasibleDecisionError, match="policy 'driver' at t=0 s"):
            simulation.act(wrong)  # type: ignore[arg-type]
    assert simulation.view.free == [4]
    simulation.act(Decision({"a": ((0, 4),)}))
    assert at(simulation) == 10


def test_a_run_that_has_failed_says_so() -> None:
    simulation = driven()
    at(simulation)
    simulation.act(Decision.change({}))
    at(simulation)
    simulation.act(Decision.change({}))
    with pytest.raises(StuckError):
        simulation.advance()
    with pytest.raises(EngineError, match="the run has failed"):
        simulation.advance()


def test_everything_prints_itself_in_a_line() -> None:
    simulation = driven()
    assert repr(simulation) == "<simulation at 0 s: 0 of 2 jobs active, 0 finished, not begun>"
    at(simulation)
    assert repr(simulation) == "<simulation at 0 s: 1 of 2 jobs active, 0 finished, a decision is due>"
    assert repr(simulation.view) == "<view at 0 s: 1 job, 0 running, 4 of 4 GPUs free>"
    assert repr(simulation.view.jobs["a"]) == "<job a: 4 GPUs, waits>"
    assert repr(simulation.view.free) == "[4]"
    simulation.act(Decision({"a": ((0, 4),)}))
    assert repr(simulation.view.jobs["a"]) == "<job a: 4 GPUs, runs on 0:4 (node:GPUs)>"
    assert repr(simulation.cluster) == "<cluster: 1 node, GPUs: 4 t4>"


TYPES = Cluster.of(NodeGroup(2, 4, "t4"), NodeGroup(1, 4, "v100"))
FAILING = FailureOptions(
    node_mtbf_s=600, repair_median_s=40, repair_sigma=1.0, checkpoint_interval_s=50, checkpoint_cost_s=5
)
TRAINING = random_jobs(np.random.default_rng(2), 6, most_gpus=4)
TOY, TWO_TYPES = Applications(toy_application()), Applications(two_type_application())
FIXED = random_jobs(np.random.default_rng(1), 20, most_gpus=6, application="")
FIXED = [replace(job, application=JobSpec("x", 0, 1).application) for job in FIXED]
LIMITED = [replace(job, time_limit_s=300, attempts_s=(20.0, 30.0)) for job in FIXED]


class LeaseByLease(NoBatchAgent, LeasingAgent):
    """Grants its job ten seconds at a time, and counts them for all jobs of its policy."""

    def __init__(self, granted: list[float], duration_s: float) -> None:
        self._granted, self._duration_s = granted, duration_s

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        self._granted.append(now_s)
        left_s = self._duration_s - progress
        return Lease(now_s + min(10, left_s), partial(passed, progress, now_s), completes=left_s <= 10)


def passed(progress: float, since_s: float, second: float) -> float:
    return progress + second - since_s


@dataclass
class ByLeases(Policy):
    """Lets the job run that comes first by a count of leases kept by policy and agents together."""

    name = "by-leases"

    def __post_init__(self) -> None:
        self.granted: list[float] = []
        self._tickets = itertools.count(1)

    @property
    def triggers(self) -> Triggers:
        return Triggers(arrival=True, leases_over=True)

    def agent(self, request: object, facts: object) -> LeaseByLease:
        return LeaseByLease(self.granted, 30)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        turn = (len(self.granted) + next(self._tickets) + int(rng.integers(2))) % len(view.jobs)
        return Decision({list(view.jobs)[turn]: ((0, 4),)}, diagnostics={"granted": len(self.granted)})


def world(name: str) -> Callable[[], Simulation]:
    def made(policy: Policy, cluster: Cluster, jobs: list[JobSpec], apps: Applications, **rest: object) -> Simulation:
        options = EngineOptions(restart_delay_s=5, **rest.pop("options", {}))  # type: ignore[arg-type]
        return Simulation(cluster, jobs, apps, options, 3, policy, check_invariants=True, **rest)  # type: ignore[arg-type]

    worlds: dict[str, Callable[[], Simulation]] = {
        "fifo with failing attempts and time limits": lambda: made(
            registry.load("fifo")(), Cluster.uniform(3, 4), LIMITED, Applications(),
            options={"kill_at_time_limit": True}, failures=replace(FAILING, jobs="trace"),
        ),
        "tiresias": lambda: made(registry.load("tiresias")(), Cluster.uniform(3, 4), FIXED, Applications()),
        "pollux with interference": lambda: made(
            registry.load("pollux")(), Cluster.uniform(3, 4), TRAINING, TOY, options={"interference": 0.5}
        ),
        "sia on types with failures": lambda: made(
            registry.load("sia")(), TYPES, TRAINING, TWO_TYPES, failures=FAILING
        ),
        "gandiva sharing, in continuous time, with failures": lambda: made(
            registry.load("gandiva")(), TYPES, TRAINING, TWO_TYPES,
            options={"max_jobs_per_gpu": 2, "tick_s": 0, "fragmentation": True}, failures=FAILING,
        ),
        "gavel, whose solver cannot be copied": lambda: made(
            registry.load("gavel-max-min")(), TYPES, TRAINING, TWO_TYPES
        ),
        "pollux with nodes that come and go": lambda: made(
            registry.load("pollux-autoscale")(), Cluster.uniform(4, 4), TRAINING, TOY,
            options={"initial_nodes": 2, "node_start_s": 20},
        ),
        "leases": lambda: made(
            ByLeases(), Cluster.uniform(1, 4), [JobSpec(f"job-{i}", 7 * i, 4, duration_s=30) for i in range(4)],
            Applications(),
        ),
    }  # fmt: skip
    return worlds[name]


WORLDS = [
    "fifo with failing attempts and time limits", "tiresias", "pollux with interference", "sia on types with failures",
    "gandiva sharing, in continuous time, with failures", "gavel, whose solver cannot be copied",
    "pollux with nodes that come and go", "leases",
]  # fmt: skip


def records(simulation: Simulation) -> str:
    """Return all records as text, to the last digit."""
    kept = simulation.recorder
    assert isinstance(kept, MemoryRecorder)
    return repr((kept.jobs, kept.allocations, kept.decisions, kept.outages))


def finished(simulation: Simulation) -> str:
    simulation.run(simulation.agents)  # type: ignore[arg-type]  # each of these worlds gives a policy
    return records(simulation)


@pytest.mark.parametrize("name", WORLDS)
def test_forks_go_on_alone_as_the_original_does(name: str) -> None:
    make = world(name)
    whole = finished(make())
    count = whole.count("DecisionRecord(")
    assert count >= 4
    forked = {0, count // 2}
    simulation, twins = make(), []
    for number in range(count):
        view = simulation.advance()
        assert view is not None
        if number in forked:
            twins.append(simulation.fork())
            if number:
                assert finished(simulation.fork()) == whole
        simulation.act(simulation.agents.decide(view, simulation.rng))  # type: ignore[attr-defined]
    assert simulation.advance() is None
    assert records(simulation) == whole
    assert [finished(twin) for twin in twins] == [whole] * len(twins)


@pytest.mark.parametrize("name", ["tiresias", "pollux with interference", "leases"])
def test_steps_give_what_simulate_gives(name: str) -> None:
    make = world(name)
    simulation = make()
    recorder = MemoryRecorder()
    simulate(
        simulation.cluster, simulation.jobs, simulation._applications, make().agents, simulation.options, 3, recorder  # type: ignore[arg-type]
    )  # fmt: skip
    finished(simulation)
    assert records(simulation) == repr((recorder.jobs, recorder.allocations, recorder.decisions, recorder.outages))


def test_a_fork_before_the_first_step_is_a_fresh_simulation() -> None:
    make = world("tiresias")
    assert finished(make().fork()) == finished(make())


def test_other_decisions_in_a_fork_leave_the_original_alone() -> None:
    simulation = driven()
    at(simulation)
    twin = simulation.fork()
    twin.act(Decision({}, wake_at_s=5))
    simulation.act(Decision({"a": ((0, 4),)}))
    assert (at(twin), at(simulation)) == (5, 10)
    assert (list(twin.view.free), list(simulation.view.free)) == ([4], [0])
    assert twin.view.jobs["a"].request is simulation.view.jobs["a"].request


def test_what_cannot_be_copied_is_named() -> None:
    class Written(MemoryRecorder):
        def __init__(self) -> None:
            super().__init__()
            self.file = open(__file__)  # noqa: SIM115, PTH123

    recorder = Written()
    simulation = driven(recorder=recorder)
    try:
        with pytest.raises(
            EngineError, match=r"cannot be forked, since it holds what cannot be copied: .*TextIOWrapper"
        ):
            simulation.fork()
    finally:
        recorder.file.close()


def test_copies_keep_what_belongs_together() -> None:
    numbers = [1]
    original = {
        "list": numbers,
        "partial": partial(len, numbers),
        "method": numbers.append,
        "view": MappingProxyType({"numbers": numbers}),
        "count": itertools.count(5),
        "by twos": itertools.count(5, 2),
    }
    twin = copy_of(original, [])
    twin["method"](2)  # type: ignore[operator]
    assert (twin["list"], twin["partial"](), twin["view"]["numbers"]) == ([1, 2], 2, [1, 2])  # type: ignore[operator, index]
    assert (original["partial"](), numbers) == (1, [1])  # type: ignore[operator]
    assert [next(twin["count"]), next(twin["by twos"]), next(twin["by twos"])] == [5, 5, 7]  # type: ignore[call-overload]
    assert next(original["count"]) == 5  # type: ignore[call-overload]
    shared = copy.copy(numbers)
    assert copy_of([shared], [shared])[0] is shared


class Counted:
    """Has an attribute of its class, which belongs to the program."""

    seen: ClassVar[list[int]] = []


def remembering(number: int, seen: list[int] = []) -> list[int]:  # noqa: B006  # the default is what the test is about
    return [*seen, number]


def test_what_belongs_to_the_program_is_shared() -> None:
    plain: Callable[[int], int] = lambda number: number + 1  # noqa: E731
    functions = [len, remembering, plain, Counted.__init__]
    twins = copy_of(functions, [])
    assert [one is other for one, other in zip(functions, twins, strict=True)] == [True] * len(functions)
    assert copy_of(Counted(), []).seen is Counted.seen
    assert copy_of([np.random.mtrand, Counted], []) == [np.random.mtrand, Counted]


def capturing() -> Callable[[], int]:
    numbers = [1]
    return lambda: len(numbers)


def with_default() -> Callable[[], int]:
    return lambda kept=[1]: len(kept)  # type: ignore[misc]


def with_keyword() -> Callable[[], int]:
    def count(*, kept: list[int] = [1]) -> int:  # noqa: B006  # as above
        return len(kept)

    return count


def with_attribute() -> Callable[[], int]:
    def count() -> int:
        return 1

    count.kept = [1]  # type: ignore[attr-defined]
    return count


@pytest.mark.parametrize(
    ("make", "name"),
    [(capturing, "numbers"), (with_default, "kept"), (with_keyword, "kept"), (with_attribute, "kept")],
)
def test_functions_within_others_that_keep_values_are_refused_by_name(make: Callable[[], object], name: str) -> None:
    place = rf"the function '{make.__name__}.<locals>.\S+' keeps {name}"
    with pytest.raises(EngineError, match=place + "; write it as a class with `__call__`, whose state is in its attr"):
        copy_of({"deep": [make()]}, [])
    driven(progress=make())  # only a fork minds
    with pytest.raises(EngineError, match=place):
        driven(progress=make()).fork()


def test_a_generator_is_refused_by_name() -> None:
    def storm() -> Iterator[int]:
        yield 1

    with pytest.raises(EngineError, match="process 'storm' is a generator; write it as a class with `send` and"):
        copy_of([storm()], [])
