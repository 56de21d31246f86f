"""ElasticFlow's replay from outside: against the logs of its artifact, and on random traces against the oracle."""

import csv
import random

import pytest

from simsched.errors import InputError
from tests.campaigns import played
from tests.validation import elasticflow_cases as cases
from tests.validation.oracles import elasticflow as oracle, elasticflow_plans as plans
from tests.validation.oracles.elasticflow_gandiva import Gandiva

#: What the artifact logs of a job, and what the oracle calls it.
COLUMNS = {
    "time": "noticed_s", "num_gpu": "gpus", "start_time": "start_s", "end_time": "end_s", "executed_time": "executed_s",
    "JCT": "jct_s", "pending_time": "pending_s", "preempt": "preemptions",
}  # fmt: skip

REPLAYS = {
    "EDF": oracle.replay_edf,
    "Tiresias": lambda jobs: oracle.Tiresias(jobs).replay(),
    "Tiresias-2024": lambda jobs: oracle.Tiresias(jobs, later=True).replay(),
    "Gandiva": lambda jobs: Gandiva(jobs).replay(),
    "ElasticFlow": plans.replay,
    "ElasticFlow-2024": lambda jobs: plans.replay(jobs, later=True),
}


def assert_tables_agree(done, rows, label):
    """The tables of results have what the log has; but Gandiva logs that a job starts when it joins a set to wait."""
    jobs = done.jobs()
    for row in rows:
        job = jobs.xs(row["job_id"], level="job_id").iloc[0]
        assert job["end_time_s"] == float(row["end_time"])
        assert int(job["jct_s"]) == int(row["JCT"])
        waited_s = job["start_time_s"] - float(row["start_time"])
        assert waited_s == 0 or (waited_s > 0 and label == "Gandiva")


#: Of each policy, the trace and the log of its artifact.
LOGS = [
    ("EDF", "trace", "expected_edf"),
    ("EDF", "trace_busy", "expected_busy_edf"),
    ("Tiresias", "trace", "expected_tiresias"),
    ("Tiresias", "trace_busy", "expected_busy_tiresias"),
    ("Tiresias-2024", "trace", "expected_tiresias_2024"),
    ("ElasticFlow", "trace", "expected_elasticflow"),
    ("ElasticFlow", "trace_busy", "expected_busy_elasticflow"),
    ("ElasticFlow-2024", "trace", "expected_elasticflow_2024"),
]


@pytest.mark.parametrize(("label", "trace", "log"), played(LOGS, [LOGS[0], LOGS[2], LOGS[5]]))
def test_every_line_of_a_recorded_log_comes_out(shared, tmp_path, label, trace, log):
    data = shared / "elasticflow"
    done, rows = cases.run(data / f"{trace}.csv", data / "throughputs_a100.csv", tmp_path, label)
    with (data / f"{log}.csv").open(newline="") as stream:
        recorded = list(csv.DictReader(stream))
    assert [row["job_id"] for row in rows] == [row["job_id"] for row in recorded]
    for row, expected in zip(rows, recorded, strict=True):
        assert floats({column: row[column] for column in expected}) == floats(expected)
    assert_tables_agree(done, rows, label)
    grants = data / f"grants{trace.removeprefix('trace')}.csv"
    if label == "ElasticFlow" and grants.is_file():
        (found,) = done.folder.glob("cells/*/grants.csv")
        assert grants_of(found) == grants_of(grants)


def grants_of(file):
    with file.open(newline="") as stream:
        return [(numbers(row.pop("plan")), floats(row)) for row in csv.DictReader(stream)]


def numbers(plan):
    return [tuple(map(float, step.split(":"))) for step in plan.split(";")]


def floats(row):
    return {column: float(cell) for column, cell in row.items()}


#: The trace, what is changed, and the jobs logged, the deadlines met, the mean JCT and the rows that differ.
HABITS = [
    ("trace", {"spare_to": "least-growth"}, 100, 100, "22593.8", 81),
    ("trace", {"stand_still": "none"}, 100, 99, "23861.2", 98),
    ("trace", {"stand_still": "full"}, 100, 99, "24404.8", 93),
    ("trace", {"spare_to": "none"}, 99, 81, "74414.9", None),
    ("trace_busy", {"renew_ends": True}, 97, 95, "12915.7", None),
]


@pytest.mark.parametrize(
    ("trace", "change", "logged", "met", "mean_s", "differ"), played(HABITS, [*HABITS[:1], *HABITS[3:4], *HABITS[-1:]])
)
def test_a_changed_habit_of_elasticflow_is_worth_what_its_description_says(
    shared, tmp_path, trace, change, logged, met, mean_s, differ
):
    data = shared / "elasticflow"
    changes = {f"policies.1.params.{key}": value for key, value in change.items()}
    _, rows = cases.run(data / f"{trace}.csv", data / "throughputs_a100.csv", tmp_path, "ElasticFlow", **changes)
    assert len(rows) == logged
    assert sum(float(row["end_time"]) <= float(row["ddl"]) for row in rows) == met
    assert f"{sum(int(row['JCT']) for row in rows) / logged:.1f}" == mean_s
    if differ is not None:
        with (data / "expected_elasticflow.csv").open(newline="") as stream:
            recorded = {row["job_id"]: floats(row) for row in csv.DictReader(stream)}
        assert sum(floats(row) != recorded[row["job_id"]] for row in rows) == differ


@pytest.mark.parametrize(("trace", "met", "mean_s"), [("trace", 79, 63_852.78), ("trace_busy", 56, 46_766.93)])
def test_gandiva_has_the_figures_of_its_description(shared, tmp_path, trace, met, mean_s):
    data = shared / "elasticflow"
    done, rows = cases.run(data / f"{trace}.csv", data / "throughputs_a100.csv", tmp_path, "Gandiva")
    assert sum(int(row["JCT"]) for row in rows) / 100 == pytest.approx(mean_s)
    assert sum(float(row["end_time"]) <= float(row["ddl"]) for row in rows) == met
    assert_tables_agree(done, rows, "Gandiva")


def test_themis_has_the_figures_of_its_description(shared, tmp_path):
    data = shared / "elasticflow"
    done, _ = cases.run(data / "trace.csv", data / "throughputs_a100.csv", tmp_path, "Themis")
    jobs = done.jobs()
    assert jobs["end_time_s"].max() == 740_400
    assert (jobs["jct_s"] <= jobs["deadline_s"]).sum() == 99
    assert jobs["jct_s"].mean() == pytest.approx(51_242.94)


def random_case(seed, folder, gap_s):
    rng = random.Random(seed)
    trace, rates = folder / "trace.csv", folder / "rates.csv"
    cases.write_trace(rng, trace, jobs=60, gap_s=gap_s, rates=cases.write_rates(rng, rates))
    return trace, rates


@pytest.mark.parametrize("gap_s", played([40, 200, 900], [200]))
@pytest.mark.parametrize("label", REPLAYS)
def test_every_job_of_a_random_trace_is_logged_as_the_oracle_does(tmp_path, label, gap_s):
    trace, rates = random_case(gap_s, tmp_path, gap_s)
    done, rows = cases.run(trace, rates, tmp_path, label)
    fewer = plans.FEWER if label.startswith("ElasticFlow") else {}
    expected = {row.job_id: row for row in REPLAYS[label](oracle.read_jobs(trace, rates, fewer))}
    assert sorted(int(row["job_id"]) for row in rows) == sorted(expected)
    for row in rows:
        found = {column: float(row[column]) for column in COLUMNS}
        job = expected[int(row["job_id"])]
        assert found == {column: float(getattr(job, name)) for column, name in COLUMNS.items()}, row["job_id"]
    assert_tables_agree(done, rows, label)


def test_jobs_that_all_find_room_end_under_themis_when_the_oracle_says(tmp_path):
    trace, rates = random_case(5, tmp_path, gap_s=900)
    done, _ = cases.run(trace, rates, tmp_path, "Themis")
    ends_s = done.jobs()["end_time_s"].droplevel(["policy", "seed"])
    expected = oracle.themis_ends(oracle.read_jobs(trace, rates))
    assert {int(job): end_s for job, end_s in ends_s.items()} == expected


def test_themis_is_refused_where_its_program_would_decide(tmp_path):
    trace, rates = random_case(1, tmp_path, gap_s=20)
    with pytest.raises(InputError, match="GPUs are wanted"):
        cases.run(trace, rates, tmp_path, "Themis")


def test_gandiva_is_refused_where_its_artifact_has_no_sets(tmp_path):
    trace, rates = random_case(1, tmp_path, gap_s=900)
    two = [{"nodes": 8, "gpus_per_node": gpus, "gpu_type": "a100"} for gpus in (4, 8)]
    with pytest.raises(InputError, match="nodes differ"):
        cases.run(trace, rates, tmp_path, "Gandiva", cluster={"groups": two})
    trace.write_text(f"{','.join(cases.COLUMNS)}\n0,0,100,bert,900,64,3,600,0\n")
    with_three = tmp_path / "three.csv"
    with_three.write_text(rates.read_text() + "bert,64,3,1.5\n")
    with pytest.raises(InputError, match="asks for 3 GPUs, for which"):
        cases.run(trace, with_three, tmp_path, "Gandiva")


def test_elasticflow_is_refused_where_its_artifact_places_otherwise(tmp_path):
    trace, rates = random_case(1, tmp_path, gap_s=900)
    with pytest.raises(InputError, match="nodes do not all have 8 GPUs"):
        cases.run(trace, rates, tmp_path, "ElasticFlow", **{"cluster.gpus_per_node": 4})


def test_jobs_without_rates_are_refused(tmp_path):
    trace, rates = random_case(1, tmp_path, gap_s=900)
    rates.write_text("\n".join(line for line in rates.read_text().splitlines() if not line.startswith("bert,")))
    with pytest.raises(InputError, match="no application 'bert'"):
        cases.run(trace, rates, tmp_path, "EDF")
