"""Crux on jobs that share leaves: the more intense communicates first, and levels are few."""

from types import SimpleNamespace

import pytest

from simsched.engine.options import EngineOptions
from simsched.experiment.cluster import ClusterSpec
from simsched.model import JobSpec
from simsched.model.plans import Plan, PlannedJob, StepParts
from simsched.policy import registry
from simsched.testing.builders import run

#: Two leaves whose nodes alternate, so that jobs on neighbouring nodes cross both.
LEVELS = (
    {"level": "node", "nodes": 1, "uplink_gb_s": 100},
    {"level": "leaf", "domains": ((0, 2, 4, 6), (1, 3, 5, 7)), "uplink_gb_s": 10},
)
CLUSTER = ClusterSpec.model_validate({"nodes": 8, "gpus_per_node": 1, "topology": LEVELS}).build()


class Steps:
    """Plans of a job that computes for so many seconds a step, and waits 1 s for the uplinks of leaves."""

    global_batch, replan_s = 1, 0

    def __init__(self, compute_s):
        self.name, self.compute_s = f"{compute_s:g}", compute_s

    def best(self, site, batch=0):
        waits = 1.0 if site.levels_crossed else 0.0
        parts = StepParts(self.compute_s, 0.0, 0.0, 0.0, waits, 0.0, (0.0, waits))
        return SimpleNamespace(plan=Plan(data=site.gpus), parts=parts)

    def parts(self, plan, site, batch=0):
        return self.best(site).parts


class Job(PlannedJob):
    """A job of 100 such steps."""

    def __init__(self, compute_s):
        self.plans, self.name, self.total_steps, self.global_batch = Steps(compute_s), "job", 100, 1
        self.gpu_types, self.restart_delay_s = None, 0


class Source:
    """Reads the seconds off the application's name."""

    def for_job(self, request, truth):
        return Job(float(request.application))


def ends(*applications, policy="crux", gpus=4, **params):
    options = EngineOptions(restart_delay_s=0, tick_s=0, contention=True)
    jobs = [JobSpec(str(i), 0, gpus, one) for i, one in enumerate(applications)]
    made = registry.load(policy)(placement="any", **params)
    recorder = run(made, jobs, cluster=CLUSTER, applications=Source(), options=options)
    return [job.end_time_s for job in sorted(recorder.jobs, key=lambda job: job.job_id)]


def test_the_more_intense_job_communicates_as_if_alone():
    """Alone steps take 2 and 4 s. The busy job sends a quarter of its time: the other waits 4/3 s instead of 1."""
    assert ends("1") == [200]
    assert ends("1", "3") == pytest.approx([100 * (1 + 4 / 3), 400])
    assert ends("3", "1") == pytest.approx([400, 100 * (1 + 4 / 3)])


def test_with_a_single_level_all_share_alike():
    alike = ends("1", "3", policy="fifo")
    assert alike[1] > 400
    assert ends("1", "3", most_levels=1) == pytest.approx(alike)


def test_each_job_that_meets_others_has_a_level_of_its_own_up_to_the_last():
    """Four jobs of two nodes on the same leaves: with two levels the last three are equals."""
    four = ends("1", "2", "3", "4", gpus=2)
    assert four[3] == pytest.approx(500)
    two = ends("1", "2", "3", "4", gpus=2, most_levels=2)
    assert two[3] == pytest.approx(500)
    assert two[2] > four[2]
