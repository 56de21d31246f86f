"""Times divided by those of the reference policy, as Tiresias and others publish them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.results.compare import comparison
from simsched.results.metrics import find_metric, summarise
from simsched.results.reader import Cell, Run


def run_of(tmp_path: Path, published: dict[str, dict[str, float]], reference: str | None) -> Run:
    times = {("a", 1): 10.0, ("a", 2): 30.0, ("b", 1): 5.0, ("b", 2): 10.0}
    cells = tuple(
        Cell(tmp_path, {}, {"jct_mean_s": jct, "jct_mean_s[x]": 2 * jct}, policy, policy, seed, {})
        for (policy, seed), jct in times.items()
    )
    experiment = {} if reference is None else {"report": {"reference": reference}}
    return Run(tmp_path, "tiny", cells, published, experiment)


def test_ratios_are_taken_seed_by_seed_where_they_were_published(tmp_path: Path) -> None:
    published = {"a": {"jct_mean_ratio": 2.4, "jct_mean_ratio[x]": 7}}
    first, second = comparison(run_of(tmp_path, published, "b"))
    assert first.values["jct_mean_ratio"] == {(1,): 2.0, (2,): 3.0}
    assert first.values["jct_mean_ratio[x]"] == {(1,): 2.0, (2,): 3.0}
    assert second.values["jct_mean_ratio"] == {(1,): 1.0, (2,): 1.0}
    assert first.published == {"jct_mean_ratio": 2.4, "jct_mean_ratio[x]": 7}
    assert "jct_mean_ratio" not in comparison(run_of(tmp_path, {}, "b"))[0].values


def test_without_a_reference_the_first_policy_is_the_one_to_divide_by(tmp_path: Path) -> None:
    first, second = comparison(run_of(tmp_path, {"b": {"jct_mean_ratio": 1}}, None))
    assert first.values["jct_mean_ratio"] == {(1,): 1.0, (2,): 1.0}
    assert second.values["jct_mean_ratio"] == {(1,): 0.5, (2,): pytest.approx(1 / 3)}


def test_a_ratio_has_a_name_without_a_unit() -> None:
    assert find_metric("makespan_ratio").key == "makespan_ratio"
    assert find_metric("jct_mean_ratio[x]").title == "mean JCT of x / reference's"
    assert find_metric("gpu_utilisation_ratio").unit == ""
    for wrong in ("gpu_utilisation_ratio[x]", "jct_p95_ratio[x]", "_ratio"):
        with pytest.raises(InputError, match="there is no metric"):
            find_metric(wrong)


def test_means_are_given_for_each_tenant_that_has_a_name() -> None:
    columns = ("jct_s", "application", "tenant", "end_time_s", "attained_gpu_s", "restart_s", "held_s", "restarts")
    rows = [(10, "m", "", 10, 10, 0, 10, 0), (30, "m", "t", 40, 30, 0, 30, 0), (50, "n", "t", 90, 50, 0, 50, 0)]
    table = pd.DataFrame(rows, columns=list(columns)).assign(queueing_s=0)
    summary = summarise(table, None, None, 1)
    assert summary["jct_mean_s[t]"] == 40
    assert summary["jct_mean_s[m]"] == 20
    assert "jct_mean_s[]" not in summary
