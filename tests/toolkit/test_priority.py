"""Who runs where by priority if a placer may refuse, if a job blocks others, and if keys fall while jobs run."""

from random import Random
from types import SimpleNamespace

import pytest

from simsched.model import ApplicationFacts, Capacity, Cluster, JobSpec, NodeGroup
from simsched.policy import Reasons, Why
from simsched.testing.builders import FakeView
from simsched.toolkit.placers import CONSOLIDATED, MOST_FREE
from simsched.toolkit.priority import PriorityScheduler

TWO = Cluster.of(NodeGroup(3, 4, "v100"), NodeGroup(2, 4, "a100"))


class Run:
    """A scheduler, what its jobs ask for, and what they hold by what it said."""

    def __init__(self, cluster, placer=CONSOLIDATED, **options):
        self.cluster, self.placer, self.scheduler = cluster, placer, PriorityScheduler(**options)
        self.keys, self.gpus, self.types, self.held = {}, {}, {}, {}
        self.reasons = Reasons()
        self.update()

    def update(self, finished=()):
        for name in finished:
            for of in (self.keys, self.gpus, self.types, self.held):
                of.pop(name, None)
        self.scheduler.update(FakeView(self.cluster, finished=finished, reasons=self.reasons))

    def add(self, name, gpus, key, types=None):
        spec = JobSpec(name, 0, gpus, duration_s=1)
        job = SimpleNamespace(id=name, request=spec.request, facts=ApplicationFacts("any", gpu_types=types))
        self.scheduler.add(job, (key,), self.placer)
        self.keys[name], self.gpus[name] = (key, self.scheduler.number(name)), gpus
        self.types[name] = types or tuple(dict.fromkeys(node.gpu_type for node in self.cluster.nodes))

    def schedule(self, fresh=None):
        start, stop = self.scheduler.schedule(fresh)
        for name in stop:
            del self.held[name]
        self.held |= start
        return start, stop

    def free(self, held):
        """Return the cluster with what some allocations leave."""
        free = Capacity.of(FakeView(self.cluster))
        for allocation in held:
            free.take(allocation)
        return free

    def fits(self, name, free):
        """Return where a job would go, on the first type with room."""
        chosen = (free.choose_of(free.types.index(kind), self.placer, self.gpus[name]) for kind in self.types[name])
        return next((allocation for allocation in chosen if allocation is not None), None)


@pytest.mark.parametrize("falls", [False, True])
@pytest.mark.parametrize("cluster", [Cluster.uniform(3, 4), TWO])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_waits_for_nodes_that_only_less_urgent_jobs_hold(seed, cluster, falls):
    rng, run, names = Random(seed), Run(cluster), iter(range(1000))
    for _ in range(15):
        run.update([name for name in run.held if rng.random() < 0.2])
        for _ in range(rng.randrange(4)):
            types = rng.choice([None, ("v100",), ("a100",)]) if cluster is TWO else None
            run.add(f"j{next(names)}", rng.choice([1, 2, 3, 4, 6, 8]), rng.randrange(6), types)
        if falls:  # keys of running jobs fall, of which the scheduler learns where it asks
            for name in run.held:
                run.keys[name] = (run.keys[name][0] - 3 * rng.random(), run.keys[name][1])
        before = dict(run.held)
        start, stop = run.schedule((lambda name: run.keys[name][:1]) if falls else None)
        assert not set(start) & set(stop)
        for name, allocation in start.items():
            assert sum(gpus for _, gpus in allocation) == run.gpus[name]
            assert len(allocation) == -(-run.gpus[name] // 4), "on the fewest nodes"
            assert {cluster.nodes[node].gpu_type for node, _ in allocation} <= set(run.types[name])
            assert allocation != before.get(name), "a job that is said to move does"
        for node in cluster.nodes:
            assert sum(dict(allocation).get(node.index, 0) for allocation in run.held.values()) <= node.gpus
        for name in run.keys.keys() - run.held.keys():
            more_urgent = [held for other, held in run.held.items() if run.keys[other] < run.keys[name]]
            assert run.fits(name, run.free(more_urgent)) is None
        assert run.scheduler.waits == bool(run.keys.keys() - run.held.keys())
        assert set(run.scheduler.running) == set(run.held)
        assert [run.scheduler.runs(name) for name in run.keys] == [name in run.held for name in run.keys]
        assert list(run.scheduler.ids) == list(run.keys)
        if not falls:
            assert list(run.scheduler.running) == sorted(run.held, key=run.keys.__getitem__)


@pytest.mark.parametrize("placer", [CONSOLIDATED, MOST_FREE])
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_without_preemption_jobs_are_placed_in_order_and_the_first_may_block(seed, blocking, placer):
    rng, run, names = Random(seed), Run(TWO, placer, preempts=False, blocking=blocking), iter(range(1000))
    for _ in range(15):
        run.update([name for name in run.held if rng.random() < 0.3])
        for _ in range(rng.randrange(3)):
            run.add(f"j{next(names)}", rng.choice([1, 2, 4, 6, 9]), rng.randrange(6), rng.choice([None, ("a100",)]))
        free, expected = run.free(run.held.values()), {}
        waiting = sorted(run.keys.keys() - run.held.keys(), key=run.keys.__getitem__)
        for name in waiting:
            allocation = run.fits(name, free)
            if allocation is not None:
                free.take(allocation)
                expected[name] = allocation
            elif blocking:
                break
        run.reasons.clear()
        assert run.schedule() == (expected, [])
        assert list(run.reasons.places) == sorted(run.keys, key=run.keys.__getitem__)
        waiting = [name for name in waiting if name not in expected]
        said = {name for name, (why, _) in run.reasons.waits.items() if why is Why.ANOTHER_FIRST}
        assert said == (set(waiting[1:]) if blocking else set())
        for name, (why, detail) in run.reasons.waits.items():
            if why is Why.ANOTHER_FIRST:
                assert detail == f"{waiting[0]} waits before it"
            else:
                assert why is Why.NOT_ON_ONE_NODE
                assert detail == "GPUs are free, and none as 'consolidated' wants"
                assert any(free.total_of(free.types.index(kind)) >= run.gpus[name] for kind in run.types[name])
        if not blocking and placer is CONSOLIDATED:
            asks = {name: run.gpus[name] for name in waiting}
            rooms = {name: [free.total_of(free.types.index(kind)) for kind in run.types[name]] for name in waiting}
            assert set(run.reasons.waits) == {name for name, gpus in asks.items() if max(rooms[name]) >= gpus}


def scenario(**jobs):
    """Start jobs one after the other, given as GPUs and key, on two nodes of four."""
    run = Run(Cluster.uniform(2, 4))
    for name, (gpus, key) in jobs.items():
        run.add(name, gpus, key)
        run.schedule()
    return run


def test_the_least_urgent_yield_first_and_run_on_where_there_is_room():
    run = scenario(a=(3, 1), b=(2, 2), c=(1, 3))
    assert run.held == {"a": ((0, 3),), "b": ((1, 2),), "c": ((0, 1),)}
    # Two GPUs are free, of four. c and then b yield: node 1 is free, where c finds no place, nor b on node 0.
    run.add("u", 4, 0)
    assert run.schedule() == ({"u": ((1, 4),)}, ["b"])
    assert run.held == {"a": ((0, 3),), "c": ((0, 1),), "u": ((1, 4),)}


def test_only_jobs_of_the_nodes_that_are_chosen_yield():
    run = scenario(a=(3, 1), b=(3, 2), c=(1, 3))
    assert run.held == {"a": ((0, 3),), "b": ((1, 3),), "c": ((0, 1),)}
    # The GPU of c and the free one would do, were they on one node. Of an empty cluster u gets the first node, so that
    # a yields and not b; c, beside which there is room, runs on.
    run.add("u", 2, 0)
    assert run.schedule() == ({"u": ((0, 2),)}, ["a"])
    assert run.held == {"b": ((1, 3),), "c": ((0, 1),), "u": ((0, 2),)}


def test_a_job_that_blocks_keeps_nobody_from_running_on():
    run = Run(Cluster.uniform(1, 4), MOST_FREE, blocking=True)
    for name, gpus, key in (("a", 3, 8), ("b", 1, 9)):
        run.add(name, gpus, key)
    run.schedule()
    # u takes two GPUs, for which a and b yield. w then blocks x; b runs on, a has no room.
    for name, gpus, key in (("u", 2, 0), ("w", 4, 5), ("x", 1, 6)):
        run.add(name, gpus, key)
    assert run.schedule() == ({"u": ((0, 2),)}, ["a"])
    assert list(run.scheduler.running) == ["u", "b"]
    run.update(finished=["u"])
    assert run.schedule() == ({"w": ((0, 4),)}, ["b"])


def test_a_key_that_fell_is_asked_for_before_a_job_yields():
    # b was the less urgent of the two when it began, and is the most urgent of all by now.
    run = scenario(a=(4, 1), b=(4, 2))
    run.add("u", 4, 0.5)
    assert run.schedule({"a": (1,), "b": (0,), "u": (0.5,)}.__getitem__) == ({"u": ((0, 4),)}, ["a"])
    assert list(run.scheduler.running) == ["b", "u"]
