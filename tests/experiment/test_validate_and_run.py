"""What `validate` lets pass, a run runs: bounds on what seeds may draw, finite parameters, remedies that work."""

import math
from typing import Annotated

import numpy as np
import pytest

from simsched.engine.errors import InfeasibleDecisionError
from simsched.errors import InputError
from simsched.experiment.grid import look_into, make_grid
from simsched.experiment.inputs import CellInputs
from simsched.experiment.policy_params import parameter_problems
from simsched.experiment.validation import read_experiment
from simsched.model.cluster import Cluster
from simsched.policy import INFINITE, Decision, Policy
from simsched.testing.builders import run
from tests.scripted import Script, fixed

TRACE = "submit_time,num_gpus,duration\n0,1,100\n10,2,50\n20,4,70\n30,1,400\n40,8,60\n"
LIST = "name,time,application,num_replicas,batch_size\na-0,5,cifar10,2,256\nb-1,70,ncf,1,256\nc-2,80,bert,4,48\n"
PHILLY_MOST_GPUS = 128  # traces/philly-statistics.json


@pytest.fixture
def read(tmp_path):
    def reader(text):
        (tmp_path / "e.yaml").write_text("name: e\n" + text)
        return read_experiment(tmp_path / "e.yaml")

    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "list.csv").write_text(LIST)
    return reader


def test_a_seed_that_was_not_looked_into_is_bounded_by_the_recipe(read):
    # ImageNet's tuned configurations go to 48 GPUs; the five jobs of seed 1 fit 16 GPUs, those of another seed do not.
    text = "cluster: {nodes: 4}\npolicies: [{name: fifo}]\nworkload: {recipe: pollux, jobs: 5, days: 28}\nseeds: %s\n"
    total, made = look_into(read(text % "[1]"))
    assert (total, len(made)) == (1, 1)
    seed = next(seed for seed in range(2, 40) if not _runs(read(text % f"[{seed}]")))
    with pytest.raises(InputError, match="can never fit a cluster of 16"):
        look_into(read(text % f"[1, {seed}]"))
    with pytest.raises(InputError, match=r"imagenet-of-48-gpus-\d+' \(which a seed may draw\): it asks for 48 GPUs"):
        look_into(read(text % "10000"))


def _runs(experiment):
    try:
        make_grid(experiment)
    except InputError:
        return False
    return True


def test_where_the_bounds_fit_no_seed_is_drawn_but_the_first(read):
    text = "policies: [{name: fifo}]\nworkload: {recipe: pollux, jobs: 5, days: 28}\nseeds: 10000\n"
    total, made = look_into(read(text))
    assert (total, len(made)) == (10_000, 1)


@pytest.mark.parametrize(
    ("workload", "nodes", "said"),
    [
        ("{recipe: pollux, jobs: 1, days: 28, configs: realistic}", 16, f"asks for {PHILLY_MOST_GPUS} GPUs"),
        ("{recipe: replay, days: 1, max_gpus: 4, jobs: 3}", 1, ""),
        ("{recipe: sia, max_gpus: 4}", 1, ""),
        ("{recipe: tiresias-testbed, jobs: 1}", 8, ""),
        ("{recipe: tiresias-testbed, jobs: 1}", 7, "asks for 32 GPUs"),
        ("{recipe: tiresias-example}", 1, ""),
        ("{path: jobs.csv, recipe: replay, sample: 1}", 1, "asks for 8 GPUs"),
        ("{path: jobs.csv, recipe: replay, sample: 1}", 2, ""),
        ("{path: jobs.csv, recipe: as-is, jobs: 4}", 1, ""),
    ],
)
def test_each_recipe_says_what_is_hardest(read, workload, nodes, said):
    text = f"cluster: {{nodes: {nodes}}}\npolicies: [{{name: fifo}}]\nworkload: {workload}\nseeds: 1000\n"
    if not said:
        assert look_into(read(text))[0] == 1000
        return
    with pytest.raises(InputError, match=said):
        look_into(read(text))


@pytest.mark.parametrize(
    ("workload", "remedy"),
    [
        ("{path: jobs.csv, recipe: replay}", "set workload.max_gpus: 4"),
        ("{path: jobs.csv, recipe: as-is}", "leave out jobs of more than 4 GPUs"),
        ("{recipe: sia}", "set workload.max_gpus: 4"),
        ("{recipe: tiresias-testbed}", "a policy that may change the number of a job's GPUs, or recipe: replay"),
    ],
)
def test_the_remedy_for_large_jobs_is_one_that_the_recipe_has(read, workload, remedy):
    text = f"cluster: {{nodes: 1}}\npolicies: [{{name: fifo}}]\nworkload: {workload}\n"
    with pytest.raises(InputError, match=f"enlarge the cluster, or .*{remedy}"):
        look_into(read(text))


def test_following_a_remedy_helps(read):
    text = "cluster: {nodes: 1}\npolicies: [{name: fifo}]\nworkload: {path: jobs.csv, recipe: replay, max_gpus: 4}\n"
    assert look_into(read(text))[0] == 1


def test_what_only_jobs_like_those_of_a_run_would_break_is_no_problem(read):
    # The jobs drawn to look into seed 3 ask for 24 and 48 GPUs, those that a run draws for at most 16.
    text = "cluster: {nodes: 2, gpus_per_node: 8}\npolicies: [{name: fifo}]\nseeds: [3]\n"
    alike = CellInputs(alike=True).gathered(read(text).spec.workload, "", 3, read(text).spec)
    assert max(job.num_gpus for job in alike.jobs) > 16
    assert max(job.num_gpus for job in make_grid(read(text)).cells[0].task.jobs) <= 16
    assert look_into(read(text))[0] == 1


@pytest.mark.parametrize("agent", ["fixed-batch", "accordion", "goodput"])
def test_an_agent_that_does_not_know_what_the_policy_reads_is_refused(read, agent):
    text = f"policies: [{{name: pollux, agent: {{name: {agent}}}}}]\nworkload: {{recipe: pollux, jobs: 3, days: 28}}\n"
    if agent == "goodput":
        assert look_into(read(text))[0] == 1
        return
    with pytest.raises(InputError, match=r"agent, policy 'pollux': the agent of job '.*' fits no goodput model"):
        look_into(read(text))


def test_jobs_that_the_policy_cannot_schedule_are_refused_whatever_their_agent(read):
    text = "policies: [{name: or-elastic, agent: {name: fixed-batch}}]\nworkload: {path: jobs.csv, recipe: replay}\n"
    with pytest.raises(InputError, match=r"no model of batch sizes|batch-size model"):
        look_into(read(text))


def test_what_the_first_decision_would_need_is_asked_before_the_run(read):
    small = "cluster: {nodes: 1}\nworkload: {path: jobs.csv, recipe: replay, max_gpus: 4}\npolicies: [{name: %s}]\n"
    with pytest.raises(InputError, match=r"engine.sharing.max_jobs: .* puts several jobs on a GPU"):
        look_into(read(small % "gavel-max-min, params: {ideal: true}"))
    assert look_into(read(small % "gavel-max-min, params: {ideal: true}, engine: {sharing: {max_jobs: 16}}"))
    for name in ("fair-share", "static"):
        with pytest.raises(InputError, match=r"where its duration is not known; declare workload.speedup"):
            look_into(read(small % name))


FAILS = """
from simsched.policy import Decision, Policy

class Fails(Policy):
    name = "fails"

    def begin(self, cluster):
        raise RuntimeError("out of luck")

    def decide(self, view, rng):
        return Decision({})
"""


def test_what_a_policy_raises_before_its_first_decision_is_told_by_validate_and_fails_only_its_cells(read, tmp_path):
    (tmp_path / "fails.py").write_text(FAILS)
    text = "workload: {path: jobs.csv, recipe: replay}\npolicies: [{name: fifo}, {name: 'fails.py:Fails'}]\n"
    with pytest.raises(InputError, match="policy 'fails': RuntimeError: out of luck"):
        look_into(read(text))
    assert len(make_grid(read(text)).cells) == 2


def test_deadlines_on_types_that_an_application_does_not_know_are_refused(read):
    groups = ", ".join(f"{{nodes: 4, gpus_per_node: 4, gpu_type: {kind}}}" for kind in ("k80", "a100"))
    text = f"cluster: {{groups: [{groups}]}}\n"
    with pytest.raises(InputError, match=r"workload.deadline_factor: job .* of any of the types a100, k80"):
        look_into(read(text + "policies: [{name: fifo}]\nworkload: {jobs: 3, days: 28, deadline_factor: 2}\n"))


class Patient(Policy):
    name = "patient"

    def __init__(self, patience_s: Annotated[float, INFINITE] = math.inf, step: float = 1.0, steps: list[float] = ()):
        self.patience_s = patience_s

    def decide(self, view, rng):
        return Decision({})


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_parameters_are_finite_unless_they_say_that_infinity_means_something(value):
    assert [key for key, *_ in parameter_problems(Patient, "patient", {"step": value})] == [("step",)]
    assert [key for key, *_ in parameter_problems(Patient, "patient", {"steps": [1.0, value]})] == [("steps",)]
    problems = list(parameter_problems(Patient, "patient", {"patience_s": value}))
    assert bool(problems) == math.isnan(value)


@pytest.mark.parametrize(
    "parameter", ["{name: slurm-backfill, params: {priority: {update_s: .inf}}}",
                  "{name: elasticflow, params: {rounding_s: .inf}}",
                  "{name: sia, params: {fairness: .inf}}", "{name: pollux, params: {fairness: -.inf}}"],
)  # fmt: skip
def test_policies_refuse_numbers_without_end(read, parameter):
    with pytest.raises(InputError, match="must be finite"):
        read(f"policies: [{parameter}]\n")


@pytest.mark.parametrize("allocation", [((0, 2.0),), ((0.0, 2),), ((0, True),), ((0, "2"),), ((0, 1.5), (1, 1))])
def test_nodes_and_gpus_of_a_decision_are_whole_numbers(allocation):
    with pytest.raises(InfeasibleDecisionError, match="is not a whole number, as nodes and their GPUs are"):
        run(Script({10: {"a": allocation}}), [fixed("a", gpus=2)], cluster=Cluster.uniform(2, 2))


def test_whole_numbers_of_numpy_will_do():
    found = run(Script({10: {"a": ((np.int64(0), np.int32(2)),)}}), [fixed("a", gpus=2)], cluster=Cluster.uniform(2, 2))
    assert found.jobs[0].end_time_s == 10 + 30 + 100
