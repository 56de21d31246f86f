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
from simsched.results.stays import HELD_COLUMNS, OFF, colour_groups, stays_of, waiting_by


def held(*rows):
    return pd.DataFrame(rows, columns=list(HELD_COLUMNS))


def jobs(**ends):
    return pd.DataFrame({"job_id": list(ends), "end_time_s": list(ends.values())})


def drawn(found):
    return [(one.job_id, one.node, one.first_gpu, one.gpus, one.start_s, one.end_s) for one in found]


def test_intervals_with_one_placement_are_one_stay_that_ends_where_the_job_does():
    (stay,) = stays_of(
        held(("a", 0, 30, "0:2", True), ("a", 30, 80, "0:2", False), ("a", 80, 90, "0:2", False)), jobs(a=90)
    )
    assert (stay.start_s, stay.ready_s, stay.end_s, stay.number, stay.ended) == (0, 30, 90, 1, True)


def test_another_placement_a_gap_or_a_restart_begins_another_stay():
    table = held(
        ("a", 0, 10, "0:1", False),
        ("a", 10, 20, "1:1", False),  # elsewhere
        ("a", 25, 30, "1:1", False),  # after a gap
        ("a", 30, 35, "1:1", True),  # the same place, restarted
        ("a", 35, 40, "1:1", False),
    )
    found = stays_of(table, jobs(a=40))
    assert [(one.start_s, one.ready_s, one.end_s, one.number, one.ended) for one in found] == [
        (0, 0, 10, 1, False), (10, 10, 20, 2, False), (25, 25, 30, 3, False), (30, 35, 40, 4, True),
    ]  # fmt: skip


def test_pauses_for_checkpoints_are_no_restarts():
    rows = [("a", 0, 30, "0:1", True), ("a", 30, 90, "0:1", False)]
    rows += [("a", 90, 100, "0:1", True), ("a", 100, 130, "0:1", False)]  # a checkpoint of 10 s
    rows += [("a", 130, 160, "0:1", True), ("a", 160, 190, "0:1", False)]  # a restart, as long as the first start
    rows += [("a", 190, 200, "0:1", True), ("a", 200, 230, "0:1", False)]  # a checkpoint
    for restarts, starts in ((0, [0]), (1, [0, 130]), (2, [0, 90, 130])):
        found = stays_of(held(*rows), jobs(a=230).assign(restarts=restarts))
        assert [(one.start_s, one.number) for one in found] == [(at, place) for place, at in enumerate(starts, start=1)]


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


def test_jobs_get_the_lowest_free_gpus_side_by_side_where_there_is_such_a_gap():
    table = held(
        ("a", 0, 10, "0:1", False),
        ("b", 0, 50, "0:1", False),
        ("c", 0, 10, "0:2", False),
        ("d", 10, 20, "0:2", False),  # GPUs 0, 2 and 3 are free
        ("e", 10, 20, "0:1", False),
    )
    found = stays_of(table, jobs(a=10, b=50, c=10, d=20, e=20))
    assert drawn(found) == [
        ("a", 0, 0, 1, 0, 10), ("b", 0, 1, 1, 0, 50), ("c", 0, 2, 2, 0, 10), ("d", 0, 2, 2, 10, 20),
        ("e", 0, 0, 1, 10, 20),
    ]  # fmt: skip


def test_a_job_without_neighbouring_gpus_is_drawn_in_parts_and_one_on_two_nodes_on_both():
    table = held(
        ("a", 0, 10, "0:1", False), ("b", 0, 50, "0:1", False), ("c", 0, 10, "0:1", False),
        ("d", 10, 20, "0:2 2:1", False),
    )  # fmt: skip
    found = stays_of(table, jobs(a=10, b=50, c=10, d=20))
    assert drawn(found)[3:] == [("d", 0, 0, 1, 10, 20), ("d", 0, 2, 1, 10, 20), ("d", 2, 0, 1, 10, 20)]
    assert {one.node for one in stays_of(table, jobs(a=10, b=50, c=10, d=20), nodes=2)} == {0}


def table_of(applications, tenants=None):
    ids = [f"j{index}" for index in range(len(applications))]
    return pd.DataFrame({"job_id": ids, "application": applications, "tenant": tenants or ["t"] * len(ids)})


def test_jobs_are_told_apart_by_application_else_by_tenant_else_one_by_one():
    assert colour_groups(table_of(["x", "y"])) == ("application", {"j0": "x", "j1": "y"})
    assert colour_groups(table_of(["x", "x"], ["", "b"])) == ("tenant", {"j0": "none", "j1": "tenant b"})
    assert colour_groups(table_of(["x"] * 3), most=2) == ("job", {"j0": "0", "j1": "1", "j2": "0"})


@pytest.mark.parametrize(("most", "groups"), [(3, "abc"), (2, "ao")])
def test_only_of_more_groups_than_there_are_colours_the_smallest_are_others(most, groups):
    column, found = colour_groups(table_of(["a", "a", "a", "b", "b", "c"]), most)
    assert column == "application"
    assert sorted({name[0] for name in found.values()}) == sorted(groups)
    assert [found["j0"], found["j5"]] == ["a", "c" if most == 3 else "others"]


def test_a_job_waits_while_it_is_there_and_holds_nothing():
    table = pd.DataFrame({"job_id": ["a", "b"], "submit_time_s": [0, 10], "end_time_s": [30, 40]})
    held_by = held(("a", 0, 30, "0:1", False), ("b", 30, 40, "0:1", False))
    waiting = waiting_by(table, held_by, {"a": "x", "b": "y"}, np.array([0.0, 20.0, 40.0]))
    assert waiting["x"].tolist() == [0, 0]
    assert waiting["y"].tolist() == [0.5, 0.5]


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
