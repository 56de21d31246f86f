"""Plans as part of placements: what a policy may name, what the agent picks, and what re-planning costs."""

from dataclasses import replace

import pytest

from simsched.agent.fixed_agent import BestPlan
from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.options import EngineOptions
from simsched.experiment.cluster import ClusterSpec
from simsched.model import ApplicationFacts, Cluster, JobSpec, Site
from simsched.model.application import NO_BATCH, facts_of
from simsched.model.plans import Hardware, ModelShape, Plan, PlannedJob, PlannedModel
from simsched.policy import Decision, Place, Policy, Triggers, UndeclaredSignalError
from simsched.policy.signals import PLANS
from simsched.testing.builders import run

A100 = Hardware("a100", 80e9, 312e12, 312e12, 0.7, 1e-12, 1e-3, 220e9, 60e-6, 8, 100e9)
SMALL = PlannedModel("small", ModelShape(8, 1024, 4096, 16, 16, 51200, 1024), {"a100": A100}, 64, 1e9)
SLOW = replace(SMALL, name="slow", hardware={"a100": replace(A100, node_bandwidth=1e9)}, _best={}, _parts={})
CLUSTER = Cluster.uniform(4, 8, "a100")


class Source:
    """Gives every job 100 steps of the small model."""

    def for_job(self, request, truth):
        return PlannedJob(SMALL, 100)


class Scripted(Policy):
    """Carries out one decision at each second of a script."""

    name = "scripted"
    rigid = False
    triggers = Triggers(interval_s=1)

    def __init__(self, script):
        self.script = script

    def decide(self, view, rng):
        return Decision.change(self.script.get(view.now_s, {}))


def play(script, *jobs, cluster=CLUSTER):
    options = EngineOptions(restart_delay_s=0, tick_s=0)
    jobs = jobs or (JobSpec("a", 0, 8, "small"),)
    return run(Scripted(script), jobs, cluster=cluster, applications=Source(), options=options)


def shown(recorder):
    return [(one.plan, one.batch_size) for one in recorder.allocations if not one.restarting]


def test_a_policy_may_name_the_plan():
    named = Plan(tensor=2, data=4, micro_batch=2)
    recorder = play({1: {"a": Place(((0, 8),), plan=named)}})
    assert shown(recorder) == [("t2 p1 d4 b2", 64)]
    step_s = SMALL.parts(named, Site((8,), "a100")).total
    assert recorder.allocations[-1].rate == pytest.approx(1 / step_s)


def test_without_one_the_agent_runs_the_fastest_and_the_plan_asked_for_on_its_own_gpus():
    best = str(SMALL.best(Site((8,), "a100")).plan)
    assert shown(play({1: {"a": ((0, 8),)}})) == [(best, 64)]
    asked = JobSpec("a", 0, 8, "small", plan=Plan(tensor=8))
    assert shown(play({1: {"a": ((0, 8),)}}, asked)) == [("t8 p1 d1", 64)]
    assert shown(play({1: {"a": ((0, 4),)}}, asked)) == [(str(SMALL.best(Site((4,), "a100")).plan), 64)]


def test_a_plan_tuned_for_full_nodes_is_kept_where_the_gpus_lie_apart():
    """On one GPU of each of eight nodes another plan than on a full node is the fastest."""
    apart, facts = Site((1,) * 8, "a100"), facts_of(PlannedJob(SLOW, 100))
    request = JobSpec("a", 0, 8, "slow", plan=Plan(tensor=8)).request
    found = [BestPlan(on=on).agent(request, facts).choose(apart, 0).plan for on in ("site", "full-nodes")]
    assert found == [SLOW.best(apart).plan, SLOW.best(Site((8,), "a100")).plan]
    assert found[0] != found[1]
    assert BestPlan().agent(request._replace(batch_size=32), facts).global_batch == 32
    assert BestPlan().agent(request, facts).global_batch == SLOW.global_batch != 32
    assert (
        BestPlan().agent(JobSpec("b", 0, 1, duration_s=5).request, ApplicationFacts("none")).choose(apart, 0)
        == NO_BATCH
    )


def test_another_plan_is_a_restart_and_the_same_one_is_none():
    one, other = Plan(data=8), Plan(tensor=2, data=4)
    script = {1: {"a": Place(((0, 8),), plan=one)}, 2: {"a": Place(((0, 8),), plan=one)}}
    job = play(script).jobs[0]
    assert (job.restarts, job.restart_s) == (0, 0)
    job = play(script | {3: {"a": Place(((0, 8),), plan=other)}}).jobs[0]
    assert (job.restarts, job.restart_s) == (1, pytest.approx(SMALL.replan_s))
    held = play(script | {3: {"a": Place(((0, 8),), plan=other)}}).allocations
    assert [(one.restarting, one.plan, one.batch_size, one.levels_crossed) for one in held] == [
        (False, str(one), 64, 0), (True, "", 0, 0), (False, str(other), 64, 0),
    ]  # fmt: skip


def test_plans_are_a_signal():
    class Curious(Scripted):
        def decide(self, view, rng):
            for job in view.jobs.values():
                assert job.facts.plans is None
                assert job[PLANS] is SMALL
            return super().decide(view, rng)

    class Undeclared(Curious):
        traits = replace(Scripted.traits, needs=frozenset())

    Curious.traits = replace(Scripted.traits, needs={PLANS})
    jobs, options = [JobSpec("a", 0, 8, "small")], EngineOptions(restart_delay_s=0, tick_s=0)
    for policy in (Curious, Undeclared):
        made = policy({1: {"a": ((0, 8),)}})
        if policy is Curious:
            assert len(run(made, jobs, cluster=CLUSTER, applications=Source(), options=options).jobs) == 1
        else:
            with pytest.raises(UndeclaredSignalError):
                run(made, jobs, cluster=CLUSTER, applications=Source(), options=options)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(data=16), "cannot run the plan 't1 p1 d16': it takes 16 GPUs, not 8"),
        (Plan(tensor=1, pipeline=3), "8 layers are not divisible by p x v = 3 x 1"),
    ],
)
def test_impossible_plans_are_refused_with_the_reason(plan, said):
    with pytest.raises(InfeasibleDecisionError, match=said):
        play({1: {"a": Place(((0, 8),), plan=plan)}})


def test_the_tiers_of_the_cluster_bind_a_plan_that_crosses_them():
    levels = (
        {"level": "node", "nodes": 1, "uplink_gb_s": 100},
        {"level": "leaf", "nodes": 2, "oversubscription": 16},
    )
    spec = {"nodes": 4, "gpus_per_node": 8, "gpu_type": "a100", "topology": levels}
    cluster = ClusterSpec.model_validate(spec).build()
    asked = JobSpec("a", 0, 16, "small", plan=Plan(data=16))
    rates = [
        play({1: {"a": ((first, 8), (second, 8))}}, asked, cluster=cluster).allocations[-1].rate
        for first, second in ((0, 1), (1, 2))
    ]
    gradients = 2 * 15 / 16 * 2 * SMALL.shape.layers * SMALL.shape.layer_parameters
    slower = gradients / (2 * 100e9 / 16) - gradients / 100e9
    assert 1 / rates[1] - 1 / rates[0] == pytest.approx(slower)
