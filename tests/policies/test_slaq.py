"""SLAQ and fair sharing: greedy against brute force, what is known of new jobs, and who is refused."""

import pytest
from simsched_policies.adaptive.slaq import Slaq
from simsched_policies.queues.fair_share import FairShare

from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Site, gpus_of
from simsched.policy.signals import Speed
from simsched.testing.builders import Applications, fresh_view, toy_application
from simsched.toolkit.elastic import share_evenly

GPUS = 10


def decided(policy, at=(), speeds=(), count=4):
    """Decide on a fresh cluster for jobs of which the first trained `at` epochs, at `speeds` of progress on a GPU."""
    specs = [JobSpec(f"job-{i}", 0, 1, "toy", 256) for i in range(count)]
    view, jobs = fresh_view(policy, specs, Cluster.uniform(1, GPUS), Applications(toy_application()))
    for job, epochs, rate in zip(jobs.values(), at, speeds, strict=False):
        job.progress = 100 * epochs
        job.speeds[Site((1,), "t4")] = Speed(0.0, 1.0, rate)
    allocations = policy.decide(view, None).allocations
    return view, [gpus_of(allocations.get(spec.id, ())) for spec in specs]


def test_equal_jobs_that_began_late_come_first():
    _, counts = decided(Slaq(), (3.5, 3.5, 0.3, 0.3), (0.5,) * 4)
    assert counts[:2] == [1, 1]
    assert counts[2:] == [4, 4]


def test_jobs_that_have_not_run_get_a_gpu_before_anybody_a_second():
    assert decided(Slaq())[1] == [3, 3, 2, 2], "nothing is known: the rest is shared evenly"
    assert decided(Slaq(), count=12)[1] == [1] * 10 + [0] * 2


def test_fitted_speeds_see_what_does_not_scale():
    policy = Slaq(speed="fitted")
    specs = [JobSpec(f"job-{i}", 0, 1, "toy", 256) for i in range(2)]
    view, jobs = fresh_view(policy, specs, Cluster.uniform(1, GPUS), Applications(toy_application()))
    for job, seconds in zip(jobs.values(), ((1.0, 1.1, 1.3), (1.0, 0.5, 0.25)), strict=True):
        job.progress = 50
        for gpus, step_s in zip((1, 2, 4), seconds, strict=True):
            job.speeds[Site((gpus,), "t4")] = Speed(0.0, step_s, 0.5 / step_s)
    allocations = policy.decide(view, None).allocations
    assert gpus_of(allocations["job-0"]) == 1, "two GPUs were slower than one"
    assert gpus_of(allocations["job-1"]) == GPUS - 1


def test_an_even_share_goes_round():
    assert share_evenly([0, 0, 0], [1, 9, 9], 6) == [1, 3, 2]
    assert share_evenly([3, 1], [3, 2], 9) == [3, 2]
    assert decided(FairShare())[1] == [3, 3, 2, 2]
    assert decided(FairShare(), count=1)[1] == [GPUS]


def test_jobs_without_a_curve_are_refused():
    bare = toy_application()
    bare.loss_curve, bare.reports_loss = None, False
    with pytest.raises(InputError, match=r"job 'a'.*no loss curve.*training\.loss"):
        fresh_view(Slaq(), [JobSpec("a", 0, 1, "toy", 64)], Cluster.uniform(1, 4), Applications(bare))
    with pytest.raises(InputError, match="no loss curve"):
        fresh_view(Slaq(), [JobSpec("a", 0, 1, duration_s=9)], Cluster.uniform(1, 4), Applications(bare))
    with pytest.raises(ValueError, match="decay"):
        Slaq(decay=0)
