"""What a run says of itself, and when published values may stand beside it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from simsched.results.reader import published_values_hold
from simsched.results.what_was_run import (
    physics_of,
    what_policies_become,
    what_was_run,
    who_cannot_differ,
)


@dataclass(frozen=True)
class Listed:
    seed: int = 1
    policy: str = "fifo"
    manifest: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    point: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)


def of(jobs, nodes=2):
    return {"jobs": jobs, "cluster": [{"nodes": nodes, "gpus_per_node": 4}, {"nodes": 1, "gpus_per_node": 1}]}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([Listed(manifest=of(1))], "1 job, 1 seed, 1 policy on 9 GPUs"),
        ([Listed(seed, manifest=of(1200)) for seed in (1, 2)], "1,200 jobs, 2 seeds, 1 policy on 9 GPUs"),
        ([Listed(manifest=of(3)), Listed(2, "las", of(7, 1))], "3 to 7 jobs, 2 seeds, 2 policies on 5 to 9 GPUs"),
        ([Listed()], "1 seed, 1 policy"),
        (
            [Listed(manifest=of(3) | {"offered_load": load}) for load in (0.7981, 0.803)],
            "3 jobs, 1 seed, 1 policy on 9 GPUs, offered load 0.80",
        ),
        (
            [Listed(manifest=of(3) | {"offered_load": load}) for load in (0.5, 1.1)],
            "3 jobs, 1 seed, 1 policy on 9 GPUs, offered load 0.50 to 1.10",
        ),
        (
            [Listed(manifest=of(3) | {"offered_load": 0.5}), Listed(manifest=of(3))],
            "3 jobs, 1 seed, 1 policy on 9 GPUs",
        ),
        ([Listed(manifest=of(3) | {"left_out": None})], "3 jobs, 1 seed, 1 policy on 9 GPUs"),
        ([Listed(manifest=of(3) | {"left_out": {}})], "3 jobs, 1 seed, 1 policy on 9 GPUs, nothing left out"),
        (
            [Listed(manifest=of(3) | {"left_out": one}) for one in ({"too late": 1}, {"too late": 4, "too large": 1})],
            "3 jobs, 1 seed, 1 policy on 9 GPUs; left out: 1 to 4 jobs too late, 0 to 1 jobs too large",
        ),
        (
            [
                Listed(),
                Listed(policy="gandiva", own={"engine.restart_delay_s": 1}),
                Listed(policy="slices", own={"engine.restart_delay_s": 1}),
                Listed(policy="wide", own={"engine.initial_nodes": 16, "workload.load": 2.0}),
                Listed(2, "wide", own={"engine.initial_nodes": 8, "workload.load": 2.0}),
            ],
            "2 seeds, 4 policies; gandiva and slices alone with engine.restart_delay_s=1; "
            "wide alone with engine.initial_nodes=16 or 8, workload.load=2.0",
        ),
    ],
)
def test_a_run_says_how_much_was_run(cells, said):
    assert what_was_run(cells) == said
    assert what_was_run(cells, ["seeds=2", "workload.jobs=3"]) == f"{said}; changed: seeds=2, workload.jobs=3"


PLAIN = {"cluster": [{"gpu_type": "t4"}], "engine": {"restart_delay_s": 30}}
BUSY = {
    "cluster": [{"gpu_type": "t4"}, {"gpu_type": "a100"}, {"gpu_type": "t4"}],
    "engine": {"restart_delay_s": 300, "max_jobs_per_gpu": 2, "contention": True, "interference": 0.25},
    "sharing": {"model": "pairs"},
    "failures": {"node_mtbf_s": 720_000.0, "listed_outages": 2, "slow_nodes": 0.1, "jobs": "philly"},
}


@pytest.mark.parametrize(
    ("manifests", "said"),
    [
        ([], ""),
        ([PLAIN, {}], ""),
        ([PLAIN, PLAIN], "t4, restart delay 30 s, no failures, no sharing, no contention, no interference"),
        (
            [BUSY],
            "a100 and t4, restart delay 5 min, each node fails every 200 h and 2 listed outages and jobs fail as in "
            "philly and 10 % of the nodes are slow, up to 2 jobs on a GPU (pairs), contention for uplinks, "
            "25 % interference",
        ),
        (
            [BUSY | {"failures": {"gpu_mtbf_s": 3600.0}}, BUSY | {"failures": None}],
            "a100 and t4, restart delay 5 min, each GPU fails every 1 h or no failures, up to 2 jobs on a GPU (pairs), "
            "contention for uplinks, 25 % interference",
        ),
    ],
)
def test_the_physics_that_was_on_is_named(manifests, said):
    assert physics_of(manifests) == said
    assert what_was_run([Listed(manifest=one) for one in manifests]).endswith(said)


@pytest.mark.parametrize(
    ("changed", "hold"),
    [([], True), (["seeds=2"], True), (["workload.jobs=3"], False), (["seeds=2", "engine.interference=0.5"], False)],
)
def test_published_values_stand_only_beside_what_they_were_published_of(changed, hold):
    assert published_values_hold(changed) is hold


def test_policies_that_lack_the_same_are_named_together():
    told = [("antman", {"shared_gpus": "no sharing"}), ("lucid", {"shared_gpus": "no sharing"}), ("fifo", {})]
    assert what_policies_become(told * 2) == ["antman, lucid: no sharing."]


def timed(policy, seed, jct_s, wait_s, load=0.5):
    summary = {"jct_mean_s": jct_s, "queueing_mean_s": wait_s, "decisions": len(policy)}
    return Listed(seed, policy, summary=summary, point={"workload.offered_load": load})


def test_policies_that_cannot_differ_are_named():
    idle = [timed(policy, seed, 10.0 * seed, 0.0) for policy in ("fifo", "las") for seed in (1, 2)]
    busy = [timed(policy, seed, 20.0 + len(policy), 5.0, 0.9) for policy in ("fifo", "las") for seed in (1, 2)]
    assert who_cannot_differ(idle + busy) == [
        "fifo, las: the same times for every seed, as no job ever waited (at offered_load=0.5)."
    ]
    assert who_cannot_differ(busy) == []


def test_policies_that_agree_though_jobs_wait_are_named_without_that_reason():
    one_seed_differs = [timed("fifo", 1, 7.0, 2.0), timed("las", 1, 7.0, 2.0), timed("srtf", 1, 6.0, 2.0)]
    assert who_cannot_differ(one_seed_differs) == ["fifo, las: the same times for every seed (at offered_load=0.5)."]


def test_waits_that_no_summary_has_may_have_been():
    def found(*waits):
        times = [{"jct_mean_s": 7.0} | ({} if wait is None else {"queueing_mean_s": wait}) for wait in waits]
        cells = [Listed(seed, policy, summary=one) for policy in ("a", "b") for seed, one in enumerate(times)]
        return who_cannot_differ(cells)

    same = "a, b: the same times for every seed"
    assert found(0.0, 0.0) == [f"{same}, as no job ever waited."]
    assert found(0.0, 0.5) == found(None, None) == [f"{same}."]
    assert who_cannot_differ([Listed(1, policy, summary={"decisions": 1}) for policy in "ab"]) == []
