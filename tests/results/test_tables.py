import csv
import re
from dataclasses import replace

import pytest

from simsched.errors import InputError
from simsched.policy import registry
from simsched.report.table import TextTable
from simsched.report.tables import (
    comparison_table,
    difference_table,
    estimate_text,
    to_csv,
)
from simsched.report.units import number, shown_unit, time_unit
from simsched.results.compare import comparison, paired_differences
from simsched.results.reader import Cell, Run
from simsched.results.statistics import Estimate, estimate
from simsched.words import duration


def rows(values, published=None, key=None):
    cells = [
        Cell(
            None,
            {},
            {"jct_mean_s": 3600.0 * jct, "gpu_utilisation": 0.5},
            policy,
            policy,
            seed,
            {key: point} if key else {},
        )
        for point, policies in (values.items() if key else [(None, values)])
        for policy, seeds in policies.items()
        for seed, jct in enumerate(seeds)
    ]
    return comparison(Run(None, "x", tuple(cells), published or {}, {}))


def test_what_only_some_runs_have_is_shown_without_being_asked_for():
    known = {"jct_mean_s": 3600.0, "gpu_utilisation": 0.5, "jct_mean_s[t4]": 60.0, "gpu_hours[t4]": 2.0}
    more = {"gpu_utilisation[t4]": 0.25, "gpu_utilisation[a100]": 0.75, "lost_gpu_hours": 4.0, "speed_per_gpu": 1.5}
    cells = (Cell(None, {}, known | more, "p", "p", 1, {}), Cell(None, {}, known, "q", "q", 1, {}))
    table = comparison_table(comparison(Run(None, "x", cells, {}, {})))
    assert table.headers == (
        "policy", "mean JCT (h)", "GPU utilisation (%)", "GPU utilisation of a100 (%)", "GPU utilisation of t4 (%)",
        "sum of speeds per GPU", "GPU hours lost (GPU h)",
    )  # fmt: skip
    assert table.rows[0][3:] == ("75.0", "25.0", "1.50", "4.00")
    assert table.rows[1][3:] == ("-", "-", "-", "-")


def test_differences_are_paired_run_by_run_where_workloads_count_as_replications():
    files = {"workload.path": ("a.csv", "b.csv")}
    cells = [
        Cell(None, {}, {"jct_mean_s": jct_s}, policy, policy, 1, {"workload.path": file})
        for policy, both in (("ref", (100.0, 200.0)), ("other", (110.0, 220.0)))
        for file, jct_s in zip(files["workload.path"], both, strict=True)
    ]
    found = comparison(Run(None, "x", tuple(cells), {}, files), ["workload.path"])
    table = difference_table(paired_differences(found, "ref"), ["jct_mean_s"])
    assert table.rows == (("other", "+10.0 ±0.00 *"),)  # by 10 % on each
    assert table.notes[0].startswith("Mean of the relative differences run by run ±95 % interval")


def test_a_comparison_has_a_row_per_policy_with_intervals_and_published_values():
    table = comparison_table(rows({"p": [2, 4, 6], "q": [3, 3, 3]}, {"p": {"jct_mean_h": 0.76}}))
    assert table.headers == ("policy", "mean JCT (h)", "GPU utilisation (%)")
    assert table.rows == (("p", "4.00 [2.00 to 6.00] (0.76)", "50.0 ±0.00"), ("q", "3.00", "50.0"))  # not 4 ±4.97
    assert table.notes[:2] == (
        "Mean over 3 seeds ±95 % interval (Student's t).", "Every seed gave the same run, which is counted once: q.",
    )  # fmt: skip
    assert table.notes[2].startswith("In square brackets, if the interval is wider than the mean: the smallest and")
    assert table.notes[3] == "In brackets: published values."


def test_the_source_of_published_values_is_named():
    table = comparison_table(rows({"p": [2]}, {"p": {"jct_mean_h": 1}}), published_source="Table 2")
    assert table.notes[1] == "In brackets: published values (Table 2)."


def test_a_value_that_some_seeds_lack_is_pointed_out():
    cells = [
        Cell(None, {}, {"makespan_s": 5.0} | ({"jct_mean_s[bert]": 7200.0} if seed else {}), "p", "p", seed, {})
        for seed in (0, 1, 2)
    ]
    table = comparison_table(comparison(Run(None, "x", tuple(cells), {}, {})), ["makespan_s", "jct_mean_h[bert]"])
    assert table.rows == (("p", "5.00 ±0.00", "2.00 ±0.00"),)
    assert "some seeds do not have" in table.notes[1]


@pytest.mark.parametrize(
    ("values", "key", "metrics", "headers", "expected"),
    [
        ({"p": [2]}, None, None, ("policy", "mean JCT (h)", "GPU utilisation (%)"), [("p", "2.00", "50.0")]),
        ({"p": [2]}, None, ["jct_mean_min"], ("policy", "mean JCT (min)"), [("p", "120")]),
        ({"p": [0.01]}, None, ["jct_mean_s"], ("policy", "mean JCT (s)"), [("p", "36.0")]),  # not zero hours
        ({0.5: {"p": [1]}, 2.0: {"p": [3]}}, "workload.load", ["jct_mean_s"], ("policy", "load", "mean JCT (h)"),
         [("p", "0.5", "1.00"), ("p", "2.0", "3.00")]),
    ],
)  # fmt: skip
def test_columns_have_the_unit_asked_for_or_the_one_that_reads_best(values, key, metrics, headers, expected):
    table = comparison_table(rows(values, key=key), metrics)
    assert (table.headers, list(table.rows), table.text_columns) == (headers, expected, 2 if key else 1)
    assert table.notes == ("One seed, hence no interval.",)
    with pytest.raises(InputError, match="no metric"):
        comparison_table(rows({"p": [2]}), ["jct_mean_days"])


@pytest.mark.parametrize(
    ("reference", "other", "shown", "note"),
    [
        ([2], [3], "+50.0", "One seed, hence no interval."),
        ([10, 20, 30], [9, 18, 27], "-10.0 ±0.00 *", "* the interval leaves zero out."),
        ([10, 20, 30], [9, 25, 30], "+5.0 ±44.8", "* the interval leaves zero out."),
        # logs of 10, 20, 40 have the mean log 20 and the standard error log 2 / sqrt(3); t(2) is 4.303
        ([1, 1, 1], [10, 20, 40], "x 20.0 [3.57 to 112] *", "the factor with its interval, by logarithms."),
        # 0.5 and 1.5 times as much: 0 % on average, and t(1) s / sqrt(2) = 12.7 * 0.5 is far below -100 %
        ([2, 2], [1, 3], "x 0.87 [", "the factor with its interval, by logarithms."),
        # 2 and 4 hours more: t(1) = 12.706, s / sqrt(2) = 1
        ([0, 1], [2, 5], "Δ +3.00 ±12.7 h", "Δ: the difference itself, as ref has nothing or almost nothing."),
        ([0.01, 0.03], [2, 6], "Δ +3.98 ±25.3 h", "as ref has nothing or almost nothing."),  # 200 times as much
    ],
)
def test_differences_are_relative_or_factors_or_themselves(reference, other, shown, note):
    table = difference_table(paired_differences(rows({"ref": reference, "other": other}), "ref"), ["jct_mean_s"])
    assert (table.title, table.headers) == ("Difference from ref", ("policy", "mean JCT (%)"))
    ((name, cell),) = table.rows
    assert name == "other"
    assert cell.startswith(shown)
    assert cell.endswith("*") == shown.endswith("*")
    assert table.notes[-1].endswith(note)


def test_a_long_table_is_set_out_by_its_last_key_with_a_column_for_each_value():
    policies = [f"p{number}" for number in range(5)]
    points = {load: {name: [load + number] for number, name in enumerate(policies)} for load in (1, 2, 3)}
    table = comparison_table(rows(points, key="workload.load"), ["jct_mean_s", "gpu_utilisation"])
    shown = table.pivoted()
    assert shown.headers == ("metric", "policy", "load 1", "load 2", "load 3")
    assert shown.text_columns == 2
    assert shown.rows[0] == ("mean JCT (h)", "p0", "1.00", "2.00", "3.00")
    assert shown.rows[4] == ("mean JCT (h)", "p4", "5.00", "6.00", "7.00")
    assert shown.rows[5] == ("GPU utilisation (%)", "p0", "50.0", "50.0", "50.0")
    assert len(shown.rows) == 10
    assert shown.notes == table.notes
    short = replace(table, rows=table.rows[:12])
    assert short.pivoted() is short


def test_a_policy_without_the_key_has_the_same_in_all_columns_of_a_long_table():
    table = TextTable(
        "t", ("policy", "load", "m"), (("all", "", "9"), *((f"p{i}", str(i % 2), "1") for i in range(12)))
    )
    shown = replace(table, text_columns=2).pivoted()
    assert shown.rows[0] == ("m", "all", "9", "9")
    assert shown.rows[1] == ("m", "p0", "1", "-")


def test_markdown_aligns_numbers_right_and_escapes_bars():
    text = comparison_table(rows({"a|b": [2]}), ["jct_mean_s"]).markdown()
    assert text == (
        "| policy | mean JCT (h) |\n| --- | ---: |\n| a\\|b | 2.00 |\n\nOne seed, hence no interval.\n"
    )  # fmt: skip


def test_estimates_are_written_with_half_the_interval():
    assert estimate_text(estimate([2, 4, 6])) == "4.00 ±4.97"
    assert estimate_text(Estimate(0.5, 1), 100) == "50.0"
    assert estimate_text(None) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.756, "0.76"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (16.27, "16.3"),
        (99.96, "100"),
        (12345.6, "12,346"),
        (-3, "-3.00"),
    ],
)
def test_numbers_have_as_many_digits_as_mean_something(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(30, "30 s"), (60, "1 min"), (1800, "30 min"), (36000, "10 h"), (86400, "1 day"), (345600, "4 days")],
)
def test_durations_are_named_in_their_largest_unit(seconds, text):
    assert duration(seconds) == text


def test_units_follow_the_size_of_the_values():
    assert shown_unit("s", [100, 7200]).unit == "h"
    assert shown_unit("s", [100, 300]).unit == "min"
    assert shown_unit("s", []).unit == "s"
    assert (shown_unit("share", [0.5]).unit, shown_unit("share", [0.5]).factor) == ("%", 100)
    assert shown_unit("GPU h", [4]).factor == 1
    assert time_unit(30 * 86400).unit == "days"
    assert shown_unit("s", [30 * 86400]).unit == "h"


def knowing(found, **knows):
    """Say of the policies named what they are told, as their manifests would."""
    return [
        replace(
            row, cells=tuple(replace(cell, manifest={"policy_knows": knows.get(row.policy, {})}) for cell in row.cells)
        )
        for row in found
    ]


def test_tables_mark_who_knows_more_than_a_scheduler_could_and_say_what():
    oracle, profiled = {"remaining_work": "oracle", "goodput": "learnt"}, {"offline_profiles": "profiled"}
    found = knowing(rows({"a": [2], "b": [1], "c": [1]}), a=oracle, b=oracle | profiled)
    table = comparison_table(found, ["jct_mean_h"])
    assert [row[0] for row in table.rows] == ["a †", "b †‡", "c"]
    assert table.notes[-2:] == (
        "† oracle: reads what no real scheduler knows (a, b: remaining_work).",
        "‡ reads profiles measured before a job is submitted (b: offline_profiles).",
    )
    differences = difference_table(paired_differences(found, "c"), ["jct_mean_h"])
    assert [row[0] for row in differences.rows] == ["a †", "b †‡"]
    assert r"b $\dagger$$\ddagger$ & \textbf{1.00}" in table.latex()
    assert "| b †‡ | 1.00 |" in table.markdown()
    lines = list(csv.DictReader(to_csv(found, ["jct_mean_h"]).splitlines()))
    assert [line["policy"] for line in lines] == ["a", "b", "c"]
    assert [line["knows"] for line in lines] == [
        "goodput: learnt; remaining_work: oracle",
        "goodput: learnt; offline_profiles: profiled; remaining_work: oracle",
        "",
    ]  # fmt: skip


def test_tables_for_papers_have_caption_label_and_the_best_at_each_point_in_bold():
    found = rows({load: {"a": [load, load + 1], "b": [2 * load, load]} for load in (1, 3)}, key="workload.load")
    table = comparison_table(found, ["jct_mean_h", "gpu_utilisation"], title="Loads, one & all")
    lines = table.latex().splitlines()
    assert lines[:6] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Loads, one \& all. Mean over 2 seeds $\pm$95 \% interval (Student's t). In square brackets, if the "
        r"interval is wider than the mean: the smallest and the largest value. Best in bold.}",
        r"\label{tab:loads-one-all}",
        r"\begin{tabular}{llrr}",
        r"\toprule",
    ]
    assert [re.findall(r"^(\w) & (\d) & (\\textbf{)?([\d.]+)", line)[0] for line in lines[8:12]] == [
        ("a", "1", "", "1.50"), ("b", "1", "", "1.50"), ("a", "3", r"\textbf{", "3.50"), ("b", "3", "", "4.50"),
    ]  # fmt: skip
    assert lines[12:] == [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    many = comparison_table(rows({n: {"a": [n], "b": [2]} for n in range(1, 8)}, key="workload.load"), ["jct_mean_h"])
    assert [sorted(column for row, column in many.pivoted().best if row == place) for place in (0, 1)] == [
        [2], [4, 5, 6, 7, 8]
    ]  # fmt: skip


def test_policies_that_know_no_more_have_no_legend():
    table = comparison_table(knowing(rows({"a": [2]}), a={"losses": "reported"}), ["jct_mean_h"])
    assert [row[0] for row in table.rows] == ["a"]
    assert not any("†" in note or "‡" in note for note in table.notes)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *((name, {"oracle"}) for name in ("srtf", "srsf", "sjf", "themis", "themis-rho", "shockwave", "optimus")),
        ("elasticflow", {"oracle"}),
        ("gavel-max-min", {"oracle"}),  # by its default `speeds`, though its `needs` are empty
        ("gavel-gandiva", {"oracle"}),
        ("sia", {"learnt", "profiled"}),
        ("muri-l", {"profiled"}),
        ("muri-s", {"profiled", "oracle"}),
        ("antman", {"profiled"}),
        ("pollux", {"learnt"}),
        ("tiresias", set()),
        ("fifo", set()),
    ],
)
def test_what_policies_know_follows_from_their_signals(name, known):
    assert {str(signal.known) for signal in registry.load(name)().signals} == known
