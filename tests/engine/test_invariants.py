"""Every invariant can fail: each is shown a run that breaks it, one step from a run that does not."""

from types import SimpleNamespace

import pytest

from simsched.engine.errors import InvariantError
from simsched.engine.invariants import CheckingRecorder, check_state
from simsched.engine.records import (
    AllocationRecord,
    DecisionRecord,
    JobRecord,
    MemoryRecorder,
    OutageRecord,
    ReasonRecord,
)
from simsched.engine.state import ClusterState
from simsched.model.cluster import Cluster
from simsched.model.job import FIXED_DURATION


def interval(start_s=0, end_s=10, gpus=2, job_id="a", progress=0.0):
    return AllocationRecord(
        job_id, start_s, end_s, gpus, 1, f"0:{gpus}", False, 0, 0, 0, 0, progress, 1.0, 1.0, 0.0
    )  # fmt: skip


def begun(at_s, progress, rate=1.0, epoch=0):
    """Return an interval of one second, by progress at its begin."""
    return interval(at_s, at_s + 1, progress=progress)._replace(rate=rate, epoch=epoch)


def finished(end_s=10, jct_s=10, held_s=10, queueing_s=0, gpu_s=20, job_id="a"):
    return JobRecord(
        job_id, FIXED_DURATION, "", "", "Pass", 2, 0, 0, 0, end_s, jct_s, held_s, queueing_s, 0, gpu_s, 0
    )  # fmt: skip


def decision(time_s):
    return DecisionRecord(time_s, 1, 1, 2, 4, 1, 0, 0, 0, {})


def recorder():
    return CheckingRecorder(MemoryRecorder())


def test_a_run_that_adds_up_is_passed_on_whole():
    inner = MemoryRecorder()
    checking = CheckingRecorder(inner)
    checking.decision(decision(0))
    checking.allocation(interval(0, 4))
    checking.allocation(interval(4, 10))
    checking.job(finished())
    checking.decision(decision(10))
    checking.outage(OutageRecord(0, 0, 10, "off", True))
    checking.reason(ReasonRecord(10, "a", 0, 1, "", "", ""))
    assert [len(kept) for kept in (inner.jobs, inner.allocations, inner.decisions)] == [1, 2, 2]
    assert [len(kept) for kept in (inner.outages, inner.reasons)] == [1, 1]


def test_a_job_finishes_once():
    checking = recorder()
    checking.allocation(interval())
    checking.job(finished())
    with pytest.raises(InvariantError, match=r"INV-2.*twice"):
        checking.job(finished(gpu_s=0))


@pytest.mark.parametrize(
    "later",
    [
        lambda one: one.decision(decision(9)),
        lambda one: one.job(finished(end_s=9)),
        lambda one: one.allocation(interval(0, 9)),
        lambda one: one.outage(OutageRecord(0, 0, 9, "off", True)),
        lambda one: one.reason(ReasonRecord(9, "a", 0, 1, "", "", "")),
    ],
)
def test_the_clock_never_goes_back(later):
    checking = recorder()
    checking.decision(decision(10))
    with pytest.raises(InvariantError, match="INV-3"):
        later(checking)


@pytest.mark.parametrize("gpu_s", [19, 21])
def test_attained_service_is_the_sum_of_the_intervals(gpu_s):
    checking = recorder()
    checking.allocation(interval(0, 4))
    checking.allocation(interval(4, 10))
    with pytest.raises(InvariantError, match=r"INV-4.*sum to 20"):
        checking.job(finished(gpu_s=gpu_s))


@pytest.mark.parametrize("wrong", [{"jct_s": 11}, {"held_s": 9}, {"held_s": 12, "queueing_s": -2}])
def test_a_completion_time_is_what_was_held_and_what_was_waited(wrong):
    checking = recorder()
    checking.allocation(interval())
    with pytest.raises(InvariantError, match=r"INV-4.*is not held"):
        checking.job(finished(**wrong))


@pytest.mark.parametrize("second", [interval(3, 12), interval(5, 4)])
def test_intervals_of_a_job_neither_overlap_nor_run_back(second):
    checking = recorder()
    checking.allocation(interval(0, 4))
    with pytest.raises(InvariantError, match=r"INV-4.*runs back or overlaps"):
        checking.allocation(second)


def test_intervals_of_two_jobs_may_overlap():
    checking = recorder()
    checking.allocation(interval(0, 4))
    checking.allocation(interval(1, 4, job_id="b"))


def test_fractions_of_a_second_may_differ_by_rounding_and_no_more():
    checking = recorder()
    checking.allocation(interval(0.0, 10.0))
    checking.job(finished(end_s=10.0, jct_s=10.0, held_s=10.0 + 1e-7, queueing_s=0.0, gpu_s=20.0 + 1e-7))
    checking.allocation(interval(10.0, 20.0, job_id="b"))
    with pytest.raises(InvariantError, match="INV-4"):
        checking.job(finished(end_s=20.0, jct_s=20.0, held_s=20.0, queueing_s=0.0, gpu_s=20.0 + 1e-3, job_id="b"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda state: state.free.__setitem__(0, 3), "INV-1: node 0: 3 GPUs free and 0 held"),
        (lambda state: state.free.__setitem__(0, -1), "INV-1: node 0: -1 GPUs free"),
        (lambda state: setattr(state, "allocated_gpus", 1), "INV-1: 1 GPUs counted as held, 0 are"),
        (lambda state: state.up.__setitem__(1, False), "INV-1: node 1: 4 GPUs free"),
    ],
)
def test_gpus_are_conserved(spoil, said):
    state = ClusterState(Cluster.uniform(2, 4))
    check_state(state, {}, 3, 3)
    spoil(state)
    with pytest.raises(InvariantError, match=said):
        check_state(state, {}, 3, 3)


@pytest.mark.parametrize("finished_jobs", [2, 4])
def test_jobs_are_conserved(finished_jobs):
    with pytest.raises(InvariantError, match=f"INV-2: 3 jobs submitted, but 0 active and {finished_jobs} finished"):
        check_state(ClusterState(Cluster.uniform(1, 4)), {}, 3, finished_jobs)


def test_a_gpu_has_no_more_holders_than_allowed():
    state = ClusterState(Cluster.uniform(1, 1), max_jobs_per_gpu=2)
    state.take("a", ((0, 1),))
    state.take("b", ((0, 1),), beside=("a",))
    assert state.occupancy is not None
    state.occupancy.most = 1
    with pytest.raises(InvariantError, match="INV-7: a GPU has 2 holders, 1 are allowed"):
        check_state(state, {}, 0, 0)


def test_free_gpus_are_those_without_a_holder():
    state = ClusterState(Cluster.uniform(1, 2), max_jobs_per_gpu=2)
    state.take("a", ((0, 1),))
    state.free[0] = 2
    with pytest.raises(InvariantError, match="INV-7: node 0 has 1 GPUs without a holder, 2 count as free"):
        check_state(state, {}, 0, 0)


def falling(tick_s=1.0):
    return CheckingRecorder(MemoryRecorder(), tick_s, progress_falls=True)


def test_after_a_fall_progress_need_not_stop_where_it_did_before():
    # Back to the checkpoint at 0, a job trains at another rate: where its intervals begin now, none has begun before.
    checking = falling()
    for at_s, progress in enumerate((0.0, 60.0, 0.0, 31.0, 59.0)):
        checking.allocation(begun(at_s, progress))
    with pytest.raises(InvariantError, match=r"INV-6.*fell to 30\.0"):
        checking.allocation(begun(5, 30.0))


@pytest.mark.parametrize(("tick_s", "past_end"), [(1, 2.5), (0.1, 0.25), (0.001, 0.0025), (0, 0)])
def test_an_epoch_may_begin_half_a_tick_below_where_the_one_before_was_left(tick_s, past_end):
    # At 5 a second, a job that waits at the end of its epoch of 100 may be half a tick beyond it.
    for beyond in (past_end, past_end + 0.01):
        checking = falling(tick_s)
        checking.allocation(begun(0, 0.0, rate=5.0))
        checking.allocation(begun(1, 100 + beyond, rate=0.0))
        if beyond == past_end:
            checking.allocation(begun(2, 100.0, epoch=1))
        else:
            with pytest.raises(InvariantError, match="INV-6"):
                checking.allocation(begun(2, 100.0, epoch=1))


@pytest.mark.parametrize("tick_s", [1, 0.1, 0.001, 0])
def test_a_running_job_is_at_most_half_a_tick_past_the_end_of_its_epoch(tick_s):
    def at(progress):
        app = SimpleNamespace(epoch_end=lambda epoch: 100.0 * (epoch + 1))
        job = SimpleNamespace(leasing=None, app=app, epoch=1, rate=5.0, live_progress=progress, recovery=None)
        job.allocation, job.request = (), SimpleNamespace(id="a")
        return {"a": job}

    state = ClusterState(Cluster.uniform(1, 4))
    check_state(state, at(100.0), 1, 0, tick_s)
    check_state(state, at(200 + 2.5 * tick_s), 1, 0, tick_s)
    for wrong in (99.0, 200 + 2.5 * tick_s + 0.01):
        with pytest.raises(InvariantError, match="INV-6: job a: progress"):
            check_state(state, at(wrong), 1, 0, tick_s)
