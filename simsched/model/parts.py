"""Parts of GPUs that jobs or pods ask for: when they fit on one, and which requests are usual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

Request = TypeVar("Request", bound=Hashable)

#: By how much parts may pass a whole GPU: sums of decimal fractions are not exact.
SLACK = 1e-9
#: The share of all requests that the usual ones stand for.
COVERED = 0.95


def usual_requests(counts: Counter[Request], covered: float = COVERED) -> list[tuple[Request, float]]:
    """Return the most frequent requests, until they are `covered` of all, each with its share; shares add up to 1.

    Equally frequent ones come in the order in which they were first counted. Source: Weng et al., "Beware of
    Fragmentation" (ATC'23), section 3, the classes of its target workload.
    """
    total, seen, kept = counts.total(), 0, []
    for request, count in counts.most_common():
        kept.append((request, count))
        seen += count
        if seen >= covered * total:
            break
    return [(request, count / seen) for request, count in kept]
