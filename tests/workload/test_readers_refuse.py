"""Readers refuse or ask about what they cannot read."""

import json

import pytest

import simsched as sim
from simsched.errors import InputError, InputWarning
from simsched.workload.readers import read_trace
from simsched.workload.source import WorkloadOptions, drawn_workload, make_workload
from tests.trace_files import problems_of, write

ACME = "job_id,user,node_num,gpu_num,type,state,submit_time,duration\n"
HELIOS = "job_id,user,vc,gpu_num,state,submit_time,duration\n"
PAI = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
PODS = "name,namespace,gpus,created,started,finished\n"
SACCT = "JobID|Submit|Start|End|State|AllocTRES\n"
NAIVE, ZONED = "2024-05-06T03:30:00", "2024-05-06T01:30:00+01:00"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"submit_time,num_gpus,duration\n{ZONED},1,60\n{NAIVE},1,60\n", 3),
        (f"timestamp,duration,num_gpus\n{NAIVE},60,1\n{NAIVE},60,1\n{ZONED},60,1\n", 4),
        (f"{ACME}1,u,1,1,x,COMPLETED,{ZONED},60\n2,u,1,1,x,COMPLETED,{NAIVE},60\n", 3),
        (f"{HELIOS}1,u,v,1,COMPLETED,{NAIVE},60\n2,u,v,1,COMPLETED,{ZONED},60\n", 3),
        (f"{HELIOS}1,u,v,1,COMPLETED,{NAIVE},60\n2,u,v,1,COMPLETED,1714959000,60\n", 3),
        (f"{PODS}a,n,1,{NAIVE},{NAIVE},{ZONED}\n", 2),
        (f"{SACCT}1|{NAIVE}|{NAIVE}|{NAIVE}|COMPLETED|gres/gpu=1\n2|{ZONED}|{ZONED}|{ZONED}|COMPLETED|gres/gpu=1\n", 3),
        (f"{ACME}1,u,1,1,x,COMPLETED,{NAIVE},60\n2,u,1,1,x,COMPLETED,2024-05-06T09+08,60\n", 3),
    ],
    ids=["plain", "philly-csv", "acme", "helios", "counts", "pods", "sacct", "short offset"],
)
def test_times_with_and_without_an_offset_do_not_mix(tmp_path, text, line):
    (problem,) = problems_of(write(tmp_path, "t.csv", text))
    assert f"t.csv:{line}: the time '" in problem
    assert "offset from UTC" in problem
    assert problem.endswith("write all times with an offset, or all without one")


@pytest.mark.parametrize("second", ["2024-05-06T10:30:00+08:00", "2024-05-06T02:30:00Z", "2024-05-06T10:30:00+08"])
def test_offsets_may_differ(tmp_path, second):
    rows = f"1,u,1,1,x,COMPLETED,{ZONED},60\n2,u,1,1,x,COMPLETED,{second},60\n"
    trace = read_trace(write(tmp_path, "t.csv", ACME + rows))
    assert trace.table["submit_time_s"].tolist() == [0, 7200]  # 00:30 and 02:30 UTC


@pytest.mark.parametrize("value", ["-inf", "inf", "1e308", "-1e308"])
@pytest.mark.parametrize(
    "text",
    [
        HELIOS + "1,u,v,1,COMPLETED,{},60\n",
        HELIOS + "1,u,v,1,COMPLETED,5,{}\n",
        HELIOS + "1,u,v,{},COMPLETED,5,60\n",
        ACME + "1,u,1,1,x,COMPLETED,{},60\n",
        PAI + "j,t,1,Terminated,{},20,100,1,100,T4\n",
        PAI + "j,t,1,Terminated,5,{},100,1,100,T4\n",
        PODS + "a,n,1,5,{},20\n",
        PODS + "a,n,1,5,6,{}\n",
    ],
)
def test_figures_of_a_log_are_finite(tmp_path, text, value):
    problems = problems_of(write(tmp_path, "t.csv", text.format(value)))
    assert all("t.csv:2: job '" in problem and ", beyond 1e+" in problem for problem in problems)


@pytest.mark.parametrize("tres", ["gres/gpu=" + "9" * 400, "gres/gpu:a100=" + "9" * 30])
def test_gpus_of_an_accounting_are_finite(tmp_path, tres):
    row = f"1|{NAIVE}|{NAIVE}|{NAIVE}|COMPLETED|{tres}\n"
    assert "'gpus' is" in problems_of(write(tmp_path, "t.txt", SACCT + row))[0]


@pytest.mark.parametrize(
    "text",
    [
        "submit_time,num_gpus,duration,duration\n0,1,5,6\n",
        "timestamp,duration,num_gpus,num_gpus\n2024-05-06,1,1,2\n",
        "job_id,user,vc,gpu_num,state,submit_time,duration,gpu_num\n1,u,v,1,COMPLETED,0,60,2\n",
        "JobID|Submit|Start|End|State|AllocTRES|State\n1|a|b|c|d|e|f\n",
        "name,time,application,num_replicas,batch_size,time\na,0,ncf,1,256,7\n",
    ],
)
def test_a_header_names_a_column_once(tmp_path, text):
    path = write(tmp_path, "t.csv", text)
    with pytest.raises(InputError, match="stands twice in the header"):
        make_workload(WorkloadOptions(source=str(path), recipe="as-is"), 1)


def test_a_shape_that_only_a_table_without_columns_would_have(tmp_path):
    path = write(
        tmp_path, "t.csv", "submit_time,num_gpus,duration," + ",".join(f"c{i}" for i in range(1000)) + "\n0,1,2\n"
    )
    assert "has 1003 columns" in problems_of(path)[0]


def test_columns_that_a_format_does_not_know_are_told_and_those_without_use_listed(tmp_path):
    header = "timestamp,duration,num_gpus,gpu_time,cluster,mood\n"
    with pytest.warns(InputWarning, match=r"t.csv: column 'mood' is not known here and not used$"):
        trace = read_trace(write(tmp_path, "t.csv", header + "2024-05-06 01:00:00,60,1,60,vc,good\n"))
    assert trace.unused == ("gpu_time", "mood")


@pytest.mark.parametrize(
    ("text", "unused", "told"),
    [
        (HELIOS.replace("vc", "vc,cpu_num,mood") + "1,u,v,4,x,1,COMPLETED,0,60\n", ("cpu_num", "mood"), "mood"),
        ("JobID|JobName|Mood|Submit|Start|End|State|Elapsed|ElapsedRaw|AllocTRES\n"
         f"1|n|m|{NAIVE}|{NAIVE}|{NAIVE}|COMPLETED|00:00:00|0|gres/gpu=1\n", ("JobName", "Mood", "Elapsed"), "Mood"),
        (json.dumps([{"status": "Pass", "vc": "v", "jobid": "j", "user": "u", "submitted_time": "2017-10-07 01:00:00",
                      "weather": 1, "attempts": [{"start_time": "2017-10-07 01:00:00", "mood": "",
                      "end_time": "2017-10-07 01:10:00", "detail": [{"ip": "m", "gpus": ["gpu0"]}]}]}]),
         ("weather", "mood"), "keys 'weather', 'mood' are"),
    ],
    ids=["helios", "sacct", "philly-json"],
)  # fmt: skip
def test_every_reader_tells_what_it_does_not_know(tmp_path, text, unused, told):
    with pytest.warns(InputWarning, match=told) as caught:
        trace = read_trace(write(tmp_path, "t.csv", text))
    assert trace.unused == unused
    assert len(caught) == 1


BOTH = (
    "submit_time,num_gpus,duration,application,batch_size\n0,1,100,cifar10,128\n5,1,7,fixed-duration,0\n9,2,8,vgg16,0\n"
)


@pytest.mark.parametrize("recipe", ["replay", "as-is"])
def test_a_row_that_says_an_application_and_a_duration_needs_a_word_on_which_counts(tmp_path, recipe):
    path = write(tmp_path, "t.csv", "# made by hand\n" + BOTH)
    with pytest.raises(InputError) as caught:
        make_workload(WorkloadOptions(source=str(path), recipe=recipe), 1)
    (problem,) = caught.value.problems  # vgg16 is a model of Tiresias, which takes the duration of the trace
    said = f"{path}:3: workload, job 'job-0': it names the application 'cifar10' and a duration of 100 s; choose one"
    assert str(problem).startswith(said)
    kinds = {}
    for choice in ("application", "duration"):
        jobs = make_workload(WorkloadOptions(source=str(path), recipe=recipe, runtime_from=choice), 1)
        kinds[choice] = [(job.application, job.batch_size, job.duration_s) for job in jobs]
    assert kinds["application"] == [("cifar10", 128, 100), ("fixed-duration", 0, 7), ("vgg16", 0, 8)]
    assert kinds["duration"] == [("fixed-duration", 0, 100), ("fixed-duration", 0, 7), ("vgg16", 0, 8)]


def test_a_row_with_an_application_and_no_duration_is_clear(tmp_path):
    path = write(tmp_path, "t.csv", "submit_time,num_gpus,duration,application\n0,1,0,cifar10\n")
    jobs = make_workload(WorkloadOptions(source=str(path), recipe="replay"), 1)
    assert [job.application for job in jobs] == ["cifar10"]


def test_a_recipe_tells_what_it_makes_nothing_of(tmp_path):
    path = write(tmp_path, "t.csv", BOTH.replace("batch_size", "priority"))
    options = WorkloadOptions(source=str(path), recipe="replay", models="tiresias")
    with pytest.warns(InputWarning, match="the recipe 'replay' ignores 'application' and sets these itself"):
        make_workload(options, 1)


def test_durations_beside_applications_in_a_list_of_jobs_are_told(tmp_path):
    rows = "name,time,application,num_replicas,batch_size,duration\na,0,cifar10,1,128,50\nb,0,fixed-duration,1,0,60\n"
    path = write(tmp_path, "w.csv", rows)
    with pytest.warns(InputWarning, match="1 job with an application and a duration; the application counts"):
        (first, _) = drawn_workload(WorkloadOptions(source=str(path)), 1).jobs
    assert (first.application, first.duration_s) == ("cifar10", 50)
    jobs = make_workload(WorkloadOptions(source=str(path), runtime_from="duration"), 1)
    assert [(job.application, job.batch_size, job.duration_s) for job in jobs] == [
        ("fixed-duration", 0, 50), ("fixed-duration", 0, 60),
    ]  # fmt: skip
    assert make_workload(WorkloadOptions(source=str(path), runtime_from="application"), 1)[0].application == "cifar10"


@pytest.mark.parametrize("seed", [None, "1", 1.0, True, -1])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InputError, match="which is not a whole number of at least 0"):
        sim.simulate(jobs=[{"num_gpus": 1, "duration_s": 5}], policy="fifo", seed=seed)


PLAIN = "submit_time,num_gpus,duration\n"
KUBERNETES = "name,namespace,gpus,created,started,finished,phase\n"


@pytest.mark.parametrize(
    ("unit", "parts", "said"),
    [
        ("milliseconds", "1,000", "1714953600000"),
        ("microseconds", "1,000,000", "1714953600000000"),
        ("nanoseconds", "1,000,000,000", "1714953600000000000"),
    ],
)
def test_times_since_1970_in_parts_of_a_second(tmp_path, unit, parts, said):
    expected = (
        f":3: the time '{said}' looks like {unit} since 1970; "
        f"are they? then divide the times by {parts}, or write timestamps"
    )
    path = write(tmp_path, "mine.csv", f"{PLAIN}7,1,60\n{said},1,60\n")
    assert problems_of(path) == [f"{path}{expected}"]
    path = write(tmp_path, "pods.csv", f"{KUBERNETES}a,x,1,7,8,9,Succeeded\nb,x,1,{said},{said},{said},Succeeded\n")
    assert problems_of(path) == [f"{path}{expected}"]


@pytest.mark.parametrize(
    ("said", "either"),
    [
        ("05/06/2024 10:00:00", "2024-05-06 or 2024-06-05"),
        ("5.6.2024", "2024-05-06 or 2024-06-05"),
        ("05/05/2024", "2024-05-05"),
        ("25/06/2024", "2024-06-25"),
        ("06/25/2024", "2024-06-25"),
        ("25/25/2024", "year-month-day"),
    ],
)
def test_dates_that_do_not_begin_with_their_year(tmp_path, said, either):
    path = write(tmp_path, "mine.csv", f"{PLAIN}{said},1,60\n")
    message = f"the time '{said}' does not begin with its year, so that day and month may be confused"
    assert problems_of(path) == [f"{path}:2: {message}; write it as {either}"]
    row = f"b,x,1,{said},{said},{said},Succeeded\n"
    path = write(tmp_path, "pods.csv", f"{KUBERNETES}a,x,1,2024-05-06,2024-05-06,2024-05-07,Succeeded\n{row}")
    assert problems_of(path) == [f"{path}:3: {message}; write it as {either}"]


@pytest.mark.parametrize("said", ["1714953600", "2024/05/06", "2024-05-06", "12.5"])
def test_times_that_mean_one_thing_are_read(tmp_path, said):
    assert len(read_trace(write(tmp_path, "mine.csv", f"{PLAIN}{said},1,60\n"))) == 1


def test_a_number_that_is_no_time_in_any_unit_is_still_too_large(tmp_path):
    path = write(tmp_path, "mine.csv", f"{PLAIN}30000000000,1,60\n")
    assert problems_of(path) == [f"{path}:2: column 'submit_time': '30000000000' is above 1e+10; {MEND}"]


MEND = "correct the line, or leave it out"
