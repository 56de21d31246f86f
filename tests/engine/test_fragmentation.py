"""Free GPUs that no waiting job can use."""

from itertools import combinations
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from simsched.engine.options import EngineOptions
from simsched.engine.records import StrandedGpus
from simsched.model.cluster import Cluster, Level, NodeGroup, Uplink
from simsched.model.job import JobSpec
from simsched.model.topology import with_levels
from simsched.policy import registry
from simsched.results.metric import Tables
from simsched.results.metrics import METRICS
from simsched.testing.builders import run

#: Two racks of two nodes of four GPUs.
CLUSTER = with_levels(Cluster.uniform(4, 4), [Level("rack", ((0, 1), (2, 3)))])
NAMES = ("fragmentation", "fragmentation_by_node", "fragmentation_by_domain")


def waiting(*sizes, types=None, allocation=()):
    job = SimpleNamespace(allocation=allocation, facts=SimpleNamespace(gpu_types=types))
    return {
        f"{gpus}-{i}": SimpleNamespace(**vars(job), request=SimpleNamespace(num_gpus=gpus))
        for i, gpus in enumerate(sizes)
    }


@pytest.mark.parametrize(
    ("free", "jobs", "stranded"),
    [
        ((2, 1, 2, 0), waiting(), (0, 0, 0)),  # nobody waits
        ((0, 0, 0, 0), waiting(4), (0, 0, 0)),
        ((2, 1, 2, 0), waiting(1), (0, 0, 0)),
        ((2, 1, 2, 0), waiting(2), (0, 1, 0)),  # the one that is free on node 1
        ((2, 1, 2, 0), waiting(4), (0, 5, 5)),  # no node and no rack has four
        ((2, 1, 2, 0), waiting(3, 4), (0, 5, 2)),  # the first rack has three
        ((2, 1, 2, 0), waiting(8), (5, 5, 5)),
        ((4, 0, 3, 1), waiting(7), (0, 1, 8)),  # two nodes with four and three; no rack has seven
        ((4, 0, 4, 3), waiting(7), (0, 0, 4)),
        ((4, 2, 4, 4), waiting(12), (0, 2, 0)),  # three whole nodes; a rack with eight and four of the other one
        ((2, 1, 2, 0), waiting(2, types=("v100",)), (5, 5, 5)),
        ((2, 1, 2, 0), waiting(20), (5, 5, 5)),
    ],
)
def test_stranded_gpus_worked_by_hand(free, jobs, stranded):
    assert StrandedGpus(CLUSTER, rigid=True).stranded(free, jobs) == stranded


def test_a_job_that_takes_any_number_of_gpus_strands_none():
    assert StrandedGpus(CLUSTER, rigid=False).stranded((1, 0, 0, 0), waiting(8)) == (0, 0, 0)


def test_what_fits_in_a_rack_is_counted_where_racks_have_uplinks():
    joined = with_levels(
        Cluster.of(NodeGroup(3, 4, "t4"), NodeGroup(1, 4, "v100")),
        [Level("rack", ((0, 1), (2, 3)), uplink=Uplink(1e9))],
    )
    for free, most in (((2, 1, 2, 1), 3), ((0, 1, 2, 1), 2), ((0, 0, 1, 4), 4), ((0, 0, 0, 0), 0)):
        assert StrandedGpus(joined, rigid=True).fits_in_domain(free) == most
        assert StrandedGpus(CLUSTER, rigid=True).fits_in_domain(free) == 0


def test_types_are_counted_apart():
    cluster = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "v100"))
    both = waiting(4, types=("t4",)) | waiting(2, types=("v100",))
    assert StrandedGpus(cluster, rigid=True).stranded((3, 3), both) == (3, 3, 3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.lists(st.integers(1, 16), min_size=1, max_size=3))
def test_the_nodes_of_use_are_those_found_by_trying_all(free, sizes):
    used = set()
    for gpus in sizes:
        needed = -(-gpus // 4)
        for nodes in combinations(range(4), needed):
            if sum(free[node] for node in nodes) >= gpus:
                used |= set(nodes)
    expected = sum(free[node] for node in range(4) if node not in used)
    assert StrandedGpus(CLUSTER, rigid=True).stranded(free, waiting(*sizes)).by_node == expected


def test_fragmentation_over_time_worked_by_hand():
    # Jobs a (3 GPUs, node 0) and b (2, node 1) leave 1 + 2 GPUs to c, which comes at second 1, wants three on one node
    # and gets them when a ends at second 100. From 41 to 51 job d takes the two: then c would find too few anywhere.
    policy = registry.load("sjf")(placement="consolidated")
    options = EngineOptions(0, fragmentation=True)
    first = JobSpec("a", 0, 3, duration_s=100), JobSpec("b", 0, 2, duration_s=200)
    jobs = [*first, JobSpec("c", 1, 3, duration_s=10), JobSpec("d", 41, 2, duration_s=10)]
    recorder = run(policy, jobs, cluster=Cluster.uniform(2, 4), options=options)
    rounds, done = pd.DataFrame(recorder.decisions), pd.DataFrame(recorder.jobs)
    tables = Tables(done, None, rounds, 8)
    found = [METRICS[name].compute(tables) for name in NAMES]
    free_gpu_s = 40 * 3 + 10 * 1 + 49 * 3
    assert found == [pytest.approx(10 / free_gpu_s), 1.0, pytest.approx(10 / free_gpu_s)]
    unrecorded = Tables(done, None, rounds.drop(columns="stranded_gpus"), 8)
    assert METRICS["fragmentation"].compute(unrecorded) is None


def test_nothing_is_counted_unless_asked_for():
    jobs = [JobSpec(str(i), 0, 3, duration_s=10) for i in range(3)]
    recorder = run(registry.load("fifo")(), jobs, cluster=Cluster.uniform(1, 4), options=EngineOptions(0))
    assert {one.stranded_gpus for one in recorder.decisions} == {0}
    counted = run(
        registry.load("fifo")(), jobs, cluster=Cluster.uniform(1, 4), options=EngineOptions(0, fragmentation=True)
    )
    assert [one.stranded_gpus for one in counted.decisions] == [1, 1, 0]


def test_time_across_domains_worked_by_hand():
    intervals = pd.DataFrame(
        [(0, 10, 4, 0), (10, 20, 4, 1), (0, 5, 8, 2)], columns=["start_s", "end_s", "gpus", "levels_crossed"]
    )
    tables = Tables(pd.DataFrame(), intervals, None, 16)
    assert METRICS["crossing_share"].compute(tables) == (40 + 40) / (40 + 40 + 40)
    assert METRICS["crossing_share"].compute(Tables(pd.DataFrame(), intervals[["start_s"]], None, 16)) is None
