"""The gate before operators' answers, the forecast behind it, and how a log begins and ends, by hand-worked figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from simsched.operators import readings
from simsched.operators.beginning import RunTimes, with_state
from simsched.operators.gate import DAY_S, judge_replay, likely_causes, unknowns
from simsched.operators.live import queue_at
from simsched.operators.log_input import OperatorLog, cluster_groups, slurm_nodes
from simsched.operators.readings import _clock
from simsched.operators.replays import ReplayPlan
from simsched.operators.what_if import forecast_mean
from simsched.workload import make_trace
from simsched.workload.readers.log import LOG_COLUMNS, ClusterLog

HOUR = 3600.0
NODES = ({"nodes": 2, "gpus_per_node": 8, "gpu_type": "a100"},)


def jobs_of(recorded: Sequence[float], simulated: Sequence[float], days: int = 16) -> pd.DataFrame:
    """Spread jobs evenly over days, one size and queue."""
    count = len(recorded)
    submit = np.linspace(0, days * DAY_S - 1, count)
    return pd.DataFrame(
        {
            "job_id": [str(i) for i in range(count)],
            "size": "1 GPU",
            "queue": "q",
            "submit_s": submit,
            "recorded_s": np.asarray(recorded, dtype=np.float64),
            "simulated_s": np.asarray(simulated, dtype=np.float64),
        }
    )


def log_of(rows: Sequence[dict[str, object]], still: Sequence[dict[str, object]] = ()) -> ClusterLog:
    """Make a log of rows that name what differs from a job of one GPU and an hour."""
    plain: dict[str, object] = dict.fromkeys(LOG_COLUMNS, "")
    plain |= {"gpus": 1.0, "time_limit_s": 7200.0, "priority": 0.0, "attempts": 1, "line": 1, "queue": "q", "user": "u"}

    def frame(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
        whole = [plain | {"job_id": str(i), "eligible_s": row.get("submit_s")} | row for i, row in enumerate(rows)]
        table = pd.DataFrame(whole, columns=list(LOG_COLUMNS))
        if "duration_s" not in (rows[0] if rows else {}):
            table["duration_s"] = table["end_s"] - table["start_s"]
        return table

    return ClusterLog("log", "slurm", frame(rows), still=frame(still))


LOG = log_of([{"submit_s": 0, "start_s": 0, "end_s": 3600}] * 40)


def test_a_replay_that_is_right_opens_the_gate_and_one_that_says_zero_does_not() -> None:
    recorded = [0.0, 2 * HOUR, 4 * HOUR] * 100
    right = judge_replay(jobs_of(recorded, recorded), LOG, NODES, "p")
    assert right.is_open
    assert right.rows[0].skill == right.rows[0].waited_skill == 1.0
    assert right.rows[0].off.value == 0
    zero = judge_replay(jobs_of(recorded, [0.0] * 300), LOG, NODES, "p")
    # Guessing 2 h errs by 4/3 h on average, guessing zero by 2 h; among those that waited, 3 h errs by 1 h, zero by 3.
    assert zero.rows[0].guess in ("median", "hour")
    assert zero.rows[0].waited_skill == pytest.approx(1 - 3.0 / 1.0, abs=0.1)
    assert not zero.is_open
    assert any("mean wait 0.00 h in the replay, 2.00 h recorded: -100 %" in reason for reason in zero.reasons)


def test_where_most_jobs_wait_for_nothing_zeros_are_no_skill() -> None:
    # 9 of 10 jobs do not wait: saying zero for all is right for 90 %, and as good as the best guess.
    recorded = ([0.0] * 9 + [5 * HOUR]) * 50
    found = judge_replay(jobs_of(recorded, [0.0] * 500), LOG, NODES, "p")
    assert found.rows[0].guess == "zero"
    assert found.rows[0].skill == 0
    assert not found.is_open


def test_guesses_are_fitted_on_the_first_half() -> None:
    # The first half waits 1 h, the second 3 h: the median guess errs by 2 h there, less than zero, which errs by 3.
    recorded = [HOUR] * 150 + [3 * HOUR] * 150
    found = judge_replay(jobs_of(recorded, [2 * HOUR] * 300), LOG, NODES, "p")
    assert found.rows[0].guess in ("median", "hour")
    assert found.rows[0].waited_skill == pytest.approx(1 - 1 / 2)
    assert found.rows[0].off.value == pytest.approx(-1 / 3)


def test_intervals_come_from_days() -> None:
    # Days of 1 h and of 3 h alternate: over 8 of them the mean is 2 h, resampled between 1.25 and 2.75.
    submit = np.arange(16 * 24) * HOUR
    recorded = np.where(submit // DAY_S % 2 == 0, HOUR, 3 * HOUR)
    jobs = jobs_of(recorded, recorded).assign(submit_s=submit)
    row = judge_replay(jobs, LOG, NODES, "p").rows[0]
    assert row.recorded_mean_s.value == pytest.approx(2 * HOUR, rel=0.05)
    assert HOUR < row.recorded_mean_s.low < 1.7 * HOUR
    assert 2.3 * HOUR < row.recorded_mean_s.high < 3 * HOUR
    assert row.off.low == row.off.high == 0
    alike = judge_replay(jobs_of([2 * HOUR] * 300, [2 * HOUR] * 300), LOG, NODES, "p").rows[0]
    assert alike.recorded_mean_s.low == alike.recorded_mean_s.high == 2 * HOUR


def test_a_short_log_is_no_evidence() -> None:
    recorded = [0.0, 2 * HOUR] * 100
    (reason,) = judge_replay(jobs_of(recorded, recorded, days=4), LOG, NODES, "p").reasons
    assert reason.startswith("too little evidence: 50 jobs that waited in 2.0 days")


def test_a_log_that_names_no_partition_of_unlike_nodes_says_too_little() -> None:
    two = (*NODES, {"nodes": 1, "gpus_per_node": 4, "gpu_type": "v100"})
    stripped = log_of([{"submit_s": 0, "start_s": 0, "end_s": 3600, "queue": ""}] * 4)
    assert unknowns(LOG, two) == unknowns(stripped, NODES) == ()
    (reason,) = unknowns(stripped, two)
    assert "2 kinds of nodes, and 100 % of the jobs name no partition" in reason


def test_a_cap_of_users_is_seen_in_the_log() -> None:
    # Two users hold 4 of 16 GPUs each, never more; the fifth job of each waits for the first to end.
    rows = []
    for user in ("ann", "bob"):
        rows += [{"user": user, "submit_s": 0, "start_s": 0, "end_s": 7200} for _ in range(4)]
        rows += [{"user": user, "submit_s": 0, "start_s": 7200, "end_s": 9000, "gpus": 4.0}]
    log = log_of(rows)
    jobs = jobs_of([float(row["start_s"]) for row in rows], [0.0] * 10)
    causes = list(likely_causes(jobs, log, NODES))
    assert any("100 % of the jobs that waited did so while as many GPUs" in cause for cause in causes)
    assert any(
        cause == "2 times a user comes to hold 4 GPUs at once, and none holds more: a limit?" for cause in causes
    )
    assert any("waits less than the cluster did" in cause for cause in causes)


def test_a_forecast_carries_the_misfit() -> None:
    submit = np.repeat(np.arange(10) * DAY_S, 10)
    ones = np.ones(100)
    same = forecast_mean(2 * HOUR * ones, 2 * HOUR * ones, HOUR * ones, submit)
    assert same.mean_s == pytest.approx(HOUR, rel=0.01)
    assert same.low_s < HOUR < same.high_s < 2 * HOUR
    assert same.direction == "less"
    # The replay says 1 h before and 0.5 h after where 2 h were recorded: half (1 h) or half an hour less (1.5 h).
    off = forecast_mean(2 * HOUR * ones, HOUR * ones, HOUR / 2 * ones, submit)
    assert off.mean_s == pytest.approx(1.25 * HOUR, rel=0.01)
    # Half of a wait is the misfit, and half of the wait goes: both ways of 1 h and 1.5 h, times 1.02 sqrt(sqrt(2)).
    assert off.low_s == pytest.approx(HOUR / 1.02 / 2**0.25 - 60, rel=0.02)
    assert off.high_s == pytest.approx(1.5 * HOUR * 1.02 * 2**0.25 + 60, rel=0.02)
    unchanged = forecast_mean(2 * HOUR * ones, 2 * HOUR * ones, 2 * HOUR * ones, submit)
    assert unchanged.direction == "as before"


def test_run_times_are_drawn_from_those_that_lasted_as_long() -> None:
    shares = np.arange(1, 101) / 100
    table = pd.DataFrame({"user": "u", "time_limit_s": 1000.0, "duration_s": 1000 * shares})
    times = RunTimes.of(table)
    jobs = pd.DataFrame({"user": ["u"] * 2000, "time_limit_s": [1000.0] * 2000})
    drawn = times.draw(jobs, np.zeros(2000), np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(505, rel=0.03)
    later = times.draw(jobs, np.full(2000, 800.0), np.random.default_rng(1))
    assert later.min() > 800
    assert later.mean() == pytest.approx(905, rel=0.01)
    over = times.draw(jobs, np.full(2000, 1200.0), np.random.default_rng(1))
    assert set(over) == {1201.0}


def test_a_log_begins_with_what_ran_and_waited() -> None:
    rows = [
        {"submit_s": 0, "start_s": 0, "end_s": 500},
        {"submit_s": 50, "start_s": 100, "end_s": 900},  # ran when the first one ended
        {"submit_s": 200, "start_s": 700, "end_s": 800},  # waited then
        {"submit_s": 600, "start_s": 650, "end_s": 1000},
    ]
    still = [{"job_id": "s", "submit_s": 800, "start_s": 900, "end_s": -1, "duration_s": 0.0, "time_limit_s": 0.0}]
    log = log_of(rows, still)
    found = with_state(OperatorLog(None, log, ""), log, NODES)  # type: ignore[arg-type]
    table = found.log.trace.table.set_index("job_id")
    assert (found.running, found.waiting, found.open, found.zero_s, found.last_s) == (2, 1, 1, 0, 800)
    assert table["submit_time_s"].to_dict() == {"0": 0, "1": 100, "2": 500, "3": 600, "s": 800}
    assert table.loc["s", "duration_s"] > 100  # it has run for 100 s and goes on
    assert log.last_s == 1000


def test_a_queue_is_what_ran_and_waited_at_a_moment() -> None:
    log = log_of([{"submit_s": 0, "start_s": 0, "end_s": 500}, {"submit_s": 50, "start_s": 500, "end_s": 900}])
    assert queue_at(log, 100).jobs["start_s"].tolist() == [0, -1]
    assert queue_at(log, 600).jobs["start_s"].tolist() == [500]


def test_nodes_are_read_as_json(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(
        """{"nodes": [{"name": "n1", "gres": "gpu:a100:8(S:0-1)", "cpus": 64, "real_memory": 2048,
        "partitions": ["q"], "state": ["IDLE", "DRAIN"]}, {"name": "n2", "gres": "gpu:a100:8", "cpus": 64,
        "real_memory": 2048, "partitions": ["q"], "state": "idle"}]}"""
    )
    (group,) = cluster_groups(tmp_path / "nodes.json")
    assert group == {
        "nodes": 2, "gpus_per_node": 8, "gpu_type": "a100", "cores_per_node": 64, "memory_gb_per_node": 2.0,
        "partitions": ["q"],
    }  # fmt: skip
    found = slurm_nodes(tmp_path / "nodes.json")
    assert found is not None
    assert [one.works for one in found.nodes] == [False, True]


def test_squeue_is_read_as_slurm_writes_it(tmp_path: Path) -> None:
    from simsched.operators.live import read_queue

    (tmp_path / "squeue.json").write_text(
        """{"jobs": [
        {"job_id": 7, "job_state": ["RUNNING"], "user_name": "u", "account": "a", "partition": "p", "qos": "normal",
         "submit_time": {"set": true, "infinite": false, "number": 1709251200}, "eligible_time": {"number": 1709251200},
         "start_time": {"set": true, "number": 1709251260}, "time_limit": {"set": true, "number": 1500},
         "tres_alloc_str": "cpu=4,gres/gpu=2", "tres_req_str": "cpu=4,gres/gpu=2", "nodes": "n1"},
        {"job_id": 9, "array_job_id": {"number": 8}, "array_task_id": {"set": true, "number": 3},
         "job_state": "PENDING",
         "submit_time": 1709251300, "start_time": 1709260000, "time_limit": {"set": false, "infinite": true},
         "tres_req_str": "gres/gpu=4", "user_name": "v"},
        {"job_id": 5, "job_state": ["COMPLETED"], "submit_time": 1709251200, "tres_req_str": "gres/gpu=4"}],
        "last_update": {"number": 1709251400}}"""
    )
    found = read_queue(tmp_path / "squeue.json")
    assert found.now_s == 1709251400
    assert found.estimates == {"8_3": 1709260000}
    table = found.jobs.set_index("job_id")
    assert table[["start_s", "gpus", "time_limit_s"]].to_dict("index") == {
        "7": {"start_s": 1709251260, "gpus": 2.0, "time_limit_s": 90000.0},
        "8_3": {"start_s": -1, "gpus": 4.0, "time_limit_s": 0.0},
    }


def plan_of(log: ClusterLog, *changes: str, **params: object) -> ReplayPlan:
    found = OperatorLog(make_trace("log", "slurm", log.jobs().columns), log, "")
    return ReplayPlan(found, NODES, "slurm-backfill", Path("none"), params=params, changes=changes)


def starting_at(*seconds: int) -> ClusterLog:
    """Make a log of jobs that all wait and start then, and of one that ends at 1800 s."""
    rows = [{"submit_s": 1 + i, "start_s": second, "end_s": 90_000 + i} for i, second in enumerate(seconds)]
    return log_of([{"submit_s": 0, "start_s": 0, "end_s": 1800}, *rows])


def test_when_backfill_runs_is_read_off_the_starts_at_quiet_moments() -> None:
    log = starting_at(*(623 + 60 * i for i in range(40)))
    every_s, at_23 = {"interval_s": 60, "offset_s": 23}, {"backfill.interval_s": 60, "backfill.offset_s": 23}
    assert list(_clock(plan_of(log, backfill={"interval_s": 30}), log, 0, 1e9)) == [at_23]
    assert list(_clock(plan_of(log, backfill=every_s), log, 0, 1e9)) == []
    # All start where another ends: whatever interval is said, jobs that end are what starts them.
    ends = starting_at(*[1800] * 40)
    assert list(_clock(plan_of(ends), ends, 0, 1e9)) == [{"backfill.interval_s": 1}]
    # Starts at any second of a minute tell of no interval.
    any_time = starting_at(*(607 + 61 * i for i in range(40)))
    assert list(_clock(plan_of(any_time), any_time, 0, 1e9)) == []


def test_readings_are_taken_while_they_come_closer_and_none_that_the_user_has_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = starting_at(*(607 + 61 * i for i in range(40)))
    tried: list[dict[str, object]] = []

    def errors(plan: ReplayPlan, windows: object, most_s: float = np.inf) -> float:
        said = dict(plan.params.get("backfill", {}))
        tried.append(said | {"placement": plan.params.get("placement")})
        off = {"any": 50.0, None: 100.0}.get(str(plan.params.get("placement", None)), 100.0)
        return off - (30 if said.get("whole_nodes") else 0) + (5 if said.get("from_pass") else 0)

    monkeypatch.setattr(readings, "_windows", lambda *_: [SimpleNamespace(waits_s=1e4)])
    monkeypatch.setattr(readings, "_error_s", errors)
    plan, taken = readings.with_readings(plan_of(log, backfill={"max_jobs": 9}), log, 0, 1e9)
    assert taken.reading == {"placement": "any", "backfill.whole_nodes": True}
    assert (taken.before_s, taken.after_s) == (100, 20)
    assert plan.params == {"placement": "any", "backfill": {"max_jobs": 9, "whole_nodes": True}}
    assert "policy.placement=any" in taken.said(0.7)
    assert taken.said(0.7).endswith("skill 0.70 on the second half")
    tried.clear()
    _, taken = readings.with_readings(plan_of(log, "policy.placement=fragments"), log, 0, 1e9)
    assert taken.reading == {"backfill.whole_nodes": True}
    assert {one["placement"] for one in tried} == {None}


def test_who_starts_at_the_first_end_of_a_log_waits_until_then() -> None:
    log = log_of(
        [
            {"submit_s": 0, "start_s": 0, "end_s": 3600},
            {"submit_s": 60, "start_s": 3600, "end_s": 9000},
            {"submit_s": 90, "start_s": 7200, "end_s": 9000},
        ]
    )
    begin = with_state(OperatorLog(make_trace("log", "slurm", log.jobs().columns), log, ""), log, NODES)
    assert (begin.running, begin.waiting) == (1, 2)
