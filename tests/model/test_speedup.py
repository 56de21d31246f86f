"""Jobs that know only their duration, on other numbers of GPUs than they asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from simsched.engine.errors import InfeasibleDecisionError
from simsched.errors import InputError
from simsched.model.application import NO_BATCH
from simsched.model.job import JobRequest, JobSpec, JobTruth, Speedup
from simsched.model.placement import Site
from simsched.model.tabulated import FixedDuration
from simsched.policy import Decision, Policy, Traits
from simsched.testing.builders import run
from simsched.workload.source import WorkloadOptions, speedup_of


class Catalogue:
    def for_job(self, request: JobRequest, truth: JobTruth) -> FixedDuration:
        return FixedDuration(truth.duration_s, request.num_gpus, truth.speedup)


@dataclass
class Halves(Policy):
    """Gives every job two GPUs."""

    name: ClassVar[str] = "halves"
    traits: ClassVar[Traits] = Traits(rigid=False)

    def decide(self, view, rng):
        return Decision({job.id: ((0, 2),) for job in view.jobs.values()})


class Promises(Halves):
    """Says that it does not."""

    traits: ClassVar[Traits] = replace(Halves.traits, rigid=True)


def rate(speedup: Speedup, asked: int, given: int) -> float:
    return FixedDuration(60, asked, speedup).run(Site((given,), "t4"), NO_BATCH, 0).rate


def test_speed_follows_what_is_declared():
    assert rate(Speedup(), 8, 2) == 0.25
    assert rate(Speedup(0.5), 4, 1) == 0.5
    table = Speedup(table=((2, 2.0), (4, 3.0)))
    assert [rate(table, 4, given) for given in (1, 2, 3, 4, 8)] == pytest.approx([1 / 3, 2 / 3, 2.5 / 3, 1, 1])


@pytest.mark.parametrize("wrong", [0.0, 1.5, ((2, 1.0), (1, 2.0)), ((1, -1.0),)])
def test_what_is_no_speedup_is_refused(wrong):
    with pytest.raises(InputError, match=r"workload\.speedup"):
        speedup_of(WorkloadOptions(speedup=wrong))


def test_half_the_gpus_take_twice_the_time_where_that_is_declared():
    job = JobSpec("a", 0, 4, duration_s=100, speedup=Speedup())
    (found,) = run(Halves(), [job], applications=Catalogue()).jobs
    assert found.jct_s == 30 + 200


def test_otherwise_the_job_is_refused_by_name():
    with pytest.raises(InfeasibleDecisionError, match=r"job 'a' asked for 4 GPUs and is given 2.*workload\.speedup"):
        run(Halves(), [JobSpec("a", 0, 4, duration_s=100)], applications=Catalogue())


def test_a_rigid_policy_is_held_to_it_in_every_run():
    with pytest.raises(InfeasibleDecisionError, match=r"job 'a' asked for 4 .* rigid"):
        run(Promises(), [JobSpec("a", 0, 4, duration_s=100, speedup=Speedup())])
