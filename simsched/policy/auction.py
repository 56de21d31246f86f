"""Themis' partial allocation auction (NSDI'20, section 4): bids for GPUs, Nash welfare, hidden payments, leases.

An application's value of an allocation is 1/rho, the inverse of its finish-time fairness. The winning allocation
maximises the product of values; each application then keeps the share of its allocation that makes lying useless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from simsched.errors import input_error

#: A bid of one application: the value (1/rho, positive) of every number of GPUs from 0 on, not falling.
Bid = Sequence[float]
#: The GPUs of every application, in the order of the bids.
Counts = tuple[int, ...]


def finish_time_ratio(age_s: float, remaining_s: float, alone_s: float) -> float:
    """Return rho: seconds from arrival to the expected finish over seconds in a cluster of one's own.

    `remaining_s` is infinite for an application without GPUs; `alone_s` is positive.
    """
    return (age_s + remaining_s) / alone_s


def bid_of(age_s: float, remaining_s: Callable[[int], float], alone_s: float, gpus: int) -> tuple[float, ...]:
    """Return the value 1/rho of 0 to `gpus` GPUs, where `remaining_s(n)` is infinite if n GPUs finish nothing."""
    return tuple(1 / finish_time_ratio(age_s, remaining_s(count), alone_s) for count in range(gpus + 1))


def least_fair(ratios: Mapping[str, float], fairness: float) -> list[str]:
    """Return the applications that GPUs are offered to: the share 1 - `fairness` with the largest rho.

    At least one is offered, the least fair first, equals in the order of their names.
    """
    if not 0 <= fairness <= 1:
        raise input_error("fairness", f"is {fairness}, not in [0, 1]", "0.8 is the published value")
    offered = max(1, math.ceil((1 - fairness) * len(ratios) - 1e-9))
    return sorted(ratios, key=lambda name: (-ratios[name], name))[:offered]


def best_by_enumeration(bids: Sequence[Bid], gpus: int) -> Counts:
    """Return the counts with the greatest product of values among all that hand out at most `gpus`.

    Of equal products the one that gives the first applications more wins. A value of 0 counts as worse than any
    positive one, and the number of applications that have such a value is made small first.
    """
    ranges = [range(min(gpus, len(bid) - 1), -1, -1) for bid in bids]
    feasible = (counts for counts in product(*ranges) if sum(counts) <= gpus)
    return max(feasible, key=lambda counts: _rank(bids, counts))


def best_by_gain(bids: Sequence[Bid], gpus: int) -> Counts:
    """Return the counts that one step after the other leads to, each to the largest gain in log value per GPU.

    A step goes to the number of GPUs that gains most for each, so that jobs that need several at once are not passed
    over; of values that become positive the smallest step comes first. This is the optimum of `best_by_enumeration` if
    the log of every bid is concave, in O(gpus x applications), else it may fall short of it.
    """
    counts = [0] * len(bids)
    steps = [_steps(bid) for bid in bids]
    left = gpus
    while True:
        found = [_step(bid, count, ends, left) for bid, count, ends in zip(bids, counts, steps, strict=True)]
        best = max(range(len(bids)), key=lambda i: (found[i][0], -found[i][1]), default=-1)
        if best < 0 or found[best][0] <= 0:
            return tuple(counts)
        counts[best] += found[best][1]
        left -= found[best][1]


def _steps(bid: Bid) -> list[int]:
    """Return where the steps of a bid end: its first positive value, then the corners of the hull above its log."""
    ends: list[int] = []
    for count in range(1, len(bid)):
        if bid[count] <= bid[ends[-1] if ends else 0]:
            continue
        while ends and _rate(bid, ends[-2] if len(ends) > 1 else 0, ends[-1]) < _rate(bid, ends[-1], count):
            ends.pop()
        ends.append(count)
    return ends


def _step(bid: Bid, count: int, ends: Sequence[int], left: int) -> tuple[float, int]:
    """Return the gain per GPU of the next step of a bid, and its GPUs; a shorter one where it does not fit."""
    end = next((end for end in ends if end > count), count)
    if end - count > left:
        end = max(range(count, count + left + 1), key=lambda near: _rate(bid, count, near))
    return _rate(bid, count, end), end - count


def _rate(bid: Bid, count: int, end: int) -> float:
    """Return the gain in log value per GPU between two numbers of GPUs; infinite where there was none."""
    if end <= count or bid[end] <= bid[count]:
        return 0.0
    return math.inf if bid[count] <= 0 else math.log(bid[end] / bid[count]) / (end - count)


@dataclass(frozen=True)
class Outcome:
    """What an auction gives: `won` maximises the product, `kept` is the share `payments` of it, rounded down.

    `left` GPUs are free for others.
    """

    won: Counts
    payments: tuple[float, ...]
    kept: Counts
    left: int


def partial_allocation(
    bids: Sequence[Bid], gpus: int, best: Callable[[Sequence[Bid], int], Counts] = best_by_enumeration
) -> Outcome:
    """Hold an auction of `gpus` GPUs among `bids`; n + 1 optimisations for n applications.

    The hidden payment of i is the product of the others' values with i present over that with i absent, at most 1
    (Themis, section 4.2; Cole, Gkatzelis and Goel 2013).
    """
    _check(bids)
    won = best(bids, gpus)
    payments = []
    for i in range(len(bids)):
        others = [bid for j, bid in enumerate(bids) if j != i]
        present = [count for j, count in enumerate(won) if j != i]
        payments.append(_payment(others, present, best(others, gpus)))
    kept = tuple(math.floor(share * count + 1e-9) for share, count in zip(payments, won, strict=True))
    return Outcome(won, tuple(payments), kept, gpus - sum(kept))


def _rank(bids: Sequence[Bid], counts: Sequence[int]) -> tuple[int, float]:
    values = [bid[count] for bid, count in zip(bids, counts, strict=True)]
    return -sum(value <= 0 for value in values), math.prod(value for value in values if value > 0)


def _payment(others: Sequence[Bid], present: Sequence[int], absent: Sequence[int]) -> float:
    """Compute the ratio of products; applications that have no value either way cancel."""
    share = 1.0
    for bid, with_us, without_us in zip(others, present, absent, strict=True):
        if bid[without_us] > 0:
            share *= bid[with_us] / bid[without_us]
    return min(1.0, share)


def _check(bids: Sequence[Bid]) -> None:
    for index, bid in enumerate(bids):
        falls = any(after < before for before, after in pairwise(bid))
        if not bid or bid[0] < 0 or falls:
            raise input_error(
                f"bid {index}", "is empty, negative or falls with more GPUs", "bid 1/rho for 0, 1, 2 ... GPUs"
            )
