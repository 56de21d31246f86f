"""Every program beside what a second solver makes of its formulas: by how much the one falls short of the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from simsched.toolkit.programs.baselines import allox, partitioned
from simsched.toolkit.programs.objectives import makespan, max_min, min_jct, total_throughput
from simsched.toolkit.programs.problem import Pairs, ShareProblem, gandiva_fair, isolated, proportional
from simsched.toolkit.programs.shockwave import PlanJobs, PlanOptions, plan
from simsched.toolkit.programs.sia import choose, offers_of
from simsched.toolkit.programs.water_filling import Elapsed, finish_time, water_filling
from tests.validation.oracles import programs as written_out
from tests.validation.oracles.programs import Floats, Instance, check_feasible, draw, rates_of

#: Instance number -> how far the program is from the optimum, relative to it; shortfalls and excesses alike.
Compared = Callable[[int], float]


def problem_of(one: Instance) -> ShareProblem:
    pairs = None
    if one.pairs:
        jobs = np.array([[first, second] for first, second, _ in one.pairs])
        pairs = Pairs(jobs, np.array([rates for _, _, rates in one.pairs]))
    return ShareProblem(one.rates, one.sizes, one.gpus, one.weights, pairs)


def _apart(found: float, best: float) -> float:
    if best == found:  # both may be infinite
        return 0.0
    return abs(found - best) / abs(best) if best else abs(found)


def _least(rates: Floats, due: Floats) -> float:
    return float((rates[due > 0] / due[due > 0]).min()) if (due > 0).any() else np.inf


def _max_min(one: Instance, *, agnostic: bool = False) -> float:
    if agnostic:
        one = replace(one, rates=np.ones_like(one.rates))
    due = written_out.normal(one)
    shares = max_min(problem_of(one))
    check_feasible(one, shares)
    return _apart(_least(rates_of(one, shares), due), written_out.level(one, due))


def _makespan(one: Instance) -> float:
    due = one.steps * one.able
    shares = makespan(problem_of(one), one.steps)
    check_feasible(one, shares)
    return _apart(_least(rates_of(one, shares), due), written_out.level(one, due))


def _water_filling(one: Instance) -> float:
    due = written_out.normal(one)
    shares = water_filling(problem_of(one))
    check_feasible(one, shares)
    return written_out.beyond(one, rates_of(one, shares) / np.where(due > 0, due, 1.0))


def _finish_time(one: Instance) -> float:
    shares = finish_time(problem_of(one), Elapsed(one.age_s, one.steps, one.isolated_s))
    check_feasible(one, shares)
    live = (one.steps > 0) & one.able
    if not live.any():
        return 0.0
    alone = (one.rates * written_out.isolated(one)).sum(axis=1)[live]
    due_s = one.isolated_s[live] + one.steps[live] / alone
    ratios = (one.age_s[live] + one.steps[live] / rates_of(one, shares)[live]) / due_s
    return _apart(float(ratios.max()), written_out.finish_ratio(one))


def _min_jct(one: Instance) -> float:
    shares = min_jct(problem_of(one), one.steps)
    check_feasible(one, shares)
    live = (one.steps > 0) & one.able
    if not live.any():
        return 0.0
    rates = rates_of(one, shares)
    return _apart(float((one.steps[live] / rates[live]).sum()), written_out.jct_bound(one, rates))


def _throughput(one: Instance, *, normalised: bool = False, cost: bool = False, deadlines: bool = False) -> float:
    value = np.ones_like(one.rates)
    if normalised:
        best = one.rates[:, one.gpus > 0].max(axis=1)
        if one.pairs:
            best = np.maximum(best, _best_beside(one))
        value = value / np.where(best > 0, best, 1.0)[:, None]
    if cost:
        value = value / one.price
    least = None
    if deadlines:
        rng = np.random.default_rng(one.jobs)
        least = one.rates.max(axis=1) * rng.uniform(0, 2.0 / one.jobs, one.jobs) * (rng.random(one.jobs) < 0.5)
    found = total_throughput(
        problem_of(one), normalised=normalised, price=one.price if cost else None, least_rate=least
    )
    check_feasible(one, found)
    best = written_out.throughput(one, value, least) if least is not None else None
    if best is None:
        best = written_out.throughput(one, value)
    elif least is not None:
        assert (rates_of(one, found) >= least * (1 - 1e-8)).all(), "a deadline is missed that can be met"
    types = len(one.gpus)
    rate = written_out.matrices(one)[0]
    total = float(((rate * np.tile(value, (1, rate.shape[1] // types))).sum(axis=0) * found.ravel()).sum())
    assert best is not None
    return _apart(total, best)


def _best_beside(one: Instance) -> Floats:
    best = np.zeros(one.jobs)
    for first, second, every in one.pairs:
        rates = every[:, one.gpus > 0]
        best[first], best[second] = max(best[first], rates[0].max()), max(best[second], rates[1].max())
    return best


def _allox(one: Instance) -> float:
    steps = np.maximum(one.steps, 1.0)
    with np.errstate(divide="ignore"):
        duration_s = steps[:, None] / one.rates
    able = np.isfinite(duration_s[:, one.gpus > 0]).any(axis=1)
    starts = allox(duration_s, one.gpus)
    counts = np.bincount(starts[starts >= 0], minlength=len(one.gpus))
    assert (counts <= one.gpus).all()
    if not able.any():
        assert (starts == -1).all()
        return 0.0
    duration_s = duration_s[able]
    return _apart(written_out.allox(duration_s, one.gpus, starts[able]), written_out.allox(duration_s, one.gpus))


def _by_formula(one: Instance) -> float:
    """Compare the shares that need no solver, entry by entry."""
    problem, total = problem_of(one), one.gpus.sum()
    split = np.array([[count / total for count in one.gpus] for _ in range(one.jobs)])
    wanted = [written_out.isolated(one), split, split * min(1.0, total / one.jobs)]
    shares = [isolated(problem), proportional(problem), gandiva_fair(problem)]
    return float(max(np.abs(mine - other).max() for mine, other in zip(shares, wanted, strict=True)))


def _pop(one: Instance) -> float:
    """Compare each part of a partition with the second solver's answer to it."""
    rng = np.random.default_rng(one.jobs)
    parts, members_of = 2, []

    def solve(part: ShareProblem, members: np.ndarray) -> Floats:
        members_of.append(members)
        return max_min(part)

    shares = partitioned(problem_of(one), parts, solve, rng)
    check_feasible(one, shares)
    assert sorted(np.concatenate(members_of)) == list(range(one.jobs))
    apart = 0.0
    for members in members_of:
        inner = replace(
            one, rates=one.rates[members], sizes=one.sizes[members], weights=one.weights[members],
            gpus=one.gpus / parts,
        )  # fmt: skip
        due = written_out.normal(inner)
        mine = _least(rates_of(one, shares)[members], due)
        apart = max(apart, _apart(mine, written_out.level(inner, due)))
    return apart


def _sia(seed: int) -> float:
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 60)), int(rng.integers(1, 4))
    odd = rng.choice(["none", "equal", "no gpus", "rigid", "weights"])
    sizes = [1, 2, 4, 8]
    rows = []
    for _ in range(jobs):
        offers = [(kind, size) for kind in range(types) for size in sizes if rng.random() < 0.8]
        if odd == "rigid":
            offers = [(kind, 2) for kind in range(types)]
        worth = [1.0] * len(offers) if odd == "equal" else np.round(10 ** rng.uniform(-2, 4, len(offers)), 2).tolist()
        rows.append(([kind for kind, _ in offers], [size for _, size in offers], worth))
    room = rng.integers(1, 33, types)
    if odd == "no gpus":
        room[0] = 0
    weights = 10 ** rng.uniform(-1, 1, jobs) if odd == "weights" else np.ones(jobs)
    offers = offers_of(rows)
    if not len(offers.job):
        return 0.0
    chosen = choose(offers, room, jobs, weights=weights)
    taken = chosen[chosen >= 0]
    assert (np.bincount(offers.gpu_type[taken], offers.gpus[taken], types) <= room).all()
    cost = weights[offers.job] * offers.value - 1.1
    best = written_out.one_each(cost, offers.job, offers.gpu_type, offers.gpus, room, jobs)
    return _apart(float(cost[taken].sum()), best)


def _shockwave(seed: int) -> float:
    rng = np.random.default_rng(seed)
    n, room = int(rng.integers(1, 8)), int(rng.integers(1, 9))
    options = PlanOptions(
        rounds=int(rng.integers(1, 9)), relative_gap=0.0, makespan_weight=float(rng.choice([0, 1e-3, 1e-1, 10]))
    )
    remaining_s = 10 ** rng.uniform(0, 5, n)
    fair_s = remaining_s * 10 ** rng.uniform(-0.5, 3, n)
    jobs = PlanJobs(
        rng.choice([1, 2, 4, 16], n), rng.choice([0.0, 1.0], n) * rng.uniform(0, 0.99, n), 10 ** rng.uniform(-6, 0, n),
        remaining_s, fair_s * rng.uniform(0, 1.5, n), fair_s,
    )  # fmt: skip
    found = plan(jobs, room, options)
    most = np.where(jobs.gpus > room, 0, np.minimum(np.ceil(remaining_s / options.round_s), options.rounds))
    share = min(1.0, room / n)
    late_s = options.round_s + jobs.age_s - jobs.fair_s
    needed = np.ceil((remaining_s + late_s * share) / options.round_s - 1e-9)
    least = np.maximum(needed, 0).astype(int)
    fair = bool((least <= most).all()) and int(jobs.gpus @ least) <= room * options.rounds
    assert found.fair is fair
    unfair = np.maximum((jobs.age_s + remaining_s / share) / jobs.fair_s, 1.0)
    power = np.where(remaining_s < options.round_s, 100.0, 12.0)
    weights = np.ones(n) if fair else np.minimum(np.exp(np.minimum(power * np.log(unfair), 700)), 1e4)
    least = least if fair else np.zeros(n, int)
    assert ((found.rounds >= least) & (found.rounds <= most)).all()
    assert int(jobs.gpus @ found.rounds) <= room * options.rounds
    instance = written_out.PlanInstance(
        jobs.gpus, jobs.progress, jobs.gain, remaining_s, weights, least, room, options.rounds, options.round_s,
        options.makespan_weight, options.bases, options.floor,
    )  # fmt: skip
    return _apart(written_out.planned(instance, found.rounds), written_out.plan(instance))


def _drawn(compare: Callable[..., float], *, pairs: bool = False, **params: bool) -> Compared:
    return lambda seed: compare(draw(seed, pairs=pairs), **params)


COMPARED: Mapping[str, Compared] = {
    "max-min": _drawn(_max_min),
    "max-min, agnostic": _drawn(_max_min, agnostic=True),
    "max-min, pairs": _drawn(_max_min, pairs=True),
    "makespan": _drawn(_makespan),
    "makespan, pairs": _drawn(_makespan, pairs=True),
    "water filling": _drawn(_water_filling),
    "water filling, pairs": _drawn(_water_filling, pairs=True),
    "finish-time fairness": _drawn(_finish_time),
    "least JCT": _drawn(_min_jct),
    "throughput": _drawn(_throughput),
    "throughput, pairs": _drawn(_throughput, pairs=True),
    "throughput, normalised": _drawn(_throughput, normalised=True),
    "least cost": _drawn(_throughput, cost=True),
    "least cost, deadlines": _drawn(_throughput, cost=True, deadlines=True),
    "POP, two parts": _drawn(_pop),
    "AlloX": _drawn(_allox),
    "shares by formula": _drawn(_by_formula),
    "Sia": _sia,
    "Shockwave": _shockwave,
}
