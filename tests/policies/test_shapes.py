"""A job keeps its shape under every scheduler: its type, its nodes, its cores; hand-worked on two or three nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simsched_policies.kubernetes.kueue.policy import Kueue
from simsched_policies.production.slurm.policy import SlurmBackfill
from simsched_policies.production.volcano import Volcano
from simsched_policies.production.yarn_cs import YarnCs
from simsched_policies.queues.by_key import Fifo, Srtf

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model import Capacity, Cluster, JobSpec, Node, NodeGroup, NodeShape
from simsched.model.placement import Amount, node_labels
from simsched.policy import Policy, Traits
from simsched.testing.builders import run
from tests.scripted import Script

NO_DELAY = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
SCHEDULERS = [
    lambda: SlurmBackfill(),
    lambda: Kueue(),
    lambda: Volcano(),
    lambda: YarnCs(),
    lambda: Fifo(backfill=True),
]


def asks(name: str, at: int, lasts: int, shape: NodeShape, **rest: object) -> JobSpec:
    gpus = max(shape.nodes, 1) * shape.each.gpus
    return JobSpec(name, at, gpus, duration_s=lasts, time_limit_s=lasts, shape=shape, **rest)  # type: ignore[arg-type]


def runs(policy: Policy, jobs: list[JobSpec], cluster: Cluster) -> dict[str, tuple[float, str]]:
    """Return the start of each job and where it ran."""
    records = run(policy, jobs, cluster=cluster, options=NO_DELAY)
    where = {one.job_id: one.placement for one in records.allocations}
    return {one.job_id: (one.start_time_s, where[one.job_id]) for one in records.jobs}


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_a_job_waits_for_its_type_though_others_are_free(policy) -> None:
    cluster = Cluster.of(NodeGroup(1, 8, "a100"), NodeGroup(2, 8, "h100"))
    jobs = [
        asks("runs", 0, 100, NodeShape(1, Amount(8), ("a100",))),
        asks("waits", 1, 10, NodeShape(1, Amount(8), ("a100",))),
    ]
    assert runs(policy(), jobs, cluster) == {"runs": (0, "0:8"), "waits": (100, "0:8")}


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_eight_on_one_node_wait_until_one_is_whole(policy) -> None:
    # 4 GPUs are free on either node: 8 in all, and no node for a job of 8 until the first ends.
    jobs = [
        asks("one", 0, 100, NodeShape(1, Amount(5))),
        asks("two", 0, 200, NodeShape(1, Amount(5))),
        asks("large", 1, 10, NodeShape(1, Amount(8))),
    ]
    found = runs(policy(), jobs, Cluster.uniform(2, 8))
    assert found["large"] == (100, found["one"][1].replace(":5", ":8"))


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_parts_on_several_nodes_are_equal(policy) -> None:
    jobs = [asks("wide", 0, 10, NodeShape(2, Amount(3)))]
    assert runs(policy(), jobs, Cluster.uniform(3, 4))["wide"][1] in ("0:3 1:3", "0:3 2:3")


def test_a_shorter_job_stops_the_one_on_the_node_that_it_needs_whole() -> None:
    jobs = [
        asks("left", 0, 100, NodeShape(1, Amount(2))),
        asks("right", 0, 200, NodeShape(1, Amount(7))),
        asks("short", 10, 10, NodeShape(1, Amount(8))),
    ]
    found = runs(Srtf(), jobs, Cluster.uniform(2, 8))
    assert found["short"][0] == 10


def declared(*cores: int) -> Cluster:
    return Cluster(tuple(Node(i, 8, "a100", cpu_milli=1000 * n, memory_mib=1000) for i, n in enumerate(cores)))


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_cores_and_memory_are_as_scarce_as_gpus(policy) -> None:
    # The first job leaves 7 GPUs and 4 cores: not enough for the second, which needs 6 cores, until it ends.
    jobs = [
        asks("greedy", 0, 100, NodeShape(1, Amount(1, cpu_milli=12_000))),
        asks("waits", 1, 10, NodeShape(1, Amount(1, cpu_milli=6_000))),
        asks("large", 120, 50, NodeShape(1, Amount(1, memory_mib=600))),
        asks("second", 121, 10, NodeShape(1, Amount(1, memory_mib=600))),
    ]
    found = runs(policy(), jobs, declared(16))
    assert {name: start for name, (start, _) in found.items()} == {
        "greedy": 0,
        "waits": 100,
        "large": 120,
        "second": 170,
    }


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_jobs_without_gpus_occupy_nodes(policy) -> None:
    jobs = [
        asks("cores", 0, 100, NodeShape(1, Amount(0, cpu_milli=16_000))),
        asks("waits", 1, 10, NodeShape(1, Amount(1, cpu_milli=1_000))),
    ]
    found = runs(policy(), jobs, declared(16))
    assert found == {"cores": (0, "0:0"), "waits": (100, "0:1")}


@pytest.mark.parametrize("policy", SCHEDULERS)
@pytest.mark.parametrize("cluster", [Cluster.uniform(1, 8), declared(16)])
def test_an_exclusive_job_has_its_node_to_itself(policy, cluster) -> None:
    jobs = [
        asks("first", 0, 50, NodeShape(1, Amount(1))),
        asks("alone", 1, 10, NodeShape(1, Amount(2), exclusive=True)),
        asks("after", 51, 10, NodeShape(1, Amount(1))),
    ]
    found = runs(policy(), jobs, cluster)
    assert {name: start for name, (start, _) in found.items()} == {"first": 0, "alone": 50, "after": 60}


def test_what_never_fits_is_refused_before_the_run() -> None:
    with pytest.raises(InputError, match="1 GPU, 20 cores on each of 1 node"):
        runs(Fifo(), [asks("large", 0, 10, NodeShape(1, Amount(1, cpu_milli=20_000)))], declared(16))
    with pytest.raises(InputError, match="of type v100, of which the cluster has none"):
        runs(Fifo(), [asks("old", 0, 10, NodeShape(1, Amount(1), ("v100",)))], declared(16))


class Rigid(Script):
    traits = Traits(rigid=True)


@pytest.mark.parametrize(
    ("shape", "at", "said"),
    [
        (NodeShape(1, Amount(2), ("h100",)), ((0, 2),), "asked for 2 GPUs on each of 1 node of type h100"),
        (NodeShape(1, Amount(2)), ((0, 1), (1, 1)), "asked for 2 GPUs on each of 1 node and is given 0:1 1:1"),
        (NodeShape(1, Amount(2, cpu_milli=9000)), ((0, 2),), "node 0 is 1 cores short"),
    ],
)
def test_the_engine_refuses_another_shape(shape, at, said) -> None:
    nodes = (*declared(8, 8).nodes, Node(2, 8, "h100", cpu_milli=9000))
    jobs = [asks("a", 0, 10, shape)]
    with pytest.raises(InfeasibleDecisionError, match=said):
        run(Rigid({10: {"a": at}}), jobs, cluster=Cluster(nodes))


def test_capacity_takes_and_gives_back_what_goes_with_gpus() -> None:
    free = Capacity(declared(16).nodes, [True], [8])
    shape = NodeShape(0, Amount(4, cpu_milli=10_000))
    place = free.place_of(shape)
    assert place == ((0, 4),)
    free.take(place, shape)
    assert free.place_of(shape) is None  # 6 cores are left, which go with 2 of its GPUs
    assert free.place_of(replace_gpus(shape, 2)) == ((0, 2),)
    free.give_back(place, shape)
    assert free.place_of(shape) == place


def replace_gpus(shape: NodeShape, gpus: int) -> NodeShape:
    return shape._replace(each=replace_amount(shape.each, gpus))


def replace_amount(each: Amount, gpus: int) -> Amount:
    return each._replace(gpus=gpus, cpu_milli=each.cpu_milli * gpus // each.gpus)


def test_shapes_travel_with_a_job() -> None:
    job = replace(JobSpec("a", 0, 8, duration_s=1), shape=NodeShape(1, Amount(8)))
    assert job.request.shape == NodeShape(1, Amount(8))


def test_nodes_are_named_by_their_number_among_those_of_their_type() -> None:
    assert node_labels(["a100", "t4", "a100"]) == ["a100:0", "t4:0", "a100:1"]
