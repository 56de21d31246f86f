"""Topology assignments of a workload: its pod sets in turn, groups, failed nodes, changed sizes.

Source: Kueue, topology-aware scheduling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simsched_policies.kubernetes.kueue.balanced import balanced
from simsched_policies.kubernetes.kueue.gates import DEFAULTS
from simsched_policies.kubernetes.kueue.model import Places, PodSet, Slice, TopologyRequest
from simsched_policies.kubernetes.kueue.placing import NotFit, Placer, Unplaced, Wanted, rooms
from simsched_policies.kubernetes.kueue.topology import PODS, Amounts, Counts, Domains, Usage

#: Gates that affect a placement, and the number of cached placements.
_DECIDING = (
    *(
        "TASBalancedPlacement",
        "TASMultiLayerTopology",
        "TASProfileMixed",
        "TASRespectNodeAffinityPreferred",
        "MostRoom",
    ),
)
_MOST_KNOWN = 4096


@dataclass(frozen=True)
class Earlier:
    """The previous state of a workload: its assignments, failed nodes, and whether its placement must stay."""

    assigned: Mapping[str, Places] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    keeps: bool = False


@dataclass(frozen=True)
class Result:
    """The assignments of pod sets by name, and the reason if one has none."""

    assigned: Mapping[str, Places] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


def assign(
    domains: Domains,
    pod_sets: Sequence[PodSet],
    gates: Mapping[str, bool] = DEFAULTS,
    earlier: Earlier | None = None,
    *,
    empty: bool = False,
    name: str = "default",
    beside: Sequence[Usage] = (),
) -> Result:
    """Place pod sets in order, each in addition to the earlier ones; the first without a place ends the search.

    `earlier` has assignments to change: pods of failed nodes are placed again, a resized set keeps its pods. With
    `empty`, only pods outside any topology occupy the nodes. `name` is the topology's, for reasons. `beside` are
    pods of the workload that are not counted yet.
    """
    if earlier is not None or beside:
        search = _Search(domains, gates, earlier or Earlier(), empty, name)
        for one in beside:
            if (leaf := domains.leaf(one.values)) is not None:
                search.take(one.requests, {leaf: one.count})
        return _searched(search, pod_sets)
    on = tuple(gates[gate] for gate in _DECIDING)
    key = (0 if empty else domains.state, on, name, tuple(pods.key for pods in pod_sets))
    if key not in domains.known:
        if len(domains.known) >= _MOST_KNOWN:
            domains.known.clear()
        domains.known[key] = _searched(_Search(domains, gates, Earlier(), empty, name), pod_sets)
    return domains.known[key]  # type: ignore[no-any-return]


def most_pods(domains: Domains, pods: PodSet) -> int:
    """Return how many pods of a set fit in the free room, in one domain if they require one."""
    wish, level = pods.topology, -1
    if wish is not None and wish.kind == "required" and wish.level in domains.labels:
        level = domains.labels.index(wish.level)
    key = (tuple(pods.requests.items()), level)
    state, most = domains.most.get(key, (None, 0))
    if state != domains.state:
        room = domains.fitting(pods.requests, {})
        for at in reversed(domains.levels[level:-1] if level >= 0 else ()):
            room = np.add.reduceat(room, at.starts[:-1])
        most = int(room.sum() if level < 0 else room.max(initial=0))
        domains.most[key] = (domains.state, most)
    return most


def _searched(search: _Search, pod_sets: Sequence[PodSet]) -> Result:
    found: dict[str, Places] = {}
    for leader, workers in _groups(pod_sets):
        names = [workers.name] if leader is None else [leader.name, workers.name]
        try:
            placed = search.group(leader, workers)
        except Unplaced as why:
            return Result(found, dict.fromkeys(names, str(why)))
        found |= zip(names, placed, strict=True)
    return Result(found)


def _groups(pod_sets: Sequence[PodSet]) -> Iterator[tuple[PodSet | None, PodSet]]:
    """Yield pod sets, those of one group as leader (the smaller) and workers."""
    groups: dict[str, list[PodSet]] = {}
    for number, pods in enumerate(pod_sets):
        groups.setdefault(pods.group or f"\0{number}", []).append(pods)
    for group in groups.values():
        leader, *workers = sorted(group, key=lambda pods: pods.count)
        if len(workers) == 1 and leader.count == 1:
            yield leader, workers[0]
        else:
            yield from ((None, pods) for pods in group)


class _Search:
    """A search for assignments, with the amounts that those found so far take."""

    def __init__(self, domains: Domains, gates: Mapping[str, bool], earlier: Earlier, empty: bool, name: str) -> None:
        self.domains, self.gates, self.earlier, self.empty, self.name = domains, gates, earlier, empty, name
        self.taken: dict[str, Counts] = {}

    def group(self, leader: PodSet | None, workers: PodSet) -> list[Places]:
        """Return the assignments of a leader, if any, and of its workers."""
        sets = [workers] if leader is None else [leader, workers]
        had = [self.earlier.assigned.get(pods.name) for pods in sets]
        if self.earlier.keeps:
            return [before or () for before in had]
        if self.earlier.failed:
            return [self._replaced(pods, before) for pods, before in zip(sets, had, strict=True)]
        if None not in had and self.gates.get("ElasticJobsViaWorkloadSlicesWithTAS", False):
            known = [before for before in had if before is not None]
            if all(self.domains.leaf(values) is not None for before in known for values, _ in before):
                return [self._resized(pods, before) for pods, before in zip(sets, known, strict=True)]
        return self._placed(leader, workers)

    def _resized(self, pods: PodSet, before: Places) -> Places:
        """Return a set's assignment with another number of pods: the first ones stay, additional ones are placed."""
        stay, left = [], pods.count
        for values, count in before:
            stay.append((values, min(count, left)))
            left -= stay[-1][1]
        kept = tuple((values, count) for values, count in stay if count)
        self._take(pods, {leaf: count for values, count in kept if (leaf := self.domains.leaf(values)) is not None})
        return self._merged(kept, *(self._placed(None, replace(pods, count=left)) if left else ()))

    def _replaced(self, pods: PodSet, before: Places | None) -> Places:
        """Return a set's assignment with the pods of failed nodes moved."""
        kept = tuple((values, count) for values, count in before or () if values[-1] not in self.earlier.failed)
        lost = pods.count - sum(count for _, count in kept)
        stale = [values for values, _ in kept if self.domains.leaf(values) is None]
        if stale:
            raise Unplaced(f"the existing assignment contains the stale domain {'/'.join(stale[0])}")
        if not lost:
            return kept
        request = pods.topology or TopologyRequest("unconstrained")
        layers = self._layers(request)
        whole = next((at for at, layer in enumerate(layers) if lost % layer.size == 0), len(layers))
        within = self._incomplete(layers[whole - 1], kept) if whole else ()
        if not whole and request.kind == "required":
            within = self._paths(kept)[0][0][: self._depth(request.level) + 1] if kept else ()
        part = replace(pods, count=lost, topology=replace(request, slices=layers[whole:]))
        return self._merged(kept, *self._placed(None, part, within))

    def _incomplete(self, layer: Slice, kept: Places) -> tuple[str, ...]:
        """Return the values of the domain whose slices of a layer lack pods."""
        held: Counter[tuple[str, ...]] = Counter()
        for path, count in self._paths(kept):
            held[path[: self._depth(layer.level) + 1]] += count
        return min((path for path, count in held.items() if count % layer.size), default=())

    def _paths(self, assignment: Places) -> list[tuple[tuple[str, ...], int]]:
        leaves = ((self.domains.leaf(values), count) for values, count in assignment)
        return [(self.domains.leaves[leaf], count) for leaf, count in leaves if leaf is not None]

    # The request, and its placement

    def _layers(self, request: TopologyRequest) -> tuple[Slice, ...]:
        return request.slices if self.gates["TASMultiLayerTopology"] else request.slices[:1]

    def _depth(self, label: str, of: str = "") -> int:
        if label not in self.domains.labels:
            raise Unplaced(f"no requested topology level{of}: {label}")
        return self.domains.labels.index(label)

    def _wanted(self, pods: PodSet, *, leader: bool) -> Wanted:
        request = pods.topology or TopologyRequest("unconstrained")
        layers = self._layers(request)
        lowest = len(self.domains.labels) - 1
        loose = request.kind == "unconstrained"
        level = (0 if layers else lowest) if loose else self._depth(request.level)
        if any(layer.size < 1 for layer in layers):
            raise Unplaced("slice topology requested, but slice size not provided")
        depths = [(self._depth(layer.level, " for slices"), layer.size) for layer in layers] or [(lowest, 1)]
        if depths[0][0] < level:
            above, below = layers[0].level, self.domains.labels[level]
            raise Unplaced(f"podset slice topology {above} is above the podset topology {below}")
        if pods.count % depths[0][1]:
            raise Unplaced(f"{pods.count} pod(s) make no whole number of slices of {depths[0][1]}")
        most = self.gates["MostRoom"]
        least = loose and self.gates["TASProfileMixed"] and not most
        return Wanted(pods.count, level, tuple(depths), request.kind == "required", loose, least, leader, most)

    def _placed(self, leader: PodSet | None, pods: PodSet, within: tuple[str, ...] = ()) -> list[Places]:
        """Return the assignments of a leader, if any, and of its workers, in the domain `within` only if given."""
        wanted = self._wanted(pods, leader=leader is not None)
        if not self.domains.leaves:
            raise Unplaced(f"no topology domains at level: {self.domains.labels[wanted.level]}")
        closed = [len(within) > 0 and path[: len(within)] != within for path in self.domains.leaves] if within else None
        room = self._open(pods, closed, self._fitting(pods))
        led = leaders = None
        if leader is not None:
            leaders = np.minimum(self._open(leader, closed, self._fitting(leader)), 1)
            led = np.where(leaders > 0, self._open(pods, closed, self._fitting(pods, leader.requests)), 0)
        scores = self.domains.preference(pods.where) if self.gates["TASRespectNodeAffinityPreferred"] else None
        placer = Placer(self.domains, wanted, rooms(self.domains, wanted, room, led, leaders, scores))
        try:
            found = self._balanced(placer, pods) or placer.placed()
        except NotFit as error:
            raise NotFit(f'topology "{self.name}" {error}{self._excluded(pods, closed, room)}') from error
        lead: dict[int, int] = {} if found[1] is None else {found[1]: 1}
        sets = [(pods, found[0])] if leader is None else [(leader, lead), (pods, found[0])]
        return [self._take(of, leaves) for of, leaves in sets]

    def _balanced(self, placer: Placer, pods: PodSet) -> tuple[dict[int, int], int | None] | None:
        preferred = pods.topology is not None and pods.topology.kind == "preferred"
        return balanced(placer) if preferred and self.gates["TASBalancedPlacement"] else None

    def _fitting(self, pods: PodSet, beside: Amounts | None = None) -> Counts:
        return self.domains.fitting(pods.requests, self.taken, beside=beside, empty=self.empty)

    def _open(self, pods: PodSet, closed: Sequence[bool] | None, room: Counts) -> Counts:
        """Return the room of suitable leaves, 0 for the others."""
        unsuited = self.domains.suited(pods.where)
        if closed is not None:
            room = np.where(closed, 0, room)
        return room if unsuited is None else np.where([not why for why in unsuited], room, 0)

    def _excluded(self, pods: PodSet, closed: Sequence[bool] | None, room: Counts) -> str:
        """Format why leaves take no pod, by reason."""
        unsuited, full = self.domains.suited(pods.where), room == 0
        why: Counter[str] = Counter()
        if closed is not None:
            why["topologyDomain"] = int(np.sum(closed))
            full &= ~np.array(closed)
        if unsuited is not None:
            why.update(unsuited[leaf] for leaf in np.flatnonzero(full) if unsuited[leaf])
            full &= np.array([not reason for reason in unsuited])
        for resource, count in self.domains.scarce(pods.requests, self.taken, full, empty=self.empty).items():
            why[f'resource "{resource}"'] = count
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(why.items()) if count)
        return f". Total nodes: {len(room)}; excluded: {reasons}" if reasons else ""

    def _take(self, pods: PodSet, leaves: Mapping[int, int]) -> Places:
        """Count pods as placed, and return their assignment."""
        self.take(pods.requests, leaves)
        return tuple((self.domains.values(leaf), leaves[leaf]) for leaf in sorted(leaves))

    def take(self, requests: Amounts, leaves: Mapping[int, int]) -> None:
        """Count pods of a request as placed in leaves."""
        for resource, amount in {**requests, PODS: 1}.items():
            taken = self.taken.setdefault(resource, np.zeros(len(self.domains.leaves), np.int64))
            for leaf, count in leaves.items():
                taken[leaf] += amount * count

    def _merged(self, *assignments: Places) -> Places:
        total: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
        for assignment in assignments:
            for (path, count), (values, _) in zip(self._paths(assignment), assignment, strict=True):
                total[path, values] += count
        return tuple((values, count) for (_, values), count in sorted(total.items()))
