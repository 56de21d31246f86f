"""Checks a lower bound against its cell, in exact arithmetic; imports nothing else of simsched.

A cell lists jobs in order of release, in ticks, on `units` units of GPUs. In its i-th mode a job makes up to `rates[i]`
progress per tick, each for `costs[i]` / `cost_parts` unit-ticks, until it has made its `work`. If `whole`, all
completions are at whole ticks. Means are over `count` jobs, with `ticks_per_s`; `ahead_s` is the sum by which releases
were rounded down, and `served_s` that of the times for which jobs hold GPUs under any scheduler, if it is fixed.

A job's part of the sum of flow times is the least, over its completion time C, of C - r plus the price of the cheapest
progress between its release r and C. As C grows, expensive progress is traded for cheaper: between two such exchanges
the sum is linear in C, so its least value lies at one of them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from heapq import heappop, heappush, heapreplace
from itertools import accumulate, pairwise
from math import ceil, floor, gcd, inf
from typing import Any


def digest_of(cell: Mapping[str, Any]) -> str:
    """Return what a certificate names of the jobs, the cluster and the physics for which it was made."""
    return sha256(json.dumps(cell, sort_keys=True, allow_nan=False).encode()).hexdigest()


def problem_of(bound: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    """Return what is wrong with a bound in the form of its JSON, "" if its certificate proves it for the cell."""
    try:
        return _problem_of(bound, cell)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError) as error:
        return f"its certificate cannot be read ({type(error).__name__}: {error})"


def _problem_of(bound: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    claim = bound["certificate"]
    if claim["cell"] != digest_of(cell):
        return "its certificate is for other jobs, another cluster or other physics"
    if (bound["jobs"], bound["unit_s"], bound["relaxed"]) != (cell["count"], 1 / cell["ticks_per_s"], cell["relaxed"]):
        return "its jobs, its unit of time or what it leaves out are not those of the cell"
    for name, ticks in zip(("flow_sum", "makespan"), proved(claim, cell), strict=True):
        if type(claim[name]) is not int or not claim[name] <= ticks:
            return f"its certificate proves a {name} of {ticks} ticks, not of {claim[name]}"
    flow_s = max(Fraction(0), Fraction(claim["flow_sum"], cell["ticks_per_s"]) - Fraction(cell["ahead_s"]))
    most = {"mean_jct_s": flow_s / cell["count"], "makespan_s": Fraction(claim["makespan"], cell["ticks_per_s"])}
    if cell["served_s"] is not None:
        most["mean_wait_s"] = max(Fraction(0), flow_s - Fraction(cell["served_s"])) / cell["count"]
    elif bound["mean_wait_s"] is not None:
        return "it claims a mean wait, of which nothing is proved"
    for name, value in most.items():
        if type(bound[name]) not in (int, float) or not 0 <= bound[name] <= value:
            return f"its certificate proves a {name} of {float(value):.6g}, not of {bound[name]}"
    return ""


def proved(claim: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[int, int]:
    """Return the proved ticks of the sum of flow times and of the makespan; raises `ValueError` if none are proved."""
    jobs = list(zip(cell["release"], cell["work"], cell["rates"], cell["costs"], strict=True))
    starts, prices, own, values = (claim[name] for name in ("starts", "prices", "own", "values"))
    numbers = [*starts, *prices, *values, claim["price_parts"] - 1, *(price for row in own for price in row)]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("prices, their parts, their times and values are no integers from 0 or 1 up")
    ascending = starts[0] == 0 and all(low < high for low, high in pairwise(starts))
    if not ascending or len(prices) != len(starts) or prices[-1] != 0:
        raise ValueError("intervals do not ascend from 0, or prices are not one for each, the last one 0")
    widths, capacity, scale = _widths(cell), filled(cell), cell["cost_parts"] * claim["price_parts"]
    if (own or claim["packed"]) and not widths:
        raise ValueError("jobs of no fixed width cannot be packed")
    if claim["fast_machine"]:
        flow = Fraction(_on_fast_machine(jobs, capacity * cell["cost_parts"]), capacity * cell["cost_parts"])
    elif own:
        flow = Fraction(_at_own_prices(jobs, claim, widths, cell["units"]), scale)
    else:
        charged = sum(price * (end - start) for price, (start, end) in zip(prices, pairwise(starts), strict=False))
        fine = 0 if widths else 16  # binary digits of the parts of a tick to which several speeds round down
        finer, each = [start << fine for start in starts], scale << fine
        flow = Fraction(sum(_least((r << fine, w << fine, *how), finer, prices, scale) for r, w, *how in jobs), each)
        flow -= Fraction(capacity * charged, claim["price_parts"])
    makespan = least_makespan(jobs, values, capacity * cell["cost_parts"], widths if claim["packed"] else [])
    to_ticks = ceil if cell["whole"] else floor
    return max(0, to_ticks(flow)), to_ticks(makespan)


def filled(cell: Mapping[str, Any]) -> int:
    """Return the most units that jobs hold together: fewer than all if fixed widths cannot fill them."""
    units: int = cell["units"]
    widths = set(_widths(cell))
    if not widths or units > 1 << 16:  # too many to try
        return units
    reach = 1
    for width in widths:
        for _ in range(units // width):
            reach |= (reach << width) & ((2 << units) - 1)
    return reach.bit_length() - 1


def _widths(cell: Mapping[str, Any]) -> list[int]:
    """Return the units that each job holds while it runs, none if some jobs have no fixed width."""
    fixed = cell["cost_parts"] == 1 and all(rates == [1] for rates in cell["rates"])
    return [costs[0] for costs in cell["costs"]] if fixed else []


def _least(job: Sequence[Any], starts: Sequence[int], prices: Sequence[int], scale: int) -> Any:
    """Return a job's part of the bound, times `scale`, if it pays and makes no more than its work."""
    release, work, rates, costs = job
    unmade = max(prices) * max(costs) + 1  # work that is not made yet counts as progress at more than any price
    held, order = {unmade: work}, [-unmade]  # progress by its price, and prices, the dearest first
    now, paid, best = release, work * unmade, inf
    for place in range(bisect_right(starts, release) - 1, len(starts)):
        end = starts[place + 1] if place + 1 < len(starts) else inf
        ways = [(rate, cost * prices[place]) for rate, cost in zip(rates, costs, strict=True) if rate]
        while order and now < end and (cheaper := [way for way in ways if way[1] < -order[0]]):
            dearest, speed = -order[0], sum(rate for rate, _ in cheaper)
            span = min(held[dearest] // speed, end - now)  # in which jobs make no more than they must
            gone = speed * span if span == end - now else held[-heappop(order)]
            held[dearest] -= gone
            paid -= gone * dearest
            for rate, price in cheaper if span else ():
                if not held.get(price):
                    heappush(order, -price)
                held[price] = held.get(price, 0) + rate * span
                paid += rate * span * price
            now += span
            if not held[unmade]:
                best = min(best, (now - release) * scale + paid)
        if ((now := end) - release) * scale >= best:
            break
    return best


def _at_own_prices(jobs: Sequence[Any], claim: Mapping[str, Any], widths: Sequence[int], units: int) -> int:
    """Return the sum over jobs of fixed widths at their own prices, less the dearest set that fits at each time."""
    starts, part = claim["starts"], gcd(*widths)
    total = 0
    here: list[list[tuple[int, int]]] = [[] for _ in starts]
    for (release, work, rates, _), width, own in zip(jobs, widths, claim["own"], strict=True):
        first = bisect_right(starts, release) - 1
        if first + len(own) >= len(starts):
            raise ValueError("a job has prices for ever")
        total += _least((release, work, rates, [1]), starts[first:][: len(own) + 1], [*own, 0], claim["price_parts"])
        for place, price in enumerate(own, start=first):
            here[place].append((width // part, price))
    for items, (start, end) in zip(here, pairwise(starts), strict=False):
        room = min(units // part, sum(width for width, _ in items))
        best = [0] * (room + 1)
        for width, price in items:
            _pack(best, width, price)
        total -= (end - start) * best[-1]
    return total


def _pack(best: list[int], width: int, price: int) -> None:
    """Let a job join the dearest sets that fit, listed by the room for them."""
    best[width:] = [max(with_it + price, not_it) for with_it, not_it in zip(best, best[width:], strict=False)]


def _on_fast_machine(jobs: Sequence[Any], scale: int) -> int:
    """Return the sum of flow times, times `scale`, on one machine of the full capacity, least remaining work first."""
    now, total, left = 0, 0, list[int]()
    for release, work, rates, costs in jobs:
        while left and now + left[0] <= release * scale:
            now += heappop(left)
            total += now
        if left:
            heapreplace(left, left[0] - (release * scale - now))
        now = release * scale
        heappush(left, work * _cheapest(rates, costs))
    later = sum(accumulate(sorted(left), initial=now)) - now
    return total + later - scale * sum(int(release) for release, *_ in jobs)


def least_makespan(jobs: Sequence[Any], values: Sequence[int], capacity: int, widths: Sequence[int]) -> Fraction:
    """Return when jobs can have made all their work, each unit worth a value, given the most that they make at a time.

    That is the most of the released jobs that fit side by side if they have `widths`; else it is at most all of them at
    full speed, and at most the capacity times its best worth.
    """
    need = sum(value * work for value, (_, work, *_) in zip(values, jobs, strict=True))
    best, speed, worth = [0] * (capacity + 1) if widths else [], 0, Fraction(0)
    now, done, most = 0, Fraction(0), Fraction(0)
    for place, (release, _, rates, costs) in enumerate(jobs):
        if done + most * (release - now) >= need:
            break
        done, now = done + most * (release - now), release
        if widths:
            _pack(best, widths[place], values[place])
        elif values[place]:
            speed += values[place] * sum(rates)
            worth = max(worth, Fraction(values[place], _cheapest(rates, costs)))
        most = Fraction(best[-1]) if widths else min(Fraction(speed), capacity * worth)
    return now + (need - done) / most if need else Fraction(0)


def _cheapest(rates: Sequence[int], costs: Sequence[int]) -> int:
    return min(cost for rate, cost in zip(rates, costs, strict=True) if rate)
