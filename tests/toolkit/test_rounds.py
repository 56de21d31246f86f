"""The round mechanism by hand."""

from math import inf
from random import Random

import pytest
from simsched_policies.rounds.gavel.programs import MaxMin

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.outages import Outage
from simsched.testing.builders import Applications
from simsched.toolkit.rounds import Grant, RoundOptions, Rounds

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


def test_a_job_that_comes_while_no_node_is_up_has_its_rounds_later():
    # From 50 to 60 the only node is down; a begins anew then, and has 100 s of work, as b.
    recorder = MemoryRecorder()
    jobs = [JobSpec("a", 0, 1, duration_s=100), JobSpec("b", 55, 1, duration_s=100)]
    failures = FailureOptions(outages=(Outage(0, 50, 60),))
    policy, options = MaxMin(round_s=10, min_reset_s=0), EngineOptions(restart_delay_s=0)
    simulate(Cluster.uniform(1, 1), jobs, Applications(), policy, options, 1, recorder, failures=failures)
    assert sorted(job.job_id for job in recorder.jobs) == ["a", "b"]
    assert max(job.end_time_s for job in recorder.jobs) == 260


class Books:
    """The mechanism as Gavel's section 5 and its options say it, unit by unit."""

    def __init__(self, types, options):
        self.types, self.options = types, options
        self.sizes, self.able, self.share, self.received, self.deficit = {}, {}, {}, {}, {}
        self.total, self.last_s = dict.fromkeys(types, 0.0), 0.0

    def add(self, unit, size, types):
        self.sizes[unit], self.able[unit] = size, types
        for kind in self.types:
            self.received[unit, kind], self.deficit[unit, kind] = self.options.initial_s, 0.0

    def drop(self, gone):
        for unit in [one for one in self.sizes if gone(one)]:
            del self.sizes[unit]

    def receive(self, unit, kind, seconds):
        self.received[unit, kind] += seconds
        self.total[kind] += seconds

    def reset(self, now_s, shares, sizes):
        for unit in self.sizes:
            for kind, promised in zip(self.types, self.share.get(unit, [0.0] * len(self.types)), strict=True):
                got_s = self.received[unit, kind] - self.options.initial_s
                self.deficit[unit, kind] += promised * (now_s - self.last_s) - got_s
        self.drop(lambda unit: len(unit) > 1 and unit not in shares)
        for unit in shares:
            if unit not in self.sizes:
                self.add(unit, sizes[unit], self.types)
        self.share, self.last_s = dict(shares), now_s
        self.received = {(unit, kind): self.options.initial_s for unit in self.sizes for kind in self.types}
        self.total = dict.fromkeys(self.types, self.options.initial_s * len(self.sizes))

    def share_of(self, unit, kind):
        return self.share[unit][self.types.index(kind)] if unit in self.share else 0.0

    def priority(self, unit, kind):
        share, part = self.share_of(unit, kind), self.received[unit, kind] / (self.total[kind] or inf)
        return 0.0 if share <= 0 else share / part if part else share * 1e9

    def choose(self, free, order, running):
        chosen, jobs, admitted = [], set(), list(self.sizes)
        for kind in order:
            left = free.get(kind, 0)
            keys = {
                one: (-self.priority(one, kind), -self.deficit[one, kind], -self.share_of(one, kind))
                for one in admitted
            }
            for unit in sorted(admitted, key=lambda one: (*keys[one], admitted.index(one))):
                no_share, known = keys[unit][0] == 0, unit in self.share or unit in running
                if kind not in self.able[unit] or self.sizes[unit] > left or jobs & set(unit):
                    continue
                if no_share and (len(unit) > 1 or self.options.idle_without_share):
                    continue
                if known or self.options.unallocated_takes_room:
                    chosen.append(Grant(unit, kind, self.sizes[unit], known))
                    jobs |= set(unit)
                    left -= self.sizes[unit]
        return chosen


@pytest.mark.parametrize("seed", range(20))
def test_rounds_go_by_the_books(seed):
    rng = Random(seed)
    options = RoundOptions(
        100.0, 0.0, rng.choice([None, 0.0, 20.0]), unallocated_takes_room=rng.random() < 0.5,
        idle_without_share=rng.random() < 0.5,
    )  # fmt: skip
    types, pairs, large = ("p100", "v100"), seed % 3 == 0, seed % 2 == 0
    rounds, books, now_s, came = Rounds(types, options), Books(types, options), 0.0, 0
    for _ in range(6):
        for _ in range(rng.randrange(1, 4)):
            size, able = (rng.choice([1, 2, 3]) if large else 1), rng.choice([types, types, types[:1]])
            for one in (rounds, books):
                one.add((f"j{came}",), size, able)
            came += 1
        if rng.random() < 0.5:
            gone = rng.choice(list(books.sizes))[0]
            rounds.remove(gone)
            books.drop(lambda unit, gone=gone: gone in unit)
        singles = [unit for unit in books.sizes if len(unit) == 1]
        shares = {unit: [rng.choice([0.0, 0.25, 0.5]) for _ in types] for unit in singles if rng.random() < 0.8}
        if pairs and len(singles) > 1:
            shares[tuple(name for (name,) in rng.sample(singles, 2))] = [0.5, rng.choice([0.0, 0.75])]
        now_s += 700.0
        for one in (rounds, books):
            one.reset(now_s, shares, dict.fromkeys(shares, 1))
        for _ in range(3):
            free, order = {kind: rng.randrange(5) for kind in types}, rng.choice([types, types[::-1]])
            running = {unit for unit in books.sizes if rng.random() < 0.3}
            grants = rounds.choose(free, order, running)
            assert grants == books.choose(free, order, running)
            ran = [grant for grant in grants if grant.runs]
            rounds.receive_all(grants, 100.0) if rng.random() < 0.5 else [
                rounds.receive(grant.unit, grant.gpu_type, 100.0) for grant in ran
            ]
            for grant in ran:
                books.receive(grant.unit, grant.gpu_type, 100.0)
            for unit in books.sizes:
                for kind in types:
                    assert rounds.priority(unit, kind) == pytest.approx(books.priority(unit, kind))
                    assert rounds.received_s(unit, kind) == books.received[unit, kind]
                    assert rounds.deficit_s(unit, kind) == pytest.approx(books.deficit[unit, kind])
        assert rounds.units == tuple(books.sizes)


def test_jobs_are_ordered_by_their_best_priority_then_by_what_they_are_owed():
    pair = ("c", "d")
    rounds = started({A: [0.2, 0.6], B: [0.3, 0.1], C: [0.0, 0.0], pair: [0.4, 0.0]}, types=("p100", "v100"))
    rounds.add(("d",), 1)
    assert list(rounds.order()) == ["a", "c", "d", "b"]
    assert rounds.order()["a"] == (pytest.approx(0.6 * 4), 0.0)
    rounds.close(100.0)
    assert (rounds.order()["a"][1], rounds.order()["d"][1]) == (60.0, 40.0)
    assert pair in rounds
    assert ("d", "c") not in rounds
    with pytest.raises(ValueError, match=r"c\+d is known already"):
        rounds.add(pair, 1)


def test_who_is_gone_counts_for_the_type_only():
    rounds = started({A: [1.0], B: [1.0]})
    rounds.remove("b")
    rounds.receive(B, "v100", 300)
    rounds.receive_all([Grant(B, "v100", 1, True), Grant(A, "v100", 1, False)], 100)
    assert (rounds.received_s(A, "v100"), rounds.priority(A, "v100")) == (50, 10.0)  # a tenth of 2 x 50 + 300 + 100 s


@pytest.mark.parametrize(
    "wrong", [{"round_s": inf}, {"round_s": 0.0}, {"min_reset_s": inf}, {"min_reset_s": -1.0}, {"credit_s": -1.0}]
)
def test_times_without_end_or_sense_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        RoundOptions(**wrong)
    assert RoundOptions(1.0, 0.0, 0.0).initial_s == 0
    assert (RoundOptions().round_s, RoundOptions().min_reset_s, RoundOptions().initial_s) == (360, 1920, 180)
