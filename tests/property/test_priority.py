"""The scheduler decides as a walk over all jobs would, and placers keep what they promise."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, count
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

import simsched as sim
from simsched.agent.fixed_agent import fixed_agent
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.application import Application, facts_of
from simsched.model.capacity import Capacity
from simsched.model.cluster import Cluster, Node, NodeGroup
from simsched.model.job import JobRequest, JobSpec, JobTruth
from simsched.model.tabulated import FixedDuration
from simsched.policy import registry
from simsched.policy.view import JobView
from simsched.testing.builders import FakeJob, FakeView, fake_job_view
from simsched.toolkit.placers import ANY, CONSOLIDATED, FRAGMENTS, MOST_FREE, PLACERS
from simsched.toolkit.priority import PriorityScheduler


def most_free_first(free: list[int], gpus: int) -> tuple[tuple[int, int], ...] | None:
    """Take GPUs from the node with the most free ones (lowest index on a tie), and so on until there are enough."""
    if sum(free) < gpus:
        return None
    picked: list[tuple[int, int]] = []
    while gpus:
        most = max(free)
        node = free.index(most)
        took = min(most, gpus)
        picked.append((node, took))
        free[node] -= took
        gpus -= took
    return tuple(picked)


FEW = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def clusters_in_use(draw: st.DrawFn) -> tuple[list[int], Capacity]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
    free = [draw(st.integers(0, size)) for size in sizes]
    nodes = [Node(i, size) for i, size in enumerate(sizes)]
    return sizes, Capacity(nodes, [True] * len(nodes), free)


IN_USE = clusters_in_use()


@FEW
@given(IN_USE, st.integers(1, 16), st.sampled_from(sorted(PLACERS)))
def test_placers_give_just_what_was_asked_for_out_of_what_is_free(
    in_use: tuple[list[int], Capacity], gpus: int, name: str
) -> None:
    _, free = in_use
    before = list(free.free)
    found = free.choose(PLACERS[name], gpus)
    if found is None:
        assert free.total < gpus or PLACERS[name].waits
        return
    assert sum(taken for _, taken in found) == gpus
    assert len({node for node, _ in found}) == len(found)
    assert all(1 <= taken <= before[node] for node, taken in found)
    free.take(found)
    assert free.total == sum(free.free) == sum(before) - gpus
    free.give_back(found)
    assert free.free == before
    assert free.choose(PLACERS[name], gpus) == found


@FEW
@given(IN_USE, st.integers(1, 16))
def test_most_free_is_the_placement_of_the_published_simulator(in_use: tuple[list[int], Capacity], gpus: int) -> None:
    _, free = in_use
    assert free.choose(MOST_FREE, gpus) == most_free_first(list(free.free), gpus)


@FEW
@given(IN_USE, st.integers(1, 16))
def test_consolidated_uses_the_fewest_nodes_of_the_empty_cluster_and_waits_only_where_it_must(
    in_use: tuple[list[int], Capacity], gpus: int
) -> None:
    sizes, free = in_use
    largest = sorted(sizes, reverse=True)
    fewest = next((n for n in range(1, len(sizes) + 1) if sum(largest[:n]) >= gpus), None)
    possible = fewest is not None and any(
        sum(free.free[node] for node in nodes) >= gpus for nodes in combinations(range(len(sizes)), fewest)
    )
    found = free.choose(CONSOLIDATED, gpus)
    assert (found is not None) == possible
    if found is not None:
        assert len(found) == fewest


def pool(*free: int, gpus: int = 4) -> Capacity:
    return Capacity([Node(i, gpus) for i in range(len(free))], [True] * len(free), free)


def test_placers_on_a_case_worked_by_hand() -> None:
    free = pool(3, 1, 4, 2, 1)
    assert free.choose(MOST_FREE, 5) == ((2, 4), (0, 1))
    assert free.choose(FRAGMENTS, 2) == ((3, 2),)  # a node with just two
    assert free.choose(FRAGMENTS, 5) == ((1, 1), (4, 1), (3, 2), (0, 1))  # the smallest first, whole nodes last
    assert free.choose(ANY, 5) == ((0, 3), (1, 1), (2, 1))
    assert free.choose(CONSOLIDATED, 2) == ((3, 2),)  # best fit
    assert free.choose(CONSOLIDATED, 3) == ((0, 3),)
    assert free.choose(CONSOLIDATED, 6) == ((2, 4), (3, 2))
    assert free.choose(CONSOLIDATED, 8) is None  # two whole nodes are not free


def test_a_job_gets_gpus_of_one_type() -> None:
    nodes = Cluster.of(NodeGroup(1, 2, "t4"), NodeGroup(1, 4, "a100")).nodes
    free = Capacity(nodes, [True, True], [2, 4])
    assert free.choose(MOST_FREE, 2) == ((0, 2),)
    assert free.choose(MOST_FREE, 3) == ((1, 3),)
    assert free.choose(MOST_FREE, 5) is None


def test_nodes_that_are_down_are_not_used() -> None:
    nodes = Cluster.uniform(2, 4).nodes
    free = Capacity(nodes, [False, True], [0, 4])
    assert free.choose(MOST_FREE, 4) == ((1, 4),)
    assert free.choose(CONSOLIDATED, 8) is None


def greedy(order: list[tuple[str, int]], gpus: int) -> set[str]:
    """Walk all jobs in order and admit those that fit, as simple policies do."""
    admitted = set()
    for job_id, asked in order:
        if asked <= gpus:
            admitted.add(job_id)
            gpus -= asked
    return admitted


def view_of(cluster: Cluster, job_id: str, gpus: int) -> JobView:
    spec = JobSpec(job_id, 0, gpus, duration_s=1)
    app = FixedDuration(1)
    agent = fixed_agent(spec.request, facts_of(app))
    return fake_job_view(FakeJob(spec, app, agent, cluster), ())


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), max_size=4),  # arrivals: GPUs and key
        st.lists(st.integers(0, 30), max_size=2),  # completions
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=3),  # new keys
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(STEPS)
def test_the_scheduler_admits_whom_a_walk_over_all_jobs_admits(steps) -> None:
    cluster = Cluster.uniform(2, 4)
    scheduler = PriorityScheduler()
    keys: dict[str, tuple[int, int]] = {}
    asked: dict[str, int] = {}
    held: dict[str, tuple[tuple[int, int], ...]] = {}
    names = count()
    for arrivals, completions, rekeyed in steps:
        running = sorted(held)
        gone = sorted({running[i] for i in completions if i < len(running)})
        for job_id in gone:
            del keys[job_id], asked[job_id], held[job_id]
        scheduler.update(FakeView(cluster, finished=gone))
        for gpus, key in arrivals:
            job_id = f"j{next(names)}"
            scheduler.add(view_of(cluster, job_id, gpus), (key,), MOST_FREE)
            keys[job_id], asked[job_id] = (key, scheduler.number(job_id)), gpus
        for i, key in rekeyed:
            if i < len(keys):
                job_id = sorted(keys)[i]
                scheduler.rekey(job_id, (key,))
                keys[job_id] = (key, keys[job_id][1])
        start, stop = scheduler.schedule()
        for job_id in stop:
            del held[job_id]
        for job_id, allocation in start.items():
            assert job_id not in held
            held[job_id] = allocation
        order = [(job_id, asked[job_id]) for job_id in sorted(keys, key=keys.__getitem__)]
        assert set(held) == greedy(order, 8)
        assert set(scheduler.running) == set(held)
        for node in range(2):
            assert sum(taken for allocation in held.values() for at, taken in allocation if at == node) <= 4


def test_a_job_whose_node_goes_down_waits_for_another() -> None:
    cluster = Cluster.uniform(2, 4)
    scheduler = PriorityScheduler(preempts=False)
    scheduler.update(FakeView(cluster))
    job = view_of(cluster, "a", 4)
    scheduler.add(job, (), MOST_FREE)
    assert scheduler.schedule() == ({"a": ((0, 4),)}, [])
    scheduler.update(FakeView(cluster, jobs={"a": job}, up=[False, True]))  # the view shows that it holds nothing now
    assert scheduler.waits
    assert scheduler.schedule() == ({"a": ((1, 4),)}, [])


CLUSTER = Cluster.of(NodeGroup(2, 2, "t4"), NodeGroup(1, 4, "v100"), NodeGroup(1, 2, "a100"))
CAPACITY = {"t4": 4, "v100": 4, "a100": 2}
TYPES = tuple(CAPACITY)
ANYWHERE = st.sampled_from([None, None, ("t4",), ("v100",), ("t4", "a100"), ("v100", "a100")])


class OnTypes(FixedDuration):
    """A job of fixed duration that runs on some types only."""

    def __init__(self, duration_s: float, gpu_types: tuple[str, ...] | None) -> None:
        super().__init__(duration_s)
        self.gpu_types = gpu_types


class Asks(NamedTuple):
    gpus: int
    types: tuple[str, ...]
    key: int
    number: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.key, self.number


def walk(asks: Mapping[str, Asks], held: Mapping[str, str], preempts: bool) -> dict[str, str]:
    """Look at every job in order of priority, and say which type each job gets."""
    runs = dict(held)
    yielded: set[str] = set()

    def free(kind: str) -> int:
        return CAPACITY[kind] - sum(asks[one].gpus for one in runs if runs[one] == kind)

    def victims(job_id: str, kind: str) -> list[str]:
        found: list[str] = []
        less_urgent = [one for one in runs if runs[one] == kind and asks[one].rank > asks[job_id].rank]
        for one in sorted(less_urgent, key=lambda one: asks[one].rank, reverse=True):
            found.append(one)
            if free(kind) + sum(asks[victim].gpus for victim in found) >= asks[job_id].gpus:
                return found
        return []

    for job_id in sorted(asks, key=lambda one: asks[one].rank):
        job = asks[job_id]
        if job_id in runs:
            continue
        own = [held[job_id]] if job_id in yielded else []
        room = [kind for kind in [*own, *job.types] if free(kind) >= job.gpus]
        if not room and preempts:
            chosen = {kind: victims(job_id, kind) for kind in job.types}
            room = [kind for kind in job.types if chosen[kind]]
            room.sort(key=lambda kind: asks[chosen[kind][-1]].rank, reverse=True)
            for victim in chosen[room[0]] if room else ():
                del runs[victim]
                yielded.add(victim)
        if room:
            runs[job_id] = room[0]
    return runs


TYPED_STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 4), ANYWHERE, st.integers(0, 5)), max_size=4),  # GPUs, types and key
        st.lists(st.integers(0, 30), max_size=2),  # completions
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=3),  # new keys
    ),
    min_size=1,
    max_size=10,
)


def typed_view_of(job_id: str, gpus: int, types: tuple[str, ...] | None) -> JobView:
    spec, app = JobSpec(job_id, 0, gpus, duration_s=1), OnTypes(1, types)
    return fake_job_view(FakeJob(spec, app, fixed_agent(spec, facts_of(app)), CLUSTER), ())


@pytest.mark.parametrize("preempts", [True, False])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=TYPED_STEPS)
def test_the_scheduler_gives_each_job_the_type_that_a_walk_over_all_jobs_gives_it(steps, preempts: bool) -> None:
    scheduler = PriorityScheduler(preempts=preempts)
    asks: dict[str, Asks] = {}
    held: dict[str, str] = {}
    names = count()
    for arrivals, completions, rekeyed in steps:
        gone = sorted({sorted(held)[i] for i in completions if i < len(held)})
        for job_id in gone:
            del asks[job_id], held[job_id]
        scheduler.update(FakeView(CLUSTER, finished=gone))
        for gpus, types, key in arrivals:
            job_id = f"j{next(names)}"
            scheduler.add(typed_view_of(job_id, gpus, types), (key,), MOST_FREE)
            asks[job_id] = Asks(gpus, types or TYPES, key, scheduler.number(job_id))
        for i, key in rekeyed:
            if i < len(asks):
                job_id = sorted(asks)[i]
                scheduler.rekey(job_id, (key,))
                asks[job_id] = asks[job_id]._replace(key=key)
        expected = walk(asks, held, preempts)
        start, stop = scheduler.schedule()
        for job_id in stop:
            del held[job_id]
        held |= {job_id: CLUSTER.nodes[allocation[0][0]].gpu_type for job_id, allocation in start.items()}
        assert held == expected
        assert set(scheduler.running) == set(held)
        if preempts:
            nobody_waits_for_gpus_that_the_less_urgent_hold(asks, held)


def nobody_waits_for_gpus_that_the_less_urgent_hold(asks: Mapping[str, Asks], held: Mapping[str, str]) -> None:
    for job_id in asks.keys() - held.keys():
        job = asks[job_id]
        for kind in job.types:
            before = sum(asks[one].gpus for one in held if held[one] == kind and asks[one].rank < job.rank)
            assert before + job.gpus > CAPACITY[kind]


class ByTenant:
    """Jobs of fixed duration that run on the type their tenant names, or anywhere."""

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        app = OnTypes(truth.duration_s, (request.tenant,) if request.tenant else None)
        app.name = f"on {request.tenant}"
        return app


def run_on(cluster: Cluster, name: str, jobs: list[JobSpec]) -> MemoryRecorder:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=0)
    simulate(cluster, jobs, ByTenant(), registry.load(name)(), options, 1, recorder, check_invariants=True)
    return recorder


TWO = Cluster.of(NodeGroup(1, 2, "t4"), NodeGroup(1, 2, "v100"))


@pytest.mark.parametrize("name", ["fifo", "sjf", "srtf", "srsf", "las", "tiresias", "smallest-first", "time-slicing"])
def test_a_job_that_runs_on_one_type_only_gets_that_type(name: str) -> None:
    jobs = [JobSpec("a", 0, 2, duration_s=500, tenant="v100"), JobSpec("b", 0, 2, duration_s=90, tenant="t4")]
    records = run_on(TWO, name, jobs)
    assert {job.job_id: job.restarts for job in records.jobs} == {"a": 0, "b": 0}
    assert {(interval.job_id, interval.placement) for interval in records.allocations} == {("a", "1:2"), ("b", "0:2")}


@pytest.mark.parametrize("name", ["srtf", "srsf"])
def test_a_short_job_need_not_wait_because_gpus_of_two_types_are_free(name: str) -> None:
    # One GPU of each type is free, and two of one type are asked for: the longest job of one type yields.
    long = [JobSpec(f"long-{i}", 0, 1, duration_s=9800 + i, tenant=kind) for i, kind in enumerate(["t4", "v100"])]
    records = run_on(TWO, name, [*long, JobSpec("short", 10, 2, duration_s=50)])
    jct = {job.job_id: job.jct_s for job in records.jobs}
    assert jct["short"] == 50
    assert jct["long-0"] == 9800
    assert jct["long-1"] == 9801 + 50


def test_nobody_is_evicted_for_a_job_that_finds_free_gpus_of_another_type() -> None:
    jobs = [JobSpec("long", 0, 2, duration_s=900), JobSpec("short", 5, 2, duration_s=50)]
    records = run_on(TWO, "srtf", jobs)
    assert [(job.job_id, job.jct_s, job.restarts) for job in records.jobs] == [("short", 50, 0), ("long", 900, 0)]


def test_nobody_is_evicted_for_a_job_that_still_does_not_fit() -> None:
    # The cluster has three GPUs that the short job could have, but not two of the only type that it runs on.
    jobs = [
        JobSpec("first", 0, 1, duration_s=30, tenant="t4"),
        JobSpec("long", 0, 2, duration_s=900, tenant="v100"),
        JobSpec("short", 5, 2, duration_s=50, tenant="t4"),
    ]
    records = run_on(TWO, "srtf", jobs)
    assert {job.job_id: job.jct_s for job in records.jobs} == {"first": 30, "short": 75, "long": 900}
    assert all(job.restarts == 0 for job in records.jobs)


@pytest.mark.parametrize("name", ["srtf", "srsf"])
def test_jobs_whose_time_left_rises_as_they_move_to_slower_gpus_keep_their_order(name: str, tmp_path: Path) -> None:
    speeds = {"t4": 1, "rtx": 1.59, "a100": 2.56}
    groups = [
        {"nodes": 1 + (kind == "t4"), "gpus_per_node": 2 if kind == "t4" else 4, "gpu_type": kind} for kind in speeds
    ]
    jobs = {"recipe": "log-normal", "jobs": 60, "median_s": 206, "mean_s": 6652, "mean_gpus": 2, "widest": 4}
    spec = {"name": "rising", "cluster": {"groups": groups}, "policies": [name], "seeds": [4]}
    run = sim.run(
        {**spec, "workload": {**jobs, "offered_load": 1.5, "gpu_speed": speeds}}, out=tmp_path, in_process=True
    )
    assert run.jobs()["end_time_s"].notna().all()
