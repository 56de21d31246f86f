"""Which job is drawn on which GPUs, and how many are drawn waiting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simsched.engine import failures
from simsched.report.figures.bars import draw_tenant_waits, tenant_waits
from simsched.report.figures.occupancy import occupancy, queue_over_time
from simsched.report.figures.style import looks
from simsched.results.analyses import by_group, changes, size_of
from simsched.results.metric import jain_index
from simsched.results.stays import HELD_COLUMNS, OFF, stays_of


def held(*rows):
    return pd.DataFrame(rows, columns=list(HELD_COLUMNS))


def jobs(**ends):
    return pd.DataFrame({"job_id": list(ends), "end_time_s": list(ends.values())})


def test_intervals_with_one_placement_are_one_stay_that_ends_where_the_job_does():
    (stay,) = stays_of(
        held(("a", 0, 30, "0:2", True), ("a", 30, 80, "0:2", False), ("a", 80, 90, "0:2", False)), jobs(a=90)
    )
    assert (stay.start_s, stay.ready_s, stay.end_s, stay.number, stay.ended) == (0, 30, 90, 1, True)


def test_nodes_out_of_use_are_drawn_told_apart_and_counted():
    outages = pd.DataFrame(
        [(1, 0, 3600, "node failure", True), (0, 1800, 3600, OFF, True), (9, 0, 60, "node failure", False)],
        columns=["node", "start_s", "end_s", "kind", "ended"],
    )
    columns = {"submit_time_s": 0, "status": "", "application": "x", "tenant": "", "restarts": 0}
    table = jobs(a=3600).assign(**columns)
    figure, data = occupancy({"fifo": (table, held(("a", 0, 3600, "0:1", False)))}, [1, 2], outages={"fifo": outages})
    hatched = [one for one in figure.axes[0].collections if one.get_hatch()]
    assert [box.vertices[:4].tolist() for one in hatched for box in one.get_paths()] == [
        [[0, 1], [1, 1], [1, 3], [0, 3]]
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["node failure", "node off"]
    assert "node failure 2 times (1.0 node-hours), off 1 time (0.5 node-hours)" in figure.texts[1].get_text().replace(
        "\n", " "
    )
    assert data[["node", "start_s", "end_s", "kind"]].to_numpy().tolist() == [
        [0, 0, 3600, ""], [1, 0, 3600, "node failure"], [0, 1800, 3600, OFF],
    ]  # fmt: skip


def test_the_kind_of_a_node_that_is_off_is_called_alike_by_those_who_write_and_read_it():
    assert OFF == failures.OFF


@pytest.mark.parametrize(("late", "whole"), [(1, False), (40, True)])
def test_few_waiting_jobs_are_marked_in_parts_and_many_in_whole_numbers(late, whole):
    """`late` jobs wait 600 s of 6,000 for the first one."""
    names = [f"j{number}" for number in range(late)]
    columns = {"submit_time_s": 0, "status": "", "num_gpus": 1, "tenant": "", "application": "fixed-duration"}
    table = pd.DataFrame({"job_id": ["a", *names], **columns, "end_time_s": [600, *[6000] * late]})
    rows = [("a", 0, 600, "0:1", False), *((name, 600, 6000, "0:1", False) for name in names)]
    figure, data = queue_over_time({"fifo": (table, held(*rows))})
    ticks = figure.axes[0].get_yticks()
    assert set(np.round(np.diff(ticks), 6)) <= {0.1, 0.2, 0.5, 5, 10, 20}
    assert all(tick == int(tick) for tick in ticks) is whole
    assert data.drop(columns=["policy", "time_s"]).to_numpy().max() == late


JOBS = pd.DataFrame(
    [
        ("a", "u", 1, 0, 100, 100),
        ("a", "u", 1, 100, 200, 100),
        ("a", "v", 4, 300, 400, 100),
        ("b", "w", 8, 0, 100, 100),
        ("", "w", 64, 50, 51, 1),
    ],
    columns=["tenant", "user", "num_gpus", "queueing_s", "jct_s", "held_s"],
).assign(attained_gpu_s=lambda jobs: jobs["num_gpus"] * jobs["held_s"])


def test_tenants_with_their_waits_slowdowns_and_shares() -> None:
    groups = by_group(JOBS, "tenant")
    rows = {row.group: row for row in groups.rows}
    assert list(rows) == ["(none)", "a", "b", "all"]
    a = rows["a"]
    assert (a.jobs, a.users, a.mean_wait_s, a.median_wait_s) == (3, 2, pytest.approx(400 / 3), 100)
    assert a.p90_wait_s == pytest.approx(260)
    assert a.slowdown == pytest.approx((1 + 2 + 4) / 3)
    assert a.share == pytest.approx(600 / 1464)
    assert a.gpu_hours == pytest.approx(600 / 3600, rel=1e-12)
    assert rows["(none)"].slowdown == pytest.approx(5.1)  # a run time of a second counts as 10
    assert groups.fairness == pytest.approx(jain_index([5.1, 7 / 3, 1]))


def test_sizes_from_small_to_large() -> None:
    assert [row.group for row in by_group(JOBS, "size").rows] == [
        "1 GPU", "2-4 GPUs", "5-8 GPUs", "over 32 GPUs", "all",
    ]  # fmt: skip
    assert size_of([1, 2, 4, 5, 8, 9, 32, 33]).tolist() == [
        "1 GPU", "2-4 GPUs", "2-4 GPUs", "5-8 GPUs", "5-8 GPUs", "9-32 GPUs", "9-32 GPUs", "over 32 GPUs",
    ]  # fmt: skip


def test_the_index_is_one_if_even_and_the_reciprocal_if_one_bears_all() -> None:
    assert jain_index([2, 2, 2]) == 1
    assert jain_index([3, 0, 0]) == pytest.approx(1 / 3)
    assert jain_index([]) == 1


def test_groups_of_two_runs_are_paired_by_name() -> None:
    pairs = changes(by_group(JOBS, "tenant"), by_group(JOBS[JOBS["tenant"] != "b"], "tenant"))
    assert [name for name, _, _ in pairs] == ["(none)", "a", "all"]


def test_waits_by_tenant_and_size_under_each_policy_are_drawn() -> None:
    data = tenant_waits({"one": JOBS, "two": JOBS.assign(queueing_s=0)})
    waits = {(row.by, row.group): row.mean_wait_h for row in data[data["policy"] == "one"].itertuples()}
    assert waits["tenant", "a"] == pytest.approx(400 / 3 / 3600)
    assert waits["size", "1 GPU"] == pytest.approx(50 / 3600)
    assert (data[data["policy"] == "two"]["mean_wait_h"] == 0).all()
    figure, _ = draw_tenant_waits(data, title="t", styles=looks(["one", "two"]))
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 2, 2]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["by tenant", "by user", "by size"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["(none)", "a", "b"]
