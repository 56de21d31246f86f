"""Lower bounds against optima found by enumeration, closed forms, shipped policies and doctored certificates."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from simsched.api import simulate
from simsched.bounds import RelaxedJobs, Speeds, lower_bound, problem_of, relaxed_jobs
from simsched.cli.main import cli
from simsched.errors import InputError
from simsched.policy import registry
from tests.campaigns import played

Job = tuple[int, int, int]  # release, GPUs, seconds


def rigid(jobs: Sequence[Job], gpus: int) -> RelaxedJobs:
    speeds = [Speeds(((width, 1.0),)) for _, width, _ in jobs]
    return relaxed_jobs([r for r, _, _ in jobs], [p for *_, p in jobs], speeds, gpus)


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
    tight, numbers = 0, played(range(500), range(0, 500, 5))
    for number in numbers:
        rng = np.random.default_rng([29, number])
        count, gpus = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        jobs = [
            (int(rng.integers(0, 4)), int(rng.integers(1, gpus + 1)), int(rng.integers(1, 4))) for _ in range(count)
        ]
        found = lower_bound(rigid(jobs, gpus))
        least = least_flow(jobs, gpus)
        assert found.flow_sum <= least, jobs
        assert number % 25 or found.makespan <= least_makespan(jobs, gpus), jobs
        assert problem_of(found.to_json()) == "", jobs
        tight += found.flow_sum + 1 >= 0.8 * least
    assert tight > 0.95 * len(numbers)  # a bound that is always 0 would pass the rest


def test_one_gpu_and_jobs_together_are_bounded_by_shortest_first_exactly() -> None:
    rng = np.random.default_rng(1)
    seconds = sorted(int(p) for p in rng.integers(1, 1000, 50))
    found = lower_bound(rigid([(0, 1, p) for p in seconds], 1))
    assert found.flow_sum in {sum(np.cumsum(seconds)), sum(np.cumsum(seconds)) - 1}  # rounded down
    assert sum(seconds) - 1 <= found.makespan <= sum(seconds)


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
    assert found.flow_sum in {99, 100}  # rounded down
    assert found.makespan in {106, 107}


def test_widths_that_leave_gpus_free_make_the_capacity_smaller() -> None:
    assert rigid([(0, 4, 10), (0, 4, 10), (0, 4, 10)], 10).capacity == 8
    assert rigid([(0, 4, 10), (0, 1, 10)], 10).capacity == 10


def test_jobs_that_do_not_fit_side_by_side_run_one_after_the_other() -> None:
    """Prices of GPU time alone would let 4 GPUs run one of 3 and half of another of 2."""
    three, two = (0, 3, 100), (0, 2, 100)
    assert lower_bound(rigid([three, two], 4)).flow_sum in {298, 299, 300}
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
    assert problem_of(mixed.to_json()) == problem_of(two.to_json()) == ""


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    """Certificates by prices that all pay, for jobs on 1 or 2 GPUs, and by jobs' own."""
    rng = np.random.default_rng(3)
    jobs = [(int(r), int(g), int(p)) for r, g, p in zip(rng.integers(0, 500, 40), rng.choice([1, 2, 4], 40),
                                                        rng.integers(10, 300, 40), strict=True)]  # fmt: skip
    either = Speeds(((1, 1.0), (2, 1.5)))
    elastic = relaxed_jobs([r for r, _, _ in jobs[:12]], [float(p) for *_, p in jobs[:12]], [either] * 12, 2)
    found = {"common": lower_bound(elastic).to_json(), "own": lower_bound(rigid(jobs, 8)).to_json()}
    assert not any(one["fast_machine"] for one in found.values())
    assert (found["common"]["own"], len(found["own"]["own"])) == ([], 40)
    return found


def _more_flow(claim: dict[str, Any]) -> None:
    claim["flow_sum"] = claim["flow_sum"] * 1001 // 1000 + 2


def _later_end(claim: dict[str, Any]) -> None:
    claim["makespan"] += 2


def _negative_price(claim: dict[str, Any]) -> None:
    claim["prices"][0] = -1


def _dear_for_ever(claim: dict[str, Any]) -> None:
    claim["prices"][-1] = 1 << 40


def _other_prices(claim: dict[str, Any]) -> None:
    claim["prices"] = [2 * price for price in claim["prices"]]


def _time_that_goes_back(claim: dict[str, Any]) -> None:
    claim["starts"][3] = claim["starts"][1]


def _job_taken_out(claim: dict[str, Any]) -> None:
    for name in ("release", "work", "rates", "costs"):
        del claim[name][5]


def _less_capacity(claim: dict[str, Any]) -> None:
    claim["capacity"] -= 1


def _a_fraction(claim: dict[str, Any]) -> None:
    claim["work"][0] = 0.5


def _nothing(claim: dict[str, Any]) -> None:
    claim.clear()


def _own_price_below_0(claim: dict[str, Any]) -> None:
    claim["own"][0][0] = -1


def _own_prices_doubled(claim: dict[str, Any]) -> None:
    claim["own"] = [[2 * price for price in own] for own in claim["own"]]


def _own_price_for_ever(claim: dict[str, Any]) -> None:
    claim["own"][0] += [1 << 40] * len(claim["starts"])


def _own_price_to_the_end(claim: dict[str, Any]) -> None:
    claim["own"][-1] += [0] * (len(claim["starts"]) - len(claim["own"][-1]) - 1) + [1 << 60]


def _own_prices_of_a_job_less(claim: dict[str, Any]) -> None:
    del claim["own"][3]


_ANY = [_more_flow, _later_end, _negative_price, _dear_for_ever, _time_that_goes_back, _job_taken_out, _less_capacity,
        _a_fraction, _nothing]  # fmt: skip
_OWN = [_own_price_below_0, _own_prices_doubled, _own_price_for_ever, _own_price_to_the_end,
        _own_prices_of_a_job_less]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "doctor"),
    [("common", _other_prices), *(("common", one) for one in _ANY), *(("own", one) for one in [*_ANY, *_OWN])],
)
def test_a_doctored_certificate_is_refused(
    claims: dict[str, dict[str, Any]], kind: str, doctor: Callable[[dict[str, Any]], None]
) -> None:
    assert problem_of(claims[kind]) == ""
    doctored = copy.deepcopy(claims[kind])
    doctor(doctored)
    assert problem_of(doctored) != ""


def test_own_prices_prove_nothing_of_jobs_with_several_speeds(claims: dict[str, dict[str, Any]]) -> None:
    claim = copy.deepcopy(claims["common"])
    claim["own"] = [[0]] * len(claim["release"])
    assert "no fixed width" in problem_of(claim)


#: Policies that take jobs of known duration as they ask, of every family that has some.
POLICIES = ("fifo", "srtf", "tiresias", "slurm-backfill", "las", "gandiva", "themis", "kueue", "optimus", "antman")


def test_no_shipped_policy_comes_below_the_bound() -> None:
    ran = set()
    for number in played(range(300), range(3)):
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
    assert one["makespan_s"] == pytest.approx(1060, abs=1)  # 4,240 GPU seconds on 4 GPUs
    checked = _command("bound", "--check", out)
    assert (checked.exit_code, checked.stdout) == (0, "1 bounds, 0 of them not proved\n")
    content = json.loads(out.read_text())
    content["bounds"][0]["mean_jct_s"] *= 1.01
    out.write_text(json.dumps(content))
    assert _command("bound", "--check", out).exit_code == 1

    assert _command("run", experiment, "--out", experiment.parent / "results", "--no-plots").exit_code == 0
    beside = _command("bound", experiment.parent / "results" / "tiny", "--json")
    assert beside.exit_code == 0, beside.output
    first, shortest = json.loads(beside.stdout)["distances"]
    assert (first["policy"], shortest["policy"]) == ("fifo", "srtf")
    assert 0 <= shortest["jct"] < first["jct"]
    assert (first["way"], 0 < shortest["way"] <= 1) == (0, True)


def test_times_of_seconds_are_shown_as_such() -> None:
    """Jobs of 2, 8 and 6 seconds on two GPUs, as in Tiresias's paper: nothing of them is an hour."""
    shown = _command("bound", "tiresias/worked-example").output
    assert "(h)" not in shown
    assert (2 + 8 + 6) / 3 <= float(shown.splitlines()[4].split()[-3]) <= 28 / 3  # alone, and shortest service first
    elastic = _command("bound", "tiresias/worked-example", "-o", "workload.speedup=linear").output
    assert elastic.splitlines()[4].split()[-2] == "-"  # waits of jobs that may run faster have no bound of their own


def test_what_nothing_bounds_is_refused_with_the_reason(experiment: Path) -> None:
    failing = _command("bound", experiment, "-o", "failures.jobs=philly", "--json")
    assert failing.exit_code == 0, failing.output
    (one,) = json.loads(failing.stdout)["bounds"]
    assert "failing changes how long a job runs" in one["refused"]
