"""Placers, demand for nodes, indices and models of speed against their definitions, tried out on small drawn cases."""

from __future__ import annotations

from itertools import combinations
from math import inf
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import nnls

from simsched.errors import InputError
from simsched.model import BatchLimits, Node
from simsched.model.pool import Pool
from simsched.toolkit import PLACERS
from simsched.toolkit.elastic import fixed_batch, share_evenly, usable_gpus
from simsched.toolkit.gittins import IndexTable, ServiceDistribution, ServiceHistory
from simsched.toolkit.levels import Levels, start_order
from simsched.toolkit.node_demand import NodeDemand, nodes_to_wake
from simsched.toolkit.placers import BEST_FIT, CONSOLIDATED, FEWEST_DOMAINS, most_free_among
from simsched.toolkit.skew import SkewPlacement
from simsched.toolkit.speed_model import SpeedSample, allocate_by_time, fit_speed


def filled(nodes, free, gpus):
    """Take GPUs node by node, None where there are too few."""
    picked = []
    for node in nodes:
        if free[node] and gpus:
            picked.append((node, min(free[node], gpus)))
            gpus -= picked[-1][1]
    return None if gpus else tuple(picked)


def fitting(free, nodes, gpus):
    """Return the node with the least free GPUs that suffices."""
    return min((node for node in nodes if free[node] >= gpus), key=lambda node: (free[node], node), default=None)


def most_first(free, nodes):
    return sorted(nodes, key=lambda node: (-free[node], node))


def in_domains(nodes, domains, level):
    found = {}
    for node in nodes:
        found.setdefault(domains[node][level], []).append(node)
    return list(found.values())


def closest(free, domains, nodes, gpus, level):
    """One node, else one domain, each by best fit, else few domains: the most free first, the last by best fit."""
    node = fitting(free, nodes, gpus)
    if node is not None:
        return [(node, gpus)]
    room = lambda those: sum(free[node] for node in those)  # noqa: E731
    for below in range(level):
        able = [those for those in in_domains(nodes, domains, below) if room(those) >= gpus]
        if able:
            return closest(free, domains, min(able, key=room), gpus, below)
    parts = [[node] for node in most_first(free, nodes)] if not level else in_domains(nodes, domains, level - 1)
    picked = []
    while not any(room(part) >= gpus for part in parts):
        largest = max(parts, key=room)
        parts.remove(largest)
        picked += [(node, free[node]) for node in most_first(free, largest) if free[node]]
        gpus -= room(largest)
    if not level:
        return [*picked, (fitting(free, [node for (node,) in parts], gpus), gpus)]
    last = min((part for part in parts if room(part) >= gpus), key=room)
    return picked + closest(free, domains, last, gpus, level - 1)


@pytest.mark.parametrize("seed", range(8))
def test_placers_do_what_they_say(seed):
    rng = Random(seed)
    for _ in range(60):
        nodes, size = list(range(rng.randrange(1, 9))), rng.choice([2, 4])
        sizes = {node: size if rng.random() < 0.8 else 1 for node in nodes}
        free = [rng.randrange(sizes[node] + 1) for node in nodes]
        levels = rng.randrange(3)
        domains = {node: (node // 2, node // 4)[:levels] for node in nodes} if levels else {}
        pool, gpus = Pool(sizes, free, domains), rng.randrange(1, 13)
        expected = {
            "most-free": filled(most_first(free, nodes), free, gpus),
            "any": filled(nodes, free, gpus),
            "fragments": filled(sorted(nodes, key=lambda node: (free[node] != gpus, free[node], node)), free, gpus),
        }
        if gpus not in free:
            expected["fragments"] = filled(sorted(nodes, key=lambda node: (free[node], node)), free, gpus)
        one = fitting(free, nodes, gpus)
        assert BEST_FIT.choose(pool, gpus) == (expected["most-free"] if one is None else ((one, gpus),))
        for name, place in expected.items():
            assert PLACERS[name].choose(pool, gpus) == place, name
        fewest = next((k for k in range(1, 9) if sum(sorted(sizes.values())[-k:]) >= gpus), None)
        assert CONSOLIDATED.choose(pool, gpus) == consolidated(free, nodes, gpus, fewest)
        near = tuple(closest(free, domains, nodes, gpus, levels)) if sum(free) >= gpus else None
        assert FEWEST_DOMAINS.choose(pool, gpus) == near
        waits = False
        for level in range(levels):
            parts = in_domains(nodes, domains, level)
            if any(sum(sizes[node] for node in part) >= gpus for part in parts):
                waits = all(sum(free[node] for node in part) < gpus for part in parts)
                break
        assert PLACERS["one-domain"].choose(pool, gpus) == (None if waits else near)
        some = rng.sample(nodes, rng.randrange(len(nodes) + 1))
        assert most_free_among(some).choose(pool, gpus) == filled(most_first(free, some), free, gpus)


def consolidated(free, nodes, gpus, count):
    """Return the most free nodes but one and, by best fit, the last of as few as the empty cluster needs."""
    if count is None:
        return None
    first = [(node, free[node]) for node in most_first(free, nodes)[: count - 1]]
    rest = gpus - sum(taken for _, taken in first)
    last = fitting(free, [node for node in nodes if node not in dict(first)], rest)
    return None if last is None or any(not taken for _, taken in first) else (*first, (last, rest))


@pytest.mark.parametrize("seed", range(6))
def test_aligned_jobs_lie_in_equal_parts_on_the_fewest_domains(seed):
    rng, askew = Random(seed), 0
    for _ in range(60):
        nodes, size = list(range(12)), 2
        free = [size if rng.random() < 0.7 else 1 for _ in nodes]
        domains = {node: (node // 3, node // 6) for node in nodes}
        pool, count = Pool(dict.fromkeys(nodes, size), free, domains), rng.randrange(1, 7)
        place = PLACERS["aligned"].choose(pool, count * size)
        idle = [{node for node in nodes if free[node] == size and node // 3 == leaf} for leaf in range(4)]
        choices = [
            leaves for parts in range(1, 5) if count % parts == 0
            for leaves in combinations(range(4), parts) if all(len(idle[leaf]) * parts >= count for leaf in leaves)
        ]  # fmt: skip
        if count < 2 or not choices:
            assert place == FEWEST_DOMAINS.choose(pool, count * size)
            askew += 1
            continue
        fewest = [leaves for leaves in choices if len(leaves) == min(map(len, choices))]
        used = tuple(sorted({node // 3 for node, _ in place}))
        assert used in fewest
        assert all(gpus == size for _, gpus in place)
        assert {sum(node // 3 == leaf for node, _ in place) for leaf in used} == {count // len(used)}
        within = [leaves for leaves in fewest if len({leaf // 2 for leaf in leaves}) == 1]
        room = [len(idle[2 * spine]) + len(idle[2 * spine + 1]) for spine in range(2)]
        if within:
            assert used in within, "one domain of the next level has room"
            assert room[used[0] // 2] == min(room[leaves[0] // 2] for leaves in within), "the tightest of these"
            fewest = [leaves for leaves in within if leaves[0] // 2 == used[0] // 2]
        assert sum(len(idle[leaf]) for leaf in used) == min(sum(len(idle[leaf]) for leaf in one) for one in fewest)
    assert askew < 60
    assert PLACERS["aligned"].choose(pool, 3) == FEWEST_DOMAINS.choose(pool, 3), "half a node is over"


@pytest.mark.parametrize("seed", range(4))
def test_gittins_index_is_the_best_of_finished_jobs_over_service(seed):
    rng = np.random.default_rng(seed)
    samples = rng.integers(1, 12, 9).astype(float)
    known = ServiceDistribution([*samples, 0.0, -3.0])

    def ratio(attained, quantum):
        left = samples[samples > attained] - attained
        return (left <= quantum).sum() / np.minimum(left, quantum).sum() if len(left) else 0.0

    for attained in (0.0, 1.0, 2.5, samples.max() - 1, samples.max(), 40.0):
        best = max((ratio(attained, sample - attained) for sample in samples if sample > attained), default=0.0)
        assert known.index(attained) == pytest.approx(best)
        assert known.index(attained, 2.0) == pytest.approx(ratio(attained, 2.0))
    assert known.table([0.0, 5.0], 3.0) == (known.index(0.0, 3.0), known.index(5.0, 3.0))


def test_many_samples_become_two_thousand_quantiles():
    # The middles of 2,000 equal parts of 4,000 samples are every other one, from the second on.
    known = ServiceDistribution(np.arange(1.0, 4001.0))
    assert known.index(3997.0) == pytest.approx(1 / 2.0)  # the last is 3999, two further
    assert known.index(3999.0) == 0
    assert ServiceDistribution(np.arange(1.0, 2001.0)).index(1999.0) == pytest.approx(1.0)
    # Those of 0 are left out first: of 1999 and 2000 both end in two more GPU-seconds, after three in all.
    assert ServiceDistribution([*np.zeros(4000), *np.arange(1.0, 2001.0)]).index(1998.0) == pytest.approx(2 / 3)


def test_a_history_is_learnt_whenever_it_has_doubled(tmp_path):
    history = ServiceHistory((), None)
    assert [count for count in range(1, 50) if history.learn([5.0] * count)] == [10, 20, 40]
    assert not ServiceHistory((1, 2), None).learn([5.0] * 10)
    with pytest.raises(ValueError, match="not both"):
        ServiceHistory((1,), "file")
    path = tmp_path / "history.csv"
    path.write_text("gpu_seconds\n3\n\n5\n")
    read = ServiceHistory((), str(path))
    assert (read.learns, read.distribution.index(4.0)) == (False, 1.0)
    for text, said in (("3\nx\n", "'x' is not a number"), ("0\n-1\n", "no service above 0"), ("3\nnan\n", "'nan'")):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            ServiceHistory((), str(path))
    with pytest.raises(InputError, match="there is no such file"):
        ServiceHistory((), str(tmp_path / "none.csv"))


def test_an_index_changes_at_its_points():
    table = IndexTable([0, 10, 20], [3.0, 2.0, 1.0])
    assert [table.value(service) for service in (-1, 0, 9.9, 10, 19, 20, 99)] == [3, 3, 3, 2, 2, 1, 1]
    assert [table.next_point(service) for service in (-1, 0, 9.9, 10, 19, 20)] == [0, 10, 10, 20, 20, None]


@pytest.mark.parametrize(
    "wrong", [([0], None), ([5, 5], None), ([5, 4], None), ([-1], None), ([5], 0.0), ([5], -1.0), ([5], inf)]
)
def test_levels_need_rising_limits_and_a_finite_knob(wrong):
    with pytest.raises(ValueError, match=r"queue_thresholds_gpu_s|promote_knob"):
        Levels(*wrong)


class Shown:
    """A view of one job that has attained 30 GPU-seconds in 7 s."""

    def __init__(self, now_s):
        self.now_s = now_s
        self.jobs = {"a": type("Job", (), {"attained_gpu_s": 30.0, "held_s": 7.0})()}


def test_jobs_of_a_level_start_in_the_order_of_their_first_start():
    def job(first_start_s, submitted_s, age_s):
        request = SimpleNamespace(submit_time_s=submitted_s)
        return SimpleNamespace(first_start_s=first_start_s, request=request, age_s=age_s)

    assert start_order(job(7.0, 1.0, 9.0), runs=False) == start_order(job(7.0, 1.0, 9.0), runs=True) == (0, 7)
    assert start_order(job(None, 1.0, 9.0), runs=True) == (0, 10)
    assert start_order(job(None, 1.0, 9.0), runs=False) == (1, 1)
    assert Levels([1], 0.5).limits_gpu_s == [1]


def test_a_job_falls_with_its_service_and_rises_once_it_has_waited():
    levels = Levels([10, 20], 2.0)
    levels.enter("a")
    assert (levels.promotes, "a" in levels, "b" in levels, levels.limit_gpu_s("a")) == (True, True, False, 10)
    assert [levels.demote("a", service) for service in (9.9, 10.0, 19.0)] == [False, True, False]
    assert (levels.level("a"), levels.limit_gpu_s("a")) == (1, 20)
    assert levels.demote("a", 30.0)
    assert levels.limit_gpu_s("a") is None
    # It ran for 7 s and waits for twice as long, from 100 s on.
    levels.stopped("a", 100.0, 7.0)
    assert levels.next_promotion_s() == 114
    assert levels.promote_all(Shown(113.9)) == []
    assert levels.promote_all(Shown(114.0)) == ["a"]
    assert (levels.level("a"), levels.counted_gpu_s("a", 35.0), levels.limit_gpu_s("a")) == (0, 5.0, 40.0)
    assert levels.next_promotion_s() is None
    assert not levels.demote("a", 39.9)
    # On the first level nobody waits for anything; a job that starts before waits no longer; one that never ran waits a
    # second at least.
    levels.stopped("a", 200.0, 9.0)
    assert levels.next_promotion_s() is None
    levels.demote("a", 50.0)
    levels.stopped("a", 200.0, 7.0)
    assert levels.next_promotion_s() == 201
    levels.started("a")
    assert levels.next_promotion_s() is None
    levels.stopped("a", 200.0, 8.25)
    assert levels.next_promotion_s() == 203, "whole seconds of 2.5"
    levels.leave("a")
    assert (levels.next_promotion_s(), "a" in levels, Levels([10], None).promotes) == (None, False, False)


def test_demand_is_that_of_yesterday_with_todays_level():
    demand = NodeDemand(season_s=100.0)
    assert (demand.at(5.0), demand.forecast(5.0, 10.0), demand.rise(5.0, 3.0)) == (None, 0, 0)
    for time_s, nodes in ((0, 2), (20, 5), (20, 6), (40, 3), (60, 3), (100, 4)):
        demand.record(time_s, nodes)
    assert [demand.at(time_s) for time_s in (-1, 0, 19, 20, 39, 40, 99, 100)] == [None, 2, 2, 6, 6, 3, 3, 4]
    assert (demand.rise(25.0, 5.0), demand.rise(25.0, 6.0), demand.rise(45.0, 10.0), demand.rise(5.0, 90.0)) == (
        0,
        4,
        -3,
        0,
    )
    # At 110 four nodes are in use, as against two a season before: two more than then.
    assert [demand.forecast(110.0, ahead) for ahead in (5, 10, 30, 80)] == [4, 8, 5, 5]
    assert demand.forecast(99.0, 30.0) == 3, "too short a past"
    assert (demand.peak(110.0, 30.0, 10.0), demand.peak(110.0, 9.0, 10.0), demand.peak(110.0, 11.0, 5.0)) == (8, 4, 8)
    demand.record(115.0, 0)
    assert demand.forecast(130.0, 15.0) == 0, "not below 0"
    assert NodeDemand().season_s == 24 * 3600


@pytest.mark.parametrize(
    ("gpus", "free", "asleep", "woken"),
    [
        ((2,), [0, 4, 0], [2], []),  # there is room
        ((4,), [2, 3, 0], [2], [2]),
        ((2, 2, 2), [0, 0, 0, 0], [2, 3], [2, 3]),  # two on the first that wakes
        ((8,), [4, 0, 0], [1, 2], [1]),  # beside a whole node that is awake
        ((8,), [3, 0, 0], [1, 2], [1, 2]),
        ((12,), [4, 0, 0], [1], []),
        ((12, 4), [4, 0, 0], [1], []),  # who cannot be served takes nothing
        ((6,), [0, 0, 0], [2, 0, 1], [2, 0]),
    ],
)
def test_nodes_are_woken_that_jobs_need(gpus, free, asleep, woken):
    nodes = [Node(place, 4) for place in range(len(free))]
    facts = type("Facts", (), {"runs_on": lambda self, kind: True})()
    waiting = [type("Job", (), {"num_gpus": count, "facts": facts})() for count in gpus]
    assert nodes_to_wake(waiting, nodes, free, asleep) == woken


@pytest.mark.parametrize(
    ("counts", "most", "gpus", "shared"),
    [([0, 0], [3, 1], 3, [2, 1]), ([1, 0], [5, 5], 1, [1, 1]), ([0, 0], [0, 0], 3, [0, 0]),
     ([0] * 3, [9] * 3, 4, [2, 1, 1]), ([2, 0], [2, 1], 5, [2, 1]), ([3], [9], 0, [3])],
)  # fmt: skip
def test_gpus_are_shared_evenly(counts, most, gpus, shared):
    assert share_evenly(counts, most, gpus) == shared


@pytest.mark.parametrize(
    ("asked", "fixed", "least", "most", "batch", "usable"),
    [(0, 0, None, None, 0, 10), (0, 0, None, 3, 0, 3), (0, 0, 8, None, 32, 4), (20, 0, 8, None, 20, 2),
     (4, 0, 8, None, 4, 1), (0, 16, 8, None, 16, 2), (20, 16, 8, None, 20, 2), (0, 0, 8, 3, 32, 3),
     (0, 0, 2, None, 32, 10)],
)  # fmt: skip
def test_a_job_uses_as_many_gpus_as_its_batch_allows(asked, fixed, least, most, batch, usable):
    limits = None if least is None else BatchLimits(32, 512, least, 64)
    job = SimpleNamespace(
        limits=limits, request=SimpleNamespace(batch_size=asked), fixed_batch_size=fixed, max_gpus=most
    )
    assert (fixed_batch(job), usable_gpus(job, 10)) == (batch, usable)


def test_a_model_is_consolidated_whose_largest_tensor_is_above_the_limit():
    placement = SkewPlacement("skew", 0.3)
    for name, skew in (("a", 0.3), ("b", 0.31), ("c", None)):
        placement.note(SimpleNamespace(id=name), SimpleNamespace(tensor_skew=skew))
    assert [placement.placer(name).name for name in "abc"] == ["fragments", "consolidated", "fragments"]
    assert SkewPlacement("any", 0.0).placer("a").name == "any"
    assert (len(placement.wants), len(SkewPlacement("any", 1.0).wants)) == (1, 0)
    for wrong in (-0.01, 1.01):
        with pytest.raises(ValueError, match="skew_limit must be from 0 to 1"):
            SkewPlacement("skew", wrong)


@pytest.mark.parametrize("seed", range(4))
def test_models_of_speed_are_the_least_squares_of_scipy(seed):
    rng = np.random.default_rng(seed)
    theta, batch = rng.random(3) * [0.01, 0.2, 0.01], 64
    workers = [1, 2, 3, 4, 8]
    seconds = np.array([theta @ [batch / n, 1, n] * rng.uniform(0.9, 1.1) for n in workers])
    found = fit_speed([SpeedSample(n, 1 / s) for n, s in zip(workers, seconds, strict=True)], batch)
    expected, _ = nnls(np.array([[batch / n, 1, n] for n in workers]) / seconds[:, None], np.ones(5))
    assert found.theta == pytest.approx(expected, abs=1e-12)
    assert found.step_s(4) == pytest.approx(expected @ [16, 1, 4])
    assert (found.steps_per_s(4), found.steps_per_s(0)) == (pytest.approx(1 / found.step_s(4)), 0.0)


@pytest.mark.parametrize("wrong", [[], [SpeedSample(1, 0.0)], [SpeedSample(0, 1.0)], [SpeedSample(1, -1.0)]])
def test_speeds_that_say_nothing_are_refused(wrong):
    with pytest.raises(InputError, match="speed samples"):
        fit_speed(wrong, 8)
    assert fit_speed([SpeedSample(1, 2.0)], 8).step_s(1) == pytest.approx(0.5)


def test_workers_go_where_they_save_most():
    def halving(count):
        return 12.0 / count

    def useless(count):
        return 5.0

    # A second worker saves 6 s of each step, a third 2: 60 and 20 for ten steps, 48 and 16 for eight.
    for gpus, counts in ((0, (0, 0)), (1, (1, 0)), (2, (1, 1)), (3, (2, 1)), (4, (2, 2)), (5, (3, 2))):
        assert allocate_by_time([10, 8], [halving, halving], gpus) == counts
    assert allocate_by_time([10, 1], [useless, halving], 9) == (1, 8)
    assert allocate_by_time([10, 10], [halving, halving], 3) == (2, 1), "of equal savings the first"
    assert allocate_by_time([10, 9.6], [halving, halving], 3, [True]) == (1, 2), "95 % of what a young job saves"
    assert allocate_by_time([10, 9.4], [halving, halving], 3, [True]) == (2, 1)
    assert allocate_by_time([10, 8], [halving, halving], 3, [True], 0.5) == (1, 2)
    assert allocate_by_time([], [], 3) == ()
