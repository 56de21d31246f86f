"""The oracle of ElasticFlow's simulator against the logs that its authors recorded."""

import csv
from types import MappingProxyType

import pytest

from tests.campaigns import played
from tests.validation.oracles import elasticflow, elasticflow_gandiva, elasticflow_plans

COLUMNS = {
    "time": "noticed_s", "num_gpu": "gpus", "start_time": "start_s", "end_time": "end_s", "executed_time": "executed_s",
    "JCT": "jct_s", "pending_time": "pending_s", "preempt": "preemptions",
}  # fmt: skip


def jobs_of(shared, trace, fewer=MappingProxyType({})):
    data = shared / "elasticflow"
    return elasticflow.read_jobs(data / f"{trace}.csv", data / "throughputs_a100.csv", fewer)


def recorded_rows(shared, log):
    with (shared / f"elasticflow/{log}.csv").open(newline="") as stream:
        return {int(row["job_id"]): row for row in csv.DictReader(stream)}


def assert_rows_agree(rows, recorded):
    found = {row.job_id: row for row in rows}
    assert found.keys() == recorded.keys()
    for job_id, row in recorded.items():
        for column, name in COLUMNS.items():
            assert getattr(found[job_id], name) == float(row[column]), (job_id, column)


@pytest.mark.parametrize(
    ("trace", "log", "replay"),
    [
        ("trace", "expected_edf", elasticflow.replay_edf),
        ("trace_busy", "expected_busy_edf", elasticflow.replay_edf),
        ("trace", "expected_tiresias", lambda jobs: elasticflow.Tiresias(jobs).replay()),
        ("trace_busy", "expected_busy_tiresias", lambda jobs: elasticflow.Tiresias(jobs).replay()),
        ("trace", "expected_tiresias_2024", lambda jobs: elasticflow.Tiresias(jobs, later=True).replay()),
    ],
)
def test_every_row_of_a_log_comes_out(shared, trace, log, replay):
    assert_rows_agree(replay(jobs_of(shared, trace)), recorded_rows(shared, log))


ELASTICFLOW = [
    ("trace", "expected_elasticflow", False),
    ("trace", "expected_elasticflow_2024", True),
    ("trace_busy", "expected_busy_elasticflow", False),
]


@pytest.mark.parametrize(("trace", "log", "later"), played(ELASTICFLOW, ELASTICFLOW[1:2]))
def test_every_row_of_elasticflow_itself_comes_out(shared, trace, log, later):
    jobs = jobs_of(shared, trace, elasticflow_plans.FEWER)
    assert_rows_agree(elasticflow_plans.replay(jobs, later=later), recorded_rows(shared, log))


def test_themis_has_the_figures_of_its_description(shared):
    jobs = jobs_of(shared, "trace")
    ends = elasticflow.themis_ends(jobs)
    assert max(ends.values()) == 740_400
    assert sum(ends[job.id] <= job.deadline_s for job in jobs) == 99
    assert sum(ends[job.id] - job.submit_s for job in jobs) / len(jobs) == pytest.approx(51_242.94)


def gandiva(shared, trace, **variant):
    jobs = jobs_of(shared, trace)
    replay = elasticflow_gandiva.Gandiva(jobs, **variant)
    return replay, {row.job_id: row for row in replay.replay()}, {job.id: job.deadline_s for job in jobs}


@pytest.mark.parametrize(
    ("trace", "variant", "met", "mean_s"),
    [
        ("trace", {}, 79, "63852.78"),
        ("trace", {"always_anew": True}, 77, "57834.9"),
        ("trace", {"never_still": True}, None, "63759.8"),
        ("trace_busy", {}, 56, "46766.93"),
    ],
)
def test_gandiva_has_the_figures_of_its_description(shared, trace, variant, met, mean_s):
    _, rows, deadlines_s = gandiva(shared, trace, **variant)
    decimals = len(mean_s.partition(".")[2])
    assert f"{sum(row.jct_s for row in rows.values()) / len(deadlines_s):.{decimals}f}" == mean_s
    assert met is None or sum(row.end_s <= deadlines_s[job_id] for job_id, row in rows.items()) == met


def test_gandiva_decides_and_deals_as_often_as_described(shared):
    replay, rows, _ = gandiva(shared, "trace")
    assert max(row.end_s for row in rows.values()) == 740_211
    assert replay.decisions == 2_453 - 1  # lines with a heading
    _, anew, _ = gandiva(shared, "trace", always_anew=True)
    assert sum(anew[job_id] != row for job_id, row in rows.items()) == 51


def test_elasticflow_without_spare_gpus_has_the_figures_of_its_description(shared):
    jobs = jobs_of(shared, "trace", elasticflow_plans.FEWER)
    rows = elasticflow_plans.replay(jobs, spare=False)
    deadlines_s = {job.id: job.deadline_s for job in jobs}
    assert len(rows) == 99
    assert sum(row.end_s <= deadlines_s[row.job_id] for row in rows) == 81
    assert sum(row.jct_s for row in rows) / 99 == pytest.approx(74_414.9, abs=0.05)
