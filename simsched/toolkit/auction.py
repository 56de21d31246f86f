"""Themis' partial allocation auction (NSDI'20, section 4): bids for GPUs, Nash welfare, hidden payments, leases.

An application values an allocation at 1/rho, the inverse of its finish-time fairness. The winning allocation maximises
the product of values; each application keeps the share of it that makes truthful bids optimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error

#: A bid of one application: the value (1/rho, positive) of 0, 1, 2 ... GPUs, never falling.
Bid = Sequence[float]
#: The GPUs of every application, in the order of the bids.
Counts = tuple[int, ...]

Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: The unit in which logs of values are compared. The sum of some thousand of them fits an int64, whatever the values.
_LOG_UNIT = 1e-12


def finish_time_ratio(age_s: float, remaining_s: float, alone_s: float) -> float:
    """Return rho: seconds from arrival to the expected finish over seconds in a private cluster.

    `remaining_s` is infinite for an application without GPUs; `alone_s` is positive.
    """
    return (age_s + remaining_s) / alone_s


def bid_of(age_s: float, remaining_s: Callable[[int], float], alone_s: float, gpus: int) -> tuple[float, ...]:
    """Return the value 1/rho of 0 to `gpus` GPUs, with `remaining_s(n)` infinite if n GPUs finish nothing."""
    return tuple(1 / finish_time_ratio(age_s, remaining_s(count), alone_s) for count in range(gpus + 1))


def least_fair(ratios: Mapping[str, float], fairness: float) -> list[str]:
    """Return the share 1 - `fairness` of applications (at least one), largest rho first, ties by name.

    Raises `InputError` if `fairness` is not in [0, 1].
    """
    if not 0 <= fairness <= 1:
        raise input_error("fairness", f"is {fairness}, not in [0, 1]", "0.8 is the published value")
    offered = max(1, math.ceil((1 - fairness) * len(ratios) - 1e-9))
    return sorted(ratios, key=lambda name: (-ratios[name], name))[:offered]


def best_by_gain(bids: Sequence[Bid], gpus: int) -> Counts:
    """Return the counts with the greatest product of values among all that hand out at most `gpus`.

    It first minimises the number of applications of value 0. Ties go to fewer GPUs handed out, then to more for the
    first applications. Dynamic programming over the applications, on logs of values as integers in units of 1e-12, so
    the order of summation does not matter. The cost is `gpus` times the number of GPU counts at which a value rises,
    summed over applications.
    """
    scores = np.zeros((3, gpus + 1), dtype=np.int64)
    taken = []
    for bid in reversed(bids):
        scores, chosen = _with_one_more(bid, scores)
        taken.append(chosen)
    counts, left = [], gpus
    for chosen in reversed(taken):
        counts.append(int(chosen[left]))
        left -= counts[-1]
    return tuple(counts)


def _with_one_more(bid: Bid, scores: Whole) -> tuple[Whole, Whole]:
    """Return the best scores with one more application, by GPUs available, and how many GPUs it takes.

    A score compares the number of positive values, the log of their product, minus the GPUs handed out.
    """
    gpus = scores.shape[1] - 1
    chosen = np.zeros(gpus + 1, dtype=np.int64)
    best = scores + _score(bid, 0)
    for count in _rises(bid[: gpus + 1]):
        offered = scores[:, : gpus + 1 - count] + _score(bid, count)
        better = _greater_or_equal(offered, best[:, count:])
        best[:, count:][:, better] = offered[:, better]
        chosen[count:][better] = count
    return best, chosen


def _score(bid: Bid, count: int) -> Whole:
    value = bid[count]
    log = round(math.log(value) / _LOG_UNIT) if value > 0 else 0
    return np.array([[value > 0], [log], [-count]], dtype=np.int64)


def _rises(bid: Bid) -> list[int]:
    """List the numbers of GPUs at which a value is above that of all smaller numbers."""
    return [count for count, (before, value) in enumerate(pairwise(bid), start=1) if value > before]


def _greater_or_equal(one: Whole, other: Whole) -> Flags:
    """Compare columns, the first row being the most significant."""
    verdict: Flags = np.ones(one.shape[1], dtype=np.bool_)
    for here, there in zip(one[::-1], other[::-1], strict=True):
        verdict = (here > there) | ((here == there) & verdict)
    return verdict


@dataclass(frozen=True)
class Outcome:
    """The result of an auction: `won` maximises the product, `kept` is the share `payments` of it, rounded down.

    `left` GPUs are left over.
    """

    won: Counts
    payments: tuple[float, ...]
    kept: Counts
    left: int


def partial_allocation(bids: Sequence[Bid], gpus: int) -> Outcome:
    """Auction `gpus` GPUs among `bids`: one optimisation, plus one for each winner.

    The hidden payment of i is the product of the others' values with i present over that with i absent, at most 1
    (Themis, section 4.2; Cole, Gkatzelis and Goel 2013). A value of 0 stands for an arbitrarily small one: i keeps
    nothing if it costs another application all its value; zeros on both sides cancel.
    """
    _check(bids)
    won = best_by_gain(bids, gpus)
    payments = []
    for i, count in enumerate(won):
        if not count:  # nobody would gain from its absence
            payments.append(1.0)
            continue
        others = [bid for j, bid in enumerate(bids) if j != i]
        present = _worth(others, [given for j, given in enumerate(won) if j != i])
        absent = _worth(others, best_by_gain(others, gpus))
        payments.append(math.exp(min(0.0, present[1] - absent[1])) if present[0] >= absent[0] else 0.0)
    kept = tuple(math.floor(share * count + 1e-9) for share, count in zip(payments, won, strict=True))
    return Outcome(won, tuple(payments), kept, gpus - sum(kept))


def _worth(bids: Sequence[Bid], counts: Sequence[int]) -> tuple[int, float]:
    """Return how many values are positive, and the log of their product."""
    values = [bid[count] for bid, count in zip(bids, counts, strict=True)]
    positive = [value for value in values if value > 0]
    return len(positive), math.fsum(map(math.log, positive))


def _check(bids: Sequence[Bid]) -> None:
    for index, bid in enumerate(bids):
        falls = any(after < before for before, after in pairwise(bid))
        if not bid or bid[0] < 0 or falls:
            raise input_error(
                f"bid {index}", "is empty, negative or falls with more GPUs", "bid 1/rho for 0, 1, 2 ... GPUs"
            )
