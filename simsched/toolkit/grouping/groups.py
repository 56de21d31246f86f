"""Muri's grouping: who may share GPUs, who is merged with whom, and in which order groups are placed.

Source: Muri, SIGCOMM'22, section 4.2 and algorithm 1, with the order of steps of its simulator. Jobs in a group ask for
the same number of GPUs; jobs are merged only while the cluster is too small for all jobs taken.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import ordered_sum
from simsched.toolkit.grouping.matching import max_weight_matching


class Member(Protocol):
    """A job to be grouped."""

    @property
    def gpus(self) -> int:
        """Return the GPUs that the job asks for."""


J = TypeVar("J", bound=Member)
#: Pairs of indices of a matching, given a symmetric matrix of weights.
Matcher = Callable[[npt.NDArray[np.float64]], Iterable[Sequence[int]]]
#: Names the kind of a group.
Kind = Callable[[tuple[J, ...]], Hashable]
_RESOURCES = 4


@dataclass(frozen=True)
class Rules:
    """Limits on merging: `capacity` GPUs to fill, at most `most_jobs` jobs in a group, at most `passes` matchings.

    With `both_ways` each pair's weight is computed in both orders, for matchers that read both.
    """

    capacity: int
    most_jobs: int = 4
    passes: int = 4
    both_ways: bool = False


@dataclass(frozen=True)
class Bucket(Generic[J]):
    """The jobs of one size that may run, in their order; every `most_jobs`-th, from the first, leads a group."""

    jobs: tuple[J, ...]
    leaders: int


def take(jobs: Sequence[J], fits: Callable[[int], bool], most_jobs: int = 4) -> dict[int, Bucket[J]]:
    """Take the jobs that may run, by the GPUs that they ask for, with sizes in order of first appearance.

    In order, each job that fits leads a group and brings the next jobs of its size, `most_jobs` in all. `fits(gpus)`
    places a leader and returns True, or returns False.
    """
    sizes: dict[int, list[J]] = {}
    for job in jobs:
        sizes.setdefault(job.gpus, []).append(job)
    seen, taken, leaders = (dict.fromkeys(sizes, 0) for _ in range(3))
    for job in jobs:
        if seen[job.gpus] >= taken[job.gpus] and fits(job.gpus):
            taken[job.gpus] = seen[job.gpus] + most_jobs
            leaders[job.gpus] += 1
        seen[job.gpus] += 1
    return {gpus: Bucket(tuple(sizes[gpus][: taken[gpus]]), leaders[gpus]) for gpus in sizes}


def efficiency(busy_s: Sequence[float], together_s: float) -> float:
    """Return the share of four resources that a group keeps busy: total stage time over 4 x seconds of an iteration."""
    return ordered_sum(busy_s) / together_s / _RESOURCES


def merge_by_matching(
    buckets: Mapping[int, Bucket[J]],
    rules: Rules,
    weight: Callable[[tuple[J, ...]], float],
    match: Matcher = max_weight_matching,
    kind: Kind[J] | None = None,
) -> list[tuple[J, ...]]:
    """Merge groups in pairs by maximum-weight matchings, bucket by bucket, until the jobs taken fit.

    `weight(group)` values a merged group, for example by `efficiency`; groups of one `kind` weigh the same and are
    weighed once. As in the published simulator the first pass is always made, and orders matched jobs next to each
    other even if nobody needs merging.
    """
    required = gpus_of(buckets)
    groups: dict[int, list[tuple[J, ...]]] = {gpus: [(job,) for job in bucket.jobs] for gpus, bucket in buckets.items()}
    for _ in range(rules.passes):
        for gpus, singles in groups.items():
            pairs = _pairs(singles, rules, weight, match, kind)
            groups[gpus], required = _merge(singles, pairs, gpus, required, rules.capacity)
        if required <= rules.capacity:
            break
    return [group for bucket in groups.values() for group in bucket]


def placement_order(
    jobs: Sequence[J], groups: Iterable[tuple[J, ...]], key: Callable[[J], float], fits: Callable[[int], bool]
) -> list[tuple[J, ...]]:
    """Return the groups that run, in the order in which they are placed.

    Groups are admitted by their smallest member key (stable) if `fits(gpus)`; the admitted are placed by GPUs, most
    first, ties by the first member in `jobs`.
    """
    kept = [group for group in sorted(groups, key=lambda group: min(map(key, group))) if fits(group[0].gpus)]
    index = {id(job): place for place, job in enumerate(jobs)}
    first = [(-group[0].gpus, min(index[id(job)] for job in group), group) for group in kept]
    return [group for _, _, group in sorted(first, key=lambda entry: entry[:2])]


def gpus_of(buckets: Mapping[int, Bucket[J]]) -> int:
    """Count the GPUs that all jobs of the buckets ask for."""
    return sum(gpus * len(bucket.jobs) for gpus, bucket in buckets.items())


def _pairs(
    groups: Sequence[tuple[J, ...]],
    rules: Rules,
    weight: Callable[[tuple[J, ...]], float],
    match: Matcher,
    kind: Kind[J] | None,
) -> dict[int, int]:
    """Match the groups that may be merged; maps the later index of each pair to the earlier."""
    weights = _weights(groups, rules, weight, kind)
    if not weights.any():
        return {}
    return {max(pair): min(pair) for pair in match(weights)}


def _weights(
    groups: Sequence[tuple[J, ...]], rules: Rules, weight: Callable[[tuple[J, ...]], float], kind: Kind[J] | None
) -> npt.NDArray[np.float64]:
    """Weigh all pairs of groups that may be merged; each pair of kinds is weighed once."""
    names = [index if kind is None else kind(group) for index, group in enumerate(groups)]
    first = dict(reversed(list(zip(names, groups, strict=True))))
    rank = {name: index for index, name in enumerate(first)}
    table = np.zeros((len(first), len(first)))
    for one, group in first.items():
        for other, partner in first.items():
            if len(group) + len(partner) <= rules.most_jobs:
                table[rank[one], rank[other]] = weight((*group, *partner))
    places = [rank[name] for name in names]
    weights: npt.NDArray[np.float64] = table[np.ix_(places, places)]
    if not rules.both_ways:
        upper = np.triu(weights, 1)
        return upper + upper.T
    np.fill_diagonal(weights, 0)
    return weights


def _merge(
    groups: Sequence[tuple[J, ...]], pairs: Mapping[int, int], gpus: int, required: int, capacity: int
) -> tuple[list[tuple[J, ...]], int]:
    """Emit matched groups at the later index, merged while `required` exceeds `capacity`, else one by one."""
    waiting = set(pairs.values())
    merged: list[tuple[J, ...]] = []
    for index, group in enumerate(groups):
        if index in pairs:
            partner = groups[pairs[index]]
            if required > capacity:
                merged.append((*partner, *group))
                required -= gpus
            else:
                merged += [partner, group]
        elif index not in waiting:
            merged.append(group)
    return merged, required
