"""Nodes that come, go and fail under the engine, on cases worked by hand."""

from __future__ import annotations

import pytest

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.failures import OFF
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.outages import Outage
from simsched.model.plans import Plan, PlannedJob, TabledModel
from simsched.policy import Place
from simsched.testing.builders import Applications, run
from tests.engine.test_failures import play
from tests.scripted import Script, fixed


def test_a_rented_node_is_paid_for_at_once_and_up_after_its_start() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    script = Script({40: {"a": ((1, 1),)}, 70: {"a": ((0, 1),)}}, rent={10: {0, 1}, 70: {0}})
    records = run(script, [fixed("a", duration_s=20)], options=cloud)
    seen = {row.time_s: (row.available_gpus, row.provisioned_nodes) for row in records.decisions}
    assert [seen[now] for now in (10, 30, 40, 70)] == [(4, 2), (4, 2), (8, 2), (4, 1)]
    assert records.jobs[0].end_time_s == 70 + 30 + 20


def test_a_node_that_is_let_go_while_it_starts_never_comes_up() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    script = Script({40: {"a": ((0, 1),)}}, rent={10: {0, 1}, 20: {0}})
    records = run(script, [fixed("a", duration_s=20)], options=cloud)
    seen = {row.time_s: (row.available_gpus, row.provisioned_nodes) for row in records.decisions}
    assert [seen[now] for now in (10, 20, 40)] == [(4, 2), (4, 1), (4, 1)]


def test_a_broken_node_that_is_let_go_meanwhile_does_not_come_back() -> None:
    failures = FailureOptions(outages=(Outage(1, 5, 35),))
    script = Script({40: {"a": ((0, 1),)}}, rent={10: {0}})
    records, options = MemoryRecorder(), EngineOptions(restart_delay_s=30)
    jobs = [fixed("a", duration_s=20)]
    simulate(Cluster.uniform(2, 4), jobs, Applications(), script, options, 0, records, failures=failures)
    assert {row.available_gpus for row in records.decisions if row.time_s > 5} == {4}
    assert records.outages == [(1, 5, 35, "outage", True), (1, 10, 90, OFF, False)]


def test_a_node_is_off_until_it_is_up_again_and_after_it_was_let_go() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    script = Script({40: {"a": ((1, 1),)}, 70: {"a": ((0, 1),)}}, rent={10: {0, 1}, 70: {0}})
    records = run(script, [fixed("a", duration_s=20)], options=cloud)
    assert records.outages == [(1, 0, 35, OFF, True), (1, 70, records.jobs[0].end_time_s, OFF, False)]


def test_every_outage_of_a_node_is_recorded_from_its_begin_to_its_end() -> None:
    listed = (Outage(1, 5, 35), Outage(1, 20, 50, "maintenance"), Outage(0, 60, 10_000), Outage(1, 15, 15))
    records = MemoryRecorder()
    options = EngineOptions(initial_nodes=1, node_start_s=30)
    script = Script({60: {"a": ((1, 1),)}}, rent={10: {0, 1}, 60: {0, 1}})
    simulate(
        Cluster.uniform(2, 4), [fixed("a", duration_s=20)], Applications(), script, options, 0, records,
        failures=FailureOptions(outages=listed),
    )  # fmt: skip
    end_s = records.jobs[0].end_time_s
    assert records.outages == [
        (1, 0, 10, OFF, True),  # asked for at 10, and in repair until 50
        (1, 15, 15, "outage", True),
        (1, 5, 35, "outage", True),
        (1, 20, 50, "maintenance", True),
        (0, 60, end_s, "outage", False),
    ]


def test_a_node_that_breaks_while_it_starts_is_off_until_then() -> None:
    records = MemoryRecorder()
    options = EngineOptions(initial_nodes=1, node_start_s=30)
    script = Script({60: {"a": ((1, 1),)}}, rent={10: {0, 1}})
    outages = FailureOptions(outages=(Outage(1, 20, 50),))
    simulate(Cluster.uniform(2, 4), [fixed("a", duration_s=20)], Applications(), script, options, 0, records,
             failures=outages)  # fmt: skip
    assert records.outages == [(1, 0, 20, OFF, True), (1, 20, 50, "outage", True)]


def test_a_run_in_which_every_node_is_up_records_no_outage() -> None:
    assert run(Script({10: {"a": ((0, 1),)}}), [fixed("a")]).outages == []


def test_a_node_that_is_not_up_holds_no_job() -> None:
    cloud = EngineOptions(initial_nodes=1, node_start_s=25)
    with pytest.raises(InfeasibleDecisionError, match="node 1 is down"):
        run(Script({20: {"a": ((1, 1),)}}, rent={10: {0, 1}}), [fixed("a")], options=cloud)


def test_a_node_that_holds_a_job_cannot_go() -> None:
    with pytest.raises(InfeasibleDecisionError, match="node 1 is to go but holds jobs a"):
        run(Script({10: {"a": ((1, 1),)}}, rent={20: {0}}), [fixed("a")])


def test_nodes_that_do_not_exist_are_named() -> None:
    for wanted in ({0, 2}, {-1}):
        with pytest.raises(InfeasibleDecisionError, match="no other nodes to provision than 0 to 1"):
            run(Script({}, rent={10: wanted}), [fixed("a")])


X = Place(((0, 1),), beside=("a",))
ALL, TWO = ((0, 1), (1, 1), (2, 1), (3, 1)), ((0, 1), (2, 1))

REPLICAS = [Plan(data=gpus) for gpus in (1, 2, 3, 4)]


class Replicas:
    """Jobs of so many steps, by some plans."""

    def __init__(self, steps=100, plans=REPLICAS):
        self.steps, self.plans = steps, plans

    def for_job(self, request, truth):
        seconds = {(plan, (1,) * plan.gpus): 4.0 / plan.gpus for plan in self.plans}
        return PlannedJob(TabledModel("m", "t4", seconds, replan_s=5.0), self.steps)


def job(name, submit_s=0):
    return JobSpec(name, submit_s, 4, duration_s=1)


@pytest.mark.parametrize(
    ("outages", "script", "jobs", "applications", "expected"),
    [
        # 20 steps on nodes 0 and 1 until 50 s; both are lost at 60 s. On one from 95 s on, where it stays: 80 steps.
        ([(0, 60, 90), (1, 60, 110)], {10: {"a": ((0, 1), (1, 1))}, 90: {"a": ((0, 1),)}}, [job("a")], Replicas(),
         {"a": (95 + 320, 10, 2)}),
        # Three are left, for which there is no plan: it waits for the policy, and does 60 steps on two from 75 s on.
        ([(1, 60, 100)], {10: {"a": ALL}, 70: {"a": TWO}}, [job("a")],
         Replicas(plans=(Plan(data=2), Plan(tensor=2, data=2))), {"a": (75 + 120, 10, 1)}),
        # It goes on with three from 65 s on; the policy moves it at 70 s, and what it held before is forgotten.
        ([(1, 60, 100)], {10: {"a": ALL}, 70: {"a": TWO}}, [job("a")], Replicas(),
         {"a": (75 + (60 - 5 * 0.75) / 0.5, 10, 1)}),
        # It is over before node 1 is back: 40 of 60 steps are saved at 60 s. The next has the other three to itself.
        ([(1, 60, 120)], {10: {"a": ALL}, 100: {"b": ((0, 1), (2, 1), (3, 1))}}, [job("a"), job("b", 95)],
         Replicas(60), {"a": (65 + 20 / 0.75, 10, 1), "b": (100 + 60 / 0.75, 0, 0)}),
        # Node 2 fails at 70 s, after 5 s on three. It has two until all four are back: 35 s, a restart and the rest.
        ([(1, 60, 100), (2, 70, 110)], {10: {"a": ALL}}, [job("a")], Replicas(),
         {"a": (115 + 60 - 35 * 0.5, 15, 2)}),
        # Another has got node 1 by then: it keeps the two.
        ([(1, 60, 100), (2, 70, 110)], {10: {"a": ALL}, 100: {"b": ((1, 1),)}}, [job("a"), job("b", 95)], Replicas(),
         {"a": (75 + 120, 15, 2), "b": (500, 0, 0)}),
    ],
)  # fmt: skip
def test_a_job_goes_on_with_what_is_left_until_it_has_all_again(outages, script, jobs, applications, expected):
    failures = FailureOptions(
        outages=tuple(Outage(*one) for one in outages), checkpoint_interval_s=40, elastic=True
    )  # fmt: skip
    found = play(
        failures, jobs, nodes=4, policy=Script(script), applications=applications, restart_delay_s=0, tick_s=0
    ).jobs
    assert {one.job_id: (one.end_time_s, one.lost_s, one.failures) for one in found} == {
        name: (pytest.approx(end_s), lost_s, failures) for name, (end_s, lost_s, failures) in expected.items()
    }


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # Beside x on node 0 both run at half their speed, until node 1 fails: the policy puts it elsewhere.
        ({10: {"a": ((0, 1), (1, 1))}, 20: {"x": X}, 70: {"a": ((2, 1), (3, 1))}},
         {"a": (75 + 100 / 0.5, 50), "x": (60 + (100 - 40 * 0.125) / 0.25, 0)}),
        # It goes on with three and x comes beside it: it keeps them when node 1 is back.
        ({10: {"a": ALL}, 70: {"x": X}},
         {"a": (70 + (100 - 5 * 0.75) / 0.375, 50), "x": (70 + 770 / 3 + (100 - 770 / 3 * 0.125) / 0.25, 0)}),
    ],
)  # fmt: skip
def test_a_job_that_shares_gpus_is_left_to_the_policy(script, expected):
    failures = FailureOptions(outages=(Outage(1, 60, 100),), elastic=True)
    found = play(
        failures, [job("a"), job("x")], nodes=4, policy=Script(script), applications=Replicas(),
        restart_delay_s=0, tick_s=0, max_jobs_per_gpu=2,
    ).jobs  # fmt: skip
    assert {one.job_id: (one.end_time_s, one.lost_s) for one in found} == {
        name: (pytest.approx(end_s), lost_s) for name, (end_s, lost_s) in expected.items()
    }
