"""Tenants under Kueue and Volcano: borrowing, taking back, proportions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from simsched_policies.kubernetes.kueue.policy import Kueue
from simsched_policies.production.volcano import Volcano, deserved
from simsched_policies.production.yarn_cs import YarnCs

from simsched.engine.options import EngineOptions
from simsched.model.cluster import Cluster, Level, Tenant, circle, excess
from simsched.model.job import JobSpec
from simsched.model.topology import with_levels
from simsched.policy import Policy
from simsched.testing.builders import run

HALVES = {"a": Tenant(share=0.5), "b": Tenant(share=0.5)}


def times(policy: Policy, jobs: list[JobSpec]) -> dict[str, tuple[float, float, int]]:
    """Return start, end and restarts of each job on two nodes of four GPUs."""
    return times_on(Cluster.uniform(2, 4), policy, jobs)


def times_on(cluster: Cluster, policy: Policy, jobs: list[JobSpec]) -> dict[str, tuple[float, float, int]]:
    records = run(policy, jobs, cluster=cluster, options=EngineOptions(restart_delay_s=0))
    return {one.job_id: (one.start_time_s, one.end_time_s, one.restarts) for one in records.jobs}


def job(name: str, at: int, gpus: int, lasts: int = 100, priority: float = 0) -> JobSpec:
    return JobSpec(name, at, gpus, duration_s=lasts, tenant=name[0], user=name, priority=priority)


BORROWED = [job("a1", 0, 4), job("a2", 0, 4), job("b1", 10, 4)]


def test_kueue_lends_what_is_idle_and_takes_it_back() -> None:
    found = times(Kueue(HALVES), BORROWED)
    assert found == {"a2": (0, 100, 0), "b1": (10, 110, 0), "a1": (0, 190, 1)}


def test_kueue_without_reclaiming_or_borrowing_waits() -> None:
    polite = {**HALVES, "b": Tenant(share=0.5, reclaims=False)}
    assert times(Kueue(polite), BORROWED)["b1"] == (100, 200, 0)
    frugal = {**HALVES, "a": Tenant(share=0.5, borrows=False)}
    assert times(Kueue(frugal), BORROWED) == {"a1": (0, 100, 0), "b1": (10, 110, 0), "a2": (100, 200, 0)}
    private = {**HALVES, "b": Tenant(share=0.5, lends=0)}
    assert times(Kueue(private), BORROWED)["a2"] == (100, 200, 0)


def test_kueue_preempts_lower_priority_in_the_queue() -> None:
    jobs = [job("a1", 0, 8), job("a2", 10, 8, priority=5)]
    assert times(Kueue(), jobs) == {"a1": (0, 200, 1), "a2": (10, 110, 0)}
    assert times(Kueue(within="never"), jobs) == {"a1": (0, 100, 0), "a2": (100, 200, 0)}


def test_kueue_blocks_behind_its_head_only_where_strict() -> None:
    jobs = [job("a1", 0, 6), job("a2", 1, 4, 10), job("a3", 2, 2, 10)]
    assert times(Kueue(), jobs)["a3"][0] == 2
    assert times(Kueue(strict_fifo=True), jobs)["a3"][0] == 100


LAB = {"a": Tenant(gpus=2, parent="lab"), "b": Tenant(gpus=2, parent="lab"), "c": Tenant(gpus=4)}
LENT = [job("c1", 0, 4), job("c2", 0, 2), job("b1", 0, 2), job("b2", 10, 2)]


def test_kueue_reclaims_for_a_tenant_what_is_its_parents() -> None:
    assert times(Kueue(LAB), LENT)["b2"] == (10, 110, 0)
    flat = {name: Tenant(gpus=tenant.gpus) for name, tenant in LAB.items()}
    assert times(Kueue(flat), LENT)["b2"] == (100, 200, 0)
    assert times(Kueue(flat, borrowing_preempts=True), [*LENT[:3], job("b2", 10, 2, priority=1)])["b2"] == (10, 110, 0)


def test_kueue_limits_all_tenants_below_a_parent() -> None:
    jobs = [job("a1", 0, 2), job("b1", 0, 2), job("b2", 1, 2)]
    assert times(Kueue({**LAB, "lab": Tenant(max_gpus=4)}), jobs)["b2"] == (100, 200, 0)
    assert times(Kueue({**LAB, "lab": Tenant(max_gpus=6)}), jobs)["b2"] == (1, 101, 0)
    private = {**LAB, "lab": Tenant(lends=0)}
    assert times(Kueue(private), LENT[:2])["c2"] == (100, 200, 0)
    assert (
        times(Kueue({**LAB, "lab": Tenant(gpus=1)}), [job("l1", 0, 1), job("c1", 0, 4), job("c2", 0, 2)])["c2"][0] == 0
    )


def test_kueue_serves_the_user_who_used_least_of_late() -> None:
    def of(user: str, name: str, at: int, lasts: int) -> JobSpec:
        return JobSpec(name, at, 8, duration_s=lasts, tenant="a", user=user)

    jobs = [of("greedy", "one", 0, 600), of("greedy", "two", 1, 100), of("modest", "three", 2, 100)]
    assert times(Kueue(), jobs)["two"][0] == 600
    fair = Kueue(admission_fair_sharing=True, usage_half_life_s=600)
    assert times(fair, jobs)["three"][0] == 600
    # At 600 s greedy stands at (8 * (1 - 0.5**0.5) + 8) / 2 = 5.17; modest at 2.34 after its first admission.
    again = [*jobs, of("modest", "four", 3, 100)]
    assert times(Kueue(admission_fair_sharing=True, usage_half_life_s=600), again)["four"][0] == 700


def test_a_tenant_is_not_above_itself() -> None:
    assert "above itself" in circle({"a": Tenant(parent="b"), "b": Tenant(parent="a")})
    assert not circle(LAB)


def test_proportion_divides_by_weight_and_passes_on_what_is_not_wanted() -> None:
    assert deserved({"a": 1, "b": 1}, {"a": 8, "b": 8}, 8) == {"a": 4, "b": 4}
    assert deserved({"a": 1, "b": 3}, {"a": 8, "b": 8}, 8) == {"a": 2, "b": 6}
    assert deserved({"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 9, "c": 9}, 10) == pytest.approx({"a": 1, "b": 3, "c": 6})


def test_volcano_serves_the_queue_that_holds_least_of_its_due() -> None:
    jobs = [*(job(f"a{i}", 0, 2) for i in range(4)), *(job(f"b{i}", 0, 2) for i in range(4))]
    started = [name for name, (start, _, _) in times(Volcano(), jobs).items() if start == 0]
    assert sorted(started) == ["a0", "a1", "b0", "b1"]
    weighted = Volcano({"a": Tenant(weight=3)})
    started = [name for name, (start, _, _) in times(weighted, jobs).items() if start == 0]
    assert sorted(started) == ["a0", "a1", "a2", "b0"]


def test_volcano_reclaims_what_a_queue_deserves() -> None:
    jobs = [*(job(f"a{i}", i, 2) for i in range(4)), job("b1", 10, 4)]
    assert times(Volcano(), jobs)["b1"][0] == 101  # a0 and a1 have ended
    found = times(Volcano(reclaim=True), jobs)
    assert found["b1"] == (10, 110, 0)
    assert {name for name, (_, _, restarts) in found.items() if restarts} == {"a2", "a3"}
    polite = Volcano({"b": Tenant(reclaims=False)}, reclaim=True)
    assert times(polite, jobs)["b1"][0] == 101
    # More than b deserves, 4 of 8, is not taken from others.
    assert times(Volcano(reclaim=True), [*jobs[:4], job("b1", 10, 6)])["b1"][0] == 102


def test_volcano_with_capacities_lends_and_takes_back_what_is_written_down() -> None:
    own = {"a": Tenant(gpus=4), "b": Tenant(gpus=4)}
    assert times(Volcano(own, queues="capacity"), BORROWED)["b1"] == (100, 200, 0)
    found = times(Volcano(own, queues="capacity", reclaim=True), BORROWED)
    assert found == {"a2": (0, 100, 0), "b1": (10, 110, 0), "a1": (0, 190, 1)}
    capped = {**own, "a": Tenant(gpus=4, max_gpus=4)}
    assert times(Volcano(capped, queues="capacity"), BORROWED)["a2"][0] == 100
    kept = {**own, "b": Tenant(gpus=4, lends=0)}  # what b is guaranteed is out of reach for a
    assert times(Volcano(kept, queues="capacity"), BORROWED)["a2"][0] == 100
    jobs = [job("a0", 0, 4, 300), job("b0", 0, 4), job("b1", 1, 4), job("a1", 2, 4)]
    poor = {"a": Tenant(gpus=4), "b": Tenant()}  # nothing deserved is a share of 1: a, at 4 of 4, still goes first
    found = times(Volcano(poor, queues="capacity"), jobs)
    assert (found["a1"][0], found["b1"][0]) == (100, 200)


def test_volcano_never_takes_what_a_queue_is_guaranteed() -> None:
    jobs = [job("b1", 0, 6), job("a1", 10, 4)]
    for lends, start in ((None, 10), (0, 100)):
        tenants = {"a": Tenant(gpus=4), "b": Tenant(gpus=4, lends=lends)}
        assert times(Volcano(tenants, queues="capacity", reclaim=True), jobs)["a1"][0] == start


def test_volcano_takes_from_the_nearest_relatives_first() -> None:
    tenants = {
        "p": Tenant(gpus=8, max_gpus=10),
        "x": Tenant(gpus=4, parent="p"),
        "y": Tenant(gpus=4, parent="p"),
        "q": Tenant(gpus=4),
    }
    jobs = [job("q1", 0, 6), job("y1", 0, 6), job("x1", 10, 2)]
    found = times_on(Cluster.uniform(3, 4), Volcano(tenants, queues="capacity", reclaim=True), jobs)
    assert (found["x1"][0], found["y1"][2], found["q1"][2]) == (10, 1, 0)
    tenants["p"] = replace(tenants["p"], max_gpus=6)  # the limit of p holds for x and y together
    found = times_on(Cluster.uniform(4, 4), Volcano(tenants, queues="capacity"), jobs)
    assert found["x1"][0] == 100


def test_volcano_keeps_a_job_within_a_hypernode() -> None:
    racks = Level("rack", ((0, 1), (2, 3)))
    cluster = with_levels(Cluster.uniform(4, 2), [racks, Level("row", ((0, 1, 2, 3),))])
    jobs = [job("a0", 0, 3), job("a1", 0, 3, 200), job("a2", 1, 2)]
    starts = {tier: times_on(cluster, Volcano(highest_tier=tier), jobs)["a2"][0] for tier in range(3)}
    assert starts == {0: 1, 1: 100, 2: 1}  # one GPU is left of each rack, two of the row


def test_volcano_preempts_within_a_queue_and_nobody_in_vain() -> None:
    jobs = [job("a1", 0, 4), job("a2", 1, 4, priority=1), job("a3", 10, 4, priority=1)]
    found = times(Volcano(preempt=True), jobs)
    assert found == {"a2": (1, 101, 0), "a3": (10, 110, 0), "a1": (0, 191, 1)}
    assert times(Volcano(), jobs)["a3"][0] == 100
    vain = [*jobs[:2], job("a3", 10, 8, priority=1)]
    assert times(Volcano(preempt=True), vain)["a1"] == (0, 100, 0)
    others = [*jobs[:2], job("b1", 10, 4, priority=9)]
    assert times(Volcano(preempt=True), others)["b1"][0] == 100


def test_shares_add_up_to_one_at_most() -> None:
    assert excess({"a": Tenant(share=0.7), "b": Tenant(share=0.4)})
    assert not excess(HALVES)
    assert Tenant(share=0.3).own_gpus(10) == 3
    assert Tenant(share=0.3, borrows=False).most_gpus(10) == 3


def test_yarn_takes_back_a_share_from_the_jobs_started_last() -> None:
    shares = {"a": 0.5, "b": 0.5}
    assert times(YarnCs(shares, preemption=True), BORROWED) == {
        "a1": (0, 100, 0),
        "b1": (10, 110, 0),
        "a2": (0, 190, 1),
    }
    assert times(YarnCs(shares), BORROWED)["b1"] == (100, 200, 0)
    too_large = [*BORROWED[:2], job("b1", 10, 6)]
    assert times(YarnCs(shares, preemption=True), too_large)["b1"] == (100, 200, 0)


def test_yarn_waits_before_it_takes_back() -> None:
    shares = {"a": 0.5, "b": 0.5}
    found = times(YarnCs(shares, preemption=True, preemption_wait_s=15), BORROWED)
    assert found == {"a1": (0, 100, 0), "b1": (25, 125, 0), "a2": (0, 175, 1)}
    soon = [job("a1", 0, 4), job("a2", 0, 4, 20), BORROWED[2]]
    assert times(YarnCs(shares, preemption=True, preemption_wait_s=15), soon)["b1"] == (20, 120, 0)


def test_yarn_takes_back_no_more_than_the_share() -> None:
    # Queue a has 25 % and holds 75 %, b has 75 % and asks for 50 %: 25 % change hands.
    jobs = [*(job(f"a{i}", 0, 2) for i in range(3)), job("b1", 10, 2), job("b2", 10, 2)]
    found = times(YarnCs({"a": 0.25, "b": 0.75}, preemption=True), jobs)
    assert (found["b1"][0], found["b2"][0]) == (10, 10)
    assert [found[f"a{i}"][2] for i in range(3)] == [0, 0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_no_job_is_lost_on_random_logs(seed: int) -> None:
    dice, jobs = random.Random(seed), []
    for i in range(30):
        name, user = f"{dice.choice('abcd')}{i}", dice.choice("uv")
        gpus, lasts = dice.randint(1, 6), dice.randint(1, 60)  # quota lets c and d have 6 at most
        jobs.append(replace(job(name, 7 * i, gpus, lasts, dice.randint(0, 2)), user=user))
    tree = {**LAB, "lab": Tenant(max_gpus=8, lends=2)}
    policies: list[Policy] = [
        Kueue(tree, borrowing_preempts=True, admission_fair_sharing=True, usage_half_life_s=60, usage_sampling_s=20),
        Kueue(tree, fair_sharing=True, within="lower-or-newer-equal-priority"),
        Volcano({"a": Tenant(weight=2)}, preempt=True, reclaim=True),
        YarnCs({"a": 0.5, "b": 0.25}, preemption=True, preemption_wait_s=15),
    ]
    for policy in policies:
        assert len(times(policy, jobs)) == len(jobs)
