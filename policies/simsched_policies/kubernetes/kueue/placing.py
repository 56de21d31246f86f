"""Placement of a pod set in a topology: how many pods fit in each domain, and which domains are taken.

Source: Kueue, topology-aware scheduling: phase 1 counts what fits in each domain from the leaves up, phase 2 finds the
level and the domains, then goes down level by level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simsched_policies.kubernetes.kueue.topology import Counts, Domains

_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Wanted:
    """The request of a pod set, with levels as numbers.

    `layers` are the levels and sizes of its slices from the outermost, at least one. With `leader`, one more pod is
    placed in the same domain of the requested `level`. With `least_free` the domains with the least room come first,
    with `most_room` those with the most, even for the last pods.
    """

    count: int
    level: int
    layers: tuple[tuple[int, int], ...]
    required: bool = False
    unconstrained: bool = False
    least_free: bool = False
    leader: bool = False
    most_room: bool = False

    @property
    def slices(self) -> int:
        """Return the number of outer slices."""
        return self.count // self.layers[0][1]

    def unit(self, level: int) -> int:
        """Return how many pods stay together when slices are distributed to domains of a level."""
        return next((size for at, size in self.layers[1:] if at >= level), 1)


class Part(NamedTuple):
    """What a domain takes: a number of slices (or pods), and whether also the leader."""

    domain: int
    amount: int
    leader: bool


@dataclass(frozen=True)
class Room:
    """What fits in the domains of a level: pods and outer slices, the same next to a leader, and whether a leader fits.

    `scores` are weights of preferred nodes, None if no pod prefers any.
    """

    pods: Counts
    slices: Counts
    pods_led: Counts
    slices_led: Counts
    leaders: Counts
    scores: Counts | None


class Unplaced(Exception):  # noqa: N818 - an answer
    """The pods find no place; the text is the reason."""


class NotFit(Unplaced):
    """There is not enough room."""


def rooms(
    domains: Domains, wanted: Wanted, pods: Counts, led: Counts | None, leaders: Counts | None, scores: Counts | None
) -> list[Room]:
    """Count what fits in each domain from what fits in each leaf (phase 1), by level from the highest."""
    size_at = dict(wanted.layers[1:])
    outer, size = wanted.layers[0]
    none = np.zeros(len(pods), np.int64)
    made: list[Room] = []
    for depth in reversed(range(len(domains.levels))):
        starts = domains.levels[depth].starts[:-1]
        if made:
            below = made[-1]
            pods = np.add.reduceat(below.pods, starts)
            scores = None if scores is None else np.maximum.reduceat(scores, starts)
            if led is not None and leaders is not None:
                led = pods - _least_loss(below.pods, below.pods_led, below.leaders, starts)
                leaders = np.maximum.reduceat(leaders, starts)
        if depth in size_at:
            pods = pods - pods % size_at[depth]
            led = None if led is None else led - led % size_at[depth]
        if depth < outer:
            slices = np.add.reduceat(made[-1].slices, starts)
            slices_led = slices - _least_loss(made[-1].slices, made[-1].slices_led, made[-1].leaders, starts)
        elif depth == outer:
            slices, slices_led = pods // size, (pods if led is None else led) // size
        else:
            slices = slices_led = none[: len(pods)]
        lead = none[: len(pods)] if leaders is None else leaders
        if led is None:
            made.append(Room(pods, slices, pods, slices, lead, scores))
        else:
            made.append(Room(pods, slices, led, np.where(lead > 0, slices_led, 0), lead, scores))
    return made[::-1]


def _least_loss(plain: Counts, led: Counts, leaders: Counts, starts: Counts) -> Counts:
    """Return for each parent the room that the leader costs in its best child."""
    if not leaders.any():
        return np.zeros(len(starts), np.int64)
    loss = np.minimum.reduceat(np.where(leaders > 0, plain - led, _NONE), starts)
    return np.where(loss == _NONE, 0, loss)


class Placer:
    """Chooses domains for pods (phase 2)."""

    def __init__(self, domains: Domains, wanted: Wanted, made: list[Room]) -> None:
        self.domains = domains
        self.wanted = wanted
        self.rooms = made

    def placed(self) -> tuple[dict[int, int], int | None]:
        """Return the pods by leaf, and the leaf of the leader; raises `Unplaced`."""
        depth, parts = self._level_that_fits()
        outer = self.wanted.layers[0][0]
        for level in range(depth, outer):
            below = np.concatenate([self.domains.levels[level].children(part.domain) for part in parts])
            parts = self.greedy(level + 1, np.sort(below), sum(part.amount for part in parts), self.wanted.leader)
        return self.dealt(outer, parts)

    def dealt(self, level: int, parts: list[Part]) -> tuple[dict[int, int], int | None]:
        """Distribute the slices of domains to their children, down to the leaves."""
        outer, size = self.wanted.layers[0]
        while level < outer:
            parts = [
                share
                for part in parts
                for share in self.greedy(level + 1, self._children(level, part), part.amount, part.leader)
            ]
            level += 1
        parts = [Part(part.domain, part.amount * size, part.leader) for part in parts]
        while level + 1 < len(self.domains.levels):
            unit = self.wanted.unit(level + 1)
            parts = [
                Part(share.domain, share.amount * unit, share.leader)
                for part in parts
                for share in self.greedy(level + 1, self._children(level, part), part.amount // unit, part.leader, unit)
            ]
            level += 1
        pods = {part.domain: part.amount for part in sorted(parts) if part.amount}
        return pods, next((part.domain for part in parts if part.leader), None)

    def _children(self, level: int, part: Part) -> Counts:
        return self.domains.levels[level].children(part.domain)

    def _level_that_fits(self) -> tuple[int, list[Part]]:
        """Find the lowest level, from the requested one upwards, whose domains take all pods, and these domains."""
        wanted, level = self.wanted, self.wanted.level
        while True:
            room = self.rooms[level]
            if not len(room.pods):
                raise Unplaced(f"no topology domains at level: {self.domains.labels[level]}")
            fits = (room.slices_led >= wanted.slices) & (room.leaders >= wanted.leader)
            if room.scores is not None and not wanted.required and not wanted.least_free:
                able = room.leaders == room.leaders.max()
                fits &= able & (room.scores == room.scores[able].max())
            if fits.any():
                return level, [Part(self._tightest(room, np.flatnonzero(fits)), wanted.slices, wanted.leader)]
            if wanted.required:
                top = self._sorted(room, np.arange(len(room.pods)), led=wanted.leader, descending=True)[0]
                raise NotFit(self._not_fit(level, int(room.slices[top]), int(top)))
            if level == 0 or wanted.unconstrained:
                return level, self.greedy(level, np.arange(len(room.pods)), wanted.slices, wanted.leader)
            level -= 1

    def _tightest(self, room: Room, among: Counts) -> int:
        """Return the domain with the least room among the most preferred ones."""
        slices = room.slices_led[among]
        keys = [among, room.pods_led[among], -slices if self.wanted.most_room else slices]
        if room.scores is not None:
            keys.append(-room.scores[among])
        return int(among[np.lexsort(keys)[0]])

    def _sorted(self, room: Room, among: Counts, *, led: bool, descending: bool) -> Counts:
        """Return domains in the order in which they are taken; ties by their values."""
        pods, slices = (room.pods_led, room.slices_led) if led else (room.pods, room.slices)
        keys = [pods[among], -slices[among] if descending else slices[among]]
        if room.scores is not None:
            keys.append(-room.scores[among])
        if led:
            keys.append(-room.leaders[among])
        return among[np.lexsort(keys)]

    def greedy(self, level: int, among: Counts, need: int, leader: bool, unit: int = 0) -> list[Part]:
        """Take domains (in ascending order) in turn until `need` is met; the last one is the tightest fit.

        With a `unit`, pods are distributed in units, otherwise in outer slices. Raises `Unplaced`.
        """
        room, best, parts, left = self.rooms[level], not self.wanted.least_free, list[Part](), need
        plain = room.pods // unit if unit else room.slices
        if leader:
            lead = self._leader(room, among, need, unit)
            led = int((room.pods_led // unit if unit else room.slices_led)[lead])
            parts.append(Part(lead, min(led, left), leader=True))
            left -= parts[0].amount
            among = among[among != lead]
        among = among[plain[among] > 0]
        if (most := int(plain[among].sum())) < left:
            raise NotFit(self._not_fit(level, need - left + most))
        order = self._sorted(room, among, led=False, descending=best) if left > 0 else among
        for at, (domain, has) in enumerate(zip(order.tolist(), plain[order].tolist(), strict=True)):
            if left <= 0:
                break
            chosen = domain
            if best and has >= left and not self.wanted.most_room:
                rest = order[at:]
                equal = rest if room.scores is None else rest[room.scores[rest] == room.scores[domain]]
                enough = equal[plain[equal] >= left]
                chosen = int(enough[np.argmin(plain[enough])])
            parts.append(Part(chosen, min(has, left), leader=False))
            left -= parts[-1].amount
        return parts

    def _leader(self, room: Room, among: Counts, need: int, unit: int) -> int:
        """Return the leader's domain: the tightest that takes everything, else the first that leaves enough room."""
        order = self._sorted(room, among, led=True, descending=not self.wanted.least_free)
        order = order[room.leaders[order] > 0]
        if not len(order):
            raise NotFit(self._not_fit(self.wanted.level, 0))
        plain, led = (room.pods // unit, room.pods_led // unit) if unit else (room.slices, room.slices_led)
        loss = plain[order] - led[order]
        spare = order[int(plain[among].sum()) - loss >= need]
        first = spare[0] if len(spare) else order[0]
        enough = order[led[order] >= need]
        if not self.wanted.least_free and led[first] >= need:
            return int(enough[np.argmin(led[enough])])
        return int(first)

    def _not_fit(self, level: int, fit: int, domain: int | None = None) -> str:
        wanted = self.wanted
        if len(wanted.layers) > 1:
            lines = []
            for at, size in wanted.layers:
                pods = self.rooms[at].pods
                if domain is not None:
                    pods = pods[
                        [path[: level + 1] == self._path(level, domain) for path in self.domains.levels[at].paths]
                    ]
                lines.append(
                    f"{(pods // size).sum()}/{wanted.count // size} slice(s) fit on level {self.domains.labels[at]}"
                )
            return f"doesn't allow to fit; {'; '.join(lines)}"
        kind = "slice(s)" if wanted.layers[0][1] > 1 else "pod(s)"
        if fit == 0:
            return f"doesn't allow to fit any of {wanted.slices} {kind}"
        return f"allows to fit only {fit} out of {wanted.slices} {kind}"

    def _path(self, level: int, domain: int) -> tuple[str, ...]:
        return self.domains.levels[level].paths[domain]
