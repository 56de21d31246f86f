"""Jobs are killed at their time limits, where the experiment says so."""

from __future__ import annotations

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.engine.options import EngineOptions
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.testing.builders import run
from simsched.workload.estimates import popular, with_estimates


def ends(jobs: list[JobSpec], *, kill: bool, restart_delay_s: float = 0) -> dict[str, tuple[float, str]]:
    options = EngineOptions(restart_delay_s=restart_delay_s, kill_at_time_limit=kill)
    records = run(Fifo(), jobs, cluster=Cluster.uniform(1, 4), options=options)
    return {record.job_id: (record.end_time_s, record.status) for record in records.jobs}


JOBS = [
    JobSpec("over", 0, 4, duration_s=100, status="Pass", time_limit_s=60),
    JobSpec("exact", 0, 4, duration_s=50, status="Pass", time_limit_s=50),
    JobSpec("free", 0, 4, duration_s=70, status="Pass"),
]


def test_a_job_over_its_limit_ends_there_and_the_next_starts() -> None:
    found = ends(JOBS, kill=True)
    assert found == {"over": (60, "TimeLimit"), "exact": (110, "Pass"), "free": (180, "Pass")}


def test_nobody_is_killed_unless_asked_for() -> None:
    assert ends(JOBS, kill=False) == {"over": (100, "Pass"), "exact": (150, "Pass"), "free": (220, "Pass")}


@pytest.mark.parametrize(("limit", "status"), [(80, "Pass"), (79, "TimeLimit")])
def test_starting_counts_against_the_limit(limit: int, status: str) -> None:
    job = JobSpec("job", 0, 4, duration_s=50, status="Pass", time_limit_s=limit)
    assert ends([job], kill=True, restart_delay_s=30) == {"job": (limit, status)}


def test_estimates_are_spread_as_asked_for_and_never_too_short() -> None:
    jobs = [JobSpec(f"j{i}", 0, 1, duration_s=1000) for i in range(2000)]
    uniform = [job.time_limit_s or 0 for job in with_estimates(jobs, "uniform", 3.0, np.random.default_rng(1))]
    assert min(uniform) >= 1000
    assert max(uniform) <= 4000
    assert np.mean(uniform) == pytest.approx(2500, rel=0.03)
    rounded = {job.time_limit_s for job in with_estimates(jobs, "rounded", 3.0, np.random.default_rng(1))}
    assert rounded == {1200, 1800, 3600, 7200}
    assert {job.time_limit_s for job in with_estimates(jobs, "exact", 3.0, np.random.default_rng(1))} == {1000}


def test_a_limit_in_the_log_stays() -> None:
    given = JobSpec("given", 0, 1, duration_s=1000, time_limit_s=500)
    assert with_estimates([given], "rounded", 3.0, np.random.default_rng(1)) == [given]
    assert popular(8 * 86400) == 2 * 7 * 86400
