"""The policy kai on small workloads: quotas, consolidation, preemption, parts of GPUs, elastic jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simsched_policies.production.kai.policy import Kai

from simsched.applications.catalogue import catalogue
from simsched.engine.options import EngineOptions
from simsched.engine.providers import views_at_submission
from simsched.errors import InputError
from simsched.model.cluster import Cluster, Level, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.shape import Amount, NodeShape
from simsched.model.speedup import Speedup
from simsched.model.tenants import Tenant
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
    protected = times(Kai(own, preempt_min_runtime_s=60), [*jobs, job("a3", 70, 1)])
    assert protected["a2"][0] == 70  # asked again when a3 comes, and a1 has run for a minute


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


def test_invalid_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="min_share"):
        Kai(min_share=0)
