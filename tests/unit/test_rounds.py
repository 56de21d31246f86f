"""The round mechanism by hand."""

import pytest
from simsched_policies.rounds.gavel.max_min import MaxMin

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.outages import Outage
from simsched.testing.builders import Applications
from simsched.toolkit.rounds import Grant, RoundOptions, Rounds, keep_places

A, B, C = ("a",), ("b",), ("c",)
ONE = ("v100",)


def started(shares, sizes=None, types=ONE, **options):
    rounds = Rounds(types, RoundOptions(round_s=100, min_reset_s=1000, **options))
    for unit in shares:
        if len(unit) == 1:
            rounds.add(unit, (sizes or {}).get(unit, 1))
    rounds.reset(0.0, shares, sizes or dict.fromkeys(shares, 1))
    return rounds


def units(grants):
    return [grant.unit for grant in grants]


def test_rounds_follow_shares():
    rounds = started({A: [0.75], B: [0.25]})
    turns = []
    for _ in range(40):
        (grant,) = rounds.choose({"v100": 1}, ONE)
        turns.append(grant.unit)
        rounds.receive(grant.unit, "v100", 100)
    assert turns.count(A) == 30


def test_priority_is_share_over_the_fraction_received():
    rounds = started({A: [0.5], B: [0.5], C: [0.0]})
    rounds.receive(A, "v100", 100)
    # 50 s of credit for each of three, and 100 s more for A.
    assert rounds.priority(A, "v100") == pytest.approx(0.5 / (150 / 250))
    assert rounds.priority(B, "v100") == pytest.approx(0.5 / (50 / 250))
    assert rounds.priority(C, "v100") == 0


def test_without_credit_whoever_never_ran_comes_first():
    rounds = started({A: [0.9], B: [0.1]}, credit_s=0.0)
    rounds.receive(A, "v100", 100)
    assert rounds.priority(B, "v100") == pytest.approx(0.1e9)
    assert units(rounds.choose({"v100": 1}, ONE)) == [B]


def test_what_does_not_fit_is_skipped():
    rounds = started({A: [0.9], B: [0.5], C: [0.1]}, {A: 2, B: 4, C: 1})
    assert rounds.choose({"v100": 3}, ONE) == [Grant(A, "v100", 2, True), Grant(C, "v100", 1, True)]


def test_a_type_of_which_nothing_is_free_is_given_to_nobody():
    rounds = started({A: [0.5, 0.5]}, types=("p100", "v100"))
    assert rounds.choose({}, ("v100", "p100")) == []
    assert rounds.choose({"v100": 0}, ("v100",)) == []


def test_a_job_runs_on_one_type_and_types_are_filled_in_order():
    rounds = started({A: [0.5, 0.5], B: [0.2, 0.8]}, types=("p100", "v100"))
    grants = rounds.choose({"v100": 1, "p100": 1}, ("v100", "p100"))
    assert [(grant.unit, grant.gpu_type) for grant in grants] == [(B, "v100"), (A, "p100")]


def test_a_pair_excludes_its_jobs():
    pair = ("a", "b")
    rounds = started({A: [0.1], B: [0.3], pair: [0.9]}, dict.fromkeys((A, B, pair), 1))
    assert units(rounds.choose({"v100": 2}, ONE)) == [pair]
    rounds.remove("a")
    assert rounds.units == (B,)


def test_ties_go_by_deficit_then_by_arrival():
    rounds = started({A: [0.5], B: [0.5]})
    assert units(rounds.choose({"v100": 1}, ONE)) == [A]
    rounds.receive(A, "v100", 100)
    rounds.reset(1000.0, {A: [0.5], B: [0.5]}, {A: 1, B: 1})
    assert (rounds.deficit_s(A, "v100"), rounds.deficit_s(B, "v100")) == (400, 500)
    assert units(rounds.choose({"v100": 1}, ONE)) == [B]


@pytest.mark.parametrize(("blocks", "runs"), [(True, [B, C]), (False, [B])])
def test_who_came_after_the_last_reset(blocks, runs):
    rounds = started({B: [0.5]}, unallocated_takes_room=blocks)
    rounds.add(C, 1)
    assert units(rounds.choose({"v100": 2}, ONE)) == runs
    assert [grant.runs for grant in rounds.choose({"v100": 2}, ONE)] == [True, False][: len(runs)]
    # A unit that ran in the round before goes on running (Shockwave).
    assert [grant.runs for grant in rounds.choose({"v100": 2}, ONE, running={C})] == [True, True]


def test_a_unit_without_share_runs_on_what_is_left_unless_told_otherwise():
    assert units(started({A: [1.0], B: [0.0]}).choose({"v100": 2}, ONE)) == [A, B]
    assert units(started({A: [1.0], B: [0.0]}, idle_without_share=True).choose({"v100": 2}, ONE)) == [A]


def test_resets_wait():
    rounds = Rounds(ONE, RoundOptions(round_s=100, min_reset_s=1000))
    assert not rounds.due(0.0)
    rounds.add(A, 1)
    assert rounds.due(0.0)
    rounds.reset(50.0, {A: [1.0]}, {A: 1})
    assert not rounds.due(5000.0)
    rounds.ask_reset()
    assert not rounds.due(1049.0)
    assert rounds.due(1050.0)


def test_time_received_starts_over_at_a_reset():
    rounds = started({A: [1.0]})
    rounds.receive(A, "v100", 70)
    assert rounds.received_s(A, "v100") == 120
    rounds.reset(1000.0, {A: [1.0]}, {A: 1})
    assert rounds.received_s(A, "v100") == 50


@pytest.mark.parametrize("wrong", [{"round_s": 0}, {"min_reset_s": -1}, {"credit_s": float("nan")}])
def test_options_that_make_no_sense(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        RoundOptions(**wrong)


def test_units_keep_their_gpus():
    servers = {"v100": [[0, 1, 2, 3], [4, 5, 6, 7]]}
    grants = [Grant(A, "v100", 1, True), Grant(B, "v100", 4, True), Grant(C, "v100", 2, True)]
    places = keep_places(grants, {A: ("v100", (1,)), C: ("p100", (0, 1))}, servers)
    # A stays, B takes the other server whole, C what is left beside A.
    assert places.gpus == {A: (1,), B: (4, 5, 6, 7), C: (0, 2)}
    assert places.extended == {A}


def test_a_unit_spreads_over_the_emptiest_servers_if_it_must():
    servers = {"v100": [[0, 1], [2, 3, 4]]}
    assert keep_places([Grant(A, "v100", 4, True)], {}, servers).gpus == {A: (0, 2, 3, 4)}
    with pytest.raises(ValueError, match="too few"):
        keep_places([Grant(A, "v100", 6, True)], {}, servers)


def test_a_job_that_comes_while_no_node_is_up_has_its_rounds_later():
    # From 50 to 60 the only node is down; a begins anew then, and has 100 s of work, as b.
    recorder = MemoryRecorder()
    jobs = [JobSpec("a", 0, 1, duration_s=100), JobSpec("b", 55, 1, duration_s=100)]
    failures = FailureOptions(outages=(Outage(0, 50, 60),))
    policy, options = MaxMin(round_s=10, min_reset_s=0), EngineOptions(restart_delay_s=0)
    simulate(Cluster.uniform(1, 1), jobs, Applications(), policy, options, 1, recorder, failures=failures)
    assert sorted(job.job_id for job in recorder.jobs) == ["a", "b"]
    assert max(job.end_time_s for job in recorder.jobs) == 260
