"""Small rules of the engine that whole runs seldom meet."""

from types import SimpleNamespace

import pytest

from simsched.engine.errors import InfeasibleDecisionError, InvariantError
from simsched.engine.failures import draw_outages
from simsched.engine.invariants import _SLACK, check_state
from simsched.engine.options import EngineOptions, FailureOptions, stream
from simsched.engine.records import MemoryRecorder
from simsched.engine.recovery import Recovery
from simsched.engine.sharing import TruePairs
from simsched.engine.simulation import simulate
from simsched.engine.state import ClusterState, JobState
from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.outages import AttemptPlan
from simsched.policy import Decision, Policy
from simsched.testing import builders
from simsched.testing.builders import Applications, toy_application


def test_what_disturbs_a_job_multiplies():
    job = SimpleNamespace(interference=0.1, speed=0.5, slow=0.8, congestion=0.25)
    assert JobState.undisturbed.fget(job) == pytest.approx(0.9 * 0.5 * 0.8 * 0.75)


@pytest.mark.parametrize(("saved", "short_by"), [(0.5, 1.5 * _SLACK), (1000.0, 1500 * _SLACK)])
def test_progress_below_the_last_checkpoint_is_no_state(saved, short_by):
    state, plan = ClusterState(Cluster.uniform(1, 4)), AttemptPlan((), keeps=False)

    def at(progress):
        return SimpleNamespace(
            request=SimpleNamespace(id="a"), allocation=(), app=SimpleNamespace(epoch_end=lambda _: 2000.0), epoch=0,
            live_progress=progress, running=None, progress=progress, rate=0.0, leasing=None,
            recovery=Recovery(10, 0, plan, [], saved=saved),
        )  # fmt: skip

    check_state(state, {"a": at(saved - short_by / 3)}, 1, 0)
    with pytest.raises(InvariantError, match=r"INV-6: job a: progress .* below its checkpoint"):
        check_state(state, {"a": at(saved - short_by)}, 1, 0)


def test_an_overdue_checkpoint_is_due_at_once():
    job = SimpleNamespace(running=object(), gpus=2, clock=None, rate=1.0)
    recovery = Recovery(10, 1, AttemptPlan((), keeps=False), [])
    recovery.settle(job, 4)
    assert recovery.interruption(job) == 6
    recovery.settle(job, 8)
    assert recovery.interruption(job) == 0


def test_a_rack_fails_first_when_a_draw_from_second_0_says():
    seed = 5
    options = FailureOptions(racks=((0, 1),), rack_mtbf_s=3000, repair_median_s=10)
    first = draw_outages(options, 3000, stream(seed, "failures of rack 0"), "rack failure")(0)
    recorder = MemoryRecorder()
    jobs = [JobSpec("0", 0, 1, duration_s=round(first.down_s) + 5)]
    simulate(Cluster.uniform(2, 1), jobs, Applications(), Anywhere(), EngineOptions(), seed, recorder,
             failures=options)  # fmt: skip
    assert min(one.start_s for one in recorder.outages) == round(first.down_s)


class Anywhere(Policy):
    """Runs every waiting job on the first node that is up."""

    name = "anywhere"

    def decide(self, view, rng):
        up = [node for node, on in enumerate(view.up) if on and view.free[node]]
        waiting = [job for job in view.jobs.values() if not job.running]
        return Decision.change({job.id: ((node, 1),) for job, node in zip(waiting, up, strict=False)})


def test_a_place_of_no_gpus_is_refused():
    class Empty(Policy):
        name = "empty"

        def decide(self, view, rng):
            return Decision.change({job.id: ((0, job.num_gpus), (1, 0)) for job in view.jobs.values()})

    with pytest.raises(InfeasibleDecisionError):
        builders.run(Empty(), [JobSpec("a", 0, 1, duration_s=5)])


def test_a_view_tells_what_a_job_lacks():
    seen = []

    class Looks(Anywhere):
        name = "looks"

        def decide(self, view, rng):
            seen.extend((job.memory_mb, job.fixed_batch_size) for job in view.arrived)
            return super().decide(view, rng)

    builders.run(Looks(), [JobSpec("a", 0, 1, duration_s=5)])
    assert seen == [(0.0, None)]
    assert Looks().longest_pause_s == 0.0


def test_a_view_tells_the_only_batch_size_of_an_application():
    fixed = toy_application(fixed_batch_size=64)
    seen = []

    class Looks(Anywhere):
        name = "looks"

        def decide(self, view, rng):
            seen.extend(job.fixed_batch_size for job in view.arrived)
            return super().decide(view, rng)

    builders.run(Looks(), [JobSpec("a", 0, 1, "toy", batch_size=64)], applications=Applications(fixed))
    assert seen == [64]


class Unknown:
    """A model that knows no pair."""

    def speeds(self, residents, gpu_type):
        raise InputError


def test_a_pair_that_nothing_is_known_of_has_no_speed():
    job = SimpleNamespace(
        app=SimpleNamespace(stages_s=()), batch=SimpleNamespace(local_bsz=0, accum_steps=0),
        request=SimpleNamespace(application="x", batch_size=8, guaranteed=False),
    )  # fmt: skip
    assert TruePairs(None, {}).beside("a", "b", "v100") == (0.0, 0.0)
    assert TruePairs(Unknown(), {"a": job, "b": job}).beside("a", "b", "v100") == (0.0, 0.0)
