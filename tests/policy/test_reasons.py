"""What is kept of why jobs wait, on schedules worked by hand."""

import pytest

import simsched as sim
from simsched.policy import Why

KEYS = ["time_s", "job_id", "gpus", "rank", "score", "why"]


def reasons(policy, rows, *, cluster=(1, 4), **params):
    """Run jobs, given as submission, GPUs and seconds, named a, b, c; return what was kept of each decision."""
    jobs = [
        {"id": name, "submit_time_s": submit, "num_gpus": gpus, "duration_s": seconds}
        for name, (submit, gpus, seconds) in zip("abcdefgh", rows, strict=False)
    ]
    made = sim.simulate(jobs=jobs, policy=policy, cluster=cluster, restart_delay_s=0, reasons=True, **params)
    return made.reasons


def at(found, time_s):
    return [tuple(row) for row in found.loc[found["time_s"] == time_s, KEYS[1:]].itertuples(index=False)]


def test_first_in_first_out_says_who_blocks_whom():
    """a leaves one GPU; b is short of three, and c, for which there is room, stands behind b."""
    found = reasons("fifo", [(0, 3, 100), (10, 4, 50), (20, 1, 50)])
    assert at(found, 0) == [("a", 3, 1, "", "")]
    assert at(found, 20) == [
        ("a", 3, 1, "", ""), ("b", 0, 2, "", "no room"), ("c", 0, 3, "", "another comes first"),
    ]  # fmt: skip
    assert found.loc[found["time_s"] == 20, "detail"].tolist() == ["", "1 GPU free", "b waits before it"]
    assert at(found, 150) == [("c", 1, 1, "", "")]


def test_shortest_first_ranks_by_the_seconds_left():
    found = reasons("srtf", [(0, 4, 100), (10, 4, 50), (20, 4, 200)])
    assert at(found, 10) == [("a", 0, 2, "90", "no room"), ("b", 4, 1, "50", "")]
    assert at(found, 20)[0] == ("a", 0, 2, "90", "no room")
    assert at(found, 20)[2] == ("c", 0, 3, "200", "no room")


def test_a_placer_that_waits_for_one_node_is_named():
    from simsched_policies.queues.by_key import Fifo

    found = reasons(Fifo(placement="consolidated"), [(0, 3, 600), (0, 3, 900), (10, 2, 50)], cluster=(2, 4))
    assert at(found, 10)[2] == ("c", 0, 3, "", "not on one node")
    assert found.loc[found["time_s"] == 10, "detail"].tolist()[2] == "GPUs are free, and none as 'consolidated' wants"


def test_a_reservation_is_named():
    """b waits for four GPUs until a ends; c would fit beside a, and runs past that end."""
    found = reasons("slurm-backfill", [(0, 3, 100), (10, 4, 50), (20, 1, 5000)])
    assert at(found, 20)[1:] == [("b", 0, 1, "0 0", "no room"), ("c", 0, 2, "0 0", "reserved for another")]


def test_a_queue_beyond_its_share_is_named():
    from simsched_policies.production.yarn_cs import YarnCs

    jobs = [{"id": name, "num_gpus": 2, "duration_s": 60, "tenant": "t"} for name in "ab"]
    policy = YarnCs(capacities={"t": 0.5, "u": 0.5}, elastic=False)
    found = sim.simulate(jobs=jobs, policy=policy, cluster=(1, 4), restart_delay_s=0, reasons=True).reasons
    assert at(found, 0)[1][4] == Why.OVER_QUOTA


def test_nothing_is_kept_unless_asked_for():
    jobs = [{"num_gpus": 4, "duration_s": 60}] * 2
    assert sim.simulate(jobs=jobs, policy="fifo", cluster=(1, 4)).reasons.empty


@pytest.mark.parametrize("policy", ["gavel-max-min", "las", "muri-l", "themis", "isolated", "kueue", "kai", "volcano"])
def test_policies_rank_the_jobs_that_wait(policy):
    found = reasons(policy, [(0, 4, 600), (1, 4, 600), (2, 4, 600)])
    waiting = found[found["gpus"] == 0]
    assert len(waiting)
    assert (waiting["rank"] > 0).mean() > 0.5, waiting
    assert waiting["why"].ne("").all()
