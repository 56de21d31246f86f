"""Reading ElasticFlow's traces and rates."""

import pytest

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.errors import InputError
from simsched.model.tabulated import Setting
from simsched.workload.source import WorkloadOptions, make_workload

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
