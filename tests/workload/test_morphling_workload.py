"""Reading Morphling's workloads."""

from collections import Counter

import pytest

from simsched.errors import InputError
from simsched.model.plans import Plan, morphling_plan
from simsched.workload.source import WorkloadOptions, make_workload

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
