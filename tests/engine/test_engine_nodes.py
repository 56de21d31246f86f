"""Nodes that come, go and fail under the engine, on cases worked by hand."""

from __future__ import annotations

import pytest

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.failures import OFF
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.outages import Outage
from simsched.testing.builders import Applications, run
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
