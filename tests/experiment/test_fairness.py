import numpy as np
import pandas as pd
import pytest
from simsched_policies.queues.isolated import Isolated

from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.experiment.fairness import SoloRuns, was_adapted
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.results.fairness import (
    exclusive_slowdown,
    fairness_table,
    mean_contention,
    read_fairness,
    share_above,
    summarise_rho,
    time_on_share,
    write_fairness,
)
from simsched.testing.builders import Applications, run, toy_application

# --- the formulas --------------------------------------------------------------------------------------------------


def test_contention_is_the_mean_number_of_jobs_in_a_jobs_life():
    # a lives 0-100, b 50-100, c 50-150: a sees 1 for 50 s and 3 for 50 s, b always 3, c 3 for 50 s and 1 for 50 s
    assert mean_contention([0, 50, 50], [100, 100, 150]).tolist() == [2, 3, 2]


def test_contention_counts_neither_who_left_at_the_arrival_nor_an_empty_workload():
    assert mean_contention([0, 10], [10, 20]).tolist() == [1, 1]
    assert mean_contention([], []).size == 0


def test_contention_agrees_with_counting_second_by_second():
    rng = np.random.default_rng(5)
    submit = rng.integers(0, 200, 30)
    end = submit + rng.integers(1, 100, 30)
    lives = zip(submit, end, strict=True)
    counted = [np.mean([np.sum((submit <= t) & (t < end)) for t in range(first, last)]) for first, last in lives]
    np.testing.assert_allclose(mean_contention(submit, end), counted)


@pytest.mark.parametrize(
    ("share", "rounding", "expected"),
    [
        (2.5, "floor", 50),
        (2.5, "ceil", 100 / 3),
        (2.5, "interpolate", (50 + 100 / 3) / 2),
        (2.0, "interpolate", 50),
        (0.5, "floor", 200),
        (0.5, "interpolate", 200),
        (0.5, "ceil", 100),
    ],
)
def test_a_share_that_is_no_whole_number_of_gpus_is_rounded_as_asked(share, rounding, expected):
    assert time_on_share(share, lambda gpus: 100 / gpus, rounding) == pytest.approx(expected)


def test_shockwaves_factor_is_jobs_per_gpu_and_never_below_one():
    assert exclusive_slowdown(120, 32) == 3.75
    assert exclusive_slowdown(20, 32) == 1


def test_metrics_of_rho_by_hand():
    rho = [0.5, 1.0, 1.5, 2.0, 2.5]
    assert share_above(rho, 1) == 0.6  # 1.0 itself is fair
    assert summarise_rho(rho) == pytest.approx(
        {"rho_median": 1.5, "rho_p99": 2.48, "rho_max": 2.5, "rho_above_1": 0.6, "rho_above_2": 0.2}
        | {"rho_jain": 7.5**2 / (5 * 13.75)}
    )
    assert summarise_rho([]) == {}


def test_ratios_survive_their_file_and_a_damaged_one_is_named(tmp_path):
    jobs = pd.DataFrame({"job_id": ["1", "2"], "jct_s": [300, 100]})
    table = fairness_table(jobs, np.array([2.0, 1.0]), [200, 100])
    assert table["rho"].tolist() == [1.5, 1.0]
    write_fairness(tmp_path / "new" / "a.csv", table)
    pd.testing.assert_frame_equal(read_fairness(tmp_path / "new" / "a.csv"), table)
    (tmp_path / "b.csv").write_text("job_id,jct\n")
    with pytest.raises(InputError, match=r"b\.csv.*contention"):
        read_fairness(tmp_path / "b.csv")


# --- solo runs -----------------------------------------------------------------------------------------------------

FIXED = JobSpec("f", 70, 4, duration_s=100)
TOY = JobSpec("t", 70, 4, application="toy", batch_size=16)


def runs(cluster=None, delay_s=30):
    options = EngineOptions(restart_delay_s=delay_s)
    return SoloRuns(cluster or Cluster.uniform(2, 4), Applications(toy_application()), options)


def test_a_solo_run_waits_for_the_next_decision_and_pays_the_restart_delay():
    assert runs().seconds(FIXED, 4, "submitted", 60) == 50 + 30 + 100  # submitted at 70, started at 120
    assert runs().seconds(FIXED, 4, "submitted", None) == 30 + 100
    assert runs(delay_s=7).seconds(FIXED, 4, "submitted", 60) == 50 + 7 + 100


def test_a_job_without_batch_size_takes_longer_on_fewer_gpus_in_proportion():
    assert runs().seconds(FIXED, 1, "submitted", None) == 30 + 4 * 100, "the restart delay is paid once"
    assert runs().seconds(FIXED, 8, "submitted", None) == 130


def test_the_submitted_batch_is_kept_and_bounds_the_gpus():
    # batch 16 on 2 GPUs is 8 each, the smallest there is: 400 iterations of 0.1 + 0.08 + 0.05 s
    alone = runs()
    assert alone.seconds(TOY, 2, "submitted", None) == 30 + round(4 * 100 * 0.23)
    assert alone.seconds(TOY, 8, "submitted", None) == alone.seconds(TOY, 2, "submitted", None)


def test_the_best_batch_is_faster_than_the_submitted_one_and_equal_runs_are_simulated_once(monkeypatch):
    alone = runs()
    best = alone.seconds(TOY, 4, "best", 60)
    assert best < alone.seconds(TOY, 4, "submitted", 60)
    monkeypatch.setattr("simsched.experiment.fairness.simulate", None)
    later = JobSpec("other", 115, 1, application="toy", batch_size=64)  # asks for something else, but may adapt
    assert alone.seconds(later, 4, "best", 60) == best - 45


def test_a_batch_counts_as_adapted_by_what_was_recorded_not_by_the_class_of_the_agent():
    columns = ("job_id", "gpus", "batch_size", "accum_steps")
    rounded_up = pd.DataFrame([("a", 3, 102, 0), ("a", 1, 100, 1), ("b", 4, 0, 0)], columns=columns)
    assert not was_adapted(rounded_up, {"a": 100})
    assert was_adapted(pd.DataFrame([("a", 3, 103, 0)], columns=columns), {"a": 100})


def test_a_share_of_gpus_of_several_types_is_refused():
    with pytest.raises(InputError, match="several types"):
        runs(Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "a100")))


# --- the policy 'isolated' -----------------------------------------------------------------------------------------


def test_under_the_policy_isolated_equal_jobs_take_turns():
    jobs = [JobSpec(name, 0, 8, duration_s=600) for name in "ab"]
    found = run(Isolated(round_s=100), jobs, options=EngineOptions(restart_delay_s=0)).jobs
    ends = {job.job_id: job.end_time_s for job in found}
    assert abs(ends["a"] - ends["b"]) <= 100
    assert max(ends.values()) == 100 + 1200


def test_under_the_policy_isolated_a_small_job_runs_for_more_of_the_time_than_a_large_one():
    jobs = [JobSpec("large", 0, 8, duration_s=3000), JobSpec("small", 0, 2, duration_s=3000)]
    found = run(Isolated(round_s=100), jobs, options=EngineOptions(restart_delay_s=0)).jobs
    assert [job.job_id for job in found] == ["small", "large"]  # due 8/16 and all of the time
