"""Lower bounds against optima found by enumeration, closed forms, shipped policies and doctored certificates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from simsched.api import simulate
from simsched.bounds import (
    Certificate,
    RelaxedJobs,
    Speeds,
    digest_of,
    least_cost,
    lower_bound,
    problem_of,
    relaxed_jobs,
)
from simsched.bounds.check import proved
from simsched.cli.main import cli
from simsched.errors import InputError
from simsched.operators import Bound
from simsched.operators.relaxed import FITTED, HARMLESS
from simsched.policy import registry
from tests.campaigns import played

Job = tuple[int, int, int]  # release, GPUs, seconds


def rigid(jobs: Sequence[Job], gpus: int) -> RelaxedJobs:
    speeds = [Speeds(((width, 1.0),)) for _, width, _ in jobs]
    return relaxed_jobs([r for r, _, _ in jobs], [p for *_, p in jobs], speeds, gpus)


def cell_of(jobs: RelaxedJobs) -> dict[str, Any]:
    """A cell of these jobs in which nothing else is left out."""
    rest = {"ticks_per_s": 1, "count": len(jobs), "ahead_s": 0.0, "relaxed": [], "jobs_hash": ""}
    served_s = float(jobs.work.sum()) if jobs.whole else None
    return {**jobs.plain, **rest, "served_s": served_s}


def claim_of(jobs: RelaxedJobs, found: Certificate) -> dict[str, Any]:
    """What a file of bounds says of these jobs."""
    cell = cell_of(jobs)
    claim = {
        "jobs": len(jobs),
        "unit_s": 1.0,
        "relaxed": [],
        "mean_jct_s": np.nextafter(found.flow_sum / len(jobs), 0),
        "makespan_s": float(found.makespan),
        "mean_wait_s": max(0.0, np.nextafter((found.flow_sum - (cell["served_s"] or 0)) / len(jobs), -1)),
        "certificate": {"cell": digest_of(cell), **found.to_json()},
    }
    if cell["served_s"] is None:
        claim["mean_wait_s"] = None
    return dict(json.loads(json.dumps(claim)))


def assert_proved(jobs: RelaxedJobs, found: Certificate) -> None:
    assert problem_of(claim_of(jobs, found), cell_of(jobs)) == ""


def least_flow(jobs: Sequence[Job], gpus: int) -> int:
    """Try, second by second, every set of jobs that fits and that none fits beside."""

    @cache
    def best(now: int, left: tuple[int, ...]) -> int:
        here = [j for j, (r, _, _) in enumerate(jobs) if left[j] and r <= now]
        if not here:
            return best(now + 1, left) if any(left) else 0
        found = 1 << 30
        for size in range(len(here), 0, -1):
            for chosen in combinations(here, size):
                free = gpus - sum(jobs[j][1] for j in chosen)
                if free >= 0 and not any(jobs[j][1] <= free for j in here if j not in chosen):
                    after = tuple(amount - (j in chosen) for j, amount in enumerate(left))
                    found = min(found, best(now + 1, after))
        return found + len(here)

    return best(0, tuple(p for *_, p in jobs))


def least_makespan(jobs: Sequence[Job], gpus: int) -> int:
    @cache
    def best(now: int, left: tuple[int, ...]) -> int:
        here = [j for j, (r, _, _) in enumerate(jobs) if left[j] and r <= now]
        if not any(left):
            return now
        found = best(now + 1, left) if not here else 1 << 30
        for size in range(len(here), 0, -1):
            for chosen in combinations(here, size):
                free = gpus - sum(jobs[j][1] for j in chosen)
                if free >= 0 and not any(jobs[j][1] <= free for j in here if j not in chosen):
                    after = tuple(amount - (j in chosen) for j, amount in enumerate(left))
                    found = min(found, best(now + 1, after))
        return found

    return best(0, tuple(p for *_, p in jobs))


def test_no_bound_lies_above_the_optimum_of_500_tiny_instances() -> None:
    """And whole ticks and sets of jobs that fit make bounds of almost all of them the optimum itself."""
    flows, ends, numbers = [], [], played(range(500), range(0, 500, 10))
    for number in numbers:
        rng = np.random.default_rng([29, number])
        count, gpus = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        jobs = [
            (int(rng.integers(0, 4)), int(rng.integers(1, gpus + 1)), int(rng.integers(1, 4))) for _ in range(count)
        ]
        found = lower_bound(rigid(jobs, gpus))
        flows.append(found.flow_sum / least_flow(jobs, gpus))
        ends.append(found.makespan / least_makespan(jobs, gpus))
        assert max(flows[-1], ends[-1]) <= 1, jobs
        assert_proved(rigid(jobs, gpus), found)
    assert np.mean(flows) > 0.99
    assert np.mean(ends) > 0.99


def test_the_makespan_of_larger_instances_is_within_3_percent_of_the_optimum() -> None:
    ends = []
    for number in played(range(30), range(5)):
        rng = np.random.default_rng([31, number])
        jobs = [(int(rng.integers(0, 8)), int(rng.integers(1, 5)), int(rng.integers(1, 6))) for _ in range(6)]
        ends.append(lower_bound(rigid(jobs, 4)).makespan / least_makespan(jobs, 4))
        assert ends[-1] <= 1, jobs
    assert np.mean(ends) > 0.97


def test_jobs_of_one_tick_keep_it() -> None:
    found = lower_bound(rigid([(0, 1, 1)], 1))
    assert (found.flow_sum, found.makespan) == (1, 1)
    three_on_two = lower_bound(rigid([(0, 1, 1)] * 3, 2))
    assert (three_on_two.flow_sum, three_on_two.makespan) == (1 + 1 + 2, 2)


def test_one_gpu_and_jobs_together_are_bounded_by_shortest_first_exactly() -> None:
    rng = np.random.default_rng(1)
    seconds = sorted(int(p) for p in rng.integers(1, 1000, 50))
    found = lower_bound(rigid([(0, 1, p) for p in seconds], 1))
    assert found.flow_sum == sum(np.cumsum(seconds))
    assert found.makespan == sum(seconds)


def test_jobs_of_one_gpu_released_together_reach_the_bound_of_eastman_even_and_isaacs() -> None:
    """On m machines shortest-first is optimal, and no less than C1 / m + (m - 1) / 2m times the sum of durations."""
    rng = np.random.default_rng(2)
    seconds = sorted(int(p) for p in rng.integers(100, 10_000, 40))
    machines = 4
    ends = [sum(seconds[place % machines : place + 1 : machines]) for place in range(40)]
    known = sum(np.cumsum(seconds)) / machines + (machines - 1) / (2 * machines) * sum(seconds)
    found = lower_bound(rigid([(0, 1, p) for p in seconds], machines))
    assert 0.995 * known <= found.flow_sum <= sum(ends)


def test_a_job_alone_is_bounded_by_its_duration() -> None:
    found = lower_bound(rigid([(7, 3, 100)], 4))
    assert (found.flow_sum, found.makespan) == (100, 107)


def test_widths_that_leave_gpus_free_make_the_capacity_smaller() -> None:
    assert rigid([(0, 4, 10), (0, 4, 10), (0, 4, 10)], 10).capacity == 8
    assert rigid([(0, 4, 10), (0, 1, 10)], 10).capacity == 10


def test_jobs_that_do_not_fit_side_by_side_run_one_after_the_other() -> None:
    """Prices of GPU time alone would let 4 GPUs run one of 3 and half of another of 2."""
    three, two = (0, 3, 100), (0, 2, 100)
    assert lower_bound(rigid([three, two], 4)).flow_sum in {299, 300}
    # Two of 2 fit side by side and beside none of 3: 100 + 100 + 200, not 100 + 200 + 200.
    assert 398 <= lower_bound(rigid([three, two, two], 4)).flow_sum <= 400


def test_speeds_become_their_concave_envelope() -> None:
    points = Speeds(((1, 1.0), (2, 1.2), (3, 2.4), (4, 2.4)))
    assert [(gpus, pytest.approx(speed)) for gpus, speed in points.segments()] == [(1, 1.0), (2, 1.4)]


def test_an_elastic_job_is_bounded_by_its_speed_on_all_gpus_and_two_by_sharing_them() -> None:
    linear = Speeds(((1, 1.0), (2, 2.0)))
    alone = lower_bound(relaxed_jobs([0], [100.0], [linear], 2))
    assert alone.flow_sum in {49, 50}
    two = lower_bound(relaxed_jobs([0, 0], [100.0, 100.0], [linear, linear], 2))
    assert 147 <= two.flow_sum <= 150  # one after the other: 50 + 100
    sublinear = Speeds(((1, 1.0), (2, 1.2)))
    mixed = lower_bound(relaxed_jobs([0, 0], [120.0, 120.0], [sublinear, sublinear], 2))
    assert 235 <= mixed.flow_sum <= 240  # beside each other; one after the other takes 100 + 200
    assert_proved(relaxed_jobs([0, 0], [120.0, 120.0], [sublinear, sublinear], 2), mixed)


#: Policies that take jobs of known duration as they ask, of every family that has some.
POLICIES = ("fifo", "srtf", "tiresias", "slurm-backfill", "las", "gandiva", "themis", "kueue", "optimus", "antman")


def test_no_shipped_policy_comes_below_the_bound() -> None:
    ran = set()
    for number in played(range(30), range(3)):
        rng = np.random.default_rng([4, number])
        rows = [
            {"submit_time_s": int(r), "num_gpus": int(g), "duration_s": int(p)}
            for r, g, p in zip(
                rng.integers(0, 900, 15), rng.choice([1, 2, 4], 15), rng.integers(20, 900, 15), strict=True
            )
        ]
        jobs = [(row["submit_time_s"], row["num_gpus"], row["duration_s"]) for row in rows]
        found = lower_bound(rigid(jobs, 8))
        for name in sorted(set(POLICIES) & set(registry.names())):
            try:
                results = simulate(jobs=rows, policy=name, cluster=(2, 4), restart_delay_s=0, seed=number)
            except InputError:
                continue  # counts on more than durations
            ran.add(name)
            assert results.jobs["jct_s"].sum() >= found.flow_sum, name
            assert results.jobs["end_time_s"].max() >= found.makespan, name
    assert len(ran) >= 5


EXPERIMENT = """
name: tiny
cluster: {nodes: 1, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
engine: {restart_delay_s: 0}
policies: [{name: fifo}, {name: srtf}]
seeds: 1
"""
JOBS = "submit_time,num_gpus,duration\n0,4,1000\n0,4,10\n5,2,100\n"


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    path = tmp_path / "tiny.yaml"
    path.write_text(EXPERIMENT)
    return path


def _command(*arguments: object) -> Any:
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def test_the_command_bounds_an_experiment_and_its_run_and_checks_what_it_wrote(experiment: Path) -> None:
    out = experiment.parent / "bounds.json"
    done = _command("bound", experiment, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.stdout)["bounds"]
    # Shortest first, all at once where they fit: b until 10, c until 110, a from then on: 10 + 105 + 1110.
    assert 1000 <= 3 * one["mean_jct_s"] <= 10 + 105 + 1110
    assert one["makespan_s"] == 1000 + 10 + 100  # none fits beside the first
    assert one["mean_wait_s"] == pytest.approx(3 * one["mean_jct_s"] / 3 - 1110 / 3)
    assert _command("run", experiment, "--out", experiment.parent / "results", "--no-plots").exit_code == 0
    beside = _command("bound", experiment.parent / "results" / "tiny", "--json")
    assert beside.exit_code == 0, beside.output
    first, shortest = json.loads(beside.stdout)["distances"]
    assert (first["policy"], shortest["policy"]) == ("fifo", "srtf")
    assert 0 <= shortest["jct"] < first["jct"]
    assert (first["way"], 0 < shortest["way"] <= 1) == (0, True)


def test_a_file_is_checked_against_the_cells_that_it_names_or_others(experiment: Path) -> None:
    out = experiment.parent / "bounds.json"
    assert _command("bound", experiment, "--out", out).exit_code == 0
    checked = _command("bound", "--check", out)
    assert checked.exit_code == 0, checked.output
    assert checked.stdout == f"1 bounds, 0 of them not proved, 0 refused; compared with the cells of {experiment}\n"
    other = _command("bound", "--check", out, "--of", experiment, "-o", "cluster.nodes=2")
    assert (other.exit_code, "another cluster" in other.stdout) == (1, True)

    content = json.loads(out.read_text())
    (claim,) = content["bounds"]
    for forged, said in (
        ({"mean_jct_s": claim["mean_jct_s"] * 1.01}, "not of"),
        ({"refused": "x"}, "refused, and yet claims times"),
        ({"seed": 2}, "no such cell"),
        ({"policies": []}, "names no policies"),
        ({"jobs": 1}, "are not those of the cell"),
    ):
        out.write_text(json.dumps(content | {"bounds": [claim | forged]}))
        refuted = _command("bound", "--check", out)
        assert (refuted.exit_code, said in refuted.stdout) == (1, True), refuted.output
    nothing = dict.fromkeys(("mean_jct_s", "makespan_s", "mean_wait_s"), 0)
    out.write_text(json.dumps(content | {"bounds": [claim | nothing | {"refused": "x", "certificate": {}}]}))
    assert "0 of them not proved, 1 refused" in _command("bound", "--check", out).stdout
    (experiment.parent / "jobs.csv").write_text(JOBS.replace("100", "99"))
    out.write_text(json.dumps(content))
    assert "for other jobs" in _command("bound", "--check", out).stdout


def test_the_folder_of_any_run_is_bounded(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys that an option made idle, with a policy beside the file, and from another folder."""
    folder = experiment.parent
    (folder / "mine.py").write_text(
        "from simsched_policies.queues.by_key import Fifo\n\n\nclass Mine(Fifo):\n    name = 'mine'\n"
    )
    idle = "workload: {recipe: pollux, stratify: true, days: 14}"
    text = EXPERIMENT.replace("workload: {path: jobs.csv, recipe: replay}", idle)
    experiment.write_text(text.replace("{name: srtf}", "{name: 'mine.py:Mine'}"))
    options = ("-o", "workload.recipe=replay", "-o", f"workload.path={folder / 'jobs.csv'}", "--name", "one")
    ran = _command("run", experiment, *options, "--out", folder / "results", "--no-plots")
    assert ran.exit_code == 0, ran.output
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    beside = _command("bound", folder / "results" / "one", "--json")
    assert beside.exit_code == 0, beside.output
    assert [one["policy"] for one in json.loads(beside.stdout)["distances"]] == ["fifo", "mine"]
    (folder / "jobs.csv").write_text(JOBS.replace("1000", "900"))
    changed = json.loads(_command("bound", folder / "results" / "one", "--json").stdout)
    assert {one["unknown"] for one in changed["distances"]} == {
        "its jobs are no longer those that the experiment draws"
    }


def test_times_of_seconds_are_shown_as_such() -> None:
    """Jobs of 2, 8 and 6 seconds on two GPUs, as in Tiresias's paper: nothing of them is an hour."""
    shown = _command("bound", "tiresias/worked-example").output
    assert "(h)" not in shown
    assert (2 + 8 + 6) / 3 <= float(re.split(r"\s{2,}", shown.splitlines()[4])[2]) <= 28 / 3  # alone; shortest first
    elastic = _command("bound", "tiresias/worked-example", "-o", "workload.speedup=linear").output
    assert re.split(r"\s{2,}", elastic.splitlines()[4])[3] == "-"  # of jobs that may run faster


def test_many_jobs_of_many_speeds_are_checked_quickly_and_lose_next_to_nothing() -> None:
    """Each exchange of dear progress for cheaper rounds down; at prices of 0 a job takes its shortest time."""
    rng = np.random.default_rng(5)
    curves = [Speeds(tuple((n, n**power) for n in range(1, 9))) for power in rng.uniform(0.3, 0.9, 30)]
    jobs = relaxed_jobs(sorted(map(int, rng.uniform(0, 5000, 30))), rng.lognormal(7, 1.5, 30).tolist(), curves, 8)
    found = lower_bound(jobs)
    assert_proved(jobs, found)
    free = replace(found, starts=(0,), prices=(0,), own=(), fast_machine=False)
    flow, _ = proved(free.to_json(), jobs.plain)
    assert jobs.shortest.sum() - 1 <= flow <= jobs.shortest.sum() < found.flow_sum


def test_what_nothing_bounds_is_refused_with_the_reason(experiment: Path) -> None:
    failing = _command("bound", experiment, "-o", "failures.jobs=philly", "--json")
    assert failing.exit_code == 0, failing.output
    (one,) = json.loads(failing.stdout)["bounds"]
    assert "failing changes how long a job runs" in one["refused"]


def paid(kinds: Sequence[int], work_s: float, restart_s: float, prices: np.ndarray) -> float:
    """Walk through ticks of 10 s, each with the kind of node that is held (-1: none); infinite if the job is late."""
    cost, held, rest_s = 0.0, -1, 0.0
    for tick, kind in enumerate(kinds):
        rest_s = restart_s if kind != held else rest_s
        held = kind
        if kind < 0:
            continue
        until_s = min(10.0, rest_s + work_s)
        cost += prices[kind, tick] * until_s
        work_s -= max(until_s - rest_s, 0)
        rest_s = max(rest_s - 10, 0)
        if work_s <= 0:
            return cost
    return float("inf")


@pytest.mark.parametrize("seed", range(20))
def test_the_least_cost_is_that_of_the_cheapest_choice_for_each_tick(seed: int) -> None:
    rng = np.random.default_rng(seed)
    prices = np.where(rng.random((2, 6)) < 0.7, rng.integers(1, 5, (2, 6)), np.inf).astype(float)
    work_s, restart_s = float(rng.integers(5, 40)), float(rng.integers(0, 16))
    best = min(paid(kinds, work_s, restart_s, prices) for kinds in product((-1, 0, 1), repeat=6))
    assert least_cost(work_s, restart_s, 10, prices) == pytest.approx(best)


def test_bounds_are_loose_only_where_physics_are_relaxed() -> None:
    where: dict[str, Any] = {"point": {}, "seed": 1, "workload": "w", "policies": ()}
    assert not Bound(**where, relaxed=tuple(HARMLESS)).loose
    assert Bound(**where, relaxed=(*HARMLESS, FITTED)).loose
