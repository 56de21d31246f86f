"""Nodes that sleep: the forecast by hand, whom waking serves, and runs on four nodes second by second."""

from __future__ import annotations

from itertools import pairwise

import pytest
from simsched_policies.production.ces import Ces
from simsched_policies.queues.by_key import Fifo

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.testing.builders import Applications, fresh_view, run
from simsched.toolkit.node_demand import nodes_to_wake

FOUR = Cluster.uniform(4, 2)
BOOT = EngineOptions(restart_delay_s=0, node_start_s=120)


def replay(jobs: list[JobSpec], options: EngineOptions = BOOT, **params: object) -> MemoryRecorder:
    return run(Ces(**params), jobs, cluster=FOUR, options=options)  # type: ignore[arg-type]


def awake(records: MemoryRecorder) -> dict[float, int]:
    """Return the nodes awake after each decision that changed their number."""
    rows = [(row.time_s, row.provisioned_nodes) for row in records.decisions]
    return dict(rows[:1] + [after for before, after in pairwise(rows) if before[1] != after[1]])


def starts(records: MemoryRecorder) -> dict[str, float]:
    return {job.job_id: job.start_time_s for job in records.jobs}


def test_nodes_are_woken_for_what_has_no_room() -> None:
    mixed = Cluster.of(NodeGroup(2, 2), NodeGroup(2, 4), NodeGroup(1, 4))
    jobs = [JobSpec(f"{i}", 0, gpus, duration_s=9) for i, gpus in enumerate((1, 4, 8))]
    view, _ = fresh_view(Fifo(), jobs, mixed, Applications())
    small, whole, large = view.jobs.values()
    none = [0] * 5
    assert nodes_to_wake([small], mixed.nodes, [1, 0, 0, 0, 0], [1, 2]) == []
    assert nodes_to_wake([small, small, small], mixed.nodes, [1, 0, 0, 0, 0], [1, 2]) == [1]
    assert nodes_to_wake([whole], mixed.nodes, [2, 2, 3, 0, 0], [3, 4]) == [3]
    assert nodes_to_wake([large], mixed.nodes, [2, 2, 4, 0, 0], [3, 4]) == [3]  # one is free, one is woken
    assert nodes_to_wake([large], mixed.nodes, none, [1, 2]) == []  # 2 + 4 are too few
    assert nodes_to_wake([large, small], mixed.nodes, none, [1, 2]) == [1]


def test_free_nodes_sleep_and_wake_for_a_job_that_waits_for_them_to_come_up() -> None:
    long, wide = JobSpec("long", 0, 2, duration_s=5000), JobSpec("wide", 1000, 6, duration_s=600)
    records = replay([long, wide])
    # One node is spare. The wide job needs three: two more, which is all there are. It ends at 1720.
    assert awake(records) == {0: 2, 1000: 4, 1800: 2}
    assert starts(records) == {"long": 0, "wide": 1120}


def test_no_node_sleeps_while_the_nodes_in_use_have_risen() -> None:
    spans = {"first": (0, 2, 9000), "wide": (1000, 6, 300), "third": (1500, 2, 6000)}
    jobs = [JobSpec(name, submit, gpus, duration_s=time) for name, (submit, gpus, time) in spans.items()]
    # The wide job runs from 1120 to 1420. From 1500 on two nodes are in use, more than an hour before until 4720.
    assert awake(replay(jobs, spare_nodes=0)) == {0: 1, 1000: 4, 4800: 2, 7800: 1}
    assert awake(replay(jobs, spare_nodes=0, recent_rise=0)) == {0: 1, 1000: 4, 1800: 2, 7800: 1}


def test_a_forecast_keeps_nodes_awake() -> None:
    daily = [JobSpec(f"wide-{day}", day * 10_000 + 100, 8, duration_s=4000) for day in range(3)]
    base = JobSpec("base", 0, 1, duration_s=35_000)
    sleepy = replay([base, *daily], season_s=10_000, future_rise=0, ahead_s=600)
    assert awake(sleepy)[0] == 2


def test_while_no_job_is_there_nodes_sleep_too() -> None:
    jobs = [JobSpec("early", 0, 8, duration_s=100), JobSpec("late", 100_000, 8, duration_s=100)]
    records = replay(jobs)
    assert awake(records) == {0: 4, 600: 1, 100_000: 4}
    assert starts(records)["late"] == 100_120
    assert [row.time_s for row in records.decisions if 100 < row.time_s < 2000] == [600, 1200, 1800]
    rested = run(Fifo(), jobs, cluster=FOUR, options=BOOT)
    assert not [row for row in rested.decisions if 100 < row.time_s < 100_000]


@pytest.mark.parametrize("order", ["fifo", "sjf", "qssf"])
def test_the_order_is_that_of_another_policy(order: str) -> None:
    jobs = [JobSpec(f"{i}", 0, 8, duration_s=300 - 100 * i) for i in range(3)]
    began = sorted(starts(replay(jobs, order=order)).items(), key=lambda item: item[1])
    assert [name for name, _ in began] == (["2", "1", "0"] if order == "sjf" else ["0", "1", "2"])


@pytest.mark.parametrize(
    "params", [{"spare_nodes": -1}, {"recent_s": 0.0}, {"season_s": 100.0}, {"check_interval_s": 0}]
)
def test_windows_of_nothing_are_refused(params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Ces(**params)  # type: ignore[arg-type]
