"""Rubick's curves of the best plan, against their definition."""

from random import Random
from types import SimpleNamespace

import pytest

from simsched.model import ApplicationFacts, Cluster, JobSpec, NodeGroup
from simsched.model.plans import Plan
from simsched.policy.signals import PLANS
from simsched.toolkit import PlanCurves

CLUSTER = Cluster.of(NodeGroup(4, 4, "v100"), NodeGroup(2, 8, "a100"))


class Steps:
    """Plans of one model whose steps take given seconds, by type and GPUs; a plan as such takes twice the best."""

    def __init__(self, **seconds):
        self.name, self.seconds = "model", seconds

    def best(self, site, batch):
        return SimpleNamespace(plan=Plan(data=site.gpus), parts=SimpleNamespace(total=self.seconds_of(site, batch)))

    def parts(self, plan, site, batch):
        assert plan.gpus == site.gpus
        return SimpleNamespace(total=2 * self.seconds_of(site, batch))

    def seconds_of(self, site, batch):
        if site.gpus not in self.seconds[site.gpu_type]:
            raise ValueError("none fits")
        return self.seconds[site.gpu_type][site.gpus] * batch / 32

    def refusal(self, plan, kind, gpus):
        return None if plan.gpus <= gpus and plan.gpus in self.seconds[kind] else "too many"


class Job:
    """A job of two GPUs as a policy sees it."""

    def __init__(self, plans, *, types=("v100", "a100"), gpus=2, batch=32, name="a", plan=None):
        self.id, self.num_gpus, self.facts = name, gpus, ApplicationFacts("model", gpu_types=types)
        self.request = JobSpec(name, 0, gpus, "model", batch_size=batch, plan=plan).request
        self._plans = plans

    def __getitem__(self, signal):
        assert signal is PLANS
        return self._plans


@pytest.mark.parametrize("seed", range(20))
def test_a_curve_rises_by_more_than_a_hundredth_from_one_compared_number_to_the_next(seed):
    rng = Random(seed)
    speed, rates = 1.0, {}
    for gpus in range(1, 17):
        speed *= rng.choice([0.9, 1.0, 1.005, 1.02, 1.5])
        if gpus >= rng.choice([1, 2, 5]):
            rates[gpus] = speed
    curves, job = PlanCurves(CLUSTER), Job(Steps(v100={gpus: 1 / rate for gpus, rate in rates.items()}))

    def compared(gpus):
        """List the GPUs of a node, then of whole nodes below this number, then this number."""
        return [one for one in range(1, gpus + 1) if one <= 4 or one % 4 == 0 or one == gpus]

    def expected(gpus):
        known = 0.0
        for one in compared(gpus):
            known = rates[one] if one in rates and rates[one] > 1.01 * known else known
        return known

    for gpus in rng.sample(range(17), 17):
        found = curves.rate(job, gpus, "v100")
        assert found == curves.rate(job, gpus, "v100") == pytest.approx(expected(gpus))
        assert curves.counts(gpus, "v100") == compared(gpus)
        same = [one for one in compared(gpus) if curves.rate(job, one, "v100") == found]
        assert curves.enough(job, gpus, "v100") == (min(same) if found else 0)
        most = rng.randrange(gpus, 17)
        faster = [one for one in range(gpus + 1, most + 1) if curves.rate(job, one, "v100") > found]
        assert curves.more(job, gpus, most, "v100") == min(faster, default=None)


def test_a_hundredth_more_is_not_worth_a_gpu():
    job = Job(Steps(v100={1: 2**-6, 2: 1 / (2**6 * 1.01), 3: 1 / (2**6 * 1.0101)}))
    assert [PlanCurves(CLUSTER).rate(job, gpus, "v100") for gpus in (1, 2, 3)] == [64, 64, pytest.approx(64 * 1.0101)]


def test_curves_are_told_apart_by_type_and_batch_and_shared_by_jobs():
    curves, plans = PlanCurves(CLUSTER), Steps(v100={1: 0.5}, a100={1: 0.25})
    one, other, large = Job(plans), Job(plans, name="b"), Job(plans, name="c", batch=64)
    assert [curves.rate(job, 1, "v100") for job in (one, other, large)] == [2, 2, 1]
    assert [curves.rate(job, 1, "a100") for job in (one, other, large)] == [4, 4, 2]


def test_a_job_without_plans_runs_on_what_it_asks_for():
    curves, job = PlanCurves(CLUSTER), Job(None, types=("v100",))
    assert [curves.rate(job, gpus, "v100") for gpus in (0, 1, 2, 3)] == [0, 0, 1, 1]
    assert curves.rate(job, 2, "a100") == 0, "not on a type on which it cannot run"
    assert (curves.asked(job, "v100"), curves.asked(job, "a100")) == (1, 0)
    assert (curves.enough(job, 4, "v100"), curves.enough(job, 1, "v100")) == (2, 0)
    assert (curves.more(job, 0, 4, "v100"), curves.more(job, 2, 4, "v100")) == (2, None)
    assert (curves.plan(job, 2, "v100"), curves.rate_by(job, Plan(data=2), "v100")) == (None, 0)


def test_plans_run_on_the_types_of_the_application_alone():
    curves, job = PlanCurves(CLUSTER), Job(Steps(v100={2: 0.5}, a100={2: 0.25}), types=("v100",))
    assert (curves.rate(job, 2, "v100"), curves.rate(job, 2, "a100"), curves.rate(job, 4, "a100")) == (2, 0, 0)
    assert (curves.rate_by(job, Plan(data=2), "v100"), curves.rate_by(job, Plan(data=2), "a100")) == (1, 0)


def test_a_job_is_promised_the_rate_of_its_plan_on_its_gpus_or_of_the_best():
    seconds = {"v100": {1: 0.5, 2: 0.25, 4: 0.125}}
    curves = PlanCurves(CLUSTER)
    assert curves.asked(Job(Steps(**seconds)), "v100") == 4, "the best plan on two GPUs"
    assert curves.asked(Job(Steps(**seconds), plan=Plan(data=2)), "v100") == 2, "the plan asked for takes twice as long"
    assert curves.asked(Job(Steps(**seconds), plan=Plan(data=4)), "v100") == 4, "it needs more GPUs than asked for"


def test_the_rate_of_a_plan_and_the_best_plan_on_so_many_gpus():
    curves, job = PlanCurves(CLUSTER), Job(Steps(v100={1: 0.5, 8: 0.125}))
    assert [curves.rate_by(job, Plan(data=gpus), "v100") for gpus in (1, 2, 8)] == [1, 0, 4]
    assert curves.plan(job, 8, "v100") == Plan(data=8)
