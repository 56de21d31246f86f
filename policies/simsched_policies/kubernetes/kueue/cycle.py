"""One admission cycle: the heads of all queues, their flavours, their order, and which are admitted or preempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from simsched_policies.kubernetes.kueue.assign import Assignment, Chosen, Found, Grade, assign
from simsched_policies.kubernetes.kueue.classical import classical_victims
from simsched_policies.kubernetes.kueue.cycle_places import may_fit, placed, settled
from simsched_policies.kubernetes.kueue.fair import dominant_share, fair_victims
from simsched_policies.kubernetes.kueue.model import (
    Amounts,
    Asking,
    Assigned,
    FlavourResource,
    Incoming,
    Mode,
    Reclaim,
    Rules,
    Stop,
    Victim,
    Workload,
)
from simsched_policies.kubernetes.kueue.topology import Domains
from simsched_policies.kubernetes.kueue.topology_assignment import Earlier
from simsched_policies.kubernetes.kueue.tree import Node, QuotaTree, level_of


@dataclass(frozen=True)
class Pending:
    """A head of a queue, with the state from earlier cycles: its flavours, and whether its victims are still leaving.

    One that has quota (`holds`) takes a second pass: for missing places, or for the pods that were on `failed` nodes,
    unless it `keeps` its places regardless of failures.
    """

    asking: Asking
    after: Assignment | None = None
    preempting: bool = False
    holds: Workload | None = None
    failed: tuple[str, ...] = ()
    keeps: bool = False


@dataclass(frozen=True)
class Entry:
    """The result of a cycle for one head: its flavours, their grade, and its victims.

    `why` is the reason why it waits although quota might be available.
    """

    asking: Asking
    assignment: Assignment
    victims: tuple[Victim, ...] = ()
    why: str = ""
    preempting: bool = False
    holds: Workload | None = None

    @property
    def usage(self) -> Amounts:
        """Return the additional usage of its queue."""
        return self.assignment.usage

    @property
    def mode(self) -> Mode:
        """Return how it relates to the quota."""
        return self.assignment.grade.mode

    @property
    def borrows(self) -> bool:
        """Return whether it needs quota of other queues."""
        return self.assignment.level > 0


@dataclass(frozen=True)
class Outcome:
    """The result of a cycle, each list in the order of decision.

    `admitted` may start; `preempting` wait for their victims to leave, `deferred` for victims of others; `skipped` lost
    their place to earlier entries and are tried again; `parked` fit nowhere until capacity changes; `refused` are
    parked even in a first-in-first-out queue; `evicted` had quota, but the pods of a failed node find no place.
    `order` has the entries that are admitted, preempt or are evicted, as decided.
    """

    admitted: tuple[Entry, ...]
    preempting: tuple[Entry, ...]
    skipped: tuple[Entry, ...]
    parked: tuple[Entry, ...]
    deferred: tuple[Entry, ...] = ()
    refused: tuple[Entry, ...] = ()
    evicted: tuple[Entry, ...] = ()
    order: tuple[Entry, ...] = ()


_NOTHING = Assignment((), {}, Grade.NO_FIT, 0)


def queue_order(rules: Rules) -> Callable[[Asking], tuple[float, int, float, str]]:
    """Return the key by which a queue orders its workloads: highest priority, then oldest, then by name.

    Under admission fair sharing, low usage of the local queue comes first.
    """

    def key(asking: Asking) -> tuple[float, int, float, str]:
        usage = rules.queue_usage(asking) if rules.queue_usage else 0.0
        return (usage, -asking.priority, asking.created_s, asking.id)

    return key


def run_cycle(tree: QuotaTree, asking: Sequence[Asking | Pending], rules: Rules) -> Outcome:
    """Decide on the heads of the queues; `tree` is not changed.

    An entry is checked again after the earlier ones of the cycle, without their victims. One that needs
    preemption keeps its amounts reserved for the cycle. One that finds no victim is parked, but reserves what its queue
    may still use against those behind it, unless its queue can reclaim that at any time. Source: Kueue, scheduling
    cycle.
    """
    return _Cycle(tree, rules).run([one if isinstance(one, Pending) else Pending(one) for one in asking])


class _Cycle:
    """One cycle; the tree counts what entries take while it runs."""

    def __init__(self, tree: QuotaTree, rules: Rules) -> None:
        self.tree, self.rules = tree, rules
        self.taken: dict[str, Victim] = {}
        #: The last search for victims: its question and its result.
        self.foreseen: tuple[Amounts, frozenset[FlavourResource], tuple[Victim, ...]] = ({}, frozenset(), ())
        self.reserved: list[tuple[str, Amounts, tuple[Assigned, ...]]] = []
        self.done: dict[str, list[Entry]] = {
            name: [] for name in ("admitted", "preempting", "skipped", "parked", "deferred", "refused", "evicted")
        }
        self.order: list[Entry] = []

    def run(self, pending: Sequence[Pending]) -> Outcome:
        live: list[Entry] = []
        for one in pending:
            entry = self.nominate(one)
            if entry.why and entry.assignment is _NOTHING:
                self.done["refused"].append(entry)
            elif entry.mode is Mode.NO_FIT:
                evicted = one.failed and self.rules.gates["TASFailedNodeReplacementFailFast"]
                self.done["evicted" if evicted else "parked"].append(entry)
            else:
                live.append(entry)
        for entry in ordered(self.tree, live, self.rules):
            self._process(entry)
        for queue, usage, now in reversed(self.reserved):
            self.tree.remove(queue, usage)
            for part in now:
                self.tree.place(part, -1)
        done = {name: tuple(entries) for name, entries in self.done.items()}
        return Outcome(**done, order=(*done["evicted"], *self.order))

    def nominate(self, one: Pending) -> Entry:
        """Find flavours and victims for a head, with fewer pods if not all fit."""
        asking, node = one.asking, self.tree.queues[one.asking.queue]
        if one.holds is not None:
            return self._second_pass(one, one.holds)
        if why := asking.invalid or inactive(node, self.rules) or _outside_namespace(node, asking, self.rules):
            return Entry(asking, _NOTHING, why=why)
        entry = self._assigned(asking, one.after)
        if self.rules.gates["PartialAdmission"] and not _feasible(entry):
            entry = self._partial(asking) or entry
        return replace(entry, preempting=True) if one.preempting else entry

    def _assigned(self, asking: Asking, after: Assignment | None = None, within: Assignment | None = None) -> Entry:
        self.foreseen = ({}, frozenset(), ())
        node = self.tree.queues[asking.queue]
        replaced = node.held.get(asking.replaces)

        def oracle(key: FlavourResource, amount: int) -> tuple[Grade, int]:
            return self._foresee(asking, key, amount)

        found = assign(node, asking, self.rules, oracle, after=after, within=within, replaced=replaced)
        if found.grade.mode is not Mode.NO_FIT and (topologies := self._topologies(node, found)):
            return self._placed(asking, found, topologies)
        if found.grade.mode is not Mode.PREEMPT:
            return Entry(asking, found)
        return Entry(asking, found, self._victims(asking, found.usage, found.contested()))

    def _topologies(self, node: Node, found: Assignment) -> dict[str, Domains]:
        """Return the topologies that place some pods now, not after a check of their flavours has provisioned nodes."""
        if not self.tree.topologies:
            return {}
        chosen = {one.flavour for pods in found.found for one in pods.flavours.values()}
        for name, only in () if node.queue is None else node.queue.checks.items():
            if name in self.rules.checks and self.rules.checks[name].provisions:
                chosen -= only or chosen
        return {name: domains for name, domains in self.tree.topologies.items() if name in chosen}

    def _placed(self, asking: Asking, found: Assignment, topologies: Mapping[str, Domains]) -> Entry:
        """Find places for pods, or victims that free some; without victims, their places on empty nodes."""
        gates, flavours = self.rules.gates, self.rules.flavours
        there, why = settled(found, topologies, gates, flavours)
        if there.grade.mode is not Mode.PREEMPT:
            return Entry(asking, there, why=why)

        def place() -> tuple[Assignment, str]:
            return placed(there, topologies, gates, flavours=flavours)

        def has_place() -> bool:
            return may_fit(there, topologies) and not place()[1]

        victims = self._victims(asking, there.usage, there.contested(), has_place)
        if victims:
            with self.tree.without_all(victim.workload for victim in victims):
                there, _ = place()
        return Entry(asking, there, victims, why)

    def _second_pass(self, one: Pending, held: Workload) -> Entry:
        """Find the missing places of a workload with quota, or new ones for the pods of failed nodes."""
        pods = {pods.name: pods for pods in one.asking.pod_sets}
        found = tuple(
            Found(
                replace(pods[part.name], count=part.count),
                part.requests,
                {resource: Chosen(flavour, Grade.FIT, 0) for resource, flavour in part.flavours.items()},
                (),
                None if one.failed else part.places,
            )
            for part in held.assigned
        )
        had = {part.name: part.places for part in held.assigned if part.places is not None}
        there, why = placed(
            Assignment(found, {}, Grade.FIT, 0),
            self.tree.topologies,
            self.rules.gates,
            earlier=Earlier(had, one.failed, one.keeps),
            flavours=self.rules.flavours,
        )
        return Entry(one.asking, there._replace(grade=Grade.NO_FIT) if why else there, why=why, holds=held)

    def _partial(self, asking: Asking) -> Entry | None:
        """Find the largest number of pods with which a workload fits or finds victims; None if its minimum does not."""
        spare = [pods.count - (pods.count if pods.min_count is None else pods.min_count) for pods in asking.pod_sets]
        total = sum(spare)
        low, high, best = 1, total, None
        while low <= high:
            step = (low + high) // 2
            sets = tuple(
                replace(pods, count=pods.count - s * step // total)
                for pods, s in zip(asking.pod_sets, spare, strict=True)
            )
            entry = self._assigned(replace(asking, pod_sets=sets))
            if _feasible(entry):
                best, high = entry, step - 1
            else:
                low = step + 1
        return best

    def _foresee(self, asking: Asking, key: FlavourResource, amount: int) -> tuple[Grade, int]:
        """Return which workloads an amount of one resource would preempt, and its borrowing level without them."""
        node = self.tree.queues[asking.queue]
        victims = self._victims(asking, {key: amount}, frozenset((key,)))
        if not victims:
            return Grade.NO_CANDIDATES, level_of(node, key, amount)[0]
        with self.tree.without_all(victim.workload for victim in victims):
            level, _ = level_of(node, key, amount)
        own = any(victim.workload.queue == asking.queue for victim in victims)
        return (Grade.OWN if own else Grade.BORROWERS), level

    def _victims(
        self,
        asking: Asking,
        usage: Amounts,
        contested: frozenset[FlavourResource],
        has_place: Callable[[], bool] | None = None,
    ) -> tuple[Victim, ...]:
        """Return the victims of a workload; cached, as the last question often equals the whole one."""
        if has_place is None and self.foreseen[:2] == (usage, contested):
            return self.foreseen[2]
        workload = Workload(asking.id, asking.queue, usage, asking.priority, asking.created_s)
        incoming, by_usage = Incoming(workload, contested, has_place), self.rules.queue_usage is not None
        if self.rules.fair_sharing:
            nominal = self.rules.gates["FairSharingPreemptWithinNominal"]
            found = fair_victims(
                self.tree, incoming, rules=self.rules.strategies, by_usage=by_usage, within_nominal=nominal
            )
        else:
            found = classical_victims(self.tree, incoming, by_usage=by_usage)
        if has_place is None:
            self.foreseen = usage, contested, tuple(found)
        return tuple(found)

    def _process(self, entry: Entry) -> None:
        """Decide on an entry after the earlier ones, and count what it takes."""
        if entry.holds is not None:
            self._take("admitted", entry)
            return
        if self._lost_its_place(entry):
            entry = replace(self._assigned(entry.asking, within=entry.assignment), preempting=entry.preempting)
        if self._overlaps(entry) and self.rules.gates["RecomputeAssignmentUponPreemptionTargetsOverlap"]:
            with self.tree.without_all(victim.workload for victim in self.taken.values()):
                entry = replace(self._assigned(entry.asking, within=entry.assignment), preempting=entry.preempting)
            if entry.mode is Mode.FIT:
                self._take("deferred", entry)
                return
        if entry.mode is Mode.NO_FIT:
            self.done["parked"].append(entry)
        elif entry.mode is Mode.PREEMPT and not entry.victims:
            self._take("parked", entry, _kept(self.tree.queues[entry.asking.queue], entry))
        elif self._overlaps(entry) or not self._still_fits(entry):
            self.done["skipped"].append(replace(entry, why="no longer fits after processing another workload"))
        elif entry.mode is Mode.FIT:
            self._take("admitted", entry)
        elif entry.asking.gated and self.rules.gates["MultiKueueOrchestratedPreemption"]:
            self._take("parked", replace(entry, why="blocked on preemption gates"))
        else:
            self.taken |= {victim.workload.id: victim for victim in entry.victims}
            self._take("preempting", entry)

    def _take(self, where: str, entry: Entry, usage: Amounts | None = None) -> None:
        now = () if usage == {} else entry.assignment.assigned()
        if entry.holds is not None:  # its old places stay taken until the cycle is over
            now = tuple(_fresh(new, old) for new, old in zip(now, entry.holds.assigned, strict=True))
        usage = entry.usage if usage is None else usage
        self.done[where].append(entry)
        self.order += [entry] if where in ("admitted", "preempting") else []
        self.tree.add(entry.asking.queue, usage)
        for one in now:
            self.tree.place(one)
        self.reserved.append((entry.asking.queue, usage, now))

    def _lost_its_place(self, entry: Entry) -> bool:
        """Return whether earlier entries took the places of one that still has quota."""
        gated = not self.rules.gates["TASRecomputeAssignmentWithinSchedulingCycle"]
        if gated or not self.tree.topologies or not _feasible(entry):
            return False
        with self.tree.without_all(victim.workload for victim in self._gone(entry)):
            quota = self.tree.fits(entry.asking.queue, entry.usage)
            return quota and not self.tree.has_room(entry.assignment.assigned())

    def _overlaps(self, entry: Entry) -> bool:
        return any(victim.workload.id in self.taken for victim in entry.victims)

    def _still_fits(self, entry: Entry) -> bool:
        gone = self._gone(entry)
        if not self.tree.topologies:
            if self.tree.fits(entry.asking.queue, entry.usage):
                return True  # all the more without victims
            if not gone:
                return False
        with self.tree.without_all(victim.workload for victim in gone):
            quota = self.tree.fits(entry.asking.queue, entry.usage)
            return quota and self.tree.has_room(entry.assignment.assigned())

    def _gone(self, entry: Entry) -> list[Victim]:
        """List the victims of earlier entries and of this one."""
        return list({victim.workload.id: victim for victim in (*self.taken.values(), *entry.victims)}.values())


def _fresh(new: Assigned, old: Assigned) -> Assigned:
    """Return a pod set with only those of its places that it did not have."""
    had = dict(old.places or ())
    more = tuple((values, count - had.get(values, 0)) for values, count in new.places or ())
    return replace(new, places=tuple(one for one in more if one[1] > 0))


def _feasible(entry: Entry) -> bool:
    return entry.mode is Mode.FIT or bool(entry.victims)


def inactive(node: Node, rules: Rules) -> str:
    """Return why a queue takes no workloads, empty if it does: it is stopped, or names an unknown flavour."""
    if node.queue is None or node.queue.stop is not Stop.NONE:
        return "the ClusterQueue is stopped"
    if any(name in rules.checks and not rules.checks[name].active for name in node.queue.checks):
        return "an admission check of the ClusterQueue is not active"
    flavours = {} if rules.flavours is None else {flavour for flavour, _ in node.quotas} - set(rules.flavours)
    return f"the ClusterQueue names flavors that do not exist: {', '.join(sorted(flavours))}" if flavours else ""


def _outside_namespace(node: Node, asking: Asking, rules: Rules) -> str:
    """Return why a queue takes no workloads of a namespace, empty if it does."""
    spec = node.queue
    if spec is None or spec.namespaces == () or rules.namespaces is None:
        return ""
    labels = rules.namespaces.get(asking.namespace, {})
    if spec.namespaces is not None and all(one.met(labels) for one in spec.namespaces):
        return ""
    return "the workload's namespace does not match the namespace selector of its ClusterQueue"


def _kept(node: Node, entry: Entry) -> Amounts:
    """Return what an entry without victims reserves: up to the nominal quota, or the borrowing limit."""
    if node.queue is None or node.queue.reclaim is Reclaim.ANY:
        return {}
    kept: dict[FlavourResource, int] = {}
    for resource, amount in entry.usage.items():
        quota = node.queue.quotas[resource]
        limit = quota.borrowing_limit if entry.borrows else 0
        left = quota.nominal - node.usage.get(resource, 0)
        kept[resource] = amount if limit is None else max(0, min(amount, left + limit))
    return kept


def ordered(tree: QuotaTree, entries: Sequence[Entry], rules: Rules) -> Iterator[Entry]:
    """Yield entries in the order of decision; under fair sharing it depends on the decisions so far.

    Classical: by borrowing level, then by priority, then by age. `OneOrder` sorts by share once.
    """
    waiting_first = rules.gates["PrioritizePreemptorWorkloads"]
    if not rules.fair_sharing:
        yield from sorted(
            entries,
            key=lambda e: (
                e.holds is None,
                waiting_first and not e.preempting,
                e.assignment.level,
                *_precedence(e, rules),
            ),
        )
        return
    if rules.gates["OneOrder"]:
        shares = [dominant_share(tree.queues[e.asking.queue], e.usage).key() for e in entries]
        by_share = sorted(
            zip(shares, entries, strict=True), key=lambda e: (e[1].borrows, e[0], *_precedence(e[1], rules))
        )
        yield from (entry for _, entry in by_share)
        return
    left = list(entries)
    while left:
        first = [e for e in left if e.holds is not None] or [e for e in left if waiting_first and e.preempting]
        best = _winner(tree, first or left, rules)
        left.remove(best)
        yield best


def _precedence(entry: Entry, rules: Rules) -> tuple[int, float, str]:
    priority = -entry.asking.priority if rules.gates["PrioritySortingWithinCohort"] else 0
    return (priority, entry.asking.created_s, entry.asking.id)


def _winner(tree: QuotaTree, entries: Sequence[Entry], rules: Rules) -> Entry:
    """Return the entry that wins from the leaves up, in the first tree with one; queues without a cohort go first."""
    standing: dict[int, list[Entry]] = {}
    roots: dict[int, Node] = {}
    for entry in entries:
        root = tree.queues[entry.asking.queue].root()
        if root.queue is not None:
            return min(
                (e for e in entries if tree.queues[e.asking.queue].parent is None), key=lambda e: _precedence(e, rules)
            )
        roots[id(root)] = root
        standing.setdefault(id(root), []).append(entry)
    first, found = next(iter(standing.items()))
    winner = _tournament(tree, roots[first], {entry.asking.queue: entry for entry in found}, rules)
    if winner is None:
        raise ValueError("no entry under a root that has some")
    return winner


def _tournament(tree: QuotaTree, node: Node, entries: Mapping[str, Entry], rules: Rules) -> Entry | None:
    if node.queue is not None:
        return entries.get(node.name)
    rivals = [
        (child, found) for child in node.children if (found := _tournament(tree, child, entries, rules)) is not None
    ]
    if not rivals:
        return None
    own_first = rules.gates["FairSharingPrioritizeNonBorrowing"]

    def key(rival: tuple[Node, Entry]) -> tuple[bool, tuple[float, float], tuple[int, float, str]]:
        child, entry = rival
        tree.add(entry.asking.queue, entry.usage)
        share = dominant_share(child).key()
        borrows = own_first and any(amount > 0 and child.exceeds(r) for r, amount in entry.usage.items())
        tree.remove(entry.asking.queue, entry.usage)
        return (borrows, share, _precedence(entry, rules))

    return min(rivals, key=key)[1]


def admit(entry: Entry, now_s: float) -> Workload:
    """Return the workload of an entry as it holds quota from `now_s`."""
    asking, assigned = entry.asking, entry.assignment.assigned()
    usage: dict[FlavourResource, int] = {}
    for one in assigned:
        for resource, flavour in one.flavours.items():
            usage[flavour, resource] = usage.get((flavour, resource), 0) + one.requests.get(resource, 0)
    return Workload(asking.id, asking.queue, usage, asking.priority, asking.created_s, now_s, assigned=assigned)
