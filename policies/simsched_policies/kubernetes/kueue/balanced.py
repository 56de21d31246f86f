"""Balanced placement: the fewest domains, each with about the same number of slices.

Source: Kueue, topology-aware scheduling, gate TASBalancedPlacement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simsched_policies.kubernetes.kueue.placing import Part, Placer, Room, Unplaced
from simsched_policies.kubernetes.kueue.topology import Counts

#: Chosen domains by their total room, and by how much of it remains next to the leader.
_Totals = dict[tuple[int, int], tuple[Part, ...]]


class _Choice(NamedTuple):
    """Domains of the requested level with one parent, their remaining room, and the slices of each child."""

    threshold: int
    domains: Counts
    room: Room
    kept: Counts
    needed: int


def balanced(placer: Placer) -> tuple[dict[int, int], int | None] | None:
    """Return the pods by leaf and the leader's leaf; None if there is no balanced placement."""
    wanted = placer.wanted
    best: _Choice | None = None
    for group in _siblings(placer):
        choice = _choice(placer, group)
        if choice and (best is None or (-choice.threshold, choice.needed) < (-best.threshold, best.needed)):
            best = choice
    if best is None:
        return None
    level, among = wanted.level, best.domains
    if level < wanted.layers[0][0]:
        chosen = chosen_domains(placer, best.room, among, best.needed, 0, _entropy(placer, best))
        if chosen is None:
            return None
        parents = placer.domains.levels[level + 1].parents
        among = best.kept[np.isin(parents[best.kept], [part.domain for part in chosen])]
        level += 1
    try:
        return placer.dealt(level, dealt(placer, level, among, best.threshold))
    except Unplaced:
        return None


def _siblings(placer: Placer) -> Iterator[Counts]:
    """Yield the domains of the requested level by parent; all together at the highest level."""
    level = placer.domains.levels[placer.wanted.level]
    for parent in np.unique(level.parents):
        yield np.flatnonzero(level.parents == parent)


def _choice(placer: Placer, group: Counts) -> _Choice | None:
    wanted, levels = placer.wanted, placer.domains.levels
    room, lower, kept = placer.rooms[wanted.level], placer.rooms[wanted.level], group
    split = wanted.level < wanted.layers[0][0]
    if split:
        lower = placer.rooms[wanted.level + 1]
        kept = np.concatenate([levels[wanted.level].children(int(domain)) for domain in group])
    tried = filled(placer, lower, kept)
    if tried is None:
        return None
    needed, least = tried
    threshold = min(wanted.slices // needed, least)
    kept = kept[lower.slices[kept] >= threshold]
    if threshold <= 0 or not len(kept):
        return None
    if not split:
        return _Choice(threshold, kept, room, kept, needed)
    left = _pruned(placer, kept)
    tried = filled(placer, left, group)
    return tried and _Choice(threshold, group, left, kept, tried[0])


def _pruned(placer: Placer, kept: Counts) -> Room:
    """Return the room of the requested level with only `kept` of its children."""
    level = placer.wanted.level
    own, lower = placer.rooms[level], placer.rooms[level + 1]
    parents = placer.domains.levels[level + 1].parents[kept]
    pods, slices, leaders = (np.zeros_like(own.pods) for _ in range(3))
    np.add.at(pods, parents, lower.pods[kept])
    np.add.at(slices, parents, lower.slices[kept])
    np.maximum.at(leaders, parents, lower.leaders[kept])
    led = []
    for whole, plain, beside in ((pods, lower.pods, lower.pods_led), (slices, lower.slices, lower.slices_led)):
        loss = np.full(len(pods), np.iinfo(np.int64).max)
        able = kept[lower.leaders[kept] > 0]
        np.minimum.at(loss, placer.domains.levels[level + 1].parents[able], (plain - beside)[able])
        led.append(np.where(leaders > 0, whole - loss, 0) if placer.wanted.leader else whole)
    return replace(own, pods=pods, slices=slices, pods_led=led[0], slices_led=led[1], leaders=leaders)


def _order(room: Room, among: Counts, *, led: bool) -> Counts:
    slices, pods = (room.slices_led, room.pods_led) if led else (room.slices, room.pods)
    lead = room.leaders[among] if led else np.zeros(len(among))
    return among[np.lexsort((pods[among], -slices[among], -lead))]


def filled(placer: Placer, room: Room, among: Counts) -> tuple[int, int] | None:
    """Fill domains from the largest; return how many are needed, and the least room, which bounds what each gets."""
    left, needed, least = placer.wanted.slices, 0, placer.wanted.slices
    if placer.wanted.leader:
        first = int(_order(room, among, led=True)[0])
        if not room.leaders[first]:
            return None
        left, needed, least = left - int(room.slices_led[first]), 1, int(room.slices_led[first])
        among = among[among != first]
    last = None
    for domain in _order(room, among, led=False):
        if left <= 0:
            break
        last = int(room.slices[domain])
        left, needed = left - last, needed + 1
    return None if left > 0 or not needed else (needed, least if last is None else min(least, last))


def _entropy(placer: Placer, choice: _Choice) -> dict[int, float]:
    """Return for each domain how evenly its kept children share its room."""
    level = placer.wanted.level
    parents, pods = placer.domains.levels[level + 1].parents, placer.rooms[level + 1].pods
    return {
        int(domain): entropy_of([int(pods[child]) for child in choice.kept[parents[choice.kept] == domain]])
        for domain in choice.domains
    }


def entropy_of(amounts: Sequence[int]) -> float:
    """Return how evenly amounts share their sum, in bits."""
    whole = max(sum(amounts), 1)
    return -sum(amount / whole * math.log2(amount / whole) for amount in amounts if amount)


def chosen_domains(
    placer: Placer, room: Room, among: Counts, number: int, least: int, entropy: dict[int, float] | None = None
) -> tuple[Part, ...] | None:
    """Return exactly `number` domains that hold all with the least total room; None if there are none.

    A leader's domain keeps room for `least` slices. Dynamic programming over domains, in the order of preference among
    equal totals.
    """
    order = _order(room, among, led=placer.wanted.leader)
    if entropy is not None:
        order = np.array(sorted(order, key=lambda d: (-room.leaders[d], -room.slices[d], -entropy[int(d)], d)))
    totals: dict[tuple[int, bool], _Totals] = {(0, False): {(0, 0): ()}}
    for domain in map(int, order):
        plain = int(room.slices[domain])
        ways = [Part(domain, plain, leader=False)]
        if placer.wanted.leader and room.leaders[domain] and room.slices_led[domain] >= least:
            ways.append(Part(domain, int(room.slices_led[domain]), leader=True))
        for (count, leader), found in sorted(totals.items(), key=lambda entry: entry[0], reverse=True):
            for part in ways:
                if count < number and not (leader and part.leader):
                    bucket = totals.setdefault((count + 1, leader or part.leader), {})
                    for (whole, takes), parts in found.items():
                        bucket.setdefault((whole + plain, takes + part.amount), (*parts, part))
    found = totals.get((number, placer.wanted.leader), {})
    return found[min(enough)] if (enough := [key for key in found if key[1] >= placer.wanted.slices]) else None


def dealt(placer: Placer, level: int, among: Counts, threshold: int) -> list[Part]:
    """Give each of the fewest domains `threshold` slices, then the rest to the largest first; raises `Unplaced`."""
    room, need = placer.rooms[level], placer.wanted.slices
    tried = filled(placer, room, among)
    chosen = tried and chosen_domains(placer, room, among, tried[0], threshold)
    if not chosen or threshold * len(chosen) > need or any(part.amount < threshold for part in chosen):
        raise Unplaced
    extra, parts = need - threshold * len(chosen), []
    for part in sorted(chosen, key=lambda part: (not part.leader, -part.amount, part.domain)):
        more = min(extra, part.amount - threshold)
        parts.append(Part(part.domain, threshold + more, part.leader))
        extra -= more
    return parts
