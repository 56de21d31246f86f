"""AntMan's quotas of tenants: who is guaranteed, who is upgraded and when, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from simsched_policies.sharing.antman import AntMan

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster, Tenant
from simsched.model.colocation.contract import ConstantSharing
from simsched.model.job import JobSpec
from simsched.policy import Decision, View
from simsched.testing.builders import Applications

TENANTS = {"t": Tenant(gpus=2), "u": Tenant(gpus=1)}


def job(name: str, at_s: int, gpus: int, tenant: str, duration_s: int = 100, *, asks: bool = True) -> JobSpec:
    return JobSpec(name, at_s, gpus, duration_s=duration_s, tenant=tenant, guaranteed=asks)


def ends(policy: AntMan, jobs: list[JobSpec], cluster: Cluster) -> dict[str, float]:
    """Run jobs that are half as fast beside a guaranteed one, as two do one and a half times what one does."""
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=0, max_jobs_per_gpu=2)
    model = ConstantSharing(0.75)
    simulate(cluster, jobs, Applications(), policy, options, 1, recorder, colocation=model, check_invariants=True)
    return {record.job_id: record.end_time_s for record in recorder.jobs}


def test_beyond_the_quota_a_job_is_opportunistic_until_the_quota_is_free() -> None:
    # b is over the quota of two GPUs, so it runs beside a at half speed; alone and upgraded from 110, it keeps its
    # speed when c comes beside it at 120, which is at half speed until 160.
    jobs = [job("a", 10, 2, "t"), job("b", 10, 2, "t"), job("c", 120, 2, "x", asks=False)]
    assert ends(AntMan(tenants=TENANTS), jobs, Cluster.uniform(1, 2)) == {"a": 110, "b": 160, "c": 240}
    without = ends(AntMan(), jobs, Cluster.uniform(1, 2))
    assert without == {"a": 110, "b": 210, "c": 265}, "without tenants b waits for its guarantee, and c runs beside it"


def test_a_tenant_without_a_quota_has_no_guaranteed_jobs() -> None:
    # b takes both GPUs from 20 on at full speed; a, which asks for a guarantee too, is at half speed until 120.
    jobs = [job("a", 10, 2, "x"), job("b", 20, 2, "t")]
    assert ends(AntMan(tenants=TENANTS), jobs, Cluster.uniform(1, 2)) == {"a": 160, "b": 120}


def test_a_job_is_not_upgraded_while_a_guaranteed_one_shares_its_gpus() -> None:
    # b shares a GPU with a until 100, when the quota of t is free, but another with c until 200. Only then is it
    # upgraded and d let beside it; b has 100 s left then, and d, at half speed, 50 s when b ends.
    jobs = [job("a", 0, 1, "t"), job("c", 0, 1, "u", 200), job("b", 0, 2, "t", 200)]
    jobs += [job("d", 110, 1, "x", asks=False)]
    found = ends(AntMan(tenants=TENANTS), jobs, Cluster.uniform(1, 2))
    assert found == {"a": 100, "c": 200, "b": 300, "d": 350}


def test_jobs_are_upgraded_in_order_of_submission() -> None:
    # With max_busy 0 nobody shares a GPU with a guaranteed job, so all wait for the GPUs, and for the quota, in turn.
    jobs = [job("a", 0, 2, "t"), job("b", 1, 2, "t"), job("c", 2, 2, "t")]
    assert ends(AntMan(tenants=TENANTS, max_busy=0), jobs, Cluster.uniform(1, 2)) == {"a": 100, "b": 200, "c": 300}


class Watched(AntMan):
    """Checks after each decision that no tenant has more guaranteed GPUs than its quota, and nobody is downgraded."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        before = {name for name in self._guaranteed if name in view.jobs}
        decision = super().decide(view, rng)
        assert before <= self._guaranteed
        for name, tenant in TENANTS.items():
            held = [view.jobs[one] for one in self._guaranteed if view.jobs[one].request.tenant == name]
            assert sum(one.num_gpus for one in held) <= (tenant.gpus or 0)
        return decision


@pytest.mark.parametrize("seed", range(3))
def test_guaranteed_gpus_stay_within_quotas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        job(f"j{n}", 20 * n, int(rng.integers(1, 3)), "tux"[n % 3], int(rng.integers(30, 300)), asks=bool(n % 4))
        for n in range(30)
    ]
    assert len(ends(Watched(tenants=TENANTS), jobs, Cluster.uniform(2, 2))) == len(jobs)
