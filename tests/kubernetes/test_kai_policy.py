"""The policy kai on small workloads: quotas, consolidation, preemption, parts of GPUs, elastic jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from simsched_policies.kubernetes.kai.objects import Group, read_declared
from simsched_policies.kubernetes.kai.policy import Kai

from simsched.applications.catalogue import catalogue
from simsched.engine.options import EngineOptions
from simsched.engine.providers import views_at_submission
from simsched.errors import InputError, InputWarning
from simsched.model.cluster import Cluster, Level, NodeGroup, Tenant
from simsched.model.job import JobSpec, Speedup
from simsched.model.placement import Amount, NodeShape
from simsched.model.topology import with_levels
from simsched.testing.builders import Applications, run

HALVES = {"a": Tenant(share=0.5), "b": Tenant(share=0.5)}


def job(name: str, at: int, gpus: int, lasts: int = 100, **more: object) -> JobSpec:
    return replace(JobSpec(name, at, gpus, duration_s=lasts, tenant=name[0], user=name), **more)  # type: ignore[arg-type]


def times(
    policy: Kai, jobs: list[JobSpec], cluster: Cluster | None = None, **options: object
) -> dict[str, tuple[float, float, int]]:
    """Return start, end and restarts of each job, on two nodes of four GPUs unless told otherwise."""
    engine = EngineOptions(restart_delay_s=0, **options)  # type: ignore[arg-type]
    records = run(policy, jobs, cluster=cluster or Cluster.uniform(2, 4), options=engine)
    return {one.job_id: (one.start_time_s, one.end_time_s, one.restarts) for one in records.jobs}


def test_a_queue_borrows_and_the_owner_takes_its_share_back() -> None:
    found = times(Kai(HALVES), [job("a1", 0, 4), job("a2", 0, 4), job("b1", 10, 4)])
    assert found == {"a1": (0, 100, 0), "b1": (10, 110, 0), "a2": (0, 190, 1)}


def test_jobs_move_together_for_one_that_needs_a_node() -> None:
    """Both nodes are half full: the younger moves beside the older, and the waiting job has a node for itself."""
    jobs = [job("a0", 0, 2, 10), job("a1", 0, 2), job("a2", 1, 4, 5), job("a3", 2, 2), job("a4", 12, 4)]
    found = times(Kai(), jobs)
    assert found["a4"][0] == 12
    assert found["a1"][2] + found["a3"][2] == 1
    without = times(Kai(max_consolidation_preemptees=0), jobs)
    assert without["a4"][0] == 100
    assert without["a1"][2] + without["a3"][2] == 0


def test_only_jobs_that_are_not_guaranteed_are_preempted() -> None:
    jobs = [job("a1", 0, 8), job("a2", 10, 8, priority=5)]
    own = {"a": Tenant(share=1.0)}
    assert times(Kai(own), jobs) == {"a1": (0, 200, 1), "a2": (10, 110, 0)}
    kept = [replace(jobs[0], guaranteed=True), jobs[1]]
    assert times(Kai(own), kept) == {"a1": (0, 100, 0), "a2": (100, 200, 0)}
    assert times(Kai(own, preempt_min_runtime_s=60), jobs)["a2"][0] == 60


def test_a_guaranteed_job_above_what_its_queue_deserves_is_refused() -> None:
    policy = Kai({"a": Tenant(gpus=2, max_gpus=4)})
    cluster = Cluster.uniform(2, 4)

    def check(*jobs: JobSpec) -> None:
        policy.check_jobs(views_at_submission(jobs, cluster, Applications(), frozenset()), cluster)

    with pytest.raises(InputError, match="deserved: 4 GPUs, and queue 'a' has 2"):
        check(job("a1", 0, 4, guaranteed=True))
    with pytest.raises(InputError, match="too much: 5 GPUs, and queue 'a' has 4"):
        check(job("a1", 0, 5))
    check(job("a1", 0, 2, guaranteed=True), job("a2", 0, 4))
    assert times(policy, [job("a1", 0, 2, guaranteed=True)])["a1"][0] == 0


def test_jobs_of_a_tenant_with_others_below_it_wait_in_a_leaf_of_its_own() -> None:
    tenants = {"a": Tenant(share=0.5), "c": Tenant(gpus=4, parent="a"), "b": Tenant(share=0.5)}
    jobs = [job("a1", 0, 4), job("b1", 0, 4), job("c1", 10, 4)]
    assert times(Kai(tenants), jobs) == {"b1": (0, 100, 0), "c1": (10, 110, 0), "a1": (0, 190, 1)}


def test_parts_of_gpus_are_packed() -> None:
    jobs = [job(f"a{number}", 0, 1, gpu_share=share) for number, share in enumerate((0.5, 0.3, 0.5, 0.5, 0.5))]
    small = Cluster.uniform(1, 2)
    found = times(Kai(), jobs, small, gpu_shares=True, max_jobs_per_gpu=4)
    assert sorted(name for name, (start, _, _) in found.items() if start == 0) == ["a0", "a1", "a2", "a3"]
    assert found["a4"][0] == min(found[name][1] for name in ("a0", "a2", "a3"))
    assert sorted(start for start, _, _ in times(Kai(), jobs, small).values()) == [0, 0, 100, 100, 200]


def test_two_types_of_gpus_never_go_together() -> None:
    mixed = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "v100"))
    assert times(Kai(), [job("a1", 0, 6), job("a2", 0, 4)][1:], mixed)["a2"][0] == 0
    found = times(Kai(gpus_per_pod=2), [job("a1", 0, 2), job("a2", 0, 2), job("a3", 0, 4)], mixed)
    assert [found[name][0] for name in ("a1", "a2", "a3")] == [0, 0, 0]


def test_a_job_is_kept_within_a_level() -> None:
    racks = with_levels(Cluster.uniform(4, 2), [Level("rack", ((0, 1), (2, 3)))])
    shape = NodeShape(2, Amount(2), within=0)
    jobs = [job("a1", 0, 2), job("a2", 0, 4, shape=shape), job("a3", 0, 2), job("a4", 1, 4, shape=shape)]
    found = times(Kai(max_consolidation_preemptees=0), jobs, racks)
    assert (found["a2"][0], found["a4"][0]) == (0, 100)


def test_an_elastic_job_starts_small() -> None:
    """With two GPUs free of four it does half its work in 100 s, and the other half on four GPUs in 50 s."""
    jobs = [job("a0", 0, 2), job("a1", 0, 4, 100, speedup=Speedup())]
    policy, cluster, options = (
        Kai(min_share=0.5, gpus_per_pod=1),
        Cluster.uniform(1, 4),
        EngineOptions(restart_delay_s=0),
    )
    records = run(policy, jobs, cluster=cluster, options=options, applications=catalogue())
    assert {one.job_id: one.end_time_s for one in records.jobs} == {"a0": 100, "a1": 150}
    assert times(Kai(gpus_per_pod=1), jobs, Cluster.uniform(1, 4))["a1"][0] == 100


def test_a_job_that_wants_nodes_to_itself_is_refused() -> None:
    with pytest.raises(InputError, match="wants nodes to itself"):
        times(Kai(), [job("a1", 0, 4, shape=NodeShape(1, Amount(4), exclusive=True))])


def test_use_over_time_turns_what_is_over_quota() -> None:
    """Both want all GPUs at once: without a memory the older keeps them; with one they take turns."""
    jobs = [job("a1", 0, 8, 4000), job("b1", 0, 8, 4000)]
    assert times(Kai(), jobs) == {"a1": (0, 4000, 0), "b1": (4000, 8000, 0)}
    turns = times(Kai(usage_window_s=2000, usage_half_life_s=1000), jobs)
    assert turns["b1"][0] < 4000
    assert turns["a1"][2] > 0


def declared(tmp_path: Path, *objects: object) -> str:
    file = tmp_path / "objects.json"
    items = [{"apiVersion": "scheduling.run.ai/v2", **one} for one in objects if isinstance(one, dict)]
    file.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    return str(file)


def queue(name: str, quota: float, limit: float = -1, **spec: object) -> dict[str, object]:
    every = {kind: {"quota": -1, "limit": -1} for kind in ("cpu", "memory")}
    resources = {**every, "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": {"resources": resources, **spec}}


def group(name: str, **spec: object) -> dict[str, object]:
    return {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def pods(name: str, notes: dict[str, str] | None = None, queue: str = "", **labels: str) -> dict[str, object]:
    """Return a Job of two pods of two GPUs, a minute long, that comes at once."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    template = {"metadata": {"annotations": notes or {}}, "spec": {"containers": [container]}}
    marked = {"labels": {**labels, **({"kai.scheduler/queue": queue} if queue else {})}}
    times = {"annotations": {"simsched/duration-s": "60", "simsched/submit-s": "0"}}
    spec = {"parallelism": 2, "completions": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **marked, **times}, "spec": spec}


def test_what_labels_of_workloads_say_of_their_pod_groups(tmp_path: Path) -> None:
    said = [
        pods("train", queue="a"),
        pods("build", queue="a", priorityClassName="build"),
        {**pods("kept", queue="a"), "metadata": {**pods("kept")["metadata"], "namespace": "x"}},  # type: ignore[dict-item]
        group("kept", queue="b", minMember=2, preemptibility="non-preemptible"),
    ]
    found = read_declared(Path(declared(tmp_path, queue("a", 1), queue("b", 1), *said))).groups
    assert found["default/train"] == Group("a", None, 50, preemptible=True)
    assert found["default/build"] == Group("a", None, 100, preemptible=False)
    assert found["x/kept"] == Group("b", None, 50, preemptible=False)  # both of its pods are all of them


def test_pods_go_where_their_labels_and_tolerations_let_them(tmp_path: Path) -> None:
    def node(name: str, taints: list[dict[str, str]], **labels: str) -> dict[str, object]:
        status = {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": status}

    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    nodes = [node("a", [], zone="east"), node("b", [taint], zone="west"), node("c", [], zone="west")]
    bound = pods("west", queue="a")
    bound["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "west"}  # type: ignore[index]
    path = Path(declared(tmp_path, queue("a", 1), pods("any", queue="a"), bound, *nodes))
    groups = read_declared(path).groups
    assert [groups[f"default/{name}"].nodes for name in ("any", "west")] == [frozenset({0, 2}), frozenset({2})]
    policy = Kai(objects=str(path))
    cluster = Cluster.uniform(3, 4)
    assert times(policy, [job("default/west", 0, 4), job("default/any", 1, 8)], cluster)["default/any"][0] == 100
    bound["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "north"}  # type: ignore[index]
    with pytest.raises(InputError, match="may go to none of the nodes"):
        read_declared(Path(declared(tmp_path, queue("a", 1), bound, *nodes)))


def test_a_name_of_allow_that_matches_no_field_is_an_error(tmp_path: Path) -> None:
    path = Path(declared(tmp_path, queue("a", 1, colour="red")))
    with pytest.warns(InputWarning, match="not modelled: spec.colour"):
        assert read_declared(path, ["Queue.spec.colour"]).queues.keys() == {"a"}
    with pytest.raises(InputError, match=r"--allow Queue\.spec\.color: names no field .* did you mean"):
        read_declared(path, ["Queue.spec.color"])


def test_queues_and_pod_groups_are_read_from_their_objects(tmp_path: Path) -> None:
    """Queue b has priority: its job takes over what is over quota; a build job is not preempted."""
    queues = [queue("top", 8), queue("a", 2, parentQueue="top"), queue("b", 2, parentQueue="top", priority=200)]
    jobs = [job("a1", 0, 4), job("a2", 0, 4), job("b1", 10, 6)]
    assert times(Kai(objects=declared(tmp_path, *queues)), jobs)["b1"][0] == 10
    queues[1] = queue("a", 8, parentQueue="top")
    builds = [group(name, priorityClassName="build") for name in ("a1", "a2")]
    assert times(Kai(objects=declared(tmp_path, *queues, *builds)), jobs)["b1"][0] == 100
    kept = [queue("a", 0, reclaimMinRuntime="1m5s"), queue("b", 8)]
    assert times(Kai(objects=declared(tmp_path, *kept)), [job("a1", 0, 8), job("b1", 10, 8)])["b1"][0] == 65
    single = Kai(objects=declared(tmp_path, queue("a", 0), group("x1", queue="a")))
    assert times(single, [job("x1", 0, 2)])["x1"][0] == 0


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([queue("a", 1, parentQueue="z")], "spec.parentQueue: its parent 'z' is not declared"),
        ([queue("a", 1, parentQueue="a")], "above itself"),
        ([queue("a", 1, colour="red")], "Queue a, spec.colour: is not modelled"),
        ([queue("a", -2)], "spec.resources.gpu.quota: must be at least -1, not -2"),
        ([queue("a", 1, preemptMinRuntime="5")], "'5' is no duration"),
        ([queue("a", 1), group("j", minMember=1, topologyConstraint={})], "spec.topologyConstraint: is not modelled"),
        ([group("j", priorityClassName="gold")], "spec.priorityClassName: is 'gold'"),
        ([queue("a", 1), pods("one")], "Job default/one, metadata.labels.kai.scheduler/queue: is missing"),
        (
            [queue("a", 1), pods("one", queue="a", notes={"gpu-fraction": "0.5"})],
            "Job default/one, spec.template.metadata.annotations.gpu-fraction: is not modelled",
        ),
        ([queue("a", 1), pods("one", queue="a", priorityClassName="gold")], "'gold' is none that KAI ships"),
        ([queue("a", 1), pods("one", queue="a"), group("one", minMember=9)], "starts with no fewer than 9"),
    ],
)
def test_wrong_objects_are_refused_with_their_field(tmp_path: Path, objects: list[object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        Kai(objects=declared(tmp_path, *objects))
    assert message in str(refused.value)


def test_a_job_of_no_declared_leaf_is_refused(tmp_path: Path) -> None:
    policy = Kai(objects=declared(tmp_path, queue("a", 1), queue("b", 1, parentQueue="a")))
    for name in ("a1", "c1"):
        with pytest.raises(InputError, match="not declared or has others below it"):
            times(policy, [job(name, 0, 1)])
    with pytest.raises(ValueError, match="exclude each other"):
        Kai(HALVES, declared(tmp_path, queue("a", 1)))


def test_invalid_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="min_share"):
        Kai(min_share=0)
