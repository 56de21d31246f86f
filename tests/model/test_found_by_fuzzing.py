"""Experiments that random ones showed to pass `validate` and fail in `run`."""

import pytest

from simsched.agent.fixed_agent import fixed_agent
from simsched.api.checking import check
from simsched.errors import InputError
from simsched.experiment.cuts import cuts_of
from simsched.model.application import facts_of
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest, JobSpec
from simsched.model.topology import site_of
from simsched.testing.builders import toy_application

HEADER = "name,time,application,num_replicas,batch_size\n"


def refusal(tmp_path, policy, jobs, **cluster):
    (tmp_path / "jobs.csv").write_text(HEADER + jobs)
    document = {
        "name": "found", "cluster": {"nodes": 1, "gpus_per_node": 4, **cluster}, "policies": [policy],
        "workload": {"path": str(tmp_path / "jobs.csv"), "recipe": "as-is"},
    }  # fmt: skip
    with pytest.raises(InputError) as refused:
        check(document)
    return str(refused.value)


def test_a_prior_needs_the_policys_own_agents(tmp_path):
    policy = {"name": "pollux", "params": {"prior": "offline"}, "agent": {"name": "goodput", "params": {}}}
    assert "only with its own agents" in refusal(tmp_path, policy, "a,0,ncf,1,32768\n")


def test_rubick_refuses_wide_jobs_without_plans(tmp_path):
    assert "it asks for 8 GPUs of at most 4" in refusal(tmp_path, {"name": "rubick"}, "a,0,imagenet,8,1600\n")


def test_more_parts_than_jobs_are_as_many_as_jobs():
    jobs = [JobSpec(str(i), 10 * i, 1, duration_s=100) for i in range(3)]
    assert len(cuts_of(jobs, 8, None).shards) == 3


def test_a_job_without_a_batch_size_gets_one_that_its_gpus_hold():
    facts = facts_of(toy_application(), None)
    gpus = facts.limits.init_batch_size // facts.limits.min_local_bsz * 2
    agent = fixed_agent(JobRequest("a", 0, gpus, "toy"), facts)
    site = site_of(Cluster.uniform(1, gpus), ((0, gpus),))
    assert agent.choose(site, 0).local_bsz == facts.limits.min_local_bsz
