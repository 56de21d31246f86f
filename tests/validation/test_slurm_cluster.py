"""The reference cluster against cases worked by hand from Slurm's documentation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simsched_policies.production.slurm import options as rules
from simsched_policies.production.slurm.policy import SlurmBackfill

from simsched import model
from simsched.cli.operator_options import LogOptions, make_plan
from simsched.engine.options import EngineOptions
from simsched.model.placement import Amount
from simsched.operators.readings import with_readings
from simsched.testing.builders import run
from tests.campaigns import played
from tests.validation.oracles.slurm_cluster import (
    BF_MAX_JOB_TEST,
    BF_WINDOW_S,
    DAY_S,
    HOUR_S,
    QUEUE_DEPTH,
    Cluster,
    Job,
    Kind,
    Partition,
    Rules,
    Site,
)
from tests.validation.oracles.slurm_jobs import draw_jobs
from tests.validation.oracles.slurm_texts import sacct, slurm_conf, squeue, write_all

TWO = Site((Kind("n", 2, 8, "a100", 64, 1000),), (Partition("p", ("n",)),), cap=None)


def job(number: int, hours: float, gpus: int, *, at: int = 0, nodes: int = 1, **more: object) -> Job:
    """Make a job that runs as long as its limit says."""
    seconds = int(hours * HOUR_S)
    known = {"user": "u", "account": "a", "partition": "p", "qos": "normal", "cpus": gpus, "memory_mb": 1} | more
    return Job(number, at, nodes=nodes, gpus=gpus, limit_s=seconds, run_s=seconds, **known)  # type: ignore[arg-type]


def starts(site: Site, *jobs: Job) -> list[float]:
    """Return the starts in hours."""
    return [round((one.start_s or 0) / HOUR_S, 2) for one in Cluster(site, jobs).run()]


def test_eight_gpus_on_one_node_wait_for_a_node_and_not_for_eight_gpus() -> None:
    # Each node holds 5 GPUs until 10 h and 3 until 4 h: from 4 h on 6 GPUs are free, 3 on each, from 10 h on a node.
    running = [job(1, 10, 5), job(2, 10, 5), job(3, 4, 3), job(4, 4, 3)]
    assert starts(TWO, *running, job(5, 1, 8, at=60)) == [0, 0, 0, 0, 10]
    # A job of 3 GPUs and 6 h fits beside the plan at 4 h (ends at 10 h), one of 7 h on both nodes would not.
    short, long = job(6, 6, 3, at=120), job(7, 7, 3, at=180)
    found = starts(TWO, *running, job(5, 1, 8, at=60), short, long, replace(long, id=8, submit_s=240))
    assert found[5] == pytest.approx(4, abs=0.02)  # backfill looks a minute later
    assert found[4] == pytest.approx(10, abs=0.02)
    assert found[6] == pytest.approx(4, abs=0.02)  # on the other node, where nothing is planned
    assert found[7] >= 10


def test_processors_and_memory_hold_a_job_back_like_gpus() -> None:
    assert starts(TWO, job(1, 2, 1, cpus=64), job(2, 3, 1, cpus=64), job(3, 1, 1, at=60)) == [0, 0, 2]
    assert starts(TWO, job(1, 2, 1, memory_mb=900), job(2, 3, 0, memory_mb=900), job(3, 1, 1, memory_mb=200)) == [
        0,
        0,
        2,
    ]


def test_a_user_at_the_cap_is_passed_over_and_holds_nobody_back() -> None:
    site = replace(TWO, cap=8)
    assert starts(site, job(1, 2, 8), job(2, 1, 8, at=60), job(3, 1, 8, at=120, user="other")) == [0, 2, 0.03]
    # MaxTRESPerUser counts by quality of service.
    assert starts(site, job(1, 2, 8), job(2, 1, 8, at=60, qos="high")) == [0, 0.02]


def test_a_higher_quality_of_service_goes_first() -> None:
    full = job(1, 1, 8), job(2, 1, 8)
    assert starts(TWO, *full, job(3, 1, 8, at=60, nodes=2), job(4, 1, 8, at=120, nodes=2, qos="high")) == [0, 0, 2, 1]


def test_jobs_are_killed_at_their_limit_and_the_log_ends_when_it_was_asked_for() -> None:
    late = replace(job(1, 1, 8), run_s=2 * HOUR_S)
    jobs = Cluster(TWO, [late, job(2, 30, 8), job(3, 1, 8, at=60, nodes=2)]).run()
    first, second, third = sacct(TWO, jobs, 0, DAY_S).splitlines()[1:]
    assert "|3600|TIMEOUT|" in first
    assert "|Unknown|86400|RUNNING|" in second
    assert "|Unknown|Unknown|0|PENDING|" in third
    assert "gres/gpu:a100=8,gres/gpu=8" in first
    then = Cluster(TWO, jobs)
    queue = squeue(TWO, then.run(HOUR_S), HOUR_S)
    # The plan for the third job is the end of the second one's limit.
    assert '"job_state": [\n    "PENDING"' in queue
    waiting = next(one for one in then.jobs if one.start_s is None)
    assert waiting.planned_s == pytest.approx(30 * HOUR_S, abs=300)
    assert "PartitionName=p Nodes=n[01-02] MaxTime=4-00:00:00 PriorityTier=1" in slurm_conf(TWO)


def test_what_is_drawn_is_what_was_asked_for() -> None:
    jobs = draw_jobs(TWO_LIKE_REFERENCE, 3, 90, {"a100": 0.5})
    assert sum(one.all_gpus * min(one.run_s, one.limit_s) for one in jobs) / (90 * DAY_S * 16) == pytest.approx(
        0.5, rel=0.2
    )
    assert all(one.nodes * one.gpus == one.all_gpus and one.gpus <= 8 for one in jobs)
    assert jobs == sorted(jobs, key=lambda one: one.submit_s)


TWO_LIKE_REFERENCE = Site((Kind("n", 2, 8, "a100", 64, 100_000),), (Partition("a100", ("n",)),), cap=None)


#: Two nodes of A100, two of V100 that two partitions share, and a cap that is met often.
SMALLEST = Site(
    (Kind("a", 2, 8, "a100", 64, 1_000_000), Kind("v", 2, 4, "v100", 32, 380_000)),
    (Partition("a100", ("a",)), Partition("v100", ("v",)), Partition("debug", ("v",), tier=10, max_time_s=HOUR_S)),
    cap=16,
)


#: What the policy calls the rules of a site.
KINDS: dict[str, Any] = {"all": "conservative", "first": "easy", "nobody": "greedy", "off": "none"}
PLACEMENTS: dict[str, Any] = {"fullest": "fragments", "first": "any", "emptiest": "most-free"}


def replayed(site: Site, jobs: list[Job]) -> list[float]:
    """Return the starts under the policy that the site's settings describe."""
    own = site.rules
    nodes = (
        model.NodeGroup(
            one.nodes, one.gpus, one.gpu_type, 1000 * one.cpus, one.memory_mb,
            partitions=tuple(part.name for part in site.partitions if one.name in part.kinds),
        )
        for one in site.kinds
    )  # fmt: skip
    specs = [
        model.JobSpec(
            str(one.id), one.submit_s, one.all_gpus, duration_s=one.run_s, time_limit_s=one.limit_s,
            shape=model.NodeShape(
                one.nodes, Amount(one.gpus, cpu_milli=1000 * one.cpus, memory_mib=one.memory_mb)
            ),
            queue=one.partition, qos=one.qos, user=one.user,
        )
        for one in jobs
    ]  # fmt: skip
    policy = SlurmBackfill(
        rules.Backfill(
            KINDS[own.protects], BF_MAX_JOB_TEST, BF_WINDOW_S, own.interval_s or 1, QUEUE_DEPTH,
            offset_s=own.offset_s, resolution_s=own.resolution_s, from_pass=own.from_pass, whole_nodes=own.whole_nodes,
        ),
        rules.Priority(qos=100_000, age=own.age, fair_share=own.fair_share),
        placement=PLACEMENTS[own.nodes],
        limits=rules.Limits(
            partitions={one.name: rules.Partition(tier=one.tier) for one in site.partitions},
            qos={name: rules.Qos(priority, per_user=rules.Caps(gpus=site.cap)) for name, priority in site.qos},
        ),
    )  # fmt: skip
    options = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
    records = run(policy, specs, cluster=model.Cluster.of(*nodes), options=options)
    found = {one.job_id: one.start_time_s for one in records.jobs}
    return [found[str(one.id)] for one in jobs]


@pytest.mark.parametrize("seed", played(range(3), range(2)))
def test_the_policy_starts_every_job_when_a_cluster_that_plays_every_pass_does(seed: int) -> None:
    # Passes that find what the last one found are left out on either side: no start may tell.
    drawn = draw_jobs(SMALLEST, seed, 0.5, {"a100": 0.9, "v100": 0.9, "debug": 0.1})
    jobs = [job for job in drawn if job.nodes <= 2]  # with more it would wait for ever
    every = [one.start_s for one in Cluster(SMALLEST, jobs, plays_every_pass=True).run()]
    assert replayed(SMALLEST, jobs) == every
    assert [one.start_s for one in Cluster(SMALLEST, jobs).run()] == every
    assert sum((one or 0) > job.submit_s + HOUR_S for one, job in zip(every, jobs, strict=True)) > 10


@pytest.mark.parametrize(
    "own",
    [
        Rules(interval_s=30, offset_s=11, resolution_s=60),
        Rules(interval_s=0, resolution_s=60),
        Rules(from_pass=True),
        Rules(protects="first"),
        Rules(protects="nobody"),
        Rules(protects="off"),
        Rules(whole_nodes=True),
        Rules(nodes="first"),
        Rules(nodes="emptiest"),
    ],
    ids=str,
)
def test_the_policy_can_be_told_to_read_the_pages_as_another_cluster_does(own: Rules) -> None:
    site = replace(SMALLEST, rules=own)
    jobs = [job for job in draw_jobs(site, 1, 0.3, {"a100": 0.9, "v100": 0.9, "debug": 0.1}) if job.nodes <= 2]
    assert replayed(site, jobs) == [one.start_s for one in Cluster(site, jobs).run()]


@pytest.mark.usefixtures("in_this_process")
def test_what_the_pages_leave_open_is_fitted_to_a_log(tmp_path: Path) -> None:
    site = replace(SMALLEST, rules=Rules(offset_s=23))
    jobs = [one for one in draw_jobs(site, 1, 2, {"a100": 0.9, "v100": 0.9, "debug": 0.1}) if one.nodes <= 2]
    write_all(tmp_path, site, jobs, 2, warm_days=0)
    conf = (tmp_path / "slurm.conf", tmp_path / "qos.txt")
    plan = make_plan(tmp_path / "log.txt", LogOptions(cluster=tmp_path / "cluster.txt", conf=conf, out=tmp_path))
    log = plan.recorded
    fitted, taken = with_readings(plan, log, float(log.table["submit_s"].min()), log.last_s)
    assert taken.reading == {"backfill.interval_s": 60, "backfill.offset_s": 23}
    assert fitted.params["backfill"]["offset_s"] == 23
