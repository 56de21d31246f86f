from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord
from simsched.errors import InputError
from simsched.report.figures.purposes import pair_figures, pairs_map
from simsched.results.analyses import pair_speeds
from simsched.results.fairness import summarise_rho, summarise_rho_without
from simsched.results.metric import NodeMake, Power, Tables
from simsched.results.metrics import HEADLINE, METRICS, find_metric, range_of, summarise
from simsched.results.quality import QUALITY_METRICS
from simsched.results.summary import summarise_types


def job(name, application, submit, start, end, *, held, restart, gpu_s, restarts, **rest):
    jct = end - submit
    times = (submit, start, end, jct, held, jct - held, restart, gpu_s, restarts)
    return JobRecord(name, application, "", "", "", 1, 0, *times, **rest)


def interval(name, start, end, *, restarting=False, efficiency=0.0, gpus=1):
    return AllocationRecord(name, start, end, gpus, 1, "0:1", restarting, 8, 0, 8, 0, 0.0, 1.0, efficiency, 1.0)


# Four jobs on 4 GPUs: JCTs 100, 200, 300, 1000; queueing 0, 50, 100, 250.
JOBS = pd.DataFrame(
    [
        job("a", "ncf", 0, 0, 100, held=100, restart=10, gpu_s=100, restarts=0),
        job("b", "ncf", 100, 150, 300, held=150, restart=20, gpu_s=300, restarts=1),
        job("c", "bert", 100, 200, 400, held=200, restart=30, gpu_s=400, restarts=1),
        job("d", "imagenet", 0, 250, 1000, held=750, restart=60, gpu_s=1500, restarts=2),
    ]
)
# Running: 100 s at 0.5 and 300 s at 0.9; the restart's efficiency must not count.
ALLOCATIONS = pd.DataFrame(
    [
        interval("a", 0, 50, restarting=True, efficiency=0.1),
        interval("a", 50, 150, efficiency=0.5),
        interval("b", 0, 300, efficiency=0.9, gpus=4)._replace(levels_crossed=1),
    ]
).drop(columns=["neighbours", "gpu_share", "relative_speed"])  # GPUs are not shared
# One node of 4 GPUs until second 60, two until 120 (where the second decision counts), then one again.
NODES = ((30, 1), (60, 2), (120, 5), (120, 1))
# One GPU is held, a job waits, and of the free ones it could use all but one, two or three.
ROUNDS = pd.DataFrame(
    [DecisionRecord(now, 2, 1, 1, 4 * nodes, nodes, 0, 0, 0, {}, 0, 0, 1, 2, 3) for now, nodes in NODES]
)
ACCURACIES = (94.0, 95.0, 95.5, 93.0, 95.25, 94.5, 94.75)  # the best five: 94.5, 94.75, 95.0, 95.25, 95.5
POWER = Power((NodeMake(2, 4, "t4"),), {"t4": 10.0}, {"t4": 100.0}, node_w=50.0, asleep_w=5.0)
# Held: 50 + 100 + 4 * 300 GPU s of 4 * 1060; the second node is down for 940 s of 1000.
UNUSED_WS = (4240 - 1350) * 10 + 1060 * 50 + 940 * 5
PRICES = (7.2, 99.0)  # of a GPU of the first node, where everything ran, and of the second


def worked():
    """Return the summary of the hand-worked example."""
    return summarise(
        Tables(
            JOBS,
            ALLOCATIONS,
            ROUNDS,
            8,
            node_price_per_h=3.6,
            accuracies=ACCURACIES,
            power=POWER,
            gpu_price_per_h=PRICES,
        )
    ) | summarise_rho([0.5, 1.0, 1.5, 2.0, 2.5])


EXPECTED = {
    "jct_mean_s": 1600 / 4,
    "jct_median_s": (200 + 300) / 2,
    "jct_p95_s": 300 + 0.85 * 700,  # rank 0.95 * 3 = 2.85
    "jct_p99_s": 300 + 0.97 * 700,  # rank 0.99 * 3 = 2.97
    "makespan_s": 1000,
    "gpu_utilisation": 2300 / (4 * 60 + 8 * 60 + 4 * 880),
    "statistical_efficiency": (100 * 0.5 + 300 * 0.9) / 400,
    "queueing_mean_s": 400 / 4,
    "queueing_median_s": 75,
    "queueing_p95_s": 100 + 0.85 * 150,
    "restarts_per_job": 4 / 4,
    "restarts_per_hour": 4 / (1200 / 3600),
    "restart_share": 120 / 1200,
    "held_mean_s": 1200 / 4,
    "restart_mean_s": 120 / 4,
    "rho_median": 1.5,
    "rho_p99": 2.0 + 0.96 * 0.5,  # rank 0.99 * 4 = 3.96
    "rho_max": 2.5,
    "rho_above_1": 0.6,
    "rho_above_2": 0.2,
    "rho_jain": 7.5**2 / (5 * 13.75),
    "gpu_hours_per_job": 2300 / 3600 / 4,
    "finished_jobs": 4,
    "decisions": 4,
    "crossing_share": 1200 / (50 + 100 + 1200),
    "fragmentation": 1000 / (3 * 60 + 7 * 60 + 3 * 880),
    "fragmentation_by_node": 2000 / (3 * 60 + 7 * 60 + 3 * 880),
    "fragmentation_by_domain": 3000 / (3 * 60 + 7 * 60 + 3 * 880),
    "node_hours": (60 + 2 * 60 + 880) / 3600,
    "cost": 1.06,
    "energy_kwh": (1350 * 100 + UNUSED_WS) / 3.6e6,
    "unused_energy_kwh": UNUSED_WS / 3.6e6,
    "gpu_cost": (150 + 4 * 300) / 3600 * 7.2,
    "top5_accuracy": 95.0,
    "top5_accuracy_sd": (0.625 / 4) ** 0.5,
}


def test_metrics_of_the_hand_worked_example():
    found = worked()
    assert {name: found[name] for name in EXPECTED} == pytest.approx(EXPECTED, rel=1e-12)


# Deadlines of 150 (met, promised), 200 (met to the second, declined), 250 (late by 50) and none.
PROMISED = JOBS.assign(deadline_s=[150, 200, 250, np.inf], declined=[False, True, False, False])
# Two jobs at 0.7 of their speed on one GPU for 100 s, the first of them restarting for 20 s; a third alone for 50 s.
SHARED = pd.DataFrame(
    [
        interval("a", 0, 20, restarting=True)._replace(gpu_share=0.5, relative_speed=0.7, neighbours="x"),
        interval("a", 20, 100)._replace(gpu_share=0.5, relative_speed=0.7, neighbours="x"),
        interval("b", 0, 100)._replace(gpu_share=0.5, relative_speed=0.7, neighbours="x"),
        interval("c", 0, 50, gpus=2),
    ]
)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("deadlines_met", 2 / 3),
        ("deadlines_missed", 1 / 3),
        ("deadlines_declined", 1 / 3),
        ("promises_kept", 1 / 2),
        ("tardiness_mean_s", 50 / 3),
        ("late_gpu_share", 400 / 800),
        ("late_gpu_hours", 400 / 3600),
    ],
)
def test_metric_of_deadlines(metric, expected):
    assert summarise(Tables(PROMISED, None, None, 8))[metric] == pytest.approx(expected, rel=1e-12)
    assert metric not in worked()


def test_speeds_of_jobs_that_share_a_gpu_are_added():
    assert summarise(Tables(JOBS, SHARED, None, 8))["speed_per_gpu"] == pytest.approx(
        (80 * 0.7 + 100 * 0.7 + 100) / (100 + 100)
    )
    parts = SHARED.assign(gpu_share=[0.5, 0.5, 0.25, 1.0])  # b takes a quarter of its GPU
    assert "speed_per_gpu" not in summarise(Tables(JOBS, parts, None, 8))
    wide = SHARED.assign(gpu_share=[0.5, 0.5, 0.5, 0.75])  # c shares one of its two, which is no part of a GPU
    assert "speed_per_gpu" in summarise(Tables(JOBS, wide, None, 8))


def test_every_metric_is_in_the_hand_worked_examples():
    elsewhere = {metric.name for metric in QUALITY_METRICS}  # test_quality
    assert (
        set(METRICS) <= set(worked()) | set(summarise(Tables(PROMISED, None, None, 8))) | {"speed_per_gpu"} | elsewhere
    )
    assert set(HEADLINE) <= set(METRICS)


def test_means_per_application_are_there_under_their_names():
    per_application = {name: value for name, value in worked().items() if "[" in name}
    assert per_application == {"jct_mean_s[bert]": 300, "jct_mean_s[imagenet]": 1000, "jct_mean_s[ncf]": 150}


def test_makespan_counts_from_second_zero_and_not_from_the_first_submission():
    late = pd.DataFrame([job("a", "ncf", 500, 500, 600, held=100, restart=0, gpu_s=100, restarts=0)])
    assert summarise(Tables(late, None, None, 1))["makespan_s"] == 600


def test_metrics_of_tables_that_were_not_recorded_are_left_out():
    summary = summarise(Tables(JOBS, None, None, 4))
    needed = {"statistical_efficiency", "decisions", "node_hours", "cost", "top5_accuracy", "top5_accuracy_sd"}
    needed |= {"energy_kwh", "unused_energy_kwh", "gpu_cost", "restart_gpu_hours", "idle_gpu_hours"}
    needed |= {"crossing_share", "fragmentation", "fragmentation_by_node", "fragmentation_by_domain", "room_in_domain"}
    assert {name for name in set(worked()) - set(summary) if not name.startswith("rho_")} == needed
    assert summary["gpu_utilisation"] == pytest.approx(2300 / (4 * 1000))


def test_nodes_are_paid_for_until_the_last_job_ends_and_no_longer():
    rounds = pd.DataFrame([DecisionRecord(now, 1, 1, 1, 4, 3, 0, 0, 0, {}) for now in (0, 900, 5000)])
    assert summarise(Tables(JOBS, None, rounds, 4))["node_hours"] == pytest.approx(3 * 1000 / 3600)


def test_no_finished_job_leaves_only_the_counts():
    assert summarise(Tables(JOBS.iloc[:0], ALLOCATIONS.iloc[:0], ROUNDS.iloc[:0], 4)) == {
        "finished_jobs": 0,
        "decisions": 0,
    }


def test_a_job_that_held_nothing_gives_no_share():
    idle = pd.DataFrame([job("a", "ncf", 5, 5, 5, held=0, restart=0, gpu_s=0, restarts=0)])
    assert "restart_share" not in summarise(Tables(idle, None, None, 4))


def test_values_are_plain_floats():
    assert {type(value) for value in worked().values()} == {float}


def test_percentiles_agree_with_numpy_on_many_jobs():
    rng = np.random.default_rng(3)
    ends = rng.integers(1, 10**6, 1001)
    jobs = pd.DataFrame(
        [job(str(i), "x", 0, 0, int(e), held=1, restart=0, gpu_s=1, restarts=0) for i, e in enumerate(ends)]
    )
    assert summarise(Tables(jobs, None, None, 1))["jct_p99_s"] == np.sort(ends)[990]


@pytest.mark.parametrize(
    ("name", "key", "unit", "factor"),
    [
        ("jct_mean_s", "jct_mean_s", "s", 1),
        ("jct_mean_h", "jct_mean_s", "h", 1 / 3600),
        ("makespan_min", "makespan_s", "min", 1 / 60),
        ("jct_mean_h[imagenet]", "jct_mean_s[imagenet]", "h", 1 / 3600),
        ("gpu_utilisation", "gpu_utilisation", "share", 1),
        ("restarts_per_job", "restarts_per_job", "", 1),
    ],
)
def test_a_metric_is_found_by_name_in_the_unit_asked_for(name, key, unit, factor):
    reading = find_metric(name)
    assert (reading.key, reading.unit, reading.factor) == (key, unit, factor)


@pytest.mark.parametrize("name", ["jct_means_s", "makespan_h[bert]", "gpu_utilisation_h", "", "jct_mean_s[]"])
def test_an_unknown_metric_is_refused(name):
    with pytest.raises(InputError, match="no metric"):
        find_metric(name)


def test_a_mistyped_metric_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'makespan_s'"):
        find_metric("makspan_s")


def test_shares_of_rho_can_leave_an_application_out():
    rho = pd.DataFrame({"application": ["a", "a", "b", "b", "b"], "rho": [1.0, 1.0, 0.5, 1.5, 2.5]})
    found = summarise_rho_without(rho)
    assert found["rho_above_1[all but a]"] == pytest.approx(2 / 3)
    assert found["rho_above_2[all but a]"] == pytest.approx(1 / 3)
    assert found["rho_above_1[all but b]"] == 0
    assert summarise_rho_without(rho[rho["application"] == "a"]) == {}
    assert find_metric("rho_above_1[all but a]").key == "rho_above_1[all but a]"
    with pytest.raises(InputError, match="no metric"):
        find_metric("rho_max[all but a]")


def test_a_shared_gpu_counts_once_in_utilisation():
    shared = ALLOCATIONS.assign(gpu_share=[0.5, 0.5, 1.0])
    used = 50 / 2 + 100 / 2 + 4 * 300
    available = worked()["gpu_utilisation"]
    assert summarise(Tables(JOBS, shared, ROUNDS, 8))["gpu_utilisation"] == pytest.approx(available * used / 2300)


def test_a_shared_gpu_is_paid_for_once_and_costs_need_prices():
    shared = pd.DataFrame([interval("a", 0, 3600, gpus=2), interval("b", 0, 3600, gpus=2)]).assign(gpu_share=0.5)
    assert summarise(Tables(JOBS, shared, None, 4, gpu_price_per_h=[0.25]))["gpu_cost"] == pytest.approx(0.5)
    unpriced = summarise(Tables(JOBS, ALLOCATIONS, None, 4))
    assert not {"gpu_cost", "deadlines_missed"} & set(unpriced)


@pytest.mark.parametrize(
    ("name", "greatest"),
    [("gpu_utilisation[v100]", 1), ("top5_accuracy", 100), ("rho_jain", 1), ("rho_above_2", 1), ("jct_mean_s", np.inf)],
)
def test_a_metric_lies_between_0_and_what_its_unit_allows(name, greatest):
    assert range_of(name) == (0, greatest)
    assert range_of(f"no such {name}") == (-np.inf, np.inf)


#: `a` holds 2 GPUs for 100 s, of which 10 restart, 5 write checkpoints and 20 are lost; `b` one for 50 s.
FAILED_JOBS = pd.DataFrame(
    {
        "start_time_s": [0, 100],
        "end_time_s": [120, 200],
        "held_s": [100, 50],
        "restart_s": [10, 10],
        "checkpoint_s": [5, 0],
        "lost_s": [20, 0],
        "lost_gpu_s": [40, 0],
        "attained_gpu_s": [200, 50],
        "failures": [2, 0],
        "attempts": [1, 4],
    }
)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("lost_gpu_hours", 40 / 3600),
        ("effective_training_ratio", (65 + 40) / (120 + 100)),
        ("productive_gpus", (200 - 2 * 15 - 40 + 50 - 10) / 200),
        ("failures_met", 2),
        ("attempts_mean", 2.5),
    ],
)
def test_what_failures_cost(metric, expected):
    assert METRICS[metric].compute(Tables(FAILED_JOBS, None, None, 3)) == pytest.approx(expected, rel=1e-12)
    assert METRICS[metric].compute(Tables(FAILED_JOBS.drop(columns="failures"), None, None, 3)) is None


def test_a_job_that_held_nothing_did_no_work():
    idle = FAILED_JOBS.assign(held_s=0, attained_gpu_s=0, lost_gpu_s=0)
    assert METRICS["productive_gpus"].compute(Tables(idle, None, None, 3)) == 0


GROUPS = [
    {"nodes": 1, "gpus_per_node": 2, "gpu_type": "v100"},
    {"nodes": 2, "gpus_per_node": 4, "gpu_type": "t4"},
]
TYPED_JOBS = pd.DataFrame(
    [("a", 200, 200, "lm", 20, 2), ("b", 100, 80, "lm", 20, 1), ("c", 100, 60, "gan", 0, 1)],
    columns=["job_id", "end_time_s", "jct_s", "application", "batch_size", "num_gpus"],
)
#: a begins on the V100s and moves to the T4s for longer; b and c share a T4 for 50 s.
HELD = pd.DataFrame(
    [
        ("a", 0, 50, 2, "0:2", False, "", 1.0, 1.0),
        ("a", 50, 200, 2, "2:1 1:1", False, "", 1.0, 1.0),
        ("b", 20, 50, 1, "1:1", False, "", 1.0, 1.0),
        ("b", 50, 100, 1, "1:1", False, "c", 0.5, 0.8),
        ("c", 40, 50, 1, "2:1", True, "", 1.0, 1.0),
        ("c", 50, 90, 1, "1:1", False, "b", 0.5, 0.6),
        ("c", 90, 100, 1, "1:1", False, "b", 0.5, 0.1),
    ],
    columns=[
        "job_id", "start_s", "end_s", "gpus", "placement", "restarting", "neighbours", "gpu_share", "relative_speed",
    ],
)  # fmt: skip


@dataclass
class FakeCell:
    """A cell with these tables."""

    manifest: dict[str, Any] = field(default_factory=lambda: {"cluster": GROUPS, "sharing": {"model": "pairs"}})
    held: pd.DataFrame = field(default_factory=HELD.copy)

    def has(self, table: str) -> bool:
        return True

    def table(self, name: str, columns: Any = None) -> pd.DataFrame:
        return (TYPED_JOBS if name == "jobs" else self.held)[list(columns)]


@dataclass
class FakeRun:
    """A run of these cells."""

    cells: list[FakeCell]
    name: str = "fake"


def test_utilisation_hours_and_jct_of_each_type() -> None:
    found = summarise_types(TYPED_JOBS, HELD, GROUPS)
    on_t4 = 2 * 150 + 30 + 0.5 * 50 + 10 + 0.5 * 50
    assert found == pytest.approx(
        {
            "gpu_hours[v100]": 100 / 3600,
            "gpu_utilisation[v100]": 100 / (2 * 200),
            "gpu_hours[t4]": on_t4 / 3600,
            "gpu_utilisation[t4]": on_t4 / (8 * 200),
            "jct_mean_s[t4]": (200 + 80 + 60) / 3,
        }
    )
    assert summarise_types(TYPED_JOBS, HELD, [{**group, "gpu_type": "t4"} for group in GROUPS]) == {}


def test_metrics_of_a_type_have_names() -> None:
    assert find_metric("gpu_utilisation[v100]").title == "GPU utilisation of v100"
    assert find_metric("gpu_hours[t4]").key == "gpu_hours[t4]"
    with pytest.raises(InputError, match="no metric"):
        find_metric("makespan_s[t4]")


def test_pairs_have_their_mean_speeds_both_ways_round() -> None:
    found = pair_speeds([FakeCell(), FakeCell(held=HELD[:3])])
    kinds = ["gpu_type", "application", "batch_size", "other_application", "other_batch_size"]
    speeds = {tuple(row[kind] for kind in kinds): (row["speed"], row["sum"]) for _, row in found.iterrows()}
    assert speeds == {
        ("t4", "gan", 0, "lm", 20): pytest.approx((0.5, 1.3)),
        ("t4", "lm", 20, "gan", 0): pytest.approx((0.8, 1.3)),
    }
    assert len(pair_speeds([FakeCell(held=HELD[:3])])) == 0


def test_the_map_shows_the_sums_and_is_drawn_only_of_measured_pairs() -> None:
    ((name, plan),) = pair_figures(FakeRun([FakeCell()]))  # type: ignore[arg-type]
    figure, data = plan()
    assert name == "pairs"
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.30", "0.50", "1.30", "0.80"]
    assert len(data) == 2
    constant = FakeCell(manifest={"cluster": GROUPS, "sharing": {"model": "constant"}})
    assert list(pair_figures(FakeRun([constant]))) == []  # type: ignore[arg-type]
    both = pd.concat([data, data.assign(gpu_type="k80", sum=0.9)])
    figure, _ = pairs_map(both, title="two types")
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["T4: 100 % pay", "K80: 0 % pay"]
