"""Division of a resource into fair shares. Source: KAI-Scheduler, plugin proportion, resource division."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import floor

from simsched.arithmetic import ordered_sum
from simsched_policies.production.kai.model import SLACK, UNLIMITED, Quota


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
