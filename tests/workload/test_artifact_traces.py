"""Lists of jobs published with papers: Morphling's, Gavel's, Shockwave's and ElasticFlow's."""

import json
import math
from collections import Counter
from itertools import islice
from random import Random

import numpy as np
import pytest

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.applications.rate_table import read_rate_table
from simsched.errors import InputError
from simsched.model.job import JobSpec
from simsched.model.plans import Plan, morphling_plan
from simsched.model.tabulated import Setting
from simsched.workload.gavel import (
    DISTRIBUTED,
    TEMPLATES,
    read_gavel_jobs,
    read_shockwave_jobs,
    split_template,
)
from simsched.workload.recipes.gavel import GavelRecipe
from simsched.workload.source import WorkloadOptions, make_workload

ONES = {(name, gpus): 1.0 for name in TEMPLATES for gpus in (1, 2, 4, 8)}


def first(count, seed=0, **keys):
    return list(islice(GavelRecipe(**keys).drawn(ONES, seed), count))


def test_there_are_26_job_types_of_which_19_are_distributed():
    assert (len(TEMPLATES), len(set(TEMPLATES)), len(DISTRIBUTED)) == (26, 26, 19)
    assert set(TEMPLATES) >= DISTRIBUTED


def test_the_first_job_follows_the_streams_draw_by_draw():
    rng = Random(7 + 2)
    size, kind = rng.random(), rng.random()
    duration_s = 60 * 10 ** (rng.uniform(3, 4) if kind >= 0.8 else rng.uniform(1.5, 3))
    template = rng.choice(TEMPLATES)
    job, second = first(2, seed=7, multi_gpu=False, jobs_per_hour=2)
    assert ((job.application, job.batch_size), job.num_gpus, job.submit_time_s) == (split_template(template), 1, 0)
    assert job.duration_s == duration_s == job.total_steps
    assert 0 <= size < 1
    assert second.submit_time_s == -math.log(1 - Random(7 + 3).random()) * 1800


def test_sizes_durations_and_gaps_have_their_distributions():
    jobs = first(4000, jobs_per_hour=4)
    sizes = np.bincount([job.num_gpus for job in jobs], minlength=9)[[1, 2, 4, 8]] / len(jobs)
    assert sizes == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.02)
    assert np.mean([job.duration_s >= 60_000 for job in jobs]) == pytest.approx(0.2, abs=0.02)
    assert jobs[-1].submit_time_s / (len(jobs) - 1) == pytest.approx(900, rel=0.05)
    distributed = {split_template(name) for name in DISTRIBUTED}
    assert all((job.application, job.batch_size) in distributed for job in jobs if job.num_gpus > 1)


def test_options_leave_other_streams_alone():
    plain, rich = first(20, jobs_per_hour=1), first(20, jobs_per_hour=1, slos=True)
    assert [job.total_steps for job in plain] == [job.total_steps for job in rich]
    assert {round(job.deadline_s / job.duration_s, 6) for job in rich} == {1.2, 2.0, 10.0}
    assert {job.deadline_s for job in plain} == {None}
    assert {job.weight for job in first(30, priorities=True)} == {1.0, 5.0}
    assert [job.submit_time_s for job in first(9)] == [0.0] * 9
    assert [job.submit_time_s > 0 for job in first(5, jobs_per_hour=1, at_once=2)] == [False] * 3 + [True] * 2


def test_a_kind_without_a_rate_is_refused():
    with pytest.raises(InputError, match="no rate"):
        next(GavelRecipe().drawn({}, 0))


def test_a_line_of_a_trace_becomes_a_job(tmp_path):
    path = tmp_path / "t.trace"
    path.write_text("LM (batch size 5)\tc\td\tf\t1\t10\t4\t1\t1.2\t0.5\n\nA3C\tc\td\tf\t0\t1234.5\t1\t5\t-1\t0\n")
    first, second = read_gavel_jobs(path)
    assert first == JobSpec("1", 0.0, 1, "A3C", 0, weight=5.0, total_steps=1234.5)
    assert second == JobSpec("0", 0.5, 4, "LM", 5, weight=1.0, total_steps=10)


def test_every_wrong_line_of_a_trace_is_named(tmp_path):
    path = tmp_path / "t.trace"
    line = "A3C\tc\td\tf\t0\t{}\t{}\t1\t-1\t{}\n"
    path.write_text(line.format("x", 1, 0) + "A3C\n\n" + line.format(5, 1.5, 0) + line.format(5, 1, "inf"))
    with pytest.raises(InputError) as caught:
        read_gavel_jobs(path)
    assert [(problem.line, problem.message.split()[0]) for problem in caught.value.problems] == [
        (1, "total"),
        (2, "the"),
        (4, "GPUs"),
        (5, "arrival"),
    ]


HEADER = "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\n"
ROWS = "b,30,100.5,llama7,32,256,1.25,442,64,0\na,0,50,vit,4,32,0,zero-dp,200,1\nc,40,60,t5,2,16,0,zero-offload,10,0\n"


def read(tmp_path, text):
    (tmp_path / "w.csv").write_text(HEADER + text)
    return make_workload(WorkloadOptions(source=str(tmp_path / "w.csv")), seed=1)


def test_jobs_have_plans_steps_and_guarantees(tmp_path):
    first, second, third = read(tmp_path, ROWS)
    assert (first.id, first.num_gpus, first.guaranteed, first.total_steps) == ("a", 4, True, 200)
    assert first.plan == Plan(data=4, zero=1)
    assert (second.id, second.submit_time_s, second.guaranteed) == ("b", 30, False)
    assert second.plan == Plan(tensor=4, pipeline=4, data=2)
    assert third.plan == Plan(data=2, zero=2, offload=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,0,50,vit,4,32,0,221,200,1\n", None),
        ("a,0,50,vit,4,32,0,222,200,1\n", "is not a plan for these GPUs"),
        ("a,0,50,vit,4,32,0,dp,200,1\n", "is not a plan for these GPUs"),
        ("a,0,50,vit,4,32,0,ga,200,2\n", "is neither 0 nor 1"),
        ("a,0,50,vit,0,32,0,ga,200,1\n", "is below 1"),
        ("a,0,50,,4,32,0,ga,200,1\n", "is missing"),
    ],
)
def test_wrong_cells_are_named(tmp_path, text, said):
    if said is None:
        assert read(tmp_path, text)[0].plan == Plan(2, 2, 1)
        return
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)


def test_plans_of_the_tables():
    assert morphling_plan("gc", 8) == Plan(data=8, recomputation="full")
    with pytest.raises(ValueError, match="takes 12 GPUs, not 8"):
        morphling_plan("322", 8)
    assert morphling_plan("zero-offload", 4) == Plan(data=4, zero=2, offload=True)
    assert morphling_plan("tp+ga", 4) == Plan(4)
    assert morphling_plan("214", 8) == Plan(tensor=1, pipeline=2, data=4)
    for wrong in ("22", "2222", "2x2", "202"):
        with pytest.raises(ValueError, match="no three digits above 0"):
            morphling_plan(wrong, 4)


@pytest.mark.parametrize(("variant", "guaranteed"), [("base", 0), ("bp", 0), ("mt", 194)])
def test_the_published_workloads_read_as_they_are(shared, variant, guaranteed):
    source = shared / "llm" / "morphling" / f"workload_{variant}.csv"
    jobs = make_workload(WorkloadOptions(source=str(source)), seed=1)
    models = Counter(job.application for job in jobs)
    assert models == {"vit": 48, "bert": 64, "roberta": 58, "t5": 62, "gpt2": 69, "llama7": 54, "llama30": 51}
    assert sum(job.guaranteed for job in jobs) == guaranteed
    assert max(job.submit_time_s for job in jobs) / 3600 == pytest.approx(13.2, abs=0.05)
    assert {job.plan.gpus == job.num_gpus for job in jobs} == {True}


TRACE = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
b,60,200,bert,400,64,2,100,0
a,0,100,bert,1000,64,1,600,0
c,60,300,gpt2,90,128,8,20,1
"""
RATES = """model_name,batch_size,num_gpu,rate
bert,64,1,1.5
bert,64,2,2.5
gpt2,128,8,15
"""


def workload(folder, text):
    (folder / "trace.csv").write_text(text)
    return make_workload(WorkloadOptions(source=str(folder / "trace.csv")), seed=1)


def rates(folder, text):
    (folder / "rates.csv").write_text(text)
    return ApplicationCatalogue.load(folder / "rates.csv", gpu_type="a100")


def test_a_deadline_counts_from_submission_and_best_effort_has_none(tmp_path):
    first, second, third = workload(tmp_path, TRACE)
    assert (first.id, first.deadline_s, first.total_steps, first.duration_s) == ("a", 1000, 100, 600)
    assert (second.id, second.deadline_s, second.num_gpus, second.batch_size) == ("b", 340, 2, 64)
    assert (third.id, third.deadline_s) == ("c", None)


def test_wrong_cells_of_a_trace_are_named(tmp_path):
    text = TRACE.replace("b,60,200", "b,60,0").replace("a,0,100,bert,1000", "a,0,100,bert,x")
    with pytest.raises(InputError) as caught:
        workload(tmp_path, text.replace("c,60,300,gpt2,90", "c,60,300,gpt2,30"))
    said = str(caught.value)
    assert "trace.csv:2: column 'iteration': '0' is below 1" in said
    assert "trace.csv:3: column 'ddl': 'x' is not a number" in said
    assert "trace.csv:4: column 'ddl': '30' is before the job is submitted" in said


def test_rates_are_those_of_the_gpu_type_that_is_named(tmp_path):
    bert, gpt2 = rates(tmp_path, RATES).tabulated.values()
    assert bert.rates == {"a100": {Setting(64, 1): 1.5, Setting(64, 2): 2.5}}
    assert gpt2.rate("a100", Setting(128, 8)) == 15
    assert gpt2.rate("t4", Setting(128, 8)) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("bert,64,2,0", "rates.csv:3: column 'rate': '0' is not a valid number"),
        ("bert,64,2,nan", "rates.csv:3: column 'rate': 'nan'"),
        ("bert,64,2.5,1", "rates.csv:3: column 'num_gpu': '2.5'"),
        ("bert,-64,2,1", "rates.csv:3: column 'batch_size': '-64'"),
        ("bert,64,1,9", "rates.csv:3: an earlier line has a rate for this setting"),
    ],
)
def test_wrong_cells_of_rates_are_named(tmp_path, wrong, said):
    with pytest.raises(InputError) as caught:
        rates(tmp_path, RATES.replace("bert,64,2,2.5", wrong))
    assert said in str(caught.value)


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
