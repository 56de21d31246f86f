"""Gavel's, AlloX', Sia's and Shockwave's programs written out row by row for scipy, from their formulas alone.

Sources: Gavel (OSDI'20, section 4), its simulator's policies, AlloX (EuroSys'20), Sia (SOSP'23), Shockwave (NSDI'23).
Nothing here is shared with the code of the programs. A program with rates over many orders of magnitude has shares over
as many; the variables of those with a level are therefore multiples of what a job needs of its time at level 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

Floats = NDArray[np.float64]

#: How exactly jobs are held at their rates while another rises, and how much less exact solutions may be.
_HELD, _FORGIVEN = 4e-9, 4e-8

_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True)
class Instance:
    """Jobs on GPU types: rates (n, k), GPUs of each job, GPUs of each type, and facts by job.

    `pairs` lists (job, job, rates of both by type); all of equal size.
    """

    rates: Floats
    sizes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    weights: Floats
    steps: Floats
    age_s: Floats
    isolated_s: Floats
    price: Floats
    pairs: tuple[tuple[int, int, Floats], ...] = ()

    @property
    def jobs(self) -> int:
        return len(self.rates)

    @property
    def able(self) -> NDArray[np.bool_]:
        """Whether a job has a rate on a type of which there are GPUs."""
        return np.asarray((self.rates[:, self.gpus > 0] > 0).any(axis=1))


def draw(seed: int, *, pairs: bool = False) -> Instance:
    """Draw an instance: rates over six orders of magnitude, and one degenerate feature in two of three of them."""
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    odd = rng.choice(["none", "zeros", "wide", "equal", "one job", "one type", "no gpus", "no steps", "few gpus"])
    jobs, types = (1 if odd == "one job" else jobs), (1 if odd == "one type" else types)
    rates = 10 ** rng.uniform(-3, 3, (jobs, types))
    if odd == "zeros":
        rates *= rng.random(rates.shape) < 0.6
    if odd == "equal":
        rates[:] = rates[0]
    sizes = rng.choice([1, 2, 4, 8], jobs, p=[0.6, 0.2, 0.1, 0.1])
    gpus = rng.integers(1, 7, types)
    if odd == "wide":
        sizes = sizes * 8
    if odd == "few gpus":
        gpus[:] = 1
    if odd == "no gpus" and types > 1:
        gpus[int(rng.integers(types))] = 0
    steps = 10 ** rng.uniform(0, 6, jobs)
    if odd == "no steps":
        steps *= rng.random(jobs) < 0.7
    if odd == "equal":
        steps[:], sizes[:] = steps[0], sizes[0]
    weights = 10 ** rng.uniform(-1, 1, jobs) if rng.random() < 0.5 else np.ones(jobs)
    age_s, isolated_s = 10 ** rng.uniform(-2, 5, (2, jobs)) * (rng.random((2, jobs)) < 0.8)
    found = Instance(
        rates, sizes, gpus, weights, steps, age_s, isolated_s, 10 ** rng.uniform(-1, 1, types)
    )  # fmt: skip
    return replace(found, pairs=_pairs(found, rng)) if pairs else found


def _pairs(one: Instance, rng: np.random.Generator) -> tuple[tuple[int, int, Floats], ...]:
    kept = []
    for first in range(one.jobs):
        for second in range(first + 1, one.jobs):
            if one.sizes[first] == one.sizes[second] and rng.random() < 0.8:
                shared = rng.uniform(0.2, 1.0, (2, one.rates.shape[1])) * one.rates[[first, second]]
                kept.append((first, second, np.where((shared > 0).all(axis=0), shared, 0.0)))
    return tuple(kept)


def units(one: Instance) -> list[tuple[tuple[int, ...], Floats]]:
    """List what may run: each job alone, then each pair, with the rates of its jobs, shape (1 or 2, types)."""
    alone = [((job,), one.rates[[job]]) for job in range(one.jobs)]
    return [*alone, *(((first, second), rates) for first, second, rates in one.pairs)]


def matrices(one: Instance) -> tuple[Floats, Floats, Floats]:
    """Return, over one variable for each unit and type: rates of jobs, time of jobs, GPUs of types."""
    types, every = len(one.gpus), units(one)
    rate, time = np.zeros((2, one.jobs, len(every) * types))
    held = np.zeros((types, len(every) * types))
    for number, (members, rates) in enumerate(every):
        for kind in range(types):
            column = number * types + kind
            held[kind, column] = one.sizes[members[0]]
            for place, job in enumerate(members):
                time[job, column] = 1
                rate[job, column] = rates[place, kind]
    return rate, time, held


def check_feasible(one: Instance, shares: Floats, gpus: Floats | None = None) -> None:
    """Raise `AssertionError` where shares of units are negative, or beyond a job's time or a type's GPUs."""
    _, time, held = matrices(one)
    x = shares.ravel()
    room = one.gpus if gpus is None else gpus
    assert (x >= 0).all()
    assert (time @ x <= 1 + 2e-9).all(), f"time {(time @ x).max() - 1:.1e} too much"
    assert (held @ x <= room * (1 + 2e-9)).all(), f"GPUs: {(held @ x - room).max():.1e} too many"


def rates_of(one: Instance, shares: Floats) -> Floats:
    return np.asarray(matrices(one)[0] @ shares.ravel())


def _solved(goal: Floats, rows: Floats, bound: Floats, **further: Any) -> Any:
    found = linprog(-goal, A_ub=rows, b_ub=bound, method="highs", options=_TIGHT, **further)
    return found if found.status == 0 else None


def level(one: Instance, due: Floats, least: Floats | None = None) -> float:
    """Return the largest s with rate >= s x due, for jobs that are due anything and able to run; infinite for none.

    `least` are rates that jobs must have whatever s is.
    """
    rate, time, held = matrices(one)
    rate *= np.tile(one.gpus > 0, rate.shape[1] // len(one.gpus))
    best = rate.max(axis=1)
    asked = np.flatnonzero((due > 0) & (best > 0))
    if not len(asked):
        return np.inf
    unit = float((best[asked] / due[asked]).min())
    need = np.ones(one.jobs)
    need[asked] = due[asked] * unit / best[asked]
    if least is not None:
        kept = np.flatnonzero((least > 0) & (best > 0))
        need[kept] = np.maximum(np.where(due > 0, need, 0.0), least / np.where(best > 0, best, 1.0))[kept]
    column = np.array([min(need[job] for job in members) for members, _ in units(one)]).repeat(len(one.gpus))
    rows = [np.append(-rate[job] * column / (due[job] * unit), 1.0) for job in asked]
    bound = [0.0] * len(asked)
    if least is not None:
        rows += [np.append(-rate[job] * column / least[job], 0.0) for job in kept]
        bound += [-1.0] * len(kept)
    rows += [np.append(time[job] * column, 0.0) for job in range(one.jobs)]
    rows += [np.append(held[kind] * column, 0.0) for kind in range(len(one.gpus))]
    bound += [1.0] * one.jobs + [float(count) for count in one.gpus]
    goal = np.zeros(len(column) + 1)
    goal[-1] = 1.0
    found = _solved(goal, np.array(rows), np.array(bound))
    return float(found.x[-1]) * unit if found is not None else 0.0


def normal(one: Instance) -> Floats:
    """Return weight x rate under proportional shares / GPUs: what a job's rate is divided by in max-min fairness."""
    shares = one.gpus / one.gpus.sum()
    return np.asarray(one.weights * (one.rates @ shares) / one.sizes)


def isolated(one: Instance) -> Floats:
    """Return N_k / n / GPUs of the job, rows of more than 1 divided by their sum."""
    rows = []
    for job in range(one.jobs):
        row = one.gpus / one.jobs / one.sizes[job]
        rows.append(row / row.sum() if row.sum() > 1 else row)
    return np.array(rows)


def beyond(one: Instance, values: Floats) -> float:
    """Return by how much normalised rates fall short of the lexicographically largest, relative to them.

    For each job: those below it held where they are, all others rise together just to where it is; and with those held
    there too, it can rise no further by itself. Where rates differ by orders of magnitude on the types of one job, what
    the last can have changes by a tenth where others are held a billionth lower. So of what a job could still rise, as
    much is forgiven as comes of holding the others `_FORGIVEN` too low: a solver's rates are hardly more exact.
    """
    due = normal(one) * one.able
    short = 0.0
    for job in np.flatnonzero(due > 0):
        own = values[job]
        below = (values < own * (1 - 1e-6)) & (due > 0)
        others = np.minimum(values, own) * due
        others[job] = 0.0
        only = np.where(np.arange(one.jobs) == job, due, 0.0)
        for rising, held in ((due * ~below, np.where(below, values * due, 0.0)), (only, others)):
            once, twice = (level(one, rising, held * (1 - loose)) / own - 1 for loose in (_HELD, 2 * _HELD))
            slope = (twice - once) / _HELD
            short = max(short, once - slope * (_HELD + _FORGIVEN))
    return float(short)


def finish_ratio(one: Instance) -> float:
    """Return the least possible max of (age + steps / rate) / (isolated so far + steps / isolated rate)."""
    live = (one.steps > 0) & one.able
    if not live.any():
        return 0.0
    rate = (one.rates * isolated(one)).sum(axis=1)
    due_s = one.isolated_s + np.divide(one.steps, rate, out=np.zeros(one.jobs), where=rate > 0)
    low = float((one.age_s[live] / due_s[live]).max())
    high = low + 1.0

    def feasible(ratio: float) -> bool:
        left_s = ratio * due_s - one.age_s
        need = np.where(live, one.steps / np.where(live, np.maximum(left_s, 1e-300), 1.0), 0.0)
        return bool((left_s[live] > 0).all()) and level(one, need) >= 1

    while not feasible(high):
        high = low + 2 * (high - low)
    floor = low
    while high - low > 1e-8 * high and high - floor > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def jct_bound(one: Instance, rates: Floats) -> float:
    """Return a lower bound on the sum of steps / rate, from tangents at `rates` and at what they lead to."""
    rate, time, held = matrices(one)
    rate *= np.tile(one.gpus > 0, rate.shape[1] // len(one.gpus))
    live = np.flatnonzero((one.steps > 0) & one.able)
    share = rates / np.where(one.able, rate.max(axis=1), 1.0)
    column = np.array([min(share[job] if job in live else 1.0 for job in m) for m, _ in units(one)])
    column = column.repeat(len(one.gpus))
    # Costs and rates are relative to those at `rates`; q^2 x cost + rate >= 2 q is the tangent of 1 / rate at q.
    relative = rate[live] * column / rates[live][:, None]
    cost = one.steps[live] / rates[live]
    weight = cost / cost.sum()
    rows = [np.append(row * column, np.zeros(len(live))) for row in (*time, *held)]
    bound = [1.0] * one.jobs + [float(count) for count in one.gpus]
    goal = np.append(np.zeros(len(column)), -weight)
    points, best = [np.full(len(live), factor) for factor in (0.25, 1.0, 4.0)], -np.inf
    for _ in range(60):
        for point in points:
            rows += list(np.column_stack([-relative, np.diag(-(point**2))]))
            bound += list(-2 * point)
        found = _solved(goal, np.array(rows), np.array(bound))
        assert found is not None
        best = float(found.fun)
        reached = np.maximum(relative @ found.x[: len(column)], weight)
        if float((weight / reached).sum()) <= best * (1 + 1e-9) or best >= 1 - 1e-8:
            break
        points = [reached, np.sqrt(reached)]
    return best * float(cost.sum())


def throughput(one: Instance, value: Floats, least: Floats | None = None) -> float | None:
    """Return the largest sum of value[job, type] x rate of it; `least` rates must be met (None where they cannot)."""
    rate, time, held = matrices(one)
    per = np.tile(value, (1, rate.shape[1] // value.shape[1]))
    goal = (rate * per).sum(axis=0)
    unit = max(float(goal.max()), 1e-300)
    rows, bound = [*time, *held], [1.0] * one.jobs + [float(count) for count in one.gpus]
    column = np.ones(len(goal))
    if least is not None:
        best = (rate * np.tile(one.gpus > 0, rate.shape[1] // len(one.gpus))).max(axis=1)
        for job in np.flatnonzero(least > 0):
            rows.append(-rate[job] / least[job])
            bound.append(-1.0)
            if best[job] < least[job]:
                return None
    found = _solved(goal * column / unit, np.array(rows), np.array(bound))
    return None if found is None else -float(found.fun) * unit


def allox(duration_s: Floats, gpus: NDArray[np.int64], starts: Sequence[int] = ()) -> float:
    """Return the least sum of completion times of a set of queues; jobs with a type in `starts` are first in theirs.

    A job in the j-th last place of a GPU's queue adds j times its duration.
    """
    jobs, types = duration_s.shape
    places = [(kind, gpu, j) for kind in range(types) for gpu in range(gpus[kind]) for j in range(1, jobs + 1)]
    cost, rows, cells = [], [], []
    for job in range(jobs):
        for number, (kind, _, place) in enumerate(places):
            if np.isfinite(duration_s[job, kind]) and not (len(starts) and starts[job] not in (-1, kind)):
                cost.append(duration_s[job, kind] * place)
                rows.append(job)
                cells.append(number)
    able = sorted(set(rows))
    costs, row, cell = np.array(cost), np.array(rows), np.array(cells)
    best = np.inf
    while True:  # a place that costs more than all together can is left out, and the rest counted in units of that
        kept = costs <= best * (1 + 1e-9)
        costs, row, cell = costs[kept], row[kept], cell[kept]
        each, unit = np.arange(len(costs)), costs.max()
        once, most = np.zeros((jobs, len(costs))), np.zeros((len(places), len(costs)))
        once[row, each] = most[cell, each] = 1
        found = linprog(
            costs / unit, A_ub=most, b_ub=np.ones(len(places)), A_eq=once[able], b_eq=np.ones(len(able)), options=_TIGHT
        )
        assert found.status == 0
        before, best = best, float(costs @ np.round(found.x))
        if best >= before * (1 - 1e-12):
            return best


def one_each(cost: Floats, job: Any, kind: Any, gpus: Any, room: Any, jobs: int) -> float:
    """Return the least total cost of at most one offer for each job within the GPUs of each type (Sia)."""
    each = np.arange(len(cost))
    once, used = np.zeros((jobs, len(cost))), np.zeros((len(room), len(cost)))
    once[job, each] = 1
    used[kind, each] = gpus
    rows = [LinearConstraint(once, -np.inf, 1), LinearConstraint(used, -np.inf, room)]
    integral = np.ones(len(cost))
    found = milp(cost, integrality=integral, bounds=Bounds(0, 1), constraints=rows, options={"mip_rel_gap": 0})
    assert found.status == 0
    return float(found.fun)


@dataclass(frozen=True)
class PlanInstance:
    """What Shockwave plans: jobs, the GPUs, and the constants of its objective."""

    gpus: NDArray[np.int64]
    progress: Floats
    gain: Floats
    remaining_s: Floats
    weights: Floats
    least: NDArray[np.int64]
    room: int
    rounds: int
    round_s: float
    makespan_weight: float
    bases: tuple[float, ...]
    floor: float


def plan(one: PlanInstance) -> float:
    """Return the largest mean weighted log utility less the weighted longest remaining time.

    One binary for each job and round; the utility lies below each of its chords.
    """
    n, window = len(one.gpus), one.rounds
    columns = n * window + n + 1
    rows, low, high = [], [], []

    def add(row: Floats, least: float, most: float) -> None:
        rows.append(row)
        low.append(least)
        high.append(most)

    # Rounds are counted: whether wide jobs fit side by side in each is arranged later.
    whole = np.zeros(columns)
    whole[: n * window] = np.repeat(one.gpus, window)
    add(whole, -np.inf, one.room * window)
    logs = np.log(np.maximum(one.bases, one.floor))
    for job in range(n):
        mine = slice(job * window, (job + 1) * window)
        count = np.zeros(columns)
        count[mine] = 1
        most = 0 if one.gpus[job] > one.room else int(np.ceil(one.remaining_s[job] / one.round_s))
        add(count, float(one.least[job]), float(min(most, window)))
        longest = count * one.round_s
        longest[-1] = 1
        add(longest, one.remaining_s[job], np.inf)
        for left, right in zip(range(len(logs) - 1), range(1, len(logs)), strict=True):
            slope = (logs[right] - logs[left]) / (one.bases[right] - one.bases[left])
            chord = -count * slope * one.gain[job]
            chord[n * window + job] = 1
            add(chord, -np.inf, logs[left] + slope * (one.progress[job] - one.bases[left]))
    goal = np.zeros(columns)
    goal[n * window : -1] = -one.weights / (n * window)
    goal[-1] = one.makespan_weight
    lower = np.concatenate([np.zeros(n * window), np.full(n, -np.inf), [0.0]])
    upper = np.concatenate([np.ones(n * window), np.zeros(n), [np.inf]])
    integral = np.concatenate([np.ones(n * window), np.zeros(n + 1)])
    unit = float(np.abs(goal).max())
    found = milp(
        goal / unit, integrality=integral, bounds=Bounds(lower, upper),
        constraints=LinearConstraint(np.array(rows), low, high), options={"mip_rel_gap": 0},
    )  # fmt: skip
    assert found.status == 0
    return -float(found.fun) * unit


def planned(one: PlanInstance, rounds: NDArray[np.int64]) -> float:
    """Return what `plan` maximises, for given rounds of each job."""
    logs = np.log(np.maximum(one.bases, one.floor))
    progress = np.minimum(one.progress + one.gain * rounds, 1.0)
    utility = np.interp(progress, one.bases, logs)
    left_s = np.maximum(one.remaining_s - one.round_s * rounds, 0.0)
    return float(one.weights @ utility / (len(rounds) * one.rounds) - one.makespan_weight * left_s.max())
