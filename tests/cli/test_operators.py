"""Logs in, answers out: calibrate, capacity and what-if on a small log whose answers are known."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from simsched_policies.production.slurm.options import Backfill
from simsched_policies.production.slurm.policy import SlurmBackfill

from simsched.engine.options import EngineOptions
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.operators.capacity import Search, Target
from simsched.operators.what_if import compare_groups
from simsched.report.figures.operators import wait_changes
from simsched.report.page.answers import Section, write_answer
from simsched.report.table import TextTable
from simsched.testing.builders import run

HEADER = "JobID|Submit|Start|End|State|AllocTRES|Timelimit|Partition|Account|User"
NODES = "".join(
    f"NodeName=n{i} CPUTot=64 RealMemory=1000 Gres=gpu:a100:4 Partitions=batch State=IDLE\n" for i in range(2)
)

pytestmark = pytest.mark.usefixtures("in_this_process")


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"2024-03-{1 + whole // 86400:02d}T{whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def jobs_of(seed: int) -> list[JobSpec]:
    dice, now, jobs = random.Random(seed), 0, []
    for i in range(60):
        now += dice.randint(30, 900)
        limit = 60 * dice.randint(5, 120)
        tenant = "vision" if i % 3 else "speech"
        jobs.append(
            JobSpec(
                f"{100 + i}", now, dice.choice([1, 1, 2, 4, 8]), duration_s=max(60, int(limit * dice.random())),
                time_limit_s=limit, tenant=tenant, user=f"{tenant}{i % 2}", status="Pass",
            )
        )  # fmt: skip
    return jobs


@pytest.fixture
def log(folder: Path) -> Path:
    """Write the log that a Slurm with conservative backfill would leave behind, and two lines that make no sense."""
    jobs = {job.id: job for job in jobs_of(3)}
    options = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
    policy = SlurmBackfill(Backfill("conservative"))
    records = run(policy, jobs.values(), cluster=Cluster.uniform(2, 4, "a100"), options=options)
    lines = [HEADER]
    for one in sorted(records.jobs, key=lambda record: record.submit_time_s):
        limit = int(jobs[one.job_id].time_limit_s or 0) // 60
        times = "|".join(clock(second) for second in (one.submit_time_s, one.start_time_s, one.end_time_s))
        spell = f"{limit // 60:02d}:{limit % 60:02d}:00"
        queue = "batch" if one.num_gpus < 4 else "large"
        tail = f"COMPLETED|gres/gpu={one.num_gpus}|{spell}|{queue}|{one.tenant}|{one.user}"
        lines.append(f"{one.job_id}|{times}|{tail}")
    lines.append(f"900|{clock(500)}|{clock(900)}|{clock(800)}|COMPLETED|gres/gpu=1|01:00:00|batch|speech|x")
    lines.append(f"901|{clock(500)}|{clock(900)}")
    (folder / "cluster.txt").write_text(NODES)
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    return folder / "log.txt"


OPTIONS = ("--cluster", "cluster.txt", "--json")


def test_calibration_finds_the_policy_that_was_in_force(simsched: Callable, log: Path) -> None:
    right = simsched("calibrate", "log.txt", *OPTIONS, "--no-plots", "-o", "policy.backfill.kind=conservative")
    told = json.loads(right.stdout)
    row = told["rows"][0]
    assert min(row["skill"], row["waited_skill"]) > 0.99  # nodes of the file have partitions, those of the log none
    assert row["recorded_p90_s"]["value"] == row["simulated_p90_s"]["value"] > 0
    assert abs(row["off"]["value"]) < 0.01
    assert not told["open"]  # a day and a half proves nothing
    (reason,) = told["reasons"]
    assert reason.startswith("too little evidence")
    said = right.stderr
    assert "1 job: end before their start (line 62: 900)" in said
    assert "1 job: line is cut short (line 63: 901)" in said
    wrong = simsched("calibrate", "log.txt", *OPTIONS, "-o", "policy.backfill.kind=none")
    found = json.loads(wrong.stdout)
    assert found["rows"][0]["skill"] < 1
    assert all(Path(path).is_file() for path in found["figures"])
    assert {row["group"] for row in found["rows"] if row["kind"] == "queue"} == {"batch", "large"}
    drawn = pd.read_csv("results/log/figures/calibrate.csv")
    assert set(drawn["panel"]) == {"share", "size", "queue"}
    simulated = drawn[(drawn["kind"] == "simulated") & (drawn["x"] == "large")]["value"].item()
    (row,) = [row for row in found["rows"] if row["group"] == "large"]
    assert simulated > 0
    assert row["simulated_mean_s"]["value"] > row["recorded_mean_s"]["value"]  # jobs of the other partition pass them
    assert row["jobs"] < 60


def test_strict_refuses_a_log_with_jobs_that_make_no_sense(simsched: Callable, log: Path) -> None:
    done = simsched("calibrate", "log.txt", *OPTIONS, "--strict")
    assert done.exit_code == 2
    assert "end before their start" in done.stderr


def test_what_if_says_who_gains_and_who_loses(simsched: Callable, log: Path) -> None:
    done = simsched(
        "what-if",
        "log.txt",
        *OPTIONS,
        "--trust-anyway",
        "--change",
        "tenants.vision.max_gpus=2",
        "-o",
        "workload.max_gpus=2",
    )
    tables = json.loads(simsched("show", "results/log/after", "--by", "queue", "--json").stdout)
    assert {row["group"] for table in tables.values() for row in table["rows"]} == {"batch", "all"}
    verdicts = {(one["by"], one["before"]["group"]): one["verdict"] for one in json.loads(done.stdout)["effects"]}
    assert verdicts["tenant", "vision"] == "loses"
    assert verdicts["tenant", "speech"] != "loses"
    page = Path("results/log/answers.html").read_text()
    assert "will wait" in page
    assert page.count("NOT TRUSTED, the replay does not match this log") >= 6
    directions = {one["before"]["group"]: one["forecast"]["direction"] for one in json.loads(done.stdout)["effects"]}
    assert directions["vision"] in ("more", "cannot tell")
    assert "loses" in page
    easy = ("--no-plots", "--trust-anyway", "--change", "policy.backfill.kind=easy")
    effects = json.loads(simsched("what-if", "log.txt", *OPTIONS, *easy).stdout)["effects"]
    assert {one["verdict"] for one in effects} == {"as before"}
    assert {(one["sooner"], one["later"]) for one in effects} == {(0.0, 0.0)}
    assert {one["by"] for one in effects} == {"tenant", "queue", "user", "size"}
    half = ("--no-plots", "--trust-anyway", "--change", "policy.limits.max_time_h=0.5")
    judged = json.loads(simsched("what-if", "log.txt", *OPTIONS, *half).stdout)["effects"]
    (cut,) = {one["cut_after"] for one in judged if one["before"]["group"] == "all"}
    assert 0 < cut <= sum(job.duration_s > 1800 for job in jobs_of(3))
    shorter = simsched("what-if", "log.txt", *OPTIONS[:-1], *half)
    assert f"Jobs that end at a limit or are cancelled: 0 before, {cut} after." in " ".join(shorter.stdout.split())


def test_a_limit_below_the_size_of_jobs_is_named(simsched: Callable, log: Path) -> None:
    options = ("--no-plots", "--trust-anyway", "--change", "tenants.vision.max_gpus=2")
    done = simsched("what-if", "log.txt", *OPTIONS, *options)
    assert done.exit_code == 2
    large = sum(job.tenant == "vision" and job.num_gpus > 2 for job in jobs_of(3))
    assert f"{large} jobs of tenant 'vision' ask for more than its max_gpus of 2" in done.stderr
    assert "-o workload.max_gpus=" in done.stderr


def test_trace_info_names_lines_and_refuses_on_request(simsched: Callable, log: Path) -> None:
    said = simsched("trace", "info", "log.txt", "--no-plots").stdout
    assert "1 job: end before their start (line 62: 900)" in said
    done = simsched("trace", "info", "log.txt", "--no-plots", "--strict")
    assert done.exit_code == 2
    assert "log.txt:63: 1 job: line is cut short (line 63: 901)" in done.stderr


def test_an_effect_counts_jobs_and_names_who_gains() -> None:
    columns = ["job_id", "tenant", "user", "num_gpus", "queueing_s", "jct_s", "held_s", "attained_gpu_s"]
    waits = {"a": (3600, 0), "b": (3600, 3700), "c": (0, 7200), "d": (10, 60)}
    before, after = (
        pd.DataFrame(
            [(name, "x" if name in "ab" else "", name, 1, w[i], w[i] + 100, 100, 100) for name, w in waits.items()],
            columns=columns,
        )
        for i in (0, 1)
    )
    found = {one.before.group: one for one in compare_groups(before, after, "tenant")}
    assert {name: (one.verdict, one.sooner, one.later) for name, one in found.items()} == {
        "x": ("gains", 0.5, 0.0),
        "(none)": ("loses", 0.0, 0.5),
        "all": ("loses", 0.25, 0.25),
    }


def test_answers_stand_on_one_page_in_one_order(tmp_path: Path) -> None:
    table = TextTable("Nodes", ("nodes", "met"), (("4", "no"),), ("Four < five.",))
    groups = pd.DataFrame(
        [("size", "1 GPU", 1.0, 2.0, "loses")], columns=["by", "group", "before_h", "after_h", "verdict"]
    )
    drawn = wait_changes(groups, title="Who")
    write_answer(Section("capacity", "How many?", ["Five."], [table]), tmp_path, "gpus")
    first = write_answer(Section("what-if", "And if?", ["Worse."], [], [drawn]), tmp_path, "gpus").read_bytes()
    page = write_answer(Section("what-if", "And if?", ["Worse."], [], [drawn]), tmp_path, "gpus").read_text()
    assert page.encode() == first
    assert page.index('id="what-if"') < page.index('id="capacity"') < page.index('id="words"')
    assert "Four &lt; five." in page
    assert page.count("<svg") == page.count("And if?") == 1


def test_capacity_is_the_least_that_meets_the_target(simsched: Callable, log: Path) -> None:
    options = (*OPTIONS, "--target", "queueing_p90_h<=0.1", "--node-price", "2")
    assert json.loads(simsched("capacity", "log.txt", *options, "--no-plots").stdout)["answers"] == []
    (answer,) = json.loads(simsched("capacity", "log.txt", *options, "--trust-anyway").stdout)["answers"]
    values = {point["nodes"]: point["value"] for point in answer["points"]}
    assert [point["nodes"] for point in answer["points"] if point["recorded"]] == [2]
    nodes = answer["nodes"]
    assert values[nodes] <= 0.1 < values[nodes - 1]
    assert answer["cost_per_month"] == 2 * 730 * nodes
    assert [point["cost_per_month"] for point in answer["points"]] == [2 * 730 * n for n in values]
    assert "90th percentile queueing (h)" in Path("results/log/answers.html").read_text()


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_search_measures_around_its_answer(at_once: int) -> None:
    def measure(numbers):
        return {number: number >= 11 for number in numbers}

    search = Search(measure, at_once)
    assert search.find(2, 3, 1000) == 11
    assert {10, 12, 13} <= search.known.keys()


def test_an_answer_on_a_curve_that_goes_up_and_down_is_safe() -> None:
    search = Search(lambda numbers: {number: number >= 11 and number != 13 for number in numbers})
    assert search.find(1, 16, 1000) == 14
    assert Search(lambda numbers: dict.fromkeys(numbers, False)).find(1, 4, 64) is None


@pytest.mark.parametrize("text", ["queueing_p90_h<1", "nothing<=1", "queueing_p90_h<=e"])
def test_a_bad_target_is_refused(text: str, simsched: Callable, log: Path) -> None:
    assert simsched("capacity", "log.txt", *OPTIONS, "--target", text).exit_code == 2


def test_targets() -> None:
    target = Target.parse("gpu_utilisation >= 0.5")
    assert target == Target("gpu_utilisation", ">=", 0.5)
    assert target.met(0.5)
    assert not target.met(0.4)


def test_any_run_can_be_shown_by_tenant(simsched: Callable, log: Path) -> None:
    simsched("calibrate", "log.txt", *OPTIONS, "--no-plots")
    done = simsched("show", "results/log/calibrate", "--by", "tenant")
    assert done.exit_code == 0
    assert "speech" in done.stdout
    assert "Jain's index" in done.stdout
