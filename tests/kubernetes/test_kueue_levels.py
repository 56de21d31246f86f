"""Kueue with topology-aware scheduling on the levels of a simulated cluster."""

from __future__ import annotations

import pytest
from simsched_policies.kubernetes.kueue.levels import Levels
from simsched_policies.kubernetes.kueue.policy import Kueue

from simsched.engine import EngineOptions, FailureOptions, MemoryRecorder, simulate
from simsched.errors import InputError
from simsched.model import Cluster, JobSpec, NodeShape
from simsched.model.cluster import Level, Tenant
from simsched.model.outages import Outage
from simsched.model.placement import Amount
from simsched.model.topology import with_levels
from simsched.testing.builders import Applications, fresh_view, toy_application

#: Four nodes of four GPUs, in two racks.
RACKS = with_levels(Cluster.uniform(4, 4), [Level("rack", ((0, 1), (2, 3)))])


#: By GPUs asked for: how many pods, and the GPUs of each.
PODS = {1: (1, 1), 4: (1, 4), 6: (2, 3), 7: (7, 1), 12: (3, 4)}


def job(name: str, at: int, gpus: int, lasts: int = 100, priority: float = 0) -> JobSpec:
    return JobSpec(name, at, gpus, duration_s=lasts, tenant=name[0], user=name, priority=priority)


def ran(policy: Kueue, jobs: list[JobSpec], *outages: Outage) -> dict[str, list[tuple[float, str]]]:
    """Return when each job started, and how many GPUs it had on which nodes."""
    found: dict[str, list[tuple[float, str]]] = {}
    records, failures = MemoryRecorder(), FailureOptions(outages=outages)
    options = EngineOptions(restart_delay_s=0)
    simulate(
        RACKS,
        jobs,
        Applications(toy_application()),
        policy,
        options,
        1,
        records,
        check_invariants=True,
        failures=failures,
    )
    for one in records.allocations:
        found.setdefault(one.job_id, []).append((one.start_s, one.placement))
    return found


def test_a_required_rack_is_waited_for_and_a_preferred_one_is_left() -> None:
    """5 and 5 GPUs leave 3 in each rack; a job of 5 waits for a rack, or takes what there is of both."""
    jobs = [job("a1", 0, 5), job("a2", 0, 5), job("a3", 1, 5)]
    required = ran(Kueue(topology="required rack"), jobs)
    assert required == {"a1": [(0, "0:4 1:1")], "a2": [(0, "2:4 3:1")], "a3": [(100, "0:4 1:1")]}
    assert ran(Kueue(topology="preferred rack"), jobs)["a3"] == [(1, "1:3 3:2")]


def test_pods_go_where_they_fit_and_a_later_job_passes() -> None:
    """6 GPUs are two pods of 3, which rack 1 has room for; 8 are two of 4 and wait; 2 are one pod beside the first."""
    jobs = [job("a1", 0, 5), job("a2", 1, 6), job("a3", 2, 8), job("a4", 3, 2, 500)]
    assert ran(Kueue(topology="required rack"), jobs) == {
        "a1": [(0, "0:4 1:1")],
        "a2": [(1, "2:3 3:3")],
        "a3": [(101, "2:4 3:4")],
        "a4": [(3, "1:2")],
    }


def test_a_missing_place_preempts_lower_priority_as_missing_quota_does() -> None:
    """8 GPUs are free, but 4 in each rack: the one admitted last makes room, and is asked again when another ends."""
    jobs = [job("a1", 0, 4), job("a2", 0, 4, 5), job("a3", 1, 4), job("a4", 10, 8, priority=1)]
    found = ran(Kueue(topology="required rack"), jobs)
    assert found["a4"] == [(10, "2:4 3:4")]
    assert found["a3"] == [(1, "2:4"), (100, "0:4")]
    assert ran(Kueue(topology="required rack", within="never"), jobs)["a4"] == [(100, "0:4 1:4")]


def test_queues_without_a_common_cohort_wake_each_other_for_places() -> None:
    """Both queues have quota left; what one gives back is a place for the other."""
    own = Tenant(share=0.5, borrows=False, lends=0)
    jobs = [job("a1", 0, 4, 300), job("b0", 1, 4, 49), job("a2", 2, 4, 58), job("b1", 55, 8)]
    found = ran(Kueue({"a": own, "b": own}, topology="required rack"), jobs)
    assert found["b1"] == [(60, "2:4 3:4")]


@pytest.mark.parametrize(
    ("wish", "others", "again"),
    [
        # the pod on node 1 goes elsewhere, the other stays: placed anew, both would share the second rack
        ("preferred rack", [], (50, "0:3 2:3")),
        ("unconstrained", [], (50, "0:3 2:3")),
        # no node is left in its rack: it is evicted, and admitted anew
        ("required rack", [], (50, "2:3 3:3")),
        # one of its priority is there first, and the one that needs no quota is not held up by who waits for it
        ("preferred rack", [job("a2", 1, 8)], (101, "2:3 3:3")),
        ("preferred rack", [job("a2", 1, 4), job("a3", 2, 8, 10, 9)], (50, "0:3 3:3")),
    ],
)
def test_only_the_pods_of_a_failed_node_go_elsewhere(
    wish: str, others: list[JobSpec], again: tuple[float, str]
) -> None:
    """Two pods of 3 lie on nodes 0 and 1 when node 1 fails."""
    found = ran(Kueue(topology=wish, within="never"), [job("a1", 0, 6, 300), *others], Outage(1, 50, 9000))
    assert found["a1"][:2] == [(0, "0:3 1:3"), again]


def test_pods_are_as_large_as_a_node_allows() -> None:
    """The pods of a job are equal: 6 GPUs are two of 3, 12 three of 4, 7 seven of 1."""
    levels = Levels("preferred rack")
    levels.begin(RACKS)
    pods = {gpus: levels.pods(gpus) for gpus in (1, 4, 6, 7, 12)}
    assert {gpus: (one.count, one.requests["gpu"]) for gpus, one in pods.items()} == PODS


def test_wishes_that_cannot_be_met_are_told() -> None:
    """A wish of another form, a level that is not there, a job that no rack could hold, one that wants nodes."""
    with pytest.raises(ValueError, match="is none of 'required LEVEL'"):
        Kueue(topology="rack")
    with pytest.raises(InputError, match="no level of 'required row'"):
        Kueue(topology="required row").begin(RACKS)
    policy = Kueue(topology="required rack")
    view, _ = fresh_view(policy, [job("a1", 0, 8), job("a2", 0, 9)], RACKS, Applications())
    jobs = list(view.jobs.values())
    policy.check_jobs(jobs[:1], RACKS)
    with pytest.raises(InputError, match=r"job a2.*allows to fit only 2 out of 3 pod"):
        policy.check_jobs(jobs, RACKS)
    wide = JobSpec("a3", 0, 4, duration_s=9, shape=NodeShape(2, Amount(2)))
    view, _ = fresh_view(policy, [wide], RACKS, Applications())
    with pytest.raises(InputError, match=r"job a3.*does not place"):
        policy.check_jobs(list(view.jobs.values()), RACKS)
