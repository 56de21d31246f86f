"""The flavours that a workload gets: for every set of pods, resource group by resource group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from simsched_policies.kubernetes.kueue.model import (
    Amounts,
    Asking,
    Assigned,
    ClusterQueue,
    FlavourResource,
    Mode,
    Places,
    PodSet,
    Preference,
    Reclaim,
    ResourceFlavor,
    Rules,
    Workload,
)
from simsched_policies.kubernetes.kueue.reasons import Unfit, Why
from simsched_policies.kubernetes.kueue.tree import Node, level_of

T = TypeVar("T")
#: The resource that counts pods.
PODS = "pods"


class Grade(IntEnum):
    """How an amount relates to the quota, from worst to best: no fit, which preemption it needs, or fit."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    OWN = 2
    BORROWERS = 3
    FIT = 4

    @property
    def mode(self) -> Mode:
        """Return the mode of an entry with this grade."""
        return Mode.FIT if self is Grade.FIT else Mode.NO_FIT if self is Grade.NO_FIT else Mode.PREEMPT


#: Returns which workloads an amount of one resource alone would preempt, and the level at which it would then borrow.
Oracle = Callable[[FlavourResource, int], tuple[Grade, int]]


class Chosen(NamedTuple):
    """The flavour of a resource; `tried` is the index where the search stopped, -1 for the last flavour."""

    flavour: str
    grade: Grade
    level: int
    tried: int = -1


class Attempt(NamedTuple):
    """The result of a search for one flavour."""

    flavour: str
    grade: Grade
    level: int
    why: tuple[Why, ...] = ()


class Found(NamedTuple):
    """The flavours of a pod set, and all that were tried; empty if none was found.

    A pod set that a topology places but that requests nothing gets the flavours of its group that have a topology.
    `places` are the places of its pods in the topology of the flavour, if any.
    """

    pods: PodSet
    requests: Mapping[str, int]
    flavours: Mapping[str, Chosen]
    attempts: tuple[Attempt, ...]
    places: Places | None = None


class Assignment(NamedTuple):
    """The flavours of all pod sets of a workload up to the first that fits nowhere, and what they use.

    `usage` is the additional usage of the queue; for a slice that replaces another, minus what that one holds.
    """

    found: tuple[Found, ...]
    usage: Amounts
    grade: Grade
    level: int

    def assigned(self) -> tuple[Assigned, ...]:
        """Return what each pod set holds once admitted."""
        return tuple(
            Assigned(
                one.pods.name,
                one.pods.count,
                one.requests,
                {resource: chosen.flavour for resource, chosen in one.flavours.items()},
                one.places,
                one.pods.requests,
            )
            for one in self.found
        )

    def contested(self) -> frozenset[FlavourResource]:
        """Return the flavours and resources that need preemption."""
        choices = ((c.flavour, r, c.grade) for one in self.found for r, c in one.flavours.items())
        return frozenset((flavour, resource) for flavour, resource, grade in choices if grade < Grade.FIT)

    def left_to_try(self) -> bool:
        """Return whether flavours after the chosen ones have not been tried."""
        return any(chosen.tried >= 0 for one in self.found for chosen in one.flavours.values())


def assign(
    node: Node,
    asking: Asking,
    rules: Rules,
    oracle: Oracle,
    *,
    after: Assignment | None = None,
    within: Assignment | None = None,
    replaced: Workload | None = None,
) -> Assignment:
    """Choose flavours for a workload of the queue `node`.

    The search continues where that of `after` stopped, or considers only the flavours of `within`. A slice that
    replaces a workload keeps the flavours of that one. Source: Kueue, flavour assignment.
    """
    search = _Search(node, asking, rules, oracle, after, within, replaced)
    found: list[Found] = []
    grade, level = Grade.FIT, 0
    for group in _pod_groups(asking.pod_sets):
        one = search.group(group)
        found += one
        choices = [chosen for pods in one for chosen in pods.flavours.values()]
        if any(pods.requests and not pods.flavours for pods in one):
            return Assignment(tuple(found), search.usage, Grade.NO_FIT, level)
        grade = min([grade, *(chosen.grade for chosen in choices)])
        level = max([level, *(chosen.level for chosen in choices)])
    for i, pods in enumerate(found):
        if (why := search.placeless(pods)) is not None:
            found[i] = pods._replace(attempts=(*pods.attempts, Attempt("", Grade.NO_FIT, 0, (why,))))
            grade = Grade.NO_FIT
    return Assignment(tuple(found), search.usage, grade, level)


def _pod_groups(pod_sets: Sequence[PodSet]) -> list[list[PodSet]]:
    if len(pod_sets) == 1:
        return [list(pod_sets)]
    groups: dict[str, list[PodSet]] = {}
    for i, pods in enumerate(pod_sets):
        groups.setdefault(pods.group or f"\0{i}", []).append(pods)
    return list(groups.values())


@dataclass
class _Search:
    """The flavour search of one workload; `usage` grows with every group of pod sets."""

    node: Node
    asking: Asking
    rules: Rules
    oracle: Oracle
    after: InitVar[Assignment | None]
    within: InitVar[Assignment | None]
    replaced: InitVar[Workload | None]
    usage: dict[FlavourResource, int] = field(default_factory=dict)

    def __post_init__(self, after: Assignment | None, within: Assignment | None, replaced: Workload | None) -> None:
        self.tried = _by_set(after, lambda chosen: chosen.tried)
        self.only = None if within is None else _by_set(within, lambda chosen: chosen.flavour)
        self.old = {} if replaced is None else {one.name: one for one in replaced.assigned}
        if self.node.queue is None:
            raise ValueError(f"{self.node.name} is no queue")
        self.spec: ClusterQueue = self.node.queue
        named, known = self.node.flavours, self.rules.flavours or {}
        self._on = self.rules.gates["TopologyAwareScheduling"]
        #: The flavours of the queue that have a topology, and whether all have one: it then places all its pods.
        self.with_topology = {one for one in named if self._on and one in known and known[one].topology is not None}
        self.only_topology = bool(named) and self.with_topology == named

    def group(self, pod_sets: Sequence[PodSet]) -> list[Found]:
        """Choose the flavours of pod sets that stay together; none if one of their resources has no flavour."""
        covered = self.node.groups
        asked = [self._requests(pods) for pods in pod_sets]
        total: dict[str, int] = {}
        for requests in asked:
            for resource, amount in requests.items():
                total[resource] = total.get(resource, 0) + amount
        chosen: dict[str, Chosen] = {}
        attempts: dict[str, Attempt] = {}
        for resource in total:
            if resource in chosen:
                continue
            if resource not in covered:
                if total[resource] == 0 or self.rules.ignore_undeclared:
                    continue
                return [
                    Found(p, r, {}, (Attempt("", Grade.NO_FIT, 0, (Why(Unfit.NO_RESOURCE, resource),)),))
                    for p, r in zip(pod_sets, asked, strict=True)
                ]
            wanted = {name: total[name] for name in covered[resource][0] if name in total}
            tried: dict[str, Attempt] = {}
            best = self._choose(pod_sets, resource, wanted, covered[resource][1], tried)
            if best is None:
                whys = self._mismatch(pod_sets, total) or tuple(tried.values())
                return [Found(p, r, {}, whys) for p, r in zip(pod_sets, asked, strict=True)]
            for attempt in tried.values():
                _note(attempts, attempt)
            chosen |= best
        for resource, one in chosen.items():
            key = (one.flavour, resource)
            net = total[resource] - sum(self._old(pods, resource) for pods in pod_sets)
            self.usage[key] = self.usage.get(key, 0) + net
        shared = {r: one for r, one in chosen.items() if one.flavour in self.with_topology}
        found = []
        for pods, requests in zip(pod_sets, asked, strict=True):
            own = {r: chosen[r] for r in requests if r in chosen}
            lies = pods.topology is not None or self.only_topology
            found.append(Found(pods, requests, own or (shared if lies else {}), tuple(attempts.values())))
        return found

    def placeless(self, found: Found) -> Why | None:
        """Return why no topology can place pods that require one with the chosen flavours, None if one can."""
        wanted = found.pods.topology
        if wanted is None or self.rules.flavours is None or not found.pods.count or not self._on:
            return None
        by_slices = self.asking.elastic and self.rules.gates["ElasticJobsViaWorkloadSlicesWithTAS"]
        if by_slices and wanted.kind != "unconstrained":
            return Why(Unfit.ELASTIC, wanted.kind)
        topologies = sorted({chosen.flavour for chosen in found.flavours.values()} & self.with_topology)
        if not topologies:
            return Why(Unfit.NO_TOPOLOGY, "flavor assigned" if self.with_topology else "cache information")
        return Why(Unfit.SEVERAL_TOPOLOGIES, ", ".join(topologies)) if len(topologies) > 1 else None

    def _requests(self, pods: PodSet) -> dict[str, int]:
        requests = {resource: pods.count * amount for resource, amount in pods.requests.items()}
        if PODS in self.node.groups:
            requests[PODS] = pods.count + requests.get(PODS, 0)
        return requests

    def _old(self, pods: PodSet, resource: str) -> int:
        return self.old[pods.name].requests.get(resource, 0) if pods.name in self.old else 0

    def _choose(
        self,
        pod_sets: Sequence[PodSet],
        first: str,
        wanted: Mapping[str, int],
        flavours: Sequence[str],
        attempts: dict[str, Attempt],
    ) -> dict[str, Chosen] | None:
        """Try flavours in turn until the queue's rules end the search; take the best, ties to the first."""
        name, fungible = pod_sets[0].name, self.rules.gates["FlavorFungibility"]
        best: tuple[tuple[int, ...], list[tuple[str, Grade, int]], str] | None = None
        last = -1
        for i in range(self.tried.get((name, first), -1) + 1, len(flavours)):
            flavour, last = flavours[i], i
            if (why := self._unsuited(pod_sets, flavour, first)) is not None:
                _note(attempts, Attempt(flavour, Grade.NO_FIT, 0, (why,)))
                continue
            grades, reasons, worst = self._stands(pod_sets, flavour, wanted)
            _note(attempts, Attempt(flavour, worst[0], worst[1], tuple(reasons)))
            rank = preferred(worst[0], worst[1], self.spec.preference) if fungible else (worst[0].mode.rank,)
            if worst[0] > Grade.NO_FIT and (best is None or rank > best[0] or (fungible and self._stops(*worst))):
                best = (rank, grades, flavour)
            if self._stops(*worst) if fungible else worst[0] is Grade.FIT:
                break
        if best is None:
            return None
        ended = self.rules.gates["StopsWithoutVictims"] and any(one is Grade.NO_CANDIDATES for _, one, _ in best[1])
        tried = -1 if last == len(flavours) - 1 or not fungible or ended else last
        return {resource: Chosen(best[2], grade, level, tried) for resource, grade, level in best[1]}

    def _mismatch(self, pod_sets: Sequence[PodSet], total: Mapping[str, int]) -> tuple[Attempt, ...]:
        """Return why no flavour of a resource is suitable, more specific than missing quota; empty if some are."""
        groups = {self.node.groups[resource][1]: resource for resource in total if resource in self.node.groups}
        for flavours, resource in groups.items() if len(groups) > 1 else ():
            whys = {flavour: self._unsuited(pod_sets, flavour, resource) for flavour in flavours}
            unfit = tuple(Attempt(name, Grade.NO_FIT, 0, (why,)) for name, why in whys.items() if why is not None)
            if len(unfit) == len(flavours):
                return unfit
        return ()

    def _unsuited(self, pod_sets: Sequence[PodSet], name: str, resource: str) -> Why | None:
        """Return why the nodes of a flavour are unsuitable, None if they are suitable."""
        for pods in pod_sets:
            if pods.name in self.old:
                old = self.old[pods.name].flavours.get(resource, name)
                if old != name:
                    return Why(Unfit.OTHER_SLICE, old)
            if self.only is not None and self.only.get((pods.name, resource), name) != name:
                return Why(Unfit.NOT_NOMINATED)
        if self.asking.flavours is not None and name not in self.asking.flavours:
            return Why(Unfit.NOT_ALLOWED)
        if self.rules.flavours is None:
            return None
        flavour = self.rules.flavours.get(name)
        if flavour is None:
            return Why(Unfit.MISSING)
        for pods in pod_sets:
            if (taint := pods.where.repelled(flavour.taints, flavour.tolerations)) is not None:
                return Why(Unfit.TAINT, str(taint))
            if not pods.where.matches(flavour.labels, frozenset(flavour.labels)):
                return Why(Unfit.AFFINITY)
            off = self._off_topology(pods, flavour) if self._on and self._asks(pods, resource) else None
            if off is not None:
                return off
        return None

    def _asks(self, pods: PodSet, resource: str) -> bool:
        """Return whether pods request a resource of the group for which a flavour is chosen; otherwise any nodes do."""
        return not self._requests(pods).keys().isdisjoint(self.node.groups[resource][0])

    def _off_topology(self, pods: PodSet, flavour: ResourceFlavor) -> Why | None:
        """Return why a flavour does not meet the topology that pods require, None if it does."""
        if flavour.topology is None:
            return Why(Unfit.TOPOLOGY_OFF) if pods.topology is not None else None
        if pods.topology is None:
            return None if self.only_topology else Why(Unfit.TOPOLOGY_ONLY)
        topology = self.rules.topologies.get(flavour.topology)
        wanted = {pods.topology.level, *(one.level for one in pods.topology.slices)} - {""}
        return Why(Unfit.LEVELS) if topology is None or wanted - set(topology.levels) else None

    def _stands(
        self, pod_sets: Sequence[PodSet], flavour: str, wanted: Mapping[str, int]
    ) -> tuple[list[tuple[str, Grade, int]], list[Why], tuple[Grade, int]]:
        """Return the grade of each amount with a flavour, the reasons, and the worst grade."""
        grades: list[tuple[str, Grade, int]] = []
        reasons: list[Why] = []
        worst, least = (Grade.FIT, 0), preferred(Grade.FIT, 0, self.spec.preference)
        for resource, amount in wanted.items():
            net = amount - sum(self._old(pods, resource) for pods in pod_sets)
            grade, level, why = self._grade((flavour, resource), net)
            grades.append((resource, grade, level))
            reasons += [] if why is None else [why]
            rank = preferred(grade, level, self.spec.preference)
            if rank < least:
                worst, least = (grade, level), rank
            if grade is Grade.NO_FIT:
                break
        return grades, reasons, worst

    def _grade(self, key: FlavourResource, amount: int) -> tuple[Grade, int, Why | None]:
        node, before = self.node, self.usage.get(key, 0)
        if key not in self.spec.quotas:
            return Grade.NO_FIT, 0, Why(Unfit.NOT_PROVIDED, key[1])
        asked = before + amount
        if asked > (most := node.most.get(key, 0)):
            return Grade.NO_FIT, 0, Why(Unfit.ABOVE_MOST, key[1], (before, amount, most))
        level, reclaims = level_of(node, key, asked)
        available = max(0, node.available(key))
        if asked <= available:
            return Grade.FIT, level, None
        why = Why(Unfit.WAITS, key[1], (asked - available,))
        borrowing = self.spec.borrow_preempts_lower or (
            self.rules.fair_sharing and self.spec.reclaim is not Reclaim.NEVER
        )
        if asked <= self.spec.quotas[key].nominal or reclaims or borrowing:
            return *self.oracle(key, asked), why
        return Grade.NO_FIT, level, why

    def _stops(self, grade: Grade, level: int) -> bool:
        """Return whether the search for a flavour ends with one of this grade and level."""
        least = Grade.NO_FIT if self.rules.gates["StopsWithoutVictims"] else Grade.NO_CANDIDATES
        if grade <= least or (grade < Grade.FIT and not self.spec.preempt_before_next_flavour):
            return False
        return level == 0 or self.spec.borrow_before_next_flavour


def _note(attempts: dict[str, Attempt], one: Attempt) -> None:
    """Keep the worst result of a flavour, with all reasons."""
    old = attempts.get(one.flavour)
    if old is not None:
        one = min(old, one, key=lambda a: a.grade)._replace(why=tuple(dict.fromkeys((*old.why, *one.why))))
    attempts[one.flavour] = one


def _by_set(assignment: Assignment | None, read: Callable[[Chosen], T]) -> dict[tuple[str, str], T]:
    found: Iterable[Found] = () if assignment is None else assignment.found
    return {(one.pods.name, resource): read(chosen) for one in found for resource, chosen in one.flavours.items()}


def preferred(grade: Grade, level: int, preference: Preference) -> tuple[int, ...]:
    """Return the rank of a flavour, higher is better: first by whether it fits or preemption can make it fit."""
    usable = min(grade, Grade.OWN)
    return (usable, grade, -level) if preference is Preference.BORROWING else (usable, -level, grade)
