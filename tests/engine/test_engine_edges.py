"""Small rules of the engine that whole runs seldom meet."""

from math import inf
from types import SimpleNamespace

import pytest

from simsched.agent import Lease, LeasingAgent, NoBatchAgent
from simsched.engine.clock import Clock
from simsched.engine.errors import EngineError, InfeasibleDecisionError, InvariantError
from simsched.engine.failures import draw_outages
from simsched.engine.holders import Holders
from simsched.engine.invariants import _SLACK, CheckingRecorder, check_state
from simsched.engine.ledger import Ledger
from simsched.engine.lifecycles import Contention, flow_of
from simsched.engine.live_view import KeptReasons
from simsched.engine.options import EngineOptions, FailureOptions, stream
from simsched.engine.records import AllocationRecord, JobRecorder, MemoryRecorder
from simsched.engine.sharing import TruePairs
from simsched.engine.simulation import Simulation, simulate
from simsched.engine.state import ClusterState, JobState, Recovery
from simsched.errors import InputError
from simsched.model import BatchChoice
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.outages import AttemptPlan
from simsched.model.plans import StepParts
from simsched.model.topology import Route, site_of
from simsched.policy import Decision, Place, Policy, Traits, Triggers, Why
from simsched.policy.signals import COMING_JOBS
from simsched.testing import builders
from simsched.testing.builders import Applications, toy_application
from tests.engine.test_contention import Steady, cluster_of_leaves
from tests.scripted import fixed


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


@pytest.mark.parametrize(("keeps", "left"), [(True, (60, 40, 80, 20)), (False, (30, 10, 40, 40))])
def test_attempts_of_a_trace_run_out_with_its_work_and_drawn_ones_with_time(keeps, left):
    """Of 30 s and 40 s, at half the speed."""
    job = SimpleNamespace(running=object(), gpus=2, clock=SimpleNamespace(continuous=False), rate=0.5)
    recovery = Recovery(inf, 0, AttemptPlan((30.0, 40.0), keeps=keeps, gives_up=True), [30.0, 40.0])
    found = [recovery.interruption(job)]
    recovery.settle(job, 20)
    found.append(recovery.interruption(job))
    assert (recovery.attempt + 1, recovery.gives_up, recovery.fails_next) == (1, False, True)
    recovery.attempt += 1
    found.append(recovery.interruption(job))
    assert (recovery.attempt + 1, recovery.gives_up) == (2, True)
    job.rate = 2.0
    assert (*found, recovery.interruption(job)) == left
    job.rate, job.clock.continuous = 3.0, True
    assert recovery.interruption(job) == (40 / 3 if keeps else 40)
    recovery.attempt += 1
    assert (recovery.interruption(job), recovery.gives_up) == (inf, False)


def test_a_failure_goes_before_a_checkpoint_at_the_same_tick():
    job = SimpleNamespace(running=object(), gpus=1, clock=SimpleNamespace(continuous=False), rate=1.0)
    for due, fails in ((9, False), (10, True), (11, True)):
        recovery = Recovery(due, 1, AttemptPlan((10.0,)), [10.0])
        assert (recovery.interruption(job), recovery.fails_next) == (min(due, 10), fails)


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


@pytest.mark.parametrize(
    ("job", "seen"),
    [(fixed("a"), (0.0, None)), (JobSpec("a", 0, 1, "toy", batch_size=64), (0.0, 64))],
)
def test_a_view_tells_the_memory_and_the_only_batch_size_of_a_job_if_any(job, seen):
    class Looks(Anywhere):
        name = "looks"

        def decide(self, view, rng):
            self.seen = [(job.memory_mb, job.fixed_batch_size) for job in view.arrived] or self.seen
            return super().decide(view, rng)

    policy, applications = Looks(), Applications(toy_application(fixed_batch_size=64))
    builders.run(policy, [job], applications=applications)
    assert (policy.seen, policy.longest_pause_s) == ([seen], 0.0)


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


TWO_KINDS = Cluster.of(NodeGroup(1, 4, "v100"), NodeGroup(1, 2, "t4"))


def test_the_gpus_of_another_are_taken_only_where_there_is_room():
    holders = Holders([1], most=2)
    assert holders.take("a", ((0, 1),), ()) is None
    assert holders.take("b", ((0, 1),), (), onto="a") is None
    assert holders.take("c", ((0, 1),), (), onto="a") == "GPU 0 of node 0 has 2 jobs already, and no more may share it"


def test_a_job_holds_what_it_was_given():
    state = ClusterState(Cluster.uniform(1, 2), max_jobs_per_gpu=2)
    state.take("a", ((0, 1),))
    job = SimpleNamespace(request=SimpleNamespace(id="a"), allocation=((0, 2),))
    with pytest.raises(InvariantError, match=r"INV-7: job a was given \{0: 2\} and holds \{0: 1\}"):
        check_state(state, {"a": job}, 1, 0)


def test_who_keeps_jobs_alone_keeps_all_of_them():
    recorder = JobRecorder()
    simulate(
        Cluster.uniform(1, 2), [fixed("a"), fixed("b", 5)], Applications(), Anywhere(), EngineOptions(), 1, recorder
    )
    assert [job.job_id for job in recorder.jobs] == ["a", "b"]


def test_a_state_prints_itself_in_a_line():
    job = SimpleNamespace(request=SimpleNamespace(id="a"), allocation=((0, 2), (1, 2)), epoch=3)
    assert JobState.__repr__(job) == "<job a: 0:2 1:2, epoch 3>"
    job.allocation = ()
    assert JobState.__repr__(job) == "<job a: waits, epoch 3>"


class Foresees(Anywhere):
    """Notes which jobs are still to come."""

    name = "foresees"
    traits = Traits(needs=frozenset({COMING_JOBS}))

    def decide(self, view, rng):
        self.coming = [(job.id, job.num_gpus) for job in view[COMING_JOBS]()]
        return super().decide(view, rng)


def test_an_oracle_sees_the_jobs_to_come():
    policy = Foresees()
    jobs = [fixed("a"), fixed("b", 50, gpus=2)]
    simulation = Simulation(Cluster.uniform(1, 4), jobs, Applications(), EngineOptions(), 1, policy)
    policy.decide(simulation.advance(), simulation.rng)
    assert policy.coming == [("b", 2)]


@pytest.mark.parametrize(
    ("nodes", "local_bsz", "accum_steps", "expected"),
    [
        # Two leaves of four nodes: the uplinks of leaves are the narrowest, those of nodes within a leaf.
        ((0, 4), 8, 0, (0.5, [(0.2, "leaf", 2)])),
        ((0, 1, 4), 8, 1, (0.5 + 0.3, [(0.2, "leaf", 2)])),
        ((0, 1, 2), 8, 2, (0.5 + 2 * 0.3, [(0.2, "node", 3)])),
        ((0,), 8, 0, (1.0, [])),
        ((0, 4), 0, 0, (1.0, [])),
    ],
)
def test_a_batch_waits_for_the_narrowest_uplinks_that_it_crosses(nodes, local_bsz, accum_steps, expected):
    cluster = cluster_of_leaves()
    allocation = tuple((node, 1) for node in nodes)
    step = SimpleNamespace(step_s=0.5, sync_s=0.2)
    job = SimpleNamespace(
        request=SimpleNamespace(id="a"),
        site=site_of(cluster, allocation), batch=SimpleNamespace(local_bsz=local_bsz, accum_steps=accum_steps),
        app=SimpleNamespace(step_time=lambda site, local_bsz: step), gpus=len(nodes), route=Route(),
        allocation=allocation,
    )  # fmt: skip
    found = flow_of(job, cluster)
    told = [(exposed_s, next(iter(links))[0], len(links)) for exposed_s, links in found.across]
    assert (found.step_s, told) == (pytest.approx(expected[0]), expected[1])


def two_that_share_uplinks():
    """Jobs `a` and `b` that run across the same leaves: their contention, the ledger, and what either loses by it."""
    cluster, congested = cluster_of_leaves(), {}
    jobs = {name: planned(name, cluster, nodes) for name, nodes in {"a": (0, 4), "b": (1, 5)}.items()}
    ledger = SimpleNamespace(
        uplinks_changed={}, slow_down=lambda job, by, share: congested.update({job.request.id: share}),
        cluster=SimpleNamespace(cluster=cluster), active=jobs,
    )  # fmt: skip
    contention = Contention(ledger)
    for job in jobs.values():
        contention.resumes(job)
    contention.settle()
    return contention, ledger, jobs, congested


def test_a_job_that_loses_its_gpus_is_forgotten_on_its_uplinks():
    contention, ledger, jobs, congested = two_that_share_uplinks()
    assert congested["a"] == congested["b"] > 0.2
    contention.resumes(jobs["b"])
    contention.released(jobs["b"])
    assert (list(ledger.uplinks_changed), jobs["b"].congestion) == (["a"], 0.0)
    contention.settle()
    assert congested["a"] == 0


def test_a_job_that_no_longer_waits_for_its_uplinks_leaves_them():
    contention, _, jobs, congested = two_that_share_uplinks()
    jobs["b"].app.waits_s = 0.0
    contention.resumes(jobs["b"])
    contention.settle()
    assert congested == {"a": 0, "b": 0}


def planned(name, cluster, nodes):
    """Return a job with a plan that holds a GPU on each of some nodes, and waits 1 s of 2 for the uplinks of leaves."""
    allocation = tuple((node, 1) for node in nodes)
    return SimpleNamespace(
        request=SimpleNamespace(id=name), site=site_of(cluster, allocation), app=Waits(), batch=None, gpus=len(nodes),
        route=Route(), allocation=allocation, congestion=0.5,
    )  # fmt: skip


class Waits(Steady):
    waits_s = 1.0

    def __init__(self):
        super().__init__(100)

    def parts(self, site, batch):
        return StepParts(1.0, 0.0, 0.0, 0.0, self.waits_s, 0.0, (0.0, self.waits_s))


@pytest.mark.parametrize(
    ("free", "wanted", "why", "detail"),
    [
        ((1, 1), 3, "no room", "2 GPUs free"),
        ((2, 1), 3, "not on one node", "3 GPUs free, at most 2 on one"),
        ((2, 2), 4, "not on one node", "4 GPUs free, at most 2 on one"),
        ((3, 1), 3, "could run", "4 GPUs free"),
        ((3, 3), 5, "could run", "6 GPUs free"),  # no node has five: it asked for several
        ((2, 4), 4, "could run", "6 GPUs free"),
    ],
)
def test_of_a_job_that_waits_without_a_word_the_room_is_told(free, wanted, why, detail):
    kept = KeptReasons(state := ClusterState(Cluster.uniform(2, 4)))
    state.free = list(free)
    request, facts = SimpleNamespace(num_gpus=wanted), SimpleNamespace(runs_on=lambda kind: True)
    (row,) = kept.rows(7, {"a": SimpleNamespace(allocation=(), request=request, facts=facts)})
    assert (row.time_s, row.gpus, row.rank, row.score, row.detail) == (7, 0, 0, "", detail)
    assert row.why == (Why.LET_WAIT if why == "could run" else why)


def test_a_scalar_score_and_a_tuple_are_written_alike():
    kept = KeptReasons(ClusterState(Cluster.uniform(1, 4)))
    kept.said.order({"a": -0.0, "b": (1.5, 2)})
    job = SimpleNamespace(allocation=((0, 1),))
    assert [(row.rank, row.score, row.why) for row in kept.rows(0, {"a": job, "b": job})] == [
        (1, "0", ""),
        (2, "1.5 2", ""),
    ]
    assert [row.rank for row in kept.rows(1, {"a": job})] == [0]  # what was said is of one decision


def test_a_gpu_takes_no_more_jobs_than_it_may():
    holders = Holders([1], most=2)
    assert holders.take("a", ((0, 1),), ()) is None
    assert holders.take("b", ((0, 1),), ("a",)) is None
    assert holders.take("c", ((0, 1),), ("a", "b")) == "node 0 has 0 free GPUs and 0 to share, 1 are wanted"
    assert (holders.neighbours("a"), holders.share("b"), holders.share("c"), holders.free(0)) == (("b",), 0.5, 1.0, 0)
    holders.give_back("a")
    assert (holders.neighbours("b"), holders.share("b"), holders.most_on_a_gpu()) == ((), 1.0, 1)


def test_the_least_shared_gpus_come_first():
    holders = Holders([3], most=3)
    holders.take("a", ((0, 2),), ())
    holders.take("b", ((0, 1),), ("a",), onto=None)
    assert holders.gpus("b") == {0: [2]}  # the free one
    holders.take("c", ((0, 1),), ("a", "b"))
    assert holders.gpus("c") == {0: [0]}
    holders.take("d", ((0, 2),), ("a", "b", "c"))
    assert holders.gpus("d") == {0: [1, 2]}


def test_parts_of_a_gpu_fill_it_and_no_more():
    holders = Holders([1], most=9)
    holders.share_of = {"a": 0.5, "b": 0.25, "c": 0.25, "d": 0.125}.__getitem__
    for job_id in "abc":
        assert holders.take(job_id, ((0, 1),), "abc") is None
    assert list(holders.shares()) == [(0, 0, 1.0)]
    said = "node 0 has 0 free GPUs and 0 to share, 1 are wanted; 1 of GPU 0 of node 0 is taken, and 0.125 is wanted"
    assert holders.take("d", ((0, 1),), "abc") == said
    assert holders.take("d", ((0, 1),), (), onto="a") == "1 of GPU 0 of node 0 is taken, and 0.125 is wanted"


class StandsStill:
    """A model under which jobs beside each other do nothing."""

    def speeds(self, residents, gpu_type):
        return [0.0] * len(residents)


def test_jobs_that_would_stand_still_beside_each_other_are_refused():
    jobs, options = [fixed("a"), fixed("b")], EngineOptions(max_jobs_per_gpu=2)
    policy = Beside()
    with pytest.raises(InfeasibleDecisionError, match="job a would stand still among a, b on one GPU"):
        simulate(Cluster.uniform(1, 1), jobs, Applications(), policy, options, 1, MemoryRecorder(),
                 colocation=StandsStill())  # fmt: skip


class Beside(Policy):
    """Runs all jobs on the first GPU."""

    name = "beside"

    def decide(self, view, rng):
        return Decision.change({job.id: Place(((0, 1),), tuple(view.jobs)) for job in view.jobs.values()})


def test_who_looks_on_is_told_every_50_decisions_and_at_the_end():
    class EverySecond(Anywhere):
        name = "every-second"
        triggers = Triggers(interval_s=1)

    told = []
    simulate(Cluster.uniform(1, 1), [fixed("a", duration_s=119)], Applications(), EverySecond(),
             EngineOptions(restart_delay_s=0), 1, MemoryRecorder(), progress=lambda *now: told.append(now))  # fmt: skip
    assert told == [(50, 0), (100, 0), (120, 1)]


class Idles(NoBatchAgent, LeasingAgent):
    """Grants a lease that is over at once, and then one that completes the job."""

    def __init__(self):
        self.granted = 0

    def lease(self, site, progress, now_s):
        self.granted += 1
        if self.granted == 1:
            return Lease(now_s, lambda then_s: progress, completes=False)
        return Lease(now_s + 10, lambda then_s: progress + then_s - now_s, completes=True)


class AsksWhenOver(Anywhere):
    """Decides when jobs arrive and when leases are over."""

    name = "asks-when-over"
    triggers = Triggers(arrival=True, leases_over=True)

    def agent(self, request, facts):
        return Idles()

    def decide(self, view, rng):
        return Decision.change({job.id: ((0, 1),) for job in view.arrived})


def test_an_idle_lease_is_recorded_as_a_turn():
    found = builders.run(AsksWhenOver(), [fixed("a", duration_s=10)], options=EngineOptions(restart_delay_s=0))
    assert [(one.start_s, one.end_s) for one in found.allocations] == [(0, 0), (0, 10)]
    assert found.jobs[0].end_time_s == 10


@pytest.mark.parametrize(
    ("end", "beyond", "fails"), [(0.5, 0.5e-6, False), (0.5, 2e-6, True), (1e6, 0.5, False), (1e6, 2, True)]
)
def test_progress_past_an_epoch_by_rounding_and_no_more(end, beyond, fails):
    job = SimpleNamespace(leasing=None, app=SimpleNamespace(epoch_end=lambda _: end), epoch=0, rate=0.0, allocation=(),
                          live_progress=end + beyond, recovery=None, request=SimpleNamespace(id="a"))  # fmt: skip
    state = ClusterState(Cluster.uniform(1, 4))
    if fails:
        with pytest.raises(InvariantError, match=r"INV-6: job a: progress .* outside epoch 0"):
            check_state(state, {"a": job}, 1, 0)
    else:
        check_state(state, {"a": job}, 1, 0)


@pytest.mark.parametrize(("progress", "below", "falls"), [(0.5, 0.5e-6, False), (0.5, 1.5e-6, True), (1e6, 0.5, False),
                                                        (1e6, 1.5, True)])  # fmt: skip
def test_progress_falls_by_more_than_rounding_only_to_a_checkpoint(progress, below, falls):
    def at(second, progress):
        return AllocationRecord("a", second, second + 1, 1, 1, "0:1", False, 0, 0, 0, 0, progress, 1.0, 1.0, 0.0)

    checking = CheckingRecorder(MemoryRecorder(), progress_falls=True)
    checking.allocation(at(0, progress))
    if falls:
        with pytest.raises(InvariantError, match=r"INV-6: job a: progress fell to .*, where there was no checkpoint"):
            checking.allocation(at(1, progress - below))
    else:
        checking.allocation(at(1, progress - below))


def chooses(local_bsz=8, *, plans=None, fails=False):
    """Return a job of at least 8 and at most 64 examples per GPU whose agent chooses a batch, or cannot."""

    def choose(site, epoch):
        if fails:
            raise ValueError("nothing fits")
        return BatchChoice(local_bsz, 0)

    limits = SimpleNamespace(min_local_bsz=8, max_local_bsz=64)
    return SimpleNamespace(
        site=object(), plan=None, epoch=0, gpus=3, facts=SimpleNamespace(plans=plans), request=SimpleNamespace(id="a"),
        agent=SimpleNamespace(choose=choose), app=SimpleNamespace(name="toy", limits=limits),
    )  # fmt: skip


def test_a_batch_that_an_application_does_not_take_is_refused():
    assert [Ledger._chosen(chooses(size)).local_bsz for size in (8, 64)] == [8, 64]
    for size in (7, 65):
        with pytest.raises(EngineError, match=rf"a \(toy\) cannot run on 3 GPUs: a batch of {size} .* outside 8 to 64"):
            Ledger._chosen(chooses(size))
    with pytest.raises(EngineError, match="job a cannot run on 3 GPUs: nothing fits"):
        Ledger._chosen(chooses(plans=object(), fails=True))
    with pytest.raises(ValueError, match="nothing fits"):
        Ledger._chosen(chooses(fails=True))


def test_stale_agents_choose_again_before_uplinks_are_shared():
    told = []
    ledger = Ledger(Clock(), ClusterState(Cluster.uniform(1, 1)), MemoryRecorder(), 0, lambda *_: None)
    ledger.share_uplinks = lambda: told.append(dict(ledger.stale))
    ledger.retune_stale()
    assert told == []
    ledger.stale["a"] = SimpleNamespace(running=None)
    ledger.retune_stale()
    assert told == [{}]
