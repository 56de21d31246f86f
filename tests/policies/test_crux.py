"""Crux on jobs that share leaves: the more intense communicates first, and levels are few."""

import zlib
from math import sqrt
from types import SimpleNamespace

import pytest

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.options import EngineOptions
from simsched.experiment.cluster import ClusterSpec
from simsched.model import JobSpec
from simsched.model.plans import Plan, PlannedJob, StepParts
from simsched.model.topology import Route
from simsched.policy import Decision, Place, Policy, Traits, Triggers, registry
from simsched.testing.builders import run


def cluster(paths=1):
    """Two leaves whose nodes alternate, so that jobs on neighbouring nodes cross both."""
    leaf = {"level": "leaf", "domains": ((0, 2, 4, 6), (1, 3, 5, 7)), "uplink_gb_s": 10, "paths": paths}
    levels = ({"level": "node", "nodes": 1, "uplink_gb_s": 100}, leaf)
    return ClusterSpec.model_validate({"nodes": 8, "gpus_per_node": 1, "topology": levels}).build()


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


def ends(*applications, policy="crux", gpus=4, paths=1, **params):
    options = EngineOptions(restart_delay_s=0, tick_s=0, contention=True)
    jobs = [JobSpec(str(i), 0, gpus, one) for i, one in enumerate(applications)]
    made = registry.load(policy)(placement="any", **params)
    recorder = run(made, jobs, cluster=cluster(paths), applications=Source(), options=options)
    return [job.end_time_s for job in sorted(recorder.jobs, key=lambda job: job.job_id)]


def test_the_more_intense_job_communicates_as_if_alone():
    """Alone steps take 2 and 4 s. The busy job sends a quarter of its time: the other waits 4/3 s instead of 1."""
    assert ends("1") == [200]
    assert ends("1", "3") == pytest.approx([100 * (1 + 4 / 3), 400])
    assert ends("3", "1") == pytest.approx([400, 100 * (1 + 4 / 3)])


class Later(Policy):
    """Places two jobs on neighbouring nodes, and makes the second less urgent from a time on."""

    name = "later"
    traits = Traits(rigid=True)
    triggers = Triggers(interval_s=50)

    def __init__(self, from_s):
        self.from_s = from_s

    def decide(self, view, rng):
        at = {"0": ((0, 1), (1, 1)), "1": ((2, 1), (3, 1))}
        level = int(view.now_s >= self.from_s)
        return Decision({job: Place(at[job], more=(Route(level if job == "1" else 0),)) for job in view.jobs})


def test_a_level_that_changes_during_a_run_counts_from_then_on():
    def end(from_s):
        options = EngineOptions(restart_delay_s=0, tick_s=0, contention=True)
        jobs = [JobSpec("0", 0, 2, "1"), JobSpec("1", 0, 2, "1")]
        recorder = run(Later(from_s), jobs, cluster=cluster(), applications=Source(), options=options)
        return {job.job_id: job.end_time_s for job in recorder.jobs}["0"]

    alike_s = end(1000) - 50  # the first decision is at 50 s
    assert alike_s == pytest.approx(ends("1", "1", policy="fifo")[0])
    assert end(0) == pytest.approx(50 + 200)  # its 100 steps of 2 s, as if alone
    assert end(150) == pytest.approx(150 + (1 - 100 / alike_s) * 200)


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


def test_jobs_get_paths_of_their_own_while_there_are_any():
    """Alone steps take 2, 3, 4 and 5 s. Of four paths each has one."""
    assert ends("1", "2", "3", "4", gpus=2, paths=4) == pytest.approx([200, 300, 400, 500])
    assert sum(ends("1", "2", "3", "4", gpus=2)) > 1450


def test_the_least_intense_job_takes_the_path_that_is_less_busy():
    """Of two paths the jobs of 5 and 4 s take one each, that of 3 s meets the first, and that of 2 s the second.

    The first sends 1 s of 5, which leaves the third 4/5 of the time, 1.25 s for its own; the second leaves 3/4.
    """
    assert ends("1", "2", "3", "4", gpus=2, paths=2) == pytest.approx([100 * (1 + 4 / 3), 325, 400, 500])


def test_a_hashed_path_is_always_the_same_one():
    """The uplinks of a leaf have half the bandwidth each; jobs that meet on one are those of equal CRC-32, modulo 2."""
    assert cluster(2).levels[0].uplink.bytes_per_s == 5e9
    odd = [zlib.crc32(f"{job} leaf".encode()) % 2 for job in range(4)]
    found = ends("1", "1", "1", "1", gpus=2, paths=2, policy="fifo")
    assert [round(end) for end in found] == [_together(odd.count(path)) for path in odd]


def _together(jobs):
    """Return the seconds of 100 steps of so many equal jobs: x = 1 + (n - 1) x / (1 + x)."""
    x = (jobs - 1 + sqrt((jobs - 1) ** 2 + 4)) / 2
    return round(100 * (1 + x))


def test_paths_that_are_not_there_are_refused():
    class Astray(Policy):
        name = "astray"
        traits = Traits()

        def decide(self, view, rng):
            return Decision({job: Place(((0, 1), (1, 1)), more=(Route(paths=(2,)),)) for job in view.jobs})

    options = EngineOptions(contention=True)
    with pytest.raises(InfeasibleDecisionError, match=r"paths \(2,\), and the levels of the cluster have \(2,\)"):
        run(Astray(), [JobSpec("a", 0, 2, "1")], cluster=cluster(2), applications=Source(), options=options)
