"""On which nodes a round's jobs run, with GPUs of their own, in pairs, and where fractions are granted at once."""

from random import Random
from types import SimpleNamespace

import pytest

from simsched.errors import InputError
from simsched.model import Cluster, NodeGroup
from simsched.policy import REMAINING_WORK, Onto, Place
from simsched.policy.signals import TRUE_RATES
from simsched.testing.builders import FakeView
from simsched.toolkit.rounds import Grant, whole_places
from simsched.toolkit.rounds.places import Allocator, emptiest
from simsched.toolkit.rounds.rates import Fluid

#: Nodes 0 to 2 of four and node 3 of two V100, nodes 4 and 5 of four P100.
CLUSTER = Cluster.of(NodeGroup(3, 4, "v100"), NodeGroup(1, 2, "v100"), NodeGroup(2, 4, "p100"))
SIZES = [node.gpus for node in CLUSTER.nodes]
TYPES = ["v100"] * 4 + ["p100"] * 2


def seen(allocations, most=1, together=(), up=()):
    """Show jobs and what they hold; those `together` are neighbours."""
    jobs = {
        name: SimpleNamespace(
            id=name, allocation=at, neighbours=tuple(one for one in together if name in together and one != name)
        )
        for name, at in allocations.items()
    }
    return FakeView(CLUSTER, jobs, max_jobs_per_gpu=most, up=up)


def placed(free, kind, gpus):
    """Take the fullest node with room for all, else the emptiest first, of equal ones the first."""
    nodes = [node for node in range(len(free)) if TYPES[node] == kind and free[node]]
    whole = [node for node in nodes if free[node] >= gpus]
    if whole:
        return ((min(whole, key=free.__getitem__), gpus),)
    picked = []
    for node in sorted(nodes, key=lambda node: -free[node]):
        picked.append((node, min(free[node], gpus)))
        gpus -= picked[-1][1]
        if not gpus:
            break
    return tuple(picked)


@pytest.mark.parametrize("seed", range(20))
def test_jobs_keep_their_gpus_of_a_type_and_others_come_the_largest_first(seed):
    rng, allocator = Random(seed), Allocator()
    holds = dict.fromkeys("abcdefgh", ())
    for _ in range(6):
        up = [rng.random() < 0.8 for _ in SIZES]
        if rng.random() < 0.5:
            up = [True] * len(SIZES)
        # Who was on a node that is down holds nothing any more, and some jobs are done.
        stays = {name: all(up[node] for node, _ in at) and rng.random() < 0.8 for name, at in holds.items()}
        holds = {name: at if stays[name] else () for name, at in holds.items()}
        room = {kind: sum(SIZES[node] for node in range(6) if up[node] and TYPES[node] == kind) for kind in set(TYPES)}
        grants = []
        for name in rng.sample("abcdefgh", 8):
            kind = rng.choice(TYPES)
            gpus = sum(count for _, count in holds[name]) or rng.randint(1, 6)
            if gpus <= room[kind]:
                grants.append(Grant((name,), kind, gpus, rng.random() < 0.8))
                room[kind] -= gpus
        runs = [grant for grant in grants if grant.runs]

        stay = {one.unit[0] for one in runs if holds[one.unit[0]] and TYPES[holds[one.unit[0]][0][0]] == one.gpu_type}
        free = [size if there else 0 for size, there in zip(SIZES, up, strict=True)]
        for name in stay:
            for node, count in holds[name]:
                free[node] -= count
        after = {name: holds[name] if name in stay else () for name in holds}
        for grant in sorted((one for one in runs if one.unit[0] not in stay), key=lambda one: -one.num_gpus):
            after[grant.unit[0]] = placed(free, grant.gpu_type, grant.num_gpus)
            for node, count in after[grant.unit[0]]:
                free[node] -= count

        decision = allocator.allocate(grants, seen(holds, up=up))
        assert decision.rest == "stays"
        assert decision.jobs == {
            name: after[name] for name in holds if name not in stay and (holds[name] or after[name])
        }
        assert list(decision.jobs) == [name for name in holds if name in decision.jobs]
        holds = after


def test_a_pair_stays_where_it_is_and_others_are_placed_around_it():
    holds = {"a": ((0, 2),), "b": ((0, 2),), "c": (), "d": ()}
    view = seen(holds, 2, together="ab")
    grants = [Grant(("a", "b"), "v100", 2, True), Grant(("c",), "v100", 1, False), Grant(("d",), "v100", 2, True)]
    decision = Allocator().allocate(grants, view)
    assert decision.rest == "stops"
    assert decision.jobs == {"a": ((0, 2),), "b": ((0, 2),), "d": Place(((0, 2),))}
    # On another type both begin anew.
    moved = Allocator().allocate([Grant(("a", "b"), "p100", 2, True)], view)
    assert moved.jobs == {"a": Place(((4, 2),), restart=True), "b": Place(((4, 2),), more=(Onto("a"),), restart=True)}


def test_of_two_that_part_the_first_keeps_the_gpus():
    view = seen({"a": ((1, 2),), "b": ((1, 2),)}, 2, together="ab")
    grants = [Grant(("b",), "v100", 2, True), Grant(("a",), "v100", 2, True)]
    assert Allocator().allocate(grants, view).jobs == {"b": ((1, 2),), "a": Place(((1, 2),), restart=True)}, (
        "it has the other two of the node"
    )
    alone = Allocator().allocate(grants[1:], view)
    assert alone.jobs == {"a": ((1, 2),)}, "without the other it is the first"


def test_jobs_that_come_together_begin_anew_and_the_largest_come_first():
    view = seen({"a": ((1, 2),), "b": (), "c": (), "d": ((2, 4),)}, 2)
    grants = [Grant(("c",), "v100", 2, True), Grant(("a", "b"), "v100", 4, True), Grant(("d",), "p100", 4, True)]
    assert Allocator().allocate(grants, view).jobs == {
        "a": Place(((0, 4),), restart=True),
        "b": Place(((0, 4),), more=(Onto("a"),), restart=True),
        "d": Place(((4, 4),)),
        "c": Place(((3, 2),)),
    }
    # a is beside b, and shall be beside c.
    trio = seen({"a": ((1, 2),), "b": ((1, 2),), "c": ()}, 2, together="ab")
    assert Allocator().allocate([Grant(("a", "c"), "v100", 2, True)], trio).jobs == {
        "a": Place(((3, 2),), restart=True),
        "c": Place(((3, 2),), more=(Onto("a"),), restart=True),
    }


def test_more_than_there_is_of_a_type_is_refused():
    view = seen({"a": (), "b": ()}, 2)
    with pytest.raises(ValueError, match=r"a\+b needs 9 GPUs of p100, too few are free"):
        Allocator().allocate([Grant(("a", "b"), "p100", 9, True)], view)


@pytest.mark.parametrize(
    ("loads", "wanted", "picked"),
    [
        # Nodes of 4, 2 and 4 GPUs with loads of 1, 0 and 1/2 for each.
        ({0: 4, 1: 0, 2: 2}, 2, ((1, 2),)),
        ({0: 4, 1: 0, 2: 2}, 3, ((1, 2), (2, 1))),
        ({0: 4, 1: 0, 2: 2}, 9, ((0, 3), (1, 2), (2, 4))),
        ({2: 2, 1: 1, 0: 2}, 4, ((0, 4),)),  # of equal ones the first
        ({0: 4, 1: 1}, 1, ((1, 1),)),  # four jobs' GPUs on four are more than one on two
    ],
)
def test_the_emptiest_nodes_are_those_of_the_least_load_for_each_gpu(loads, wanted, picked):
    assert emptiest(loads, [4, 2, 4], wanted) == picked


class Job:
    """A job of the ideal with its true rates and the work that it has left."""

    def __init__(self, name, gpus, at=(), work=100.0, **rates):
        self.id, self.num_gpus, self.allocation, self.work = name, gpus, at, work
        self.rates = {"v100": 0.0, "p100": 0.0, **rates}

    def __getitem__(self, signal):
        return {TRUE_RATES: self.rates, REMAINING_WORK: SimpleNamespace(progress=self.work)}[signal]


def granted(jobs, *, most=9, up=(), fluid=None):
    """Grant half a V100 and a quarter of a P100 to each; returns the decision and the agents."""
    fluid = fluid or Fluid()
    agents = {job.id: fluid.agent(job.id, None) for job in jobs}
    view = FakeView(CLUSTER, {job.id: job for job in jobs}, max_jobs_per_gpu=most, up=up)
    shares = SimpleNamespace(tolist=lambda: [[0.5, 0.25]] * len(jobs))
    return fluid.grant(jobs, shares, ("v100", "p100"), view), agents


def test_rates_are_true_rates_times_shares_and_the_work_is_noted_once():
    fluid, job = Fluid(), Job("a", 1, v100=2.0, p100=8.0)
    decision, agents = granted([job], fluid=fluid)
    assert decision.renew_leases
    assert (agents["a"].rate, agents["a"].total) == (0.5 * 2 + 0.25 * 8, 100)
    job.work, view = 60.0, FakeView(CLUSTER, {}, max_jobs_per_gpu=9)
    fluid.grant([job], SimpleNamespace(tolist=lambda: [[0.0, 1.0]]), ("v100", "p100"), view)
    assert (agents["a"].rate, agents["a"].total) == (8, 100)
    fluid.forget(["a", "nobody"])
    with pytest.raises(KeyError):
        fluid.grant([job], SimpleNamespace(tolist=lambda: [[0.0, 1.0]]), ("v100", "p100"), view)


def test_who_has_a_place_stays_and_who_comes_takes_the_emptiest_nodes_of_the_emptiest_type():
    old = Job("old", 4, ((4, 4),), v100=1.0, p100=1.0)
    large = Job("large", 9, v100=1.0, p100=1.0)  # more GPUs than there are P100
    third, fourth = Job("third", 2, v100=1.0, p100=1.0), Job("fourth", 2, p100=1.0)
    decision, _ = granted([old, large, third, fourth])
    # 4 jobs' GPUs on 8 P100; nine of fourteen V100 are more for each. Then six on eight.
    assert decision.allocations == {
        "old": ((4, 4),),
        "large": ((0, 4), (1, 4), (2, 1)),
        "third": ((5, 2),),
        "fourth": ((5, 2),),
    }
    everybody = ("old", "large", "third", "fourth")
    assert decision.jobs["old"] == ((4, 4),)
    assert decision.jobs["third"] == Place(((5, 2),), everybody)
    # With six of fourteen V100 in place of nine the third goes there: 3/7 is less than 1/2.
    decision, _ = granted([old, Job("large", 6, v100=1.0), third])
    assert decision.allocations["third"] == ((2, 2),)


def test_nodes_that_are_down_take_no_jobs():
    jobs = [Job("a", 4, v100=1.0, p100=1.0), Job("b", 4, v100=1.0)]
    decision, _ = granted(jobs, up=[False, True, False, True, False, True])
    assert decision.allocations == {"a": ((1, 4),), "b": ((1, 2), (3, 2))}


def test_more_jobs_on_a_gpu_than_may_share_one_are_refused():
    jobs = [Job(name, 8, p100=1.0) for name in "ab"]
    assert len(granted(jobs, most=2)[0].jobs) == 2
    with pytest.raises(InputError, match="3 jobs would be on one GPU"):
        granted([*jobs, Job("c", 1, p100=1.0)], most=2)
    with pytest.raises(InputError, match="2 jobs would be on one GPU"):
        granted([Job("d", 5, p100=1.0), Job("e", 5, p100=1.0)], most=1)


def test_whole_places_are_those_of_the_allocator_with_nodes_in_order():
    view = seen({"a": ((1, 2),), "b": (), "c": ((4, 4),), "d": ()})
    grants = [
        Grant(("d",), "v100", 1, False), Grant(("a",), "v100", 2, True), Grant(("b",), "v100", 9, True),
        Grant(("c",), "p100", 4, True),
    ]  # fmt: skip
    found = whole_places(grants, view)
    assert found == {("a",): ((1, 2),), ("b",): ((0, 4), (1, 1), (2, 4)), ("c",): ((4, 4),)}
    assert list(found) == [("a",), ("b",), ("c",)]
    with pytest.raises(ValueError, match="b needs 13 GPUs of v100, too few are free"):
        whole_places([*grants[:2], Grant(("b",), "v100", 13, True)], view)
