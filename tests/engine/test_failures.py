"""Failures of nodes and jobs in the engine: hand-worked cases, closed forms, and what is refused."""

from itertools import pairwise
from math import exp, sqrt
from types import SimpleNamespace

import numpy as np
import pytest

from simsched.engine.errors import InvariantError, StuckError
from simsched.engine.failures import draw_outages
from simsched.engine.invariants import CheckingRecorder
from simsched.engine.options import EngineOptions, FailureOptions, stream
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.experiment.failures import FAILURE_SETTINGS, FailuresSpec, failure_options
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.outages import CAUSES, RETRIES, Outage, OutageCause, PhillyFailures
from simsched.model.plans import Plan, PlannedJob, TabledModel
from simsched.policy import registry
from simsched.policy.contract import Policy, Traits
from simsched.policy.decision import Decision
from simsched.testing.builders import Applications, run


class OnItsOwnNode(Policy):
    """Runs job i on node i as long as that is up."""

    name = "on-its-own-node"

    def decide(self, view, rng):
        missing = view.jobs.values() if len(view.nodes) < 5 else (*view.arrived, *view.lost)
        waiting = [job for job in missing if not job.running and view.up[int(job.id)]]
        return Decision.change({job.id: ((int(job.id), job.num_gpus),) for job in waiting})


def jobs_of(count, duration_s, gpus=1, **truth):
    return [JobSpec(str(i), 0, gpus, duration_s=duration_s, **truth) for i in range(count)]


def play(failures, jobs, *, nodes=1, gpus=1, policy=None, applications=None, seed=1, **options):
    recorder = MemoryRecorder()
    simulate(
        Cluster.uniform(nodes, gpus),
        jobs,
        applications or Applications(),
        policy or OnItsOwnNode(),
        EngineOptions(**{"restart_delay_s": 10, **options}),
        seed,
        recorder,
        check_invariants=True,
        failures=failures,
    )
    return recorder


def intervals(recorder):
    return [(one.start_s, one.end_s, one.progress, one.restarting) for one in recorder.allocations]


def test_a_lost_node_costs_the_progress_since_the_last_checkpoint():
    failures = FailureOptions(outages=(Outage(0, 175, 200),), checkpoint_interval_s=50, checkpoint_cost_s=5)
    recorder = play(failures, jobs_of(1, 100, gpus=2), gpus=2)
    assert intervals(recorder) == [
        (0, 10, 0, True),
        (10, 60, 0, False),
        (60, 65, 50, True),
        (65, 115, 50, False),
    ]
    # The job is done before the outage; one that comes earlier strikes 40 s after the checkpoint.
    failures = FailureOptions(outages=(Outage(0, 105, 200),), checkpoint_interval_s=50, checkpoint_cost_s=5)
    recorder = play(failures, jobs_of(1, 100, gpus=2), gpus=2)
    assert intervals(recorder)[3:] == [(65, 105, 50, False), (200, 210, 50, True), (210, 260, 50, False)]
    (job,) = recorder.jobs
    assert (job.failures, job.lost_s, job.lost_gpu_s, job.checkpoint_s, job.restart_s) == (1, 40, 80, 5, 20)
    assert (job.jct_s, job.held_s, job.queueing_s, job.restarts) == (260, 165, 95, 1)
    assert [one.available_gpus for one in recorder.decisions] == [2, 0, 2]
    assert [(one.failed_nodes, one.node_failures) for one in recorder.decisions] == [(0, 0), (1, 1), (0, 1)]


def test_a_checkpoint_that_is_not_finished_does_not_count():
    failures = FailureOptions(outages=(Outage(0, 63, 63),), checkpoint_interval_s=50, checkpoint_cost_s=5)
    recorder = play(failures, jobs_of(1, 60))
    assert intervals(recorder)[2:5] == [(60, 63, 50, True), (63, 73, 0, True), (73, 123, 0, False)]
    assert recorder.jobs[0].lost_s == 50


def test_a_planned_preemption_saves_a_checkpoint():
    class TwoTurns(OnItsOwnNode):
        """Stops the job once, at second 40."""

        def decide(self, view, rng):
            if view.now_s == 40:
                return Decision.change({}, ["0"], wake_at_s=50)
            decision = super().decide(view, rng)
            return Decision.change(decision.allocations, wake_at_s=40) if view.now_s < 40 else decision

    recorder = play(FailureOptions(outages=(Outage(0, 70, 80),)), jobs_of(1, 100), policy=TwoTurns())
    assert intervals(recorder) == [
        (0, 10, 0, True), (10, 40, 0, False), (50, 60, 30, True), (60, 70, 30, False), (80, 90, 30, True),
        (90, 160, 30, False),
    ]  # fmt: skip


def test_without_checkpoints_a_job_begins_anew_and_its_neighbours_run_on():
    recorder = play(FailureOptions(outages=(Outage(0, 60, 60),)), jobs_of(2, 100), nodes=2)
    assert [(job.job_id, job.end_time_s, job.lost_s) for job in recorder.jobs] == [("1", 110, 0), ("0", 170, 50)]


def test_policies_are_told_who_was_lost():
    seen = []

    class Listens(OnItsOwnNode):
        """Notes the lost."""

        def decide(self, view, rng):
            seen.append((view.now_s, [job.id for job in view.lost], list(view.up)))
            return super().decide(view, rng)

    play(FailureOptions(outages=(Outage(1, 20, 30),)), jobs_of(2, 100), nodes=2, policy=Listens())
    assert seen[:3] == [(0, [], [True, True]), (20, ["1"], [True, False]), (30, [], [True, True])]


def test_a_rack_fails_as_one():
    options = FailureOptions(racks=((0, 1), (2,)), rack_mtbf_s=300, repair_median_s=10)
    recorder = play(options, jobs_of(3, 400), nodes=3, seed=4)
    failed = [one.node_failures for one in recorder.decisions]
    assert failed[-1] > 1
    lost = {job.job_id: job.failures for job in recorder.jobs}
    ends = {job.job_id: job.end_time_s for job in recorder.jobs}
    assert lost["0"] == lost["1"] > 0
    assert ends["0"] == ends["1"]


def test_a_node_that_two_outages_hold_down_comes_back_after_the_later_one():
    options = FailureOptions(outages=(Outage(0, 20, 50), Outage(0, 30, 40)))
    assert play(options, jobs_of(1, 100)).jobs[0].end_time_s == 50 + 10 + 100


def test_failures_are_the_same_whatever_the_policy_does():
    options = FailureOptions(node_mtbf_s=300, repair_median_s=20, repair_sigma=1)
    times = []
    for name in ("fifo", "las"):
        policy = registry.load(name)() if name in registry.names() else registry.load("tiresias")()
        recorder = play(options, jobs_of(6, 200), nodes=3, policy=policy)
        times.append({one.time_s: one.node_failures for one in recorder.decisions})
    common = sorted(set(times[0]) & set(times[1]))
    assert len(common) > 5
    assert [times[0][at] for at in common] == [times[1][at] for at in common]


def test_attempts_of_a_trace_return_to_the_queue_and_keep_their_own_durations():
    job = jobs_of(1, 100, status="Killed", attempts=3, attempts_s=(30, 50, 20))
    recorder = play(FailureOptions(jobs="trace"), job)
    assert intervals(recorder) == [
        (0, 10, 0, True), (10, 40, 0, False), (40, 50, 30, True), (50, 100, 30, False), (100, 110, 80, True),
        (110, 130, 80, False),
    ]  # fmt: skip
    (job,) = recorder.jobs
    assert (job.attempts, job.status, job.lost_s, job.restarts) == (3, "Killed", 0, 2)


def test_drawn_failures_of_jobs_follow_the_published_numbers():
    rng = np.random.default_rng(5)
    plans = [PhillyFailures().plan(1, rng) for _ in range(3000)]
    retries = [len(plan.run_s) - plan.gives_up for plan in plans]
    assert np.mean(retries) == pytest.approx(RETRIES[0], abs=0.05)  # 3.5 standard errors
    assert np.mean([plan.gives_up for plan in plans]) == pytest.approx(0.13, abs=0.025)
    syntax = next(cause for cause in CAUSES if cause.name == "syntax error")
    drawn = np.array([syntax.draw_s(rng) for _ in range(3000)]) / 60
    assert np.percentile(drawn, 50) == pytest.approx(0.58, rel=0.15)
    assert np.percentile(drawn, 90) == pytest.approx(5.02, rel=0.25)


#: Table 7 of Jeon et al. (ATC'19): the trials of each cause at all demands for GPUs, as the paper adds them up, and the
#: median and the 90th percentile of the minutes to failure.
PUBLISHED = {
    "CPU out of memory": (12076, 13.45, 17.73), "incorrect inputs": (9690, 1.87, 404.83),
    "semantic error": (2943, 2.72, 376.0), "core dump": (2912, 0.85, 72.75),
    "invalid memory access": (2602, 1.03, 403.5), "model checkpoint error": (1995, 181.67, 3728.93),
    "CUDA failure": (1484, 1.32, 19.87), "syntax error": (1132, 0.58, 5.02), "traceback": (777, 1.02, 894.33),
    "MPI error": (634, 1.62, 3015.27), "GPU out of memory": (487, 18.53, 353.62),
    "MPI runtime failure": (478, 1389.48, 13778.6), "permission error": (299, 1.0, 8.15),
    "import error": (148, 0.67, 4.58), "job preempted": (147, 559.08, 2682.85),
    "CUDA initialisation failed": (141, 1.08, 2.18), "no signature": (1684, 1.87, 28.0),
}  # fmt: skip


def test_causes_have_the_published_trials_and_times():
    at_90 = 1.2815515655446004  # of the standard normal distribution
    for cause in CAUSES:
        trials, *minutes = PUBLISHED[cause.name]
        draws = [SimpleNamespace(standard_normal=lambda standard=standard: standard) for standard in (0.0, at_90)]
        assert sum(cause.trials) == trials
        assert [cause.draw_s(draw) / 60 for draw in draws] == pytest.approx(minutes)
    assert {cause.name for cause in CAUSES} == set(PUBLISHED)


@pytest.mark.parametrize(
    ("gpus", "retries", "demand"), [(1, 0, 0), (2, 1, 1), (4, 1, 1), (5, 2, 2), (8, 2, 2), (9, 3, 2)]
)
def test_failures_are_drawn_by_the_size_of_the_job(gpus, retries, demand):
    asked = {}

    def choice(number, size, p):
        asked["weights"], asked["size"] = p, size
        return np.zeros(size, dtype=int)

    drawn = SimpleNamespace(
        geometric=lambda p: asked.setdefault("retries", 1 / p - 1) and 3,
        random=lambda: np.nextafter((0.13, 0.37, 0.42, 0.47)[retries], 0),
        choice=choice, standard_normal=lambda: 0.0,
    )  # fmt: skip
    plan = PhillyFailures().plan(gpus, drawn)
    assert (len(plan.run_s), plan.gives_up, asked["size"]) == (3, True, 3)
    assert asked["retries"] == pytest.approx((0.33, 0.98, 1.09, 1.11)[retries])
    of_first = ((11465, 235, 376)[demand], sum(cause.trials[demand] for cause in CAUSES))
    assert asked["weights"][0] == pytest.approx(of_first[0] / of_first[1])


def test_a_job_that_gives_up_is_failed():
    recorder = play(FailureOptions(jobs="philly"), jobs_of(40, 100_000), nodes=40)
    ends = {job.status for job in recorder.jobs}
    assert ends == {"", "Failed"}
    failed = [job for job in recorder.jobs if job.status]
    assert all(job.end_time_s < 100_010 for job in failed if job.attempts == 1)


def daly_s(work_s, interval_s, cost_s, restart_s, mtbf_s):
    """Expected completion (Daly, FGCS 22(3), 2006) of segments of which the last writes no checkpoint.

    A segment of length L takes M exp(R/M) (exp(L/M) - 1), the first one with the start before it.
    """
    segments = round(work_s / interval_s)
    first = exp((restart_s + interval_s + cost_s) / mtbf_s) - 1
    middle = (segments - 2) * exp(restart_s / mtbf_s) * (exp((interval_s + cost_s) / mtbf_s) - 1)
    last = exp(restart_s / mtbf_s) * (exp(interval_s / mtbf_s) - 1)
    return mtbf_s * (first + middle + last)


def completions(interval_s, *, count, seeds, cost_s, work_s=3000, restart_s=60, mtbf_s=2500):
    """Return completion times of jobs on nodes of their own, each with its own stream of failures."""
    options = FailureOptions(node_mtbf_s=mtbf_s, checkpoint_interval_s=interval_s, checkpoint_cost_s=cost_s)
    found = []
    for seed in range(seeds):
        recorder = MemoryRecorder()
        simulate(
            Cluster.uniform(count, 1), jobs_of(count, work_s), Applications(), OnItsOwnNode(),
            EngineOptions(restart_delay_s=restart_s, tick_s=0), seed, recorder, failures=options,
            check_invariants=False,
        )  # fmt: skip
        found += [job.jct_s for job in recorder.jobs]
    return np.array(found)


def test_the_expected_completion_is_dalys():
    times = completions(1000, count=20, seeds=100, cost_s=50)
    assert len(times) == 2000
    half = 2.576 * times.std(ddof=1) / sqrt(2000)
    assert abs(times.mean() - daly_s(3000, 1000, 50, 60, 2500)) < half


def test_the_best_interval_is_near_youngs_and_dalys():
    mtbf_s, cost_s = 2500, 50
    young = sqrt(2 * cost_s * mtbf_s)  # 500 s
    daly = young * (1 + sqrt(cost_s / (2 * mtbf_s)) / 3 + cost_s / (18 * mtbf_s)) - cost_s
    means = {tau: completions(tau, count=20, seeds=6, cost_s=cost_s).mean() for tau in (100, 500, 1500)}
    assert min(means, key=means.get) == 500
    assert 250 < daly < young < 1000
    closed = {tau: daly_s(3000, tau, cost_s, 60, mtbf_s) for tau in means}
    assert all(means[tau] == pytest.approx(closed[tau], rel=0.15) for tau in means)


@pytest.mark.parametrize(("shape", "sigma"), [(1.0, 0.0), (0.7, 1.0)])
def test_availability_is_mtbf_over_mtbf_and_mttr(shape, sigma):
    mtbf_s, mttr_s = 1000, 100 * exp(sigma**2 / 2)
    options = FailureOptions(node_mtbf_s=mtbf_s, weibull_shape=shape, repair_median_s=100, repair_sigma=sigma)
    draw, now_s, down_s = draw_outages(options, mtbf_s, stream(1, "node 0")), 0.0, 0.0
    for _ in range(4000):
        outage = draw(now_s)
        down_s, now_s = down_s + outage.up_s - outage.down_s, outage.up_s
    assert 1 - down_s / now_s == pytest.approx(mtbf_s / (mtbf_s + mttr_s), abs=0.008)


def test_nodes_of_a_cluster_are_as_available_as_that():
    mtbf_s, mttr_s, span_s = 900, 100, 30_000
    options = FailureOptions(node_mtbf_s=mtbf_s, repair_median_s=mttr_s, checkpoint_interval_s=60)
    recorder, policy = MemoryRecorder(), registry.load("fifo")()
    simulate(
        Cluster.uniform(30, 1), [JobSpec("one", 0, 1, duration_s=span_s)], Applications(), policy,
        EngineOptions(restart_delay_s=0), 3, recorder, failures=options, check_invariants=False,
    )  # fmt: skip
    seen = [one for one in recorder.decisions if 5000 <= one.time_s <= span_s]
    up = sum(one.available_gpus * (two.time_s - one.time_s) for one, two in pairwise(seen))
    share = up / (30 * (seen[-1].time_s - seen[0].time_s))
    assert share == pytest.approx(mtbf_s / (mtbf_s + mttr_s), abs=0.015)


def test_the_frontier_run_meets_419_interruptions():
    spec = FailuresSpec(setting="frontier-run")
    options = failure_options(spec, Cluster.uniform(1))
    count = 0
    for node in range(2048):
        draw, outage = draw_outages(options, options.node_mtbf_s, stream(7, f"failures of node {node}")), None
        outage = draw(0)
        while outage.down_s < 54 * 86400:
            count += 1
            outage = draw(outage.up_s)
    assert abs(count - 419) < 3 * sqrt(419)


def test_a_stuck_policy_is_noticed_though_nodes_go_on_failing():
    class Idle(Policy):
        """Never places anything."""

        name = "idle"

        def decide(self, view, rng):
            return Decision({})

    with pytest.raises(StuckError):
        play(FailureOptions(node_mtbf_s=100), jobs_of(1, 100), policy=Idle(), idle_rounds=20)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_repairs_are_log_normal_and_times_to_failure_have_the_mean_asked_for(shape):
    options = FailureOptions(node_mtbf_s=1000, weibull_shape=shape, repair_median_s=60, repair_sigma=0.5)
    draw = draw_outages(options, 1000, stream(3, "test"))
    found = [draw(0.0) for _ in range(4000)]
    logs = np.log([outage.up_s - outage.down_s for outage in found])
    assert np.exp(np.median(logs)) == pytest.approx(60, rel=0.05)
    assert np.std(logs) == pytest.approx(0.5, rel=0.05)
    up = np.array([outage.down_s for outage in found])
    assert up.mean() == pytest.approx(1000, abs=4 * up.std() / 4000**0.5)


def test_progress_that_falls_elsewhere_breaks_an_invariant():
    recorder = play(FailureOptions(outages=(Outage(0, 60, 60),)), jobs_of(1, 100))
    checking = CheckingRecorder(MemoryRecorder(), progress_falls=True)
    for interval in recorder.allocations[:2]:
        checking.allocation(interval)
    ran = recorder.allocations[1]
    checking.allocation(ran._replace(start_s=60, end_s=70, progress=50.0))
    with pytest.raises(InvariantError, match="INV-6"):
        checking.allocation(ran._replace(start_s=70, end_s=80, progress=20.0))


def test_options_off_change_nothing():
    assert failure_options(FailuresSpec(), Cluster.uniform(1)) is None
    jobs = jobs_of(3, 100)
    plain = run(OnItsOwnNode(), jobs, cluster=Cluster.uniform(3, 1), options=EngineOptions(restart_delay_s=10))
    rare = play(FailureOptions(outages=(Outage(0, 9_000, 9_001),)), jobs, nodes=3)
    assert plain.allocations == rare.allocations


def test_settings_name_their_source_and_can_be_changed():
    for name, setting in FAILURE_SETTINGS.items():
        assert setting.source
        assert FailuresSpec(setting=name).resolved()
    changed = FailuresSpec(setting="research-cluster", node_mtbf_h=10).resolved()
    assert (changed.node_mtbf_h, changed.repair_median_h) == (10, 20.4)


def test_a_named_setting_gives_way_to_the_other_way_of_saying_it():
    assert FailuresSpec(setting="llama3-run", node_mtbf_h=10).resolved().gpu_failures_per_day is None
    assert FailuresSpec(setting="llama3-run", repair_median_h=1).resolved().causes == ()
    named = failure_options(FailuresSpec(setting="llama3-run"), Cluster.uniform(1))
    assert [round(cause.share) for cause in named.causes] == [268, 21, 35, 32, 56, 7]
    assert sum(cause.share for cause in named.causes) == 419
    assert 24 * 54 * 16384 / (named.gpu_mtbf_s / 3600) == pytest.approx(419, rel=0.002)


def test_a_spare_takes_the_place_of_a_node_that_fails():
    """Nodes 0 and 1 work, 2 is a spare: it stands in for 0 from 100 s on; repaired, node 0 stands in for node 1."""
    outages = (Outage(0, 100, 400), Outage(1, 500, 900))

    class AnyNode(Policy):
        name = "any-node"

        def decide(self, view, rng):
            free = [node.index for node in view.nodes if view.free[node.index] == 1]
            waiting = [job for job in view.jobs.values() if not job.running]
            return Decision.change({job.id: ((node, 1),) for job, node in zip(waiting, free, strict=False)})

    failures = FailureOptions(outages=outages, hot_spares=1, checkpoint_interval_s=50, checkpoint_cost_s=0)
    recorder = play(failures, jobs_of(2, 1000), nodes=3, policy=AnyNode())
    where = {}
    for one in recorder.allocations:
        where.setdefault(one.job_id, []).append(one.placement)
    assert {job: list(dict.fromkeys(places)) for job, places in where.items()} == {
        "0": ["0:1", "2:1"],
        "1": ["1:1", "0:1"],
    }
    assert max(one.available_gpus for one in recorder.decisions) == 2


def test_without_a_spare_left_a_node_comes_back_itself_or_by_the_first_that_is_repaired():
    """Nodes 0 and 1 fail with one spare: node 0, repaired first, stands in for node 1, which is then the spare."""
    outages = (Outage(0, 100, 400), Outage(1, 200, 900))
    failures = FailureOptions(outages=outages, hot_spares=1)
    recorder = play(failures, jobs_of(1, 1200), nodes=3, policy=registry.load("fifo")())
    gone = [(one.node, one.start_s, one.end_s, one.kind) for one in recorder.outages if one.kind != "outage"]
    assert gone == [(2, 0, 100, "off"), (0, 100, 400, "off"), (1, 400, recorder.jobs[0].end_time_s, "off")]


def test_slow_nodes_slow_down_the_jobs_that_have_one():
    recorder = play(FailureOptions(slow_nodes=1.0, slow_speed=0.5), jobs_of(1, 100))
    assert recorder.jobs[0].jct_s == 10 + 200
    assert play(FailureOptions(slow_nodes=0.5, slow_speed=0.5), jobs_of(40, 100), nodes=40).jobs != ()
    times = sorted(
        job.jct_s for job in play(FailureOptions(slow_nodes=0.5, slow_speed=0.5), jobs_of(40, 100), nodes=40).jobs
    )
    assert set(times) == {110, 210}
    assert 10 < times.count(210) < 30


def test_causes_are_drawn_by_their_shares_and_bring_their_own_repairs():
    causes = (OutageCause("GPU", 3.0, 600.0), OutageCause("software", 1.0))
    options = FailureOptions(gpu_mtbf_s=8000.0, causes=causes)
    draw = draw_outages(options, options.mtbf_s(8), stream(3, "failures of node 0"))
    drawn, at = [], 0.0
    for _ in range(2000):
        drawn.append(draw(at))
        at = drawn[-1].up_s
    assert {(one.kind, round(one.up_s - one.down_s)) for one in drawn} == {("GPU", 600), ("software", 0)}
    assert sum(one.kind == "GPU" for one in drawn) == pytest.approx(1500, abs=3 * sqrt(2000 * 0.75 * 0.25))
    assert drawn[-1].down_s / 2000 == pytest.approx(1000 + 450, rel=0.06)


@pytest.mark.parametrize(("gpus", "interval_s"), [(8, 2000.0), (16, 1414.2), (128, 500.0)])
def test_the_optimal_interval_is_that_of_the_jobs_size(gpus, interval_s):
    """sqrt(2 x 50 x 40,000 s): a node fails every 40,000 s, or a GPU every 320,000 s."""
    by_node = FailureOptions(node_mtbf_s=40_000.0, checkpoint_interval_s="optimal", checkpoint_cost_s=50)
    by_gpu = FailureOptions(gpu_mtbf_s=320_000.0, checkpoint_interval_s="optimal", checkpoint_cost_s=50)
    assert by_node.interval_s(gpus, 8) == pytest.approx(interval_s, abs=0.1)
    assert by_gpu.interval_s(gpus, 8) == pytest.approx(interval_s, abs=0.1)


class Planned:
    """Jobs of 100 steps of a second, whose state is written in 5 s and read in 5 s."""

    def for_job(self, request, truth):
        return PlannedJob(TabledModel("m", "t4", {(Plan(), (1,)): 1.0}, replan_s=10.0), 100)


def test_checkpoints_take_as_long_as_the_state_of_a_model():
    """30 s of steps, 5 s to write, 30 and 5 again; 20 s are lost at 90 s; up at 100, 10 s to restart, 30, 5 and 10."""
    failures = FailureOptions(outages=(Outage(0, 90, 100),), checkpoint_interval_s=30, checkpoint_cost_s="by-size")
    (job,) = play(failures, jobs_of(1, 1), applications=Planned(), restart_delay_s=0).jobs
    assert (job.jct_s, job.lost_s, job.checkpoint_s) == (155, 20, 15)


def test_the_optimal_interval_follows_the_size_of_a_model():
    """sqrt(2 x 5 x 1,000 s) is 100 s."""
    failures = FailureOptions(node_mtbf_s=1000.0, checkpoint_interval_s="optimal", checkpoint_cost_s="by-size")
    assert failures.of(5.0).interval_s(1, 1) == 100


def test_checkpoints_of_unknown_size_are_refused():
    failures = FailureOptions(node_mtbf_s=1e6, checkpoint_interval_s=50, checkpoint_cost_s="by-size")
    with pytest.raises(InputError, match=r"job '0'.*how large its checkpoints are is not known"):
        play(failures, jobs_of(1, 100))
    dear = FailureOptions(node_mtbf_s=1e6, checkpoint_interval_s=5, checkpoint_cost_s="by-size")
    with pytest.raises(InputError, match=r"a checkpoint must cost less than its interval of 5 s, not 5\.0 s"):
        play(dear, jobs_of(1, 100), applications=Planned())


class Spread(Policy):
    """Runs every job once, on a GPU of each node, and leaves the rest to the engine."""

    name = "spread"
    traits = Traits(rigid=False)

    def decide(self, view, rng):
        everywhere = tuple((node.index, 1) for node in view.nodes if view.up[node.index])
        return Decision.change({job.id: everywhere for job in (*view.arrived, *view.lost)})


class Replicas:
    """Jobs whose steps take 4 s on one GPU and are as many times faster on more; 5 s to restart."""

    def __init__(self, steps=100):
        self.steps = steps

    def for_job(self, request, truth):
        seconds = {(Plan(data=gpus), (1,) * gpus): 4.0 / gpus for gpus in (1, 2, 3, 4)}
        return PlannedJob(TabledModel("m", "t4", seconds, replan_s=5.0), self.steps)


@pytest.mark.parametrize(
    ("elastic", "spares", "jct_s"),
    [
        # 1 step/s on four nodes. At 50 s one fails and 10 s are lost; 5 s to restart; 0.75 steps/s from 55 to 90 s do
        # 26.25; at 90 s it is repaired, which saves them; 5 s to restart, and 33.75 s are left at 1 step/s.
        (True, 0, 128.75),
        # The policy starts it on three nodes at 50 s, where it stays: 60 steps at 0.75 from 55 s on.
        (False, 0, 135),
        # A spare is the fourth at once: 5 s, and 60 steps.
        (True, 1, 115),
    ],
)
def test_a_job_goes_on_with_fewer_replicas_until_its_node_is_back(elastic, spares, jct_s):
    failures = FailureOptions(
        outages=(Outage(1, 50, 90),), checkpoint_interval_s=40, elastic=elastic, hot_spares=spares
    )
    jobs = [JobSpec("a", 0, 4, duration_s=1)]
    (job,) = play(
        failures, jobs, nodes=4 + spares, policy=Spread(), applications=Replicas(), restart_delay_s=0, tick_s=0
    ).jobs
    assert (job.jct_s, job.lost_s, job.failures) == (pytest.approx(jct_s), 10, 1)


def test_fewer_replicas_train_as_fast_as_the_nodes_that_work():
    """A node works 1,000 s of 1,100; a failure costs half an interval of 20 s, and two restarts of 5 s, back and forth.

    Restarts and losses come with the rate of the failures, 4 x 10/11 in 1,000 s, and do not overlap to first order.
    """
    failures = FailureOptions(node_mtbf_s=1000.0, repair_median_s=100.0, checkpoint_interval_s=20, elastic=True)
    (job,) = play(
        failures, [JobSpec("a", 0, 4, duration_s=1)], nodes=4, policy=Spread(), applications=Replicas(50_000),
        restart_delay_s=0, tick_s=0,
    ).jobs  # fmt: skip
    works = 1000 / 1100
    assert 50_000 / job.jct_s == pytest.approx(works * (1 - 4 * works / 1000 * (20 / 2 + 2 * 5)), abs=0.02)


def closed_form(nodes, rate_per_s, restart_s, write_s, interval_s):
    """Return the effective ratio of section 3 of Kokolis et al. (HPCA'25), which ignores failures of restarts."""
    return (1 - nodes * rate_per_s * (restart_s + interval_s / 2)) / (1 + write_s / interval_s)


def test_the_effective_training_time_of_16384_gpus_is_that_of_the_closed_form():
    """2,048 nodes with 8 spares, failing as Llama 3's did: one in 3.1 h; six days of training."""
    days = 6
    failures = FailureOptions(
        gpu_mtbf_s=86_400 / 4.74e-4, repair_median_s=3600.0, hot_spares=8,
        checkpoint_interval_s="optimal", checkpoint_cost_s=30,
    )  # fmt: skip
    jobs = jobs_of(1, days * 86_400, gpus=16_384)
    recorder = play(
        failures, jobs, nodes=2056, gpus=8, policy=registry.load("fifo")(placement="most-free"), restart_delay_s=300
    )
    job = recorder.jobs[0]
    rate = 8 * 4.74e-4 / 86_400
    interval_s = sqrt(2 * 30 / (2048 * rate))
    assert failures.interval_s(16_384, 8) == pytest.approx(interval_s)
    assert abs(job.failures - 2048 * rate * job.jct_s) < 3 * sqrt(2048 * rate * job.jct_s)
    expected = closed_form(2048, rate, 300, 30, interval_s)
    assert days * 86_400 / job.jct_s == pytest.approx(expected, abs=0.02)
    assert expected > 0.9


def test_racks_need_nodes_of_the_cluster():
    spec = FailuresSpec(racks=((0, 5),), rack_mtbf_h=1)
    with pytest.raises(InputError, match="there is no node 5"):
        failure_options(spec, Cluster.uniform(2))
    assert failure_options(FailuresSpec(rack_nodes=2, rack_mtbf_h=1), Cluster.uniform(3)).racks == ((0, 1), (2,))
