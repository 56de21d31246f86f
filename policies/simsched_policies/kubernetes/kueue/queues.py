"""The waiting workloads, in the order of their queues; those that fit nowhere are parked until something leaves."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from operator import itemgetter

from simsched_policies.kubernetes.kueue.assign import Assignment
from simsched_policies.kubernetes.kueue.cycle import Entry, Outcome, Pending, inactive
from simsched_policies.kubernetes.kueue.machines import Chances
from simsched_policies.kubernetes.kueue.model import Asking, Mode, Reclaim, Rules
from simsched_policies.kubernetes.kueue.prospects import Homes, Needs, Prospects
from simsched_policies.kubernetes.kueue.tree import Node, QuotaTree

#: Key of parked workloads that any departure may help.
_ANY = "\0"
#: Key of those that wait for room on nodes.
_ROOM = "\1"


#: The sort key of a queue: recent usage, priority, age, name.
_Key = tuple[float, int, float, str]


class _Alike:
    """Workloads of one queue and shape, oldest first; `parked` is the round in which one was found to fit nowhere.

    `hope` tells when a retry may help (None: whenever something leaves). `needs` is what they need at least.
    `placeless` ones have quota but wait for a place in a topology, those with `room` for pods to fit on nodes.
    """

    __slots__ = ("first", "heap", "homes", "hope", "needs", "parked", "placeless", "room")

    def __init__(self, first: Asking, needs: Needs | None, homes: Homes | None) -> None:
        self.heap: list[tuple[float, str]] = []
        self.first, self.needs, self.homes = first, needs, homes
        self.placeless = False
        self.room: list[int] | None = None
        self.parked = -1
        self.hope: Needs | None = None


class _Queue:
    """The waiting workloads of one cluster queue; `blocked` is the head that blocks a first-in-first-out queue.

    `round` counts how often parked workloads returned. `order` lists workloads, the first of each shape, or is None if
    it must be rebuilt; those before `at` are parked. The next head has its turn in the pass `due`.
    """

    __slots__ = (
        *("alike", "at", "blocked", "due", "node", "order", "reclaims_any", "root", "round", "sticky", "strict"),
    )

    def __init__(self, node: Node) -> None:
        self.node, self.root = node, node.root()
        self.alike: dict[int, _Alike] = {}
        self.blocked = ""
        self.sticky = ""
        self.round = self.due = self.at = 0
        self.order: list[tuple[_Key, _Alike]] | None = None
        spec = node.queue
        #: Whether it is first in, first out and can always reclaim its quota, so that waiting workloads reserve
        #: nothing.
        self.strict = spec is not None and spec.strict_fifo
        self.reclaims_any = spec is not None and spec.reclaim is Reclaim.ANY


class Waiting:
    """The pending workloads of all queues.

    A workload that fits nowhere is parked, with all of its queue that have its shape (scheduling equivalence), until
    something of its tree releases quota; the head of a first-in-first-out queue blocks it instead. A workload whose
    victims are leaving comes first in its queue. Asking for the heads costs no more than the number of shapes that
    wait. Source: Kueue, queues and requeueing.
    """

    def __init__(self, tree: QuotaTree, rules: Rules) -> None:
        """Create an empty queue for each one of `tree`."""
        self._rules, self._tree = rules, tree
        self._prospects = Prospects(tree, fair_sharing=rules.fair_sharing)
        self._queues = {name: _Queue(node) for name, node in tree.queues.items() if not inactive(node, rules)}
        self._asking: dict[str, Asking] = {}
        #: The index of each shape, and the shape of each workload.
        self._kinds: dict[Hashable, int] = {}
        self._shapes: dict[str, int] = {}
        self._after: dict[str, tuple[Assignment, int]] = {}
        #: Names of queues that may have a head, and by root those with parked workloads.
        self._open: set[str] = set()
        self._parked: dict[str, set[str]] = {}
        #: Queues in which a workload waits for any departure.
        self._loose: set[str] = set()
        #: What may fit on nodes, and by number of a set of pods the queues in which one waits for room.
        self._chances = Chances()
        self._rooms: dict[int, set[str]] = {}
        #: The number of the last pass over the heads of queues.
        self._pass = 0
        #: Roots below which something left since the last pass.
        self._woken: set[str] = set()

    def push(self, asking: Asking) -> None:
        """Add a workload; in a queue that takes no workloads it waits forever."""
        self._asking[asking.id] = asking
        queue = self._queues.get(asking.queue)
        if queue is None:
            return
        shape = self._shapes[asking.id] = self._kinds.setdefault(self._shape(asking), len(self._kinds))
        alike = queue.alike.get(shape)
        if alike is None:
            bounds = self._prospects
            alike = queue.alike[shape] = _Alike(asking, bounds.needs(asking), bounds.homes(asking))
        heappush(alike.heap, (asking.created_s, asking.id))
        queue.order = None
        if alike.parked != queue.round:
            self._open.add(asking.queue)

    def all(self) -> Iterable[Asking]:
        """Return all waiting workloads in order of arrival."""
        return self._asking.values()

    def remove(self, workload: str) -> None:
        """Remove a workload, if it waits."""
        asking = self._asking.pop(workload, None)
        self._after.pop(workload, None)
        self._shapes.pop(workload, None)
        if asking is not None and (queue := self._queues.get(asking.queue)) is not None:
            queue.sticky = "" if queue.sticky == workload else queue.sticky
            queue.order = None

    def heads(self) -> list[Pending]:
        """Return the first workload of every queue that is not blocked, in the order of their names.

        A hopeless one takes its turn and is parked again at once.
        """
        if not (self._open or self._woken):
            return []
        self._prospects.look()
        if self._woken:
            hopeful = self._prospects.hopeful()
            for root in sorted(self._woken):
                self._wake(root, self._roomy() if root == _ROOM else hopeful | self._loose | self._open)
            self._woken.clear()
        found: list[Pending] = []
        while self._open and not found:
            self._pass = max(self._pass + 1, min(self._queues[name].due for name in self._open))
            for name in sorted(self._open):
                queue = self._queues[name]
                if queue.due > self._pass:
                    continue
                head = self._head(queue)
                if head is None:
                    self._open.discard(name)
                elif queue.due <= self._pass:
                    after, releases = self._after.get(head.id, (None, 0))
                    stale = releases != queue.root.releases
                    found.append(Pending(head, None if stale else after, preempting=head.id == queue.sticky))
        return found

    def settle(self, outcome: Outcome) -> None:
        """Remove the admitted workloads, park those that fit nowhere, and record those whose victims are leaving."""
        for entry in outcome.admitted:
            self.remove(entry.asking.id)
        for entry in outcome.refused:
            self._park(entry.asking.id, passes=True)
        for entry in outcome.parked:
            if entry.holds is None and not self._remember(entry):
                placeless = entry.mode is Mode.PREEMPT and entry.why
                hopes = not entry.usage or entry.mode is Mode.NO_FIT
                self._park(entry.asking.id, root=_ANY if placeless else "", hopes=hopes, placeless=bool(placeless))
        for entry in outcome.skipped:
            self._remember(entry)
        for entry in (*outcome.preempting, *outcome.deferred):
            self._after.pop(entry.asking.id, None)
            queue = self._queues[entry.asking.queue]
            if entry.victims and not queue.strict:
                queue.sticky = entry.asking.id

    def hold(self, workload: str, chances: tuple[Chances, list[int]] | None) -> None:
        """Park a workload that has quota but finds no room, until enough pods may fit (None: until anything leaves)."""
        asking = self._asking[workload]
        queue = self._queues[asking.queue]
        if chances is None or queue.strict:
            self._park(workload, root=_ANY)
        else:
            self._park(workload, root=_ROOM)
            self._chances, alike = chances[0], queue.alike[self._shapes[workload]]
            alike.room = chances[1]
            self._note_room(queue, alike)
        self._open.add(asking.queue)

    def _roomy(self) -> set[str]:
        """Return the queues in which a workload may find the room that it waits for."""
        found = set(self._loose)
        for number in self._rooms.keys() & set(self._chances.hopeful()):
            found |= self._rooms.pop(number)
        return found

    def _note_room(self, queue: _Queue, alike: _Alike) -> None:
        for number in alike.room or ():
            self._rooms.setdefault(number, set()).add(queue.node.name)

    def wake(self, queue: str) -> None:
        """Unpark the workloads in the tree of a queue from which something left, and those that found no room."""
        self._woken |= {self._tree.queues[queue].root().name, _ANY, _ROOM}

    def wake_all(self) -> None:
        """Unpark all workloads, since nodes came or went."""
        self._woken |= set(self._parked)
        for name in self._parked.get(_ROOM, ()):
            self._loose.add(name)
            for alike in self._queues[name].alike.values():
                alike.room = None
        self._rooms.clear()

    def _wake(self, root: str, names: set[str]) -> None:
        """Unpark the workloads below a root in some of the queues.

        Hopeless workloads return with others of their queue, since they take their turn as heads before them.
        """
        back = names & self._parked.get(root, set())
        for name in back:
            queue = self._queues[name]
            queue.round += 1
            queue.blocked, queue.due, queue.at = "", 0, 0
        if back:
            self._loose -= back
            self._parked[root] -= back
            self._open |= back

    def _helped(self, alike: _Alike) -> bool:
        """Return whether a retry may help: they were not refused before, or could now get what they need."""
        if alike.room is not None:
            return self._chances.hope(alike.room)
        if alike.placeless and alike.needs is not None and alike.homes is not None:
            return self._prospects.may_be_placed(alike.first, alike.needs, alike.homes)
        return alike.hope is None or self._prospects.allow(alike.hope)

    def _head(self, queue: _Queue) -> Asking | None:
        """Return the first workload of a queue with prospects; those before it are parked and take their turns."""
        if queue.sticky in self._asking:
            return self._asking[queue.sticky]
        if queue.order is None or self._rules.queue_usage is not None:
            queue.order, queue.at = self._order(queue), 0
        queue.due, current, parked = self._pass, queue.round, set[str]()
        for at in range(queue.at, len(queue.order)):
            (_, _, _, name), alike = queue.order[at]
            queue.at = at
            if name == queue.blocked:
                break
            if alike.parked != current:
                if queue.strict or self._helped(alike):
                    self._note_parked(queue, parked)
                    return self._asking[name]
                alike.parked = current
                queue.due += 1
                self._note_room(queue, alike)
                self._after.pop(name, None)
                parked.add(_ANY if alike.placeless else _ROOM if alike.room is not None else queue.root.name)
        else:
            queue.at = len(queue.order)
        self._note_parked(queue, parked)
        queue.due = 0
        return None

    def _note_parked(self, queue: _Queue, roots: Iterable[str]) -> None:
        for root in roots:
            self._parked.setdefault(root, set()).add(queue.node.name)
            if root == _ANY:
                self._loose.add(queue.node.name)

    def _order(self, queue: _Queue) -> list[tuple[_Key, _Alike]]:
        used, known = self._rules.queue_usage, self._asking
        waiting, empty = [], []
        for shape, alike in queue.alike.items():
            heap = alike.heap
            while heap and ((asking := known.get(heap[0][1])) is None or asking.created_s != heap[0][0]):
                heappop(heap)
            if heap:
                created_s, name = heap[0]
                waiting.append(((used(known[name]) if used else 0.0, -alike.first.priority, created_s, name), alike))
            elif alike.parked != queue.round:
                empty.append(shape)
        for shape in empty:
            del queue.alike[shape]
        if empty:
            self._prospects.wait(queue.node.name, [one.hope for one in queue.alike.values() if one.hope is not None])
        return sorted(waiting, key=itemgetter(0))

    def _park(
        self, workload: str, root: str = "", *, passes: bool = False, hopes: bool = False, placeless: bool = False
    ) -> None:
        """Park a workload and those like it; it blocks a queue that is first in, first out, unless others pass it.

        One that `hopes` reserves nothing while it waits: it is retried only if that may help.
        """
        asking = self._asking[workload]
        queue = self._queues[asking.queue]
        self._after.pop(workload, None)
        queue.sticky = "" if queue.sticky == workload else queue.sticky
        self._parked.setdefault(root or queue.root.name, set()).add(asking.queue)
        if queue.strict and not passes:
            queue.blocked = workload
            self._loose.add(asking.queue)
            return
        alike = queue.alike[self._shapes[workload]]
        alike.parked, alike.room = queue.round, None
        alike.placeless = placeless and queue.reclaims_any
        hope = alike.needs if (hopes or queue.reclaims_any) and root not in (_ANY, _ROOM) else None
        if hope is None and root != _ROOM:
            self._loose.add(asking.queue)
        if hope is not alike.hope:
            alike.hope = hope
            self._prospects.wait(asking.queue, [one.hope for one in queue.alike.values() if one.hope is not None])

    def _remember(self, entry: Entry) -> bool:
        """Remember where the flavour search stopped, if before the last flavour, until quota is released."""
        if not entry.assignment.left_to_try():
            return False
        releases = self._queues[entry.asking.queue].root.releases
        self._after[entry.asking.id] = (entry.assignment, releases)
        return True

    def _shape(self, asking: Asking) -> Hashable:
        """Return a key shared by workloads that are treated alike in their queue."""
        if not self._rules.gates["SchedulingEquivalenceHashing"]:
            return asking.id
        local = asking.local_queue if self._rules.queue_usage else ""
        pods = tuple(pods.key for pods in asking.pod_sets)
        alone = (asking.invalid, asking.replaces, asking.gated)
        return (asking.priority, asking.flavours, asking.namespace, local, alone, asking.place, pods)
