"""The scheduler decides as a walk over all jobs would, and placers keep what they promise."""

from __future__ import annotations

from itertools import combinations, count

from hypothesis import given, settings, strategies as st

from simsched.agent.fixed_agent import fixed_agent
from simsched.model.application import facts_of
from simsched.model.capacity import Capacity
from simsched.model.cluster import Cluster, Node, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.tabulated import FixedDuration
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
