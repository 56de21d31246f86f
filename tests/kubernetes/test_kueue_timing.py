"""Time that a control plane takes under Kueue, and the nodes that pods get; expected times are worked by hand."""

from __future__ import annotations

import pytest
from simsched_policies.kubernetes.kueue.policy import Kueue
from simsched_policies.kubernetes.kueue.timing import Timing

import simsched as sim
from simsched.documents import yaml_text
from simsched.model import NodeShape
from simsched.model.placement import Amount
from tests.validation.kwok import _job, _kueue, _local, _node

WAITING = {"timeout": "100s", "blockAdmission": True, "requeuingStrategy": {"backoffBaseSeconds": 60}}


def _objects(nodes, quota, *, ready_s=None, **rules):
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": "all", "resources": resources}]}
    found = [
        *nodes,
        _kueue("ResourceFlavor", "all", {"nodeLabels": {"type": "kwok"}}),
        _kueue("ClusterQueue", "q", {"namespaceSelector": {}, "resourceGroups": [group], **rules}),
        _local("q"),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "high"},
            "value": 9,
        },
    ]
    if ready_s is not None:
        meta = {"name": "c", "annotations": {"simsched/ready-s": str(ready_s)}}
        one = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration", "metadata": meta}
        found.append({**one, "waitForPodsReady": WAITING})
    return found


def _started(tmp_path, objects, jobs, **params):
    """Return the start and end of each run of each job of (name, request, submission, duration, priority)."""
    made = []
    for name, request, _, _, priority in jobs:
        job = _job(name, "q", 1, request, {})
        job["metadata"]["labels"] |= {"kueue.x-k8s.io/priority-class": priority} if priority else {}
        made.append(job)
    file = tmp_path / "objects.yaml"
    file.write_text("---\n".join(yaml_text(one) for one in (*objects, *made)))
    nodes = [one for one in objects if one["kind"] == "Node"]
    groups = [
        {"nodes": int(one["metadata"]["annotations"]["simsched/count"]), "gpus_per_node": int(gpus), "gpu_type": "gpu"}
        for one in nodes
        if (gpus := one["status"]["allocatable"].get("nvidia.com/gpu"))
    ]
    asked = [
        {
            "job_id": f"bench/{name}", "num_gpus": request.get("gpu", 0), "submit_time_s": submit_s, "tenant": "q",
            "duration_s": duration_s, "shape": None if request.get("gpu") else NodeShape(1, Amount(0)),
        }
        for name, request, submit_s, duration_s, _ in jobs
    ]  # fmt: skip
    policy = Kueue(manifests=str(file), **params)
    found = sim.simulate(jobs=asked, policy=policy, cluster={"groups": groups}, restart_delay_s=0, tick_s=0.001)
    times: dict[str, list[tuple[float, float]]] = {}
    for row in found.allocations.sort_values("start_s").to_dict("records"):
        spans = times.setdefault(row["job_id"].removeprefix("bench/"), [])
        spans.append((round(row["start_s"], 3), round(row["end_s"], 3)))
    return times


GPU = {"gpu": 1, "cpu_milli": 100}
FOUR = [_node("n", {}, 8000, 8192, 4, 110)]
QUOTA = {"cpu": "100", "nvidia.com/gpu": "4"}


def test_with_blocked_admission_workloads_start_one_after_the_other(tmp_path):
    jobs = [(f"j{i}", GPU, 0.0, 100.0, "") for i in range(3)]
    times = _started(tmp_path, _objects(FOUR, QUOTA, ready_s=1.5), jobs, timing=Timing(start_s=0.25))
    assert times == {"j0": [(0.25, 100.25)], "j1": [(1.75, 101.75)], "j2": [(3.25, 103.25)]}


def test_without_waiting_for_pods_all_start_at_once(tmp_path):
    jobs = [(f"j{i}", GPU, 0.0, 100.0, "") for i in range(3)]
    assert set(map(tuple, _started(tmp_path, _objects(FOUR, QUOTA), jobs).values())) == {((0, 100),)}


def test_a_client_submits_its_burst_at_once_and_then_at_its_rate(tmp_path):
    jobs = [(f"j{i}", GPU, 0.0, 10.0, "") for i in range(4)]
    times = _started(tmp_path, _objects(FOUR, QUOTA), jobs, timing=Timing(requests_per_s=2, burst=2))
    assert [times[f"j{i}"][0][0] for i in range(4)] == [0, 0, 0.5, 1]


def test_what_is_preempted_frees_its_quota_after_a_while_and_starts_again(tmp_path):
    rules = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    jobs = [("low", {"gpu": 4}, 0.0, 100.0, ""), ("high", {"gpu": 4}, 40.0, 10.0, "high")]
    timing = Timing(eviction_s=5, end_s=2, restarts=True)
    times = _started(tmp_path, _objects(FOUR, QUOTA, **rules), jobs, timing=timing)
    assert times == {"low": [(0, 40), (57, 157)], "high": [(45, 55)]}


def test_pods_without_room_hold_quota_block_all_others_and_are_evicted_after_the_timeout(tmp_path):
    nodes = [_node("n", {}, 8000, 8192, 2, 110, count=2)]
    jobs = [("a", GPU, 0.0, 500.0, ""), ("b", GPU, 1.0, 400.0, ""), ("c", {**GPU, "gpu": 2}, 2.0, 10.0, ""),
            ("d", GPU, 3.0, 10.0, "")]  # fmt: skip
    times = _started(tmp_path, _objects(nodes, QUOTA | {"nvidia.com/gpu": "9"}, ready_s=0), jobs)
    # a and b are on two nodes, as the least allocated node comes first; c then fits on none. It is evicted at 102, when
    # d starts, and tries again 60 s and then 120 s later, for 100 s each time, until b has left.
    assert times["a"] == [(0, 500)]
    assert times["b"] == [(1, 401)]
    assert times["d"] == [(102, 112)]
    assert times["c"] == [(401, 411)]


def test_pods_go_to_the_nodes_that_are_least_allocated_so_that_kinds_of_nodes_are_left_to_those_that_need_them(
    tmp_path,
):
    nodes = [_node("cpu", {}, 32000, 65536, 0, 110), _node("gpu", {}, 8000, 65536, 4, 110)]
    jobs = [*((f"c{i}", {"cpu_milli": 8000}, 0.0, 10.0, "") for i in range(3)), ("g", {**GPU, "gpu": 4}, 1.0, 10.0, "")]
    times = _started(tmp_path, _objects(nodes, QUOTA), jobs)
    assert times["g"] == [(1, 11)]  # the fullest node first would give one of the others all cores of its node


def test_the_release_and_the_timing_are_named():
    assert Kueue(timing=Timing(start_s=0.5), release="v0.10").follows.startswith("Kueue v0.10.2 (")
    assert Kueue(timing=Timing(start_s=0.5)).follows.endswith(", timing start_s=0.5")
    assert "timing" not in Kueue().follows


@pytest.mark.parametrize("name", ["requests_per_s", "burst", "pods_per_s"])
def test_rates_are_above_0(name):
    with pytest.raises(ValueError, match=rf"timing\.{name} is 0"):
        Timing(**{name: 0})
