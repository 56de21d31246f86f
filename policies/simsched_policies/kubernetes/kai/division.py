"""What queues get of the cluster: the division of each resource, and the past use that affects it.

Source: KAI-Scheduler, time-based fair share. KAI takes samples; here use is integrated, the limit of ever denser
samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import floor
from typing import NamedTuple

from simsched.arithmetic import exp, ordered_sum
from simsched_policies.kubernetes.kai.model import NOTHING, SLACK, UNLIMITED, Amounts, Quota, plus

_LN2 = 0.6931471805599453


class _Stretch(NamedTuple):
    """An interval without changes: its seconds, what each queue held, and what the cluster had."""

    start_s: float
    end_s: float
    held: Mapping[str, Amounts]
    capacity: Amounts


class UsageWindow:
    """What queues held in the last `window_s` seconds; with a half-life (above 0), recent use weighs more."""

    def __init__(self, window_s: float, half_life_s: float = 0.0) -> None:
        self._window_s, self._half_life_s = window_s, half_life_s
        self._stretches: deque[_Stretch] = deque()

    def note(self, start_s: float, end_s: float, held: Mapping[str, Amounts], capacity: Amounts) -> None:
        """Add what was held over an interval that follows the last one."""
        if end_s > start_s:
            self._stretches.append(_Stretch(start_s, end_s, dict(held), capacity))

    def at(self, now_s: float) -> dict[str, Amounts]:
        """Return the share of the cluster that each queue used, by resource."""
        while self._stretches and self._stretches[0].end_s <= now_s - self._window_s:
            self._stretches.popleft()
        used: dict[str, Amounts] = {}
        had = NOTHING
        for stretch in self._stretches:
            weight = self._weight(max(stretch.start_s, now_s - self._window_s), stretch.end_s, now_s)
            had = plus(had, stretch.capacity, weight)
            for name, amounts in stretch.held.items():
                used[name] = plus(used.get(name, NOTHING), amounts, weight)
        return {name: _over(amounts, had) for name, amounts in used.items()}

    def _weight(self, start_s: float, end_s: float, now_s: float) -> float:
        if self._half_life_s <= 0:
            return end_s - start_s
        old, new = (exp(-_LN2 * (now_s - at) / self._half_life_s) for at in (start_s, end_s))
        return float(new - old) * self._half_life_s / _LN2


def _over(amounts: Amounts, had: Amounts) -> Amounts:
    cpu, memory, gpu = (used / of if of > 0 else 0.0 for used, of in zip(amounts, had, strict=True))
    return (cpu, memory, gpu)


@dataclass
class Claim:
    """What a queue asks of one resource, and its `share`, with the `remainder` of its last round."""

    name: str
    quota: Quota
    request: float
    priority: int = 100
    created_s: float = 0.0
    usage: float = 0.0
    share: float = 0.0
    remainder: float = 0.0

    @property
    def requestable(self) -> float:
        """The most that it may get."""
        limit = self.quota.limit
        return self.request if limit == UNLIMITED else min(limit, self.request)

    @property
    def missing(self) -> float:
        """The most that it may still get."""
        return self.requestable - self.share


def divide(amount: float, claims: Sequence[Claim], k: float = 1.0) -> dict[str, float]:
    """Return the fair share of each queue: what it deserves, then parts of the rest by priority and weight.

    >>> asking = Quota(10, UNLIMITED, 3), Quota(10, UNLIMITED, 1)
    >>> divide(100, [Claim("a", asking[0], 100), Claim("b", asking[1], 100)])
    {'a': 70.0, 'b': 30.0}
    """
    for claim in claims:
        deserved = amount if claim.quota.quota == UNLIMITED else claim.quota.quota
        claim.share, claim.remainder = float(min(deserved, claim.requestable)), 0.0
    left = amount - ordered_sum(claim.share for claim in claims)
    classes = _by_priority(claims)
    for alike in classes:
        if left > SLACK:
            left = _over_quota(left, alike, max(k, 0.0))
    for alike in classes:
        left = _remainders(left, alike)
    return {claim.name: claim.share for claim in claims}


def _by_priority(claims: Iterable[Claim]) -> list[list[Claim]]:
    highest_first = sorted(claims, key=lambda claim: -claim.priority)
    return [list(alike) for _, alike in groupby(highest_first, key=lambda claim: claim.priority)]


def _over_quota(left: float, claims: Iterable[Claim], k: float) -> float:
    """Give whole units by weight, in rounds, until no queue is satisfied with less than its part."""
    again = True
    while again and left > SLACK:
        again = False
        asking = [claim for claim in claims if claim.missing > SLACK and claim.quota.weight > 0]
        weights = ordered_sum(claim.quota.weight for claim in asking)
        parts = [claim.quota.weight / weights for claim in asking]
        pulls = [max(0.0, w + k * (w - claim.usage)) for claim, w in zip(asking, parts, strict=True)]
        pull, start = ordered_sum(pulls), left
        for claim, own in zip(asking, pulls, strict=True):
            part = start * own / pull if pull > 0 else 0.0
            if claim.missing <= part + SLACK:
                again |= claim.missing < part - SLACK
                given, claim.remainder = claim.missing, 0.0
            else:
                given = float(floor(part + SLACK))
                claim.remainder = max(part - given, 0.0)
            claim.share += given
            left -= given
    return left


def _remainders(left: float, claims: Iterable[Claim]) -> float:
    """Give at most one unit to each queue whose part was rounded down, largest remainder first."""
    owed = [claim for claim in claims if claim.remainder > SLACK]
    for claim in sorted(owed, key=lambda claim: (-claim.remainder, claim.created_s, claim.name)):
        given = min(1.0, max(left, 0.0))
        claim.share += given
        left -= given
    return left
