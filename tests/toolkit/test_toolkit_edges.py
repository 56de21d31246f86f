"""Edges of what policies share: exact ties, empty inputs, and results that do not depend on units, worked by hand."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.errors import InputError
from simsched.model import ApplicationFacts, BatchLimits, Cluster, JobSpec, NodeGroup
from simsched.model.placement import Site
from simsched.model.pool import Pool
from simsched.policy import Reasons, Why
from simsched.policy.signals import MEASURED_SPEEDS, NEXT_ARRIVAL
from simsched.testing.builders import Applications, fresh_view
from simsched.toolkit import run_in_order, type_pools
from simsched.toolkit.elastic import (
    place_counts,
    refuse_unknown_counts,
    refuse_without_losses,
    required_limits,
    tell_allocations,
)
from simsched.toolkit.placers import FEWEST_DOMAINS
from simsched.toolkit.programs.baselines import RandomPacking
from simsched.toolkit.programs.leases import reserve_in_order
from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.recording import Recording, play
from simsched.toolkit.rounds.rates import rate_source

LIMITS = BatchLimits(32, 256, 8, 64)


def view_of(gpus, cluster, types=()):
    jobs = [JobSpec(name, 0, count, duration_s=60) for name, count in gpus.items()]
    return fresh_view(Fifo(), jobs, cluster, Applications())[0]


def test_a_job_without_room_on_any_type_blocks_those_behind_it_and_says_so():
    view = view_of({"a": 2, "b": 4, "c": 1, "d": 1}, Cluster.of(NodeGroup(1, 3, "v100"), NodeGroup(1, 3, "a100")))
    view.reasons = Reasons()
    assert run_in_order(view.jobs.values(), view, blocking=True) == {"a": ((0, 2),)}
    assert view.reasons.waits == {
        "c": (Why.ANOTHER_FIRST, "b waits before it"), "d": (Why.ANOTHER_FIRST, "b waits before it"),
    }  # fmt: skip
    assert run_in_order(view.jobs.values(), view) == {"a": ((0, 2),), "c": ((0, 1),), "d": ((1, 1),)}


def test_leases_are_reserved_in_order_up_to_the_last_second():
    need, gpus, room = np.array([90.0, 30.0]), np.array([1, 1]), np.array([1, 1, 1])
    usable = np.array([[60.0, 30.0, 60.0], [60.0, 60.0, 30.0]])
    held = reserve_in_order(need, gpus, usable, room)
    assert held is not None
    assert held.tolist() == [[True, True, False], [False, False, True]]
    assert reserve_in_order(need + np.array([0.0, 1.0]), gpus, usable, room) is None
    assert reserve_in_order(need, gpus, usable, np.array([1, 1, 0])) is None


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_packing_pays_from_the_rate_of_one_alone_on_whatever_the_unit(unit):
    def rates(pair):
        return lambda jobs: np.full(1, unit) if len(jobs) == 1 else np.full((2, 1), pair * unit)

    tight = {"a": 1, "b": 1}, np.array([1])
    assert list(RandomPacking(Random(0)).shares(*tight, rates(0.5))) in ([("a", "b")], [("b", "a")])
    assert list(RandomPacking(Random(0)).shares(*tight, rates(0.49))) == [("a",), ("b",)]
    one_stands_still = RandomPacking(Random(0)).shares(
        *tight, lambda jobs: np.full(1, unit) if len(jobs) == 1 else np.array([[2 * unit], [0.0]])
    )
    assert list(one_stands_still) == [("a",), ("b",)]


def test_a_problem_without_rates_has_rate_one_and_keeps_the_rest():
    problem = ShareProblem(np.array([[2.0, 3.0]]), np.array([2]), np.array([4, 1]), np.array([5.0]))
    agnostic = problem.agnostic()
    assert (agnostic.throughput.tolist(), agnostic.scale_factor.tolist()) == ([[1, 1]], [2])
    assert (agnostic.num_gpus.tolist(), agnostic.weights.tolist(), agnostic.pairs) == ([4, 1], [5], None)
    # Time in proportion to the GPUs: 4/5 on the first type, 1/5 on the second.
    assert problem.proportional_rate().tolist() == pytest.approx([2.2])


def test_the_last_domain_of_a_level_is_filled_by_the_domains_below_it():
    """Of two rows of two racks of two nodes the first is taken whole, and three more GPUs are in one rack of the next.

    There node 7 has one GPU free and the others two: the rack of 6 and 7 fits exactly.
    """
    racks = {node: (node // 2, node // 4) for node in range(8)}
    pool = Pool(dict.fromkeys(range(8), 2), [2] * 7 + [1], racks)
    picked = FEWEST_DOMAINS.choose(pool, 11)
    assert sorted(picked) == [(0, 2), (1, 2), (2, 2), (3, 2), (6, 2), (7, 1)]
    assert sorted(FEWEST_DOMAINS.choose(pool, 3)) == [(6, 2), (7, 1)]
    assert FEWEST_DOMAINS.choose(pool, 16) is None


def test_a_pool_of_one_type_shows_its_nodes_and_jobs_and_reads_the_signals_of_all():
    view = view_of({"a": 2, "b": 2, "c": 5}, Cluster.of(NodeGroup(1, 4, "v100"), NodeGroup(2, 4, "a100")))
    first, second = type_pools(view)
    assert [(one.gpu_type, one.nodes, sorted(one.jobs), one.gpus_per_node) for one in (first, second)] == [
        ("v100", (0,), ["a"], 4), ("a100", (1, 2), ["b", "c"], 4),
    ]  # fmt: skip
    assert repr(second.view) == "<view of 2 of 3 nodes, 2 jobs, 8 GPUs free>"
    assert second.view.free == [0, 4, 4]
    assert second.view[NEXT_ARRIVAL]() == view[NEXT_ARRIVAL]()
    assert [job.id for job in view.arrived] == ["a", "b", "c"]
    view.reached_threshold, view.lost = view.arrived[1:], view.arrived[:1]
    told = [[one.view.arrived, one.view.reached_threshold, one.view.lost] for one in type_pools(view)]
    assert [["".join(job.id for job in jobs) for jobs in events] for events in told] == [
        ["a", "", "a"],
        ["bc", "bc", ""],
    ]
    # Neither has room on the first type, to which the first of them goes nevertheless unless `rigid` or sent home.
    view = view_of({"a": 8, "b": 5}, Cluster.of(NodeGroup(1, 4, "v100"), NodeGroup(2, 4, "a100")))
    assert [sorted(one.jobs) for one in type_pools(view)] == [["a"], ["b"]]
    assert [sorted(one.jobs) for one in type_pools(view, rigid=True)] == [[], ["a", "b"]]
    assert [sorted(one.jobs) for one in type_pools(view, home={"a": "a100", "b": "v100"})] == [["b"], ["a"]]


class Measured:
    """A job of one GPU that has measured rates by site."""

    id, num_gpus = "a", 1
    facts = SimpleNamespace(runs_on=lambda _: True)
    request = SimpleNamespace(application="m", batch_size=8)

    def __init__(self, rates):
        self.speeds = {site: SimpleNamespace(rate=rate) for site, rate in rates.items()}

    def __getitem__(self, signal):
        assert signal is MEASURED_SPEEDS
        return self.speeds


def test_what_a_job_measured_on_a_type_is_the_mean_over_its_placements():
    measured = Measured({Site((1,), "v100"): 2.0, Site((1,), "v100", 1, 2.0): 1.0, Site((1,), "a100"): 0.0})
    # The third type has too few GPUs.
    rates = rate_source("measured", {"v100": 4, "a100": 4, "t4": 0}).rates([measured])
    assert rates[0, 0] == 1.5
    assert rates[0, 2] == 0
    assert rate_source("none", {"v100": 4, "a100": 4}).rates([measured]).tolist() == [[1.0, 1.0]]


class FiveSeconds:
    """Books by which every job ends five seconds after it came, but those that hang; they keep what they are shown."""

    def __init__(self, *, quiet=False, hang=()):
        self.triggers, self.hang = SimpleNamespace(quiet=quiet), hang
        self.opened, self.seen, self.ends_s = [], [], {}

    def agent(self, request, facts):
        self.opened.append(request.id)

    def decide(self, view, rng):
        arrived = [job.id for job in view.arrived]
        self.seen.append(
            (view.now_s, arrived, list(view.finished), list(view.jobs), view[NEXT_ARRIVAL](), len(view.up))
        )
        self.ends_s |= {name: view.now_s + 5 for name in arrived if name not in self.hang}
        for name in view.finished:
            del self.ends_s[name]

    def due(self):
        first_s = min(self.ends_s.values(), default=np.inf)
        return first_s, [name for name, end_s in self.ends_s.items() if end_s == first_s]


@pytest.mark.parametrize("quiet", [False, True])
def test_books_decide_at_arrivals_and_ends_and_while_nothing_runs_where_quiet_times_count(quiet):
    view, _ = fresh_view(
        Fifo(), [JobSpec(name, at_s, 1, duration_s=5) for name, at_s in (("a", 0), ("b", 3), ("c", 20))],
        Cluster.uniform(2, 1), Applications(),
    )  # fmt: skip
    books = FiveSeconds(quiet=quiet)
    play(books, list(view.jobs.values()), view.cluster)
    last = [(8, [], ["b"], [], 20, 2), (20, ["c"], [], ["c"], np.inf, 2)] if quiet else [
        (20, ["c"], ["b"], ["c"], np.inf, 2),
    ]  # fmt: skip
    assert books.opened == ["a", "b", "c"]
    assert books.seen == [
        (0, ["a"], [], ["a"], 3, 2), (3, ["b"], [], ["a", "b"], 20, 2), (5, [], ["a"], ["b"], 20, 2), *last,
    ]  # fmt: skip
    hanging = FiveSeconds(hang=("c",))
    play(hanging, list(view.jobs.values()), view.cluster)
    assert hanging.seen[-1][:2] == (20, ["c"]), "nothing is going to happen, and play ends"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": [1, 2],\n "moves": [\n {"x": 1},\n\n {"y": [2, 3]}\n]}\n', (3, 5, 5)),
        ('{"moves":[1,\n2], "b": 1}', (1, 2, 2)),
        ('\n\n{"b" : {"moves": [1]} , "moves" :\n[ "x"\n, "y" ]}', (4, 5, 5)),
    ],
)
def test_an_entry_of_a_recording_is_blamed_on_its_line(tmp_path, text, lines):
    (tmp_path / "played.json").write_text(text)
    recording = Recording(tmp_path / "played.json", "moves")
    assert len(recording.entries) == 2
    problems = [recording.problem(number, "is wrong", "mend it").problems[0] for number in (0, 1, 9)]
    assert tuple(problem.line for problem in problems) == lines
    assert "moves[9] is wrong" in problems[2].message


@pytest.mark.parametrize("text", ['{"other": [1]}', '{"moves": []}', "[1]", '{"moves": 3}'])
def test_a_recording_without_its_list_is_refused(tmp_path, text):
    (tmp_path / "played.json").write_text(text)
    with pytest.raises(InputError, match="has no list 'moves', or an empty one"):
        Recording(tmp_path / "played.json", "moves")


def test_jobs_that_keep_their_number_of_gpus_stay_and_others_come_the_smallest_first():
    view = view_of(dict.fromkeys("abcde", 1), Cluster.uniform(2, 4))
    states = {name: SimpleNamespace(allocation=()) for name in "abcde"}
    states["a"].allocation, states["e"].allocation = ((0, 2),), ((1, 1),)
    shown = SimpleNamespace(jobs=states, nodes=view.nodes, up=view.up, free=[2, 3], beside=None, reasons=Reasons())
    counts = {"a": 2, "b": 4, "c": 1, "d": 0, "e": 0}
    assert place_counts(counts, shown) == {"a": ((0, 2),), "c": ((1, 1),), "b": ((1, 3), (0, 1))}
    assert sorted(shown.reasons.waits) == ["d", "e"]
    assert [name for name, _ in sorted(shown.reasons.places.items(), key=lambda one: one[1][0])] == list("bacde")
    shown.reasons = None
    assert place_counts({"b": 9, "c": 8}, shown) == {"c": ((0, 4), (1, 4))}


def test_jobs_that_get_no_gpu_are_told_that_others_gain_more():
    reasons = Reasons()
    tell_allocations("abc", {"a": ((0, 1),), "b": ((0, 2), (1, 1))}, reasons)
    assert list(reasons.places.items()) == [("b", (1, 3)), ("a", (2, 1)), ("c", (3, 0))]
    assert reasons.waits == {"c": (Why.ANOTHER_FIRST, "it is to have no GPU now")}


@pytest.mark.parametrize(
    ("refuse", "facts", "said"),
    [
        (refuse_unknown_counts, {"other_counts": False}, "gives jobs other numbers of GPUs"),
        (refuse_unknown_counts, {"other_counts": True}, None),
        (refuse_without_losses, {"reports_loss": True, "limits": LIMITS}, None),
        (refuse_without_losses, {"reports_loss": True}, "application 'net' has no loss curve"),
        (refuse_without_losses, {"limits": LIMITS}, "application 'net' has no loss curve"),
    ],
)
def test_jobs_that_lack_what_a_policy_needs_are_refused(refuse, facts, said):
    request, known = JobSpec("a", 0, 1, "net").request, ApplicationFacts("net", **facts)
    if said is None:
        refuse("p", request, known)
        return
    with pytest.raises(InputError, match=f"job 'a'.*'p'.*{said}"):
        refuse("p", request, known)


@pytest.mark.parametrize(("plans", "said"), [(None, "carries only a duration"), (object(), "trains by plans")])
def test_batch_limits_are_given_or_said_to_be_missing(plans, said):
    request = JobSpec("a", 0, 1, "net").request
    assert required_limits("p", "batches", request, ApplicationFacts("net", limits=LIMITS)) is LIMITS
    with pytest.raises(InputError, match=f"'p' needs applications with batches, but this job {said}"):
        required_limits("p", "batches", request, ApplicationFacts("net", plans=plans))
