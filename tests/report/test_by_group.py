"""Who waited and who used what, on five jobs worked by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from simsched.report.figures.bars import draw_tenant_waits, tenant_waits
from simsched.report.figures.style import looks
from simsched.results.analyses import by_group, changes, size_of
from simsched.results.metric import jain_index

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
