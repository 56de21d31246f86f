"""Checks a certificate in exact arithmetic; shares nothing with the search that found it.

All numbers are integers, or fractions of integers if a job has several speeds. A job's part of the bound is the least,
over its completion time C, of C - r plus the price of the cheapest progress between its release r and C. As C grows,
expensive progress is traded for cheaper: between two such exchanges the sum is linear in C, so its least value lies at
one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heappop, heappush, heapreplace
from itertools import pairwise
from math import gcd
from typing import Any

_Number = int | Fraction


def problem_of(claim: Mapping[str, Any]) -> str:
    """Return what is wrong with a certificate in the form of its JSON, "" if it proves its bounds."""
    try:
        return _problem_of(claim)
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        return f"it is no certificate ({type(error).__name__}: {error})"


def _problem_of(claim: Mapping[str, Any]) -> str:
    jobs = list(zip(claim["release"], claim["work"], claim["rates"], claim["costs"], strict=True))
    starts, prices, parts = claim["starts"], claim["prices"], claim["cost_parts"]
    if not all(type(number) is int for number in _numbers([*claim.values()])):
        return "it holds numbers that are no integers"
    if any(low >= high for low, high in pairwise(starts)) or starts[0] != 0:
        return "its intervals do not ascend from 0"
    if len(prices) != len(starts) or min(prices) < 0 or prices[-1] != 0:
        return "its prices are not one for each interval, at least 0, the last one 0"
    if any(r < 0 or w < 0 or min(rates) < 0 or min(costs) < 0 or sum(rates) < 1 for r, w, rates, costs in jobs):
        return "it has a job that could not run"
    if claim["capacity"] != claim["units"] and not _fills(claim, jobs):
        return "jobs of its widths fill more than its capacity"
    if claim["fast_machine"]:
        proved = _on_fast_machine(jobs, claim["capacity"], parts)
    elif claim["own"]:
        if parts != 1 or any(rates != [1] for _, _, rates, _ in jobs) or min(map(min, claim["own"])) < 0:
            return "it has jobs of no fixed width, or prices of theirs below 0"
        proved = Fraction(_at_own_prices(jobs, claim), claim["price_parts"])
    else:
        scale = parts * claim["price_parts"]
        charged = sum(price * (end - start) for price, (start, end) in zip(prices[:-1], pairwise(starts), strict=True))
        flow = sum(_least(*job, starts, prices, scale) for job in jobs)
        proved = Fraction(flow - claim["capacity"] * parts * charged, scale)
    if claim["flow_sum"] > proved:
        return f"its prices prove a sum of {float(proved):.6g} ticks, not of {claim['flow_sum']}"
    if claim["makespan"] > max(_longest(jobs), _work_after(jobs, claim)):
        return "its jobs do not prove its makespan"
    return ""


def _least(
    release: int, work: int, rates: Sequence[int], costs: Sequence[int], starts: Sequence[int], prices: Sequence[int],
    scale: int,
) -> _Number:  # fmt: skip
    """Return a job's part of the bound, times `scale`."""
    ways = [(rate, cost) for rate, cost in zip(rates, costs, strict=True) if rate]
    full = sum(rates)
    held: list[list[_Number]] = []  # the dearest first, as [-price, amount]
    place = bisect_right(starts, release) - 1
    now: _Number = release
    left: _Number = _ratio(work, full)
    paid: _Number = 0
    while left:
        span = left if place + 1 == len(starts) else min(left, starts[place + 1] - now)
        for rate, cost in ways:
            heappush(held, [-cost * prices[place], rate * span])
            paid += rate * span * cost * prices[place]
        now, left = now + span, left - span
        place += place + 1 < len(starts) and now == starts[place + 1]
    best = (now - release) * scale + paid
    while place + 1 < len(starts) and (now - release) * scale < best:
        end = starts[place + 1]
        while now < end and held:
            dearest = -held[0][0]
            cheaper = [(rate, cost * prices[place]) for rate, cost in ways if cost * prices[place] < dearest]
            if not cheaper:
                break
            amount, speed = held[0][1], sum(rate for rate, _ in cheaper)
            span = min(_ratio(amount, speed), end - now)
            if amount == speed * span:
                heappop(held)
            else:
                heapreplace(held, [-dearest, amount - speed * span])
            for rate, price in cheaper:
                heappush(held, [-price, rate * span])
                paid -= rate * span * (dearest - price)
            now += span
            best = min(best, (now - release) * scale + paid)
        now, place = end, place + 1
    if place + 1 == len(starts) and held and held[0][0]:  # for free in the last interval, the dearest first
        while held and held[0][0]:
            dear, amount = heappop(held)
            now, paid = now + _ratio(amount, full), paid + dear * amount
            best = min(best, (now - release) * scale + paid)
    return best


def _at_own_prices(jobs: Sequence[Any], claim: Mapping[str, Any]) -> _Number:
    """Return the sum over jobs of fixed widths at their own prices, less the dearest set that fits at each time."""
    starts, scale = claim["starts"], claim["price_parts"]
    total: _Number = 0
    part = gcd(*(costs[0] for *_, costs in jobs))
    units = claim["units"] // part
    here: list[list[tuple[int, int]]] = [[] for _ in starts]
    for (release, work, rates, costs), own in zip(jobs, claim["own"], strict=True):
        first = bisect_right(starts, release) - 1
        if first + len(own) >= len(starts):
            raise ValueError("a job has prices for ever")
        total += _least(release, work, rates, [1], starts[first : first + len(own) + 1], [*own, 0], scale)
        for place, price in enumerate(own, start=first):
            here[place].append((costs[0] // part, price))
    for items, (start, end) in zip(here, pairwise(starts), strict=False):
        best = [0] * (units + 1)  # by the room available
        if sum(width for width, _ in items) <= units:
            best[-1] = sum(price for _, price in items)
        else:
            for width, price in items:
                best[width:] = [
                    max(with_it + price, not_it) for with_it, not_it in zip(best, best[width:], strict=False)
                ]
        total -= best[-1] * (end - start)
    return total


def _on_fast_machine(jobs: Sequence[Any], capacity: int, parts: int) -> Fraction:
    """Return the sum of flow times of one machine with the full capacity, least remaining work first."""
    scale = capacity * parts
    coming = sorted((release * scale, work * _cheapest(rates, costs)) for release, work, rates, costs in jobs)
    now, total, place = 0, 0, 0
    left: list[int] = []
    while left or place < len(coming):
        now = now if left else max(now, coming[place][0])
        while place < len(coming) and coming[place][0] <= now:
            heappush(left, coming[place][1])
            place += 1
        span = left[0] if place == len(coming) else min(left[0], coming[place][0] - now)
        now += span
        if span == left[0]:
            heappop(left)
            total += now
        else:
            heapreplace(left, left[0] - span)
    return Fraction(total - sum(release for release, _ in coming), scale)


def _longest(jobs: Sequence[Any]) -> Fraction:
    ends: list[Fraction] = [release + Fraction(work, sum(rates)) for release, work, rates, _ in jobs]
    return max(ends)


def _work_after(jobs: Sequence[Any], claim: Mapping[str, Any]) -> Fraction:
    """Return when all work could be done, given the work that cannot be done before a tick."""
    since: int = claim["makespan_from"]
    area: int = sum(
        max(0, work - max(0, since - release) * sum(rates)) * _cheapest(rates, costs)
        for release, work, rates, costs in jobs
    )
    return since + Fraction(area, claim["capacity"] * claim["cost_parts"])


def _fills(claim: Mapping[str, Any], jobs: Sequence[Any]) -> bool:
    """Return whether jobs that each hold a fixed number of units, or none, never hold more than the capacity."""
    if claim["cost_parts"] != 1 or any(rates != [1] for _, _, rates, _ in jobs):
        return False
    reach = 1
    for width in {costs[0] for *_, costs in jobs}:
        for _ in range(claim["units"] // max(width, 1)):
            reach |= (reach << width) & ((2 << claim["units"]) - 1)
    return bool(reach.bit_length() - 1 <= claim["capacity"])


def _cheapest(rates: Sequence[int], costs: Sequence[int]) -> int:
    return min(cost for rate, cost in zip(rates, costs, strict=True) if rate)


def _ratio(amount: _Number, speed: _Number) -> _Number:
    return amount if speed == 1 else Fraction(amount) / speed


def _numbers(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _numbers(value)
        elif not isinstance(value, bool):
            yield value
