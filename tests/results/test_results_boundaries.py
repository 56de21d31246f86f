"""Results at their boundaries: nothing held, one of a kind, two copies, and the first value that is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from docs.verdicts import EXCLUDED, UNDECIDED, Judged, judge, ranks
from simsched.errors import InputError
from simsched.results import metric
from simsched.results.analyses import PAIR_COLUMNS, by_group, pair_speeds
from simsched.results.arrow import columns_of, read_arrow
from simsched.results.compare import compare_runs, comparison
from simsched.results.expected_times import compare_expected, read_expected
from simsched.results.fairness import time_on_share
from simsched.results.metric import Columns, LossTable, NodeMake, Power, Tables, held_between_rounds
from simsched.results.metrics import METRICS, summarise
from simsched.results.quality import lives, mean_loss, read_losses
from simsched.results.reader import Cell, Run, read_cell
from simsched.results.statistics import Estimate, estimate
from simsched.results.summary import summarise_types
from simsched.results.writer import TableWriter, _same_bytes


def cell(policy, seed, jct_s, point=None, **manifest):
    return Cell(Path("cell"), manifest, {"jct_mean_s": jct_s}, policy, policy, seed, point or {})


def test_columns_become_arrays_of_their_kinds():
    table = pa.table({"n": pa.array([], pa.int64()), "x": pa.array([], pa.float64())})
    assert [(columns_of(table)[name].dtype, len(columns_of(table)[name])) for name in "nx"] == [
        (np.dtype("int64"), 0), (np.dtype("float64"), 0),
    ]  # fmt: skip
    filled = columns_of(pa.table({"n": [1, 2], "x": [0.5, 1.5], "b": [True, False], "s": ["a", "b"]}))
    assert [filled[name].dtype.kind for name in "nxbs"] == ["i", "f", "b", "O"]
    assert [filled[name].tolist() for name in "nxbs"] == [[1, 2], [0.5, 1.5], [True, False], ["a", "b"]]
    twice = columns_of(pa.concat_tables([pa.table({"s": ["long name", "b"]}), pa.table({"s": ["long name"]})]))["s"]
    assert twice.tolist() == ["long name", "b", "long name"]
    assert twice[0] is twice[2]


def test_of_a_long_table_the_last_columns_read_are_kept(monkeypatch):
    monkeypatch.setattr(metric, "_LONG", 1)
    read = []
    long, short = (Columns("abc", rows, lambda name: read.append(name) or np.zeros(1)) for rows in (2, 1))
    for name in "aabacabb":
        assert len(long[name]) == len(short[name]) == 1
    assert "".join(read) == "aabbccab"


def test_a_column_that_stands_twice_is_refused(tmp_path):
    with TableWriter(tmp_path):
        pass
    jobs = pq.read_table(tmp_path / "jobs.parquet")
    pq.write_table(jobs.append_column("jct_s", jobs.column("jct_s")), tmp_path / "jobs.parquet")
    with pytest.raises(InputError, match="has the column 'jct_s' twice"):
        read_arrow(tmp_path, "jobs")


def test_slowdowns_of_short_jobs_are_over_ten_seconds_and_shares_of_nothing_are_none():
    jobs = pd.DataFrame({"tenant": ["a", "b"], "user": ["u", "u"], "num_gpus": [1, 1], "queueing_s": [0, 0],
                         "jct_s": [44.0, 44.0], "held_s": [10.0, 11.0], "attained_gpu_s": [0.0, 0.0]})  # fmt: skip
    groups = by_group(jobs, "tenant")
    assert [row.slowdown for row in groups.rows] == pytest.approx([4.4, 4.0, 4.2])
    assert [row.share for row in groups.rows] == [0.0, 0.0, 0.0]


def test_a_job_is_of_the_type_that_it_held_for_however_short_and_a_span_of_nothing_uses_nothing():
    groups = [{"gpu_type": kind, "nodes": 1, "gpus_per_node": 1} for kind in ("t4", "v100")]
    held = pd.DataFrame({"job_id": ["a"], "start_s": [0.0], "end_s": [0.5], "gpus": [1], "placement": ["1:1"]})
    for end_s, used in ((1.0, 0.5), (0.0, None)):
        jobs = pd.DataFrame({"job_id": ["a"], "jct_s": [0.5], "end_time_s": [end_s]})
        found = summarise_types(jobs, held, groups)
        assert found.get("gpu_utilisation[v100]") == used
        assert (found["jct_mean_s[v100]"], "jct_mean_s[t4]" in found) == (0.5, False)


def test_copies_are_of_the_same_jobs_and_ratios_are_averaged_geometrically_above_zero():
    def row_of(*cells):
        (row,) = comparison(Run(Path("run"), "x", cells, {}, {}))
        return row

    assert not row_of(cell("a", 1, 10, jobs_hash="x")).copies
    assert row_of(cell("a", 1, 10, jobs_hash="x"), cell("a", 2, 10, jobs_hash="x")).copies
    assert not row_of(cell("a", 1, 10, jobs_hash="x"), cell("a", 2, 10, jobs_hash="y")).copies
    assert not row_of(cell("a", 1, 10, jobs_hash="x"), cell("a", 2, 11, jobs_hash="x")).copies
    two = row_of(cell("a", 1, 10, jobs_hash="x"), cell("a", 2, 11, jobs_hash="y"))
    for ratios, mean in (((0.5, 2.0), 1.0), ((0.0, 2.0), 1.0), ((0.25, 1.0), 0.5)):
        row = replace(two, values={"jct_mean_ratio": dict(enumerate(ratios))})
        assert row.estimate("jct_mean_ratio").mean == pytest.approx(mean)


def test_published_values_are_found_by_the_label_of_a_policy_with_one_row():
    published = {"a": {"jct_mean_h": 2}, "b": {"jct_mean_h": 3}, "b [load=2]": {"jct_mean_h": 4}}
    cells = (cell("a", 1, 1.0, {"load": 1}), cell("b", 1, 1.0, {"load": 1}), cell("b", 1, 1.0, {"load": 2}))
    rows = comparison(Run(Path("run"), "x", cells, published, {}))
    assert [(row.name, dict(row.published)) for row in rows] == [
        ("a [load=1]", {"jct_mean_s": 7200.0}), ("b [load=1]", {}), ("b [load=2]", {"jct_mean_s": 14400.0}),
    ]  # fmt: skip


def test_two_runs_are_compared_where_both_have_a_policy():
    def run_of(**jcts_s):
        cells = [Cell(Path("cell"), {"workload": {"name": name[1:]}}, {"jct_mean_s": jct_s}, name[0], name[0], 1)
                 for name, jct_s in jcts_s.items()]  # fmt: skip
        return Run(Path("run"), "run", tuple(cells), {}, {})

    found = compare_runs(run_of(aw1=1.0, aw2=2.0, bw1=3.0), run_of(aw1=2.0, bw2=1.0, aw3=9.0), ["jct_mean_s"])
    assert [(line.policy, list(line.by_workload)) for line in found.lines] == [("a", ["w1"])]
    assert [(one.workload, one.one) for one in found.rankings] == [("w1", ("a",)), ("w2", ())]


def test_a_list_of_expected_times_is_refused_at_its_first_line_and_with_twenty_misfits(tmp_path):
    (tmp_path / "x.csv").write_text("workload,job\nw,a\n")
    with pytest.raises(InputError) as caught:
        read_expected(tmp_path / "x.csv")
    assert [problem.line for problem in caught.value.problems] == [1]
    (tmp_path / "cell").mkdir()
    with TableWriter(tmp_path / "cell"):
        pass
    (tmp_path / "cell" / "summary.json").write_text("{}")
    (tmp_path / "cell" / "manifest.json").write_text('{"workload": {"name": "w"}}')
    (tmp_path / "x.csv").write_text("workload,job,jct_s\n" + "".join(f"w,j{n},1\n" for n in range(21)))
    with pytest.raises(InputError) as caught:
        compare_expected(tmp_path / "cell", tmp_path / "x.csv")
    assert [problem.line for problem in caught.value.problems] == list(range(2, 22))


@pytest.mark.parametrize(
    ("share", "floor", "ceil", "between"),
    [(0.5, 120.0, 60.0, 120.0), (1.0, 60.0, 60.0, 60.0), (1.5, 60.0, 30.0, 45.0), (2.25, 30.0, 20.0, 27.5)],
)
def test_the_time_on_a_share_of_gpus(share, floor, ceil, between):
    found = [time_on_share(share, lambda gpus: 60.0 / gpus, how) for how in ("floor", "ceil", "interpolate")]
    assert found == pytest.approx([floor, ceil, between])


def test_of_decisions_in_one_second_the_last_holds():
    rounds = pd.DataFrame({"time_s": [5, 10, 10, 30], "gpus": [1, 2, 3, 4]})
    assert [part.tolist() for part in held_between_rounds(rounds, "gpus", 20.0)] == [[0, 10], [10, 20], [1, 3]]


@pytest.mark.parametrize(("end_s", "joule"), [(100, 100 * (2 * 50 + 6 * 5)), (0, 0)])
def test_free_gpus_of_large_nodes_draw_until_the_last_completion(end_s, joule):
    power = Power((NodeMake(2, 4, "t4"),), {"t4": 5.0}, {"t4": 50.0})
    columns = ("jct_s", "held_s", "queueing_s", "restart_s", "attained_gpu_s", "restarts")
    jobs = pd.DataFrame({"end_time_s": [end_s]}).assign(**dict.fromkeys(columns, 0), tenant="", application="")
    held = pd.DataFrame({"start_s": [0], "end_s": [end_s], "gpus": [2], "restarting": [False], "efficiency": [1.0]})
    rounds = pd.DataFrame({"time_s": [0], "provisioned_nodes": [2], "available_gpus": [8]})
    assert summarise(Tables(jobs, held, rounds, 8, power=power))["energy_kwh"] == pytest.approx(
        joule / 3.6e6, rel=1e-12
    )


def test_figures_of_deadlines_are_there_where_a_job_has_one_and_of_promises_where_one_was_made():
    jobs = pd.DataFrame({"jct_s": [30.0, 5.0], "deadline_s": [10.0, np.inf], "declined": [True, False]})
    names = [name for name, metric in METRICS.items() if "deadline" in metric.meaning]

    def found(rows):
        return {name: METRICS[name].compute(Tables(rows.assign(attained_gpu_s=0.0), None, None, 4)) for name in names}

    assert (found(jobs)["promises_kept"], found(jobs)["deadlines_met"], found(jobs)["tardiness_mean_s"]) == (
        None,
        0,
        20,
    )
    assert set(found(jobs[1:]).values()) == {None}
    assert set(found(jobs.drop(columns="deadline_s")).values()) == {None}


#: The loss falls in a straight line over 10 of progress.
LINE = LossTable((0.0, 10.0), (1.0, 0.0))


def life(submit_s, end_s, *held):
    jobs = pd.DataFrame({"job_id": ["a"], "application": ["x"], "submit_time_s": [submit_s], "end_time_s": [end_s]})
    rows = pd.DataFrame(held, columns=["start_s", "end_s", "progress", "rate"]).assign(job_id="a")
    (found,) = lives(jobs, rows, {"x": LINE})
    return found


def test_times_to_a_loss_count_from_submission():
    job = life(100, 160, (110, 120, 0.0, 0.5), (140, 160, 5.0, 0.25))
    # It waits for 10 s, makes 5 in 10 s, waits for 20 s, and makes the other 5 in 20 s.
    assert [job.time_to(share) for share in (0.25, 0.5, 0.75, 1.0)] == [15, 20, 50, 60]
    assert job.time_to(0.0) == 60  # there from the start: told as the end
    # Areas: 10 at 1, 10 at 0.75, 20 at 0.5, 20 at 0.25.
    assert mean_loss([job]) == pytest.approx((10 + 7.5 + 10 + 5) / 60, rel=1e-3)
    # Beside one that holds a loss of 1 for 20 s and never runs on.
    other = life(40, 60, (60, 60, 0.0, 0.5))
    assert other.time_to(0.5) == 20
    assert mean_loss([job, other]) == pytest.approx((32.5 + 20) / 80, rel=1e-3)


@pytest.mark.parametrize(
    ("progress", "loss", "taken"),
    [([0, 1], [1, 0], True), ([0], [1], True), ([1, 1], [1, 0], False), ([1, 0], [1, 0], False),
     ([0, 1], [1], False), ([], [], False), ([0], [1, 0], False)],
)  # fmt: skip
def test_a_curve_of_losses_has_a_loss_for_each_rising_progress(tmp_path, progress, loss, taken):
    numbers = [[float(one) for one in part] for part in (progress, loss)]
    (tmp_path / "losses.json").write_text(json.dumps({"x": dict(zip(("progress", "loss"), numbers, strict=True))}))
    if taken:
        assert read_losses(tmp_path) == {"x": LossTable(*map(tuple, numbers))}
    else:
        with pytest.raises(InputError, match="no curve of losses over rising progress"):
            read_losses(tmp_path)


@pytest.mark.parametrize(
    ("published", "times", "counts"),
    [
        ((100, 105), ((10, 10), (20, 20)), None),  # at most 5 % apart: no order was published
        ((100, 106), ((10, 10), (20, 20)), (1, 0, 0)),
        ((100, 106), ((20, 20), (10, 10)), (0, 1, 0)),
        ((100, 106), ((10, 10), (10, 10)), (0, 0, 1)),
        ((100, 106), ((10, 20), (20, 10)), (0, 0, 1)),
        ((100, 106), ((10,), (20,)), (0, 0, 1)),
        ((100, 106), ((0, 0), (20, 20)), (0, 0, 1)),
    ],
)
def test_an_order_is_published_by_more_than_a_twentieth_and_found_beyond_one(published, times, counts):
    cells = [cell(name, seed, float(jct_s)) for name, own in zip("ab", times, strict=True)
             for seed, jct_s in enumerate(own)]  # fmt: skip
    cells.append(cell("c", 0, 5.0))
    values = {name: {"jct_mean_s": value} for name, value in zip("ab", published, strict=True)}
    found = ranks(Run(Path("run"), "x", tuple(cells), values, {}), "jct_mean_s")
    assert [(one.in_order, len(one.reversed_pairs), len(one.undecided_pairs)) for one in found] == (
        [] if counts is None else [counts]
    )
    assert [one.seeds for one in found] == ([] if counts is None else [len(times[0])])


def test_without_cells_there_are_no_pairs():
    assert list(pair_speeds([]).columns) == list(PAIR_COLUMNS)
    assert len(pair_speeds([])) == 0


@pytest.mark.parametrize(
    ("manifest", "policy", "name", "seed", "point"),
    [
        ({}, "", "", 0, {}),
        ({"policy": {"name": "p"}, "seed": 3, "point": {"load": 2}}, "p", "p", 3, {"load": 2}),
        ({"policy": {"name": "p", "label": "shown"}, "policy_name": "other"}, "shown", "p", 0, {}),
        ({"policy": "shown", "policy_name": "p"}, "shown", "p", 0, {}),
        ({"policy": "shown"}, "shown", "shown", 0, {}),
    ],
)
def test_a_cell_is_named_by_its_manifest(tmp_path, manifest, policy, name, seed, point):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "summary.json").write_text("{}")
    found = read_cell(tmp_path)
    assert (found.policy, found.policy_name, found.seed, found.point) == (policy, name, seed, point)


@pytest.mark.parametrize(
    ("low", "high", "published", "doubt"),
    [
        (0.921875, 1.078125, 1.05, "contains 1 and the published"),
        (0.875, 1.125, 1.125, "interval 25 % wide"),
        (0.875, 1.125, 0.875, "interval 25 % wide"),
        (0.875, 1.125, 1.126, "interval 25 % wide, without the published"),
        (0.875, None, 1.0, "no interval"),
        (None, 1.125, 1.0, "no interval"),
    ],
)
def test_why_a_ratio_is_undecided(low, high, published, doubt):
    judged = Judged("a", "b", Estimate(1.0, 3, low, high), None, published, (None, None), None, "s", UNDECIDED)
    assert judged.doubt == doubt
    assert replace(judged, verdict=EXCLUDED).doubt == ""
    assert replace(judged, ratio=Estimate(2.0, 3, 1.0, 2.0)).doubt.startswith("interval 50 % wide")
    assert replace(judged, ratio=Estimate(10.0, 3, 9.0, 11.0)).doubt == "contains 1 and the published"  # 20 % wide
    assert replace(judged, ratio=None).doubt == "no ratio"


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ({"a": {"jct_mean_h": 2}, "b": {"jct_mean_h": 3}}, (1.5, (3, 2))),
        ({"a": {"jct_mean_h": 0}, "b": {"jct_mean_h": 3}}, None),
        ({"b": {"jct_mean_h": 3}}, None),
        ({"a": {"jct_mean_h": 2}}, None),
        ({"b": {"jct_mean_ratio": 4}}, (4, None)),
    ],
)
def test_ratios_are_judged_where_both_values_or_the_ratio_were_published(published, expected):
    cells = (cell("a", 1, 7200.0), cell("b", 1, 14400.0))
    run = Run(Path("run"), "x", cells, published, {"report": {"reference": "a"}})
    found = [(one.published, one.published_levels, one.means) for one in judge(run, "jct_mean_h")]
    if expected is None:
        assert found == []
        return
    ((ratio, levels, means),) = found
    assert (ratio, levels, means) == (expected[0], pytest.approx(expected[1]) if expected[1] else None, (4.0, 2.0))


def test_half_widths_reach_to_the_farther_end_where_there_is_an_interval():
    widths = {(1.0, 4.0): 2.0, (-1.0, 4.0): 3.0, (None, 4.0): None, (1.0, None): None}
    assert {ends: Estimate(2.0, 3, *ends).half_width for ends in widths} == widths
    found = {(low, high): Estimate(0.0, 3, low, high).excludes_zero for low in (None, -1.0, 0.0, 1.0)
             for high in (None, -0.5, 0.0, 2.0)}  # fmt: skip
    assert {ends for ends, apart in found.items() if apart} == {
        (-1.0, -0.5), (0.0, -0.5), (1.0, -0.5), (1.0, 0.0), (1.0, 2.0),
    }  # fmt: skip
    assert estimate([3.0, 3.0]) == Estimate(3.0, 2, 3.0, 3.0)


def test_columns_repeat_themselves_where_they_hold_the_same_at_the_same_place():
    one = pa.array(["a", "b", "a", "b"])
    assert _same_bytes(one, pa.array(["a", "b", "a", "b"]))
    for other in (pa.array(["a", "b", "a", "c"]), one.slice(0, 2), one.slice(2), pa.array(["a", "b", "a", None])):
        assert not _same_bytes(one, other)
        assert not _same_bytes(other, one)
    assert not _same_bytes(one.slice(0, 2), one.slice(2))
    assert _same_bytes(pa.array([1, None]), pa.array([1, None]))


@pytest.mark.parametrize(("share", "hours"), [(None, 2.0), (0.5, 1.0)])
def test_restarts_hold_gpus_by_their_share_and_more_than_is_there_leaves_nothing_idle(share, hours):
    held = pd.DataFrame({"start_s": [100.0, 4000.0], "end_s": [3700.0, 5000.0], "gpus": [2, 1],
                         "restarting": [True, False]})  # fmt: skip
    held = held if share is None else held.assign(gpu_share=share)
    jobs = pd.DataFrame({"end_time_s": [3600.0], "attained_gpu_s": [1800.0]})
    rounds = pd.DataFrame({"time_s": [0], "available_gpus": [1]})
    assert METRICS["restart_gpu_hours"].compute(Tables(jobs, held, rounds, 1)) == hours
    for attained, idle in ((1800.0, 0.5), (3600.0, 0.0), (7200.0, 0.0)):
        tables = Tables(jobs.assign(attained_gpu_s=attained), None, rounds, 1)
        assert METRICS["idle_gpu_hours"].compute(tables) == idle
