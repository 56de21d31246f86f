"""Reading Shockwave's traces and tables of rates."""

import json

import pytest

from simsched.applications.rate_table import read_rate_table
from simsched.errors import InputError
from simsched.model.job import JobSpec
from simsched.model.tabulated import Setting
from simsched.workload.gavel import read_shockwave_jobs

LINE = "LM (batch size 10)\trun me\tdir\t--steps\t1\t1500\t2\tgns\t1\t-1.000000\t1418\t7.5"


def test_a_line_becomes_a_job(tmp_path):
    trace = tmp_path / "two.trace"
    trace.write_text(LINE + "\n" + LINE.replace("LM (batch size 10)", "A3C").replace("-1.000000", "90") + "\n")
    first, second = read_shockwave_jobs(trace)
    assert first == JobSpec("0", 7.5, 2, "LM", 10, 1418.0, batch_rule="gns", weight=1.0, total_steps=1500)
    assert (second.application, second.batch_size, second.deadline_s) == ("A3C", 0, 90.0)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("\tgns", "", "the line has 11 columns, not 12"),
        ("gns", "gnz", "'gnz' is not a batch rule; known: static, accordion, gns"),
        ("1500", "many", "total steps 'many' is not a number"),
        ("1500", "0", "total steps is 0, not a number from 1"),
        ("LM (batch", "LM (bitch", "is not a job type such as"),
    ],
)
def test_every_wrong_line_is_named(tmp_path, before, after, message):
    trace = tmp_path / "bad.trace"
    bad = LINE.replace(before, after)
    trace.write_text("\n".join([LINE, bad, LINE, bad]))
    with pytest.raises(InputError) as caught:
        read_shockwave_jobs(trace)
    assert [problem.line for problem in caught.value.problems] == [2, 4]
    assert message in caught.value.problems[0].message


def test_missing_and_empty_files_are_refused(tmp_path):
    (tmp_path / "empty.trace").write_text("")
    for name, message in (("empty.trace", "the trace is empty"), ("none.trace", "there is no such file")):
        with pytest.raises(InputError, match=message):
            read_shockwave_jobs(tmp_path / name)


def test_jobs_are_named_by_their_place_and_sorted_by_submission(tmp_path):
    trace = tmp_path / "two.trace"
    trace.write_text(LINE + "\n" + LINE.replace("7.5", "2.25").replace("\t1\t-1", "\t3\t-1") + "\n")
    first, second = read_shockwave_jobs(trace)
    assert (first.id, first.submit_time_s, first.weight, first.batch_rule) == ("1", 2.25, 3.0, "gns")
    assert (second.id, second.total_steps, second.num_gpus, second.batch_size) == ("0", 1500, 2, 10)


def test_a_table_of_rates_becomes_applications_by_model(tmp_path):
    table = tmp_path / "rates.json"
    pair = {"null": 9.5, "('A3C', 1)": [3.0, 4.0]}
    rows = {"('LM (batch size 10)', 2)": pair, "('A3C', 1)": {"null": 2}, "('LM (batch size 80)', 4)": {"null": 0.0}}
    table.write_text(json.dumps({"v100": rows, "k80": {}}))
    models = read_rate_table(table)
    assert dict(models["LM"].rates["v100"]) == {(10, 2): 9.5}
    assert models["A3C"].rate("v100", Setting(0, 1)) == 2.0
    assert models["LM"].types_for(Setting(80, 4)) == ()
    assert models["LM"].regimes is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"v100": {"LM": {"null": 1.0}}}', '"LM" is not a row'),
        ("{", "not JSON"),
        ("[]", "not a table of rates"),
        ("""{"v100": {"('LM', 1)": {"null": -1}}}""", "no rate alone"),
    ],
)
def test_what_is_no_table_of_rates_is_refused(tmp_path, text, message):
    (tmp_path / "rates.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_rate_table(tmp_path / "rates.json")
