"""The workloads that wait: in the order of their queues, those parked that fit nowhere until something leaves."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush

from simsched_policies.production.kueue.assign import Assignment
from simsched_policies.production.kueue.cycle import Entry, Outcome, Pending, Rules, inactive
from simsched_policies.production.kueue.model import Asking, Mode
from simsched_policies.production.kueue.tree import Node, QuotaTree

#: Where those are parked that anything that leaves may help.
_ANY = "\0"


class _Alike:
    """Workloads of one queue and shape, oldest first; `parked` once one of them was found to fit nowhere."""

    __slots__ = ("heap", "parked")

    def __init__(self) -> None:
        self.heap: list[tuple[float, str]] = []
        self.parked = False


class _Queue:
    """What waits in one cluster queue; `blocked` is the head that holds up one that is first in, first out."""

    __slots__ = ("alike", "blocked", "node", "sticky")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.alike: dict[Hashable, _Alike] = {}
        self.blocked = ""
        self.sticky = ""

    @property
    def strict(self) -> bool:
        """Say whether the queue is first in, first out."""
        return self.node.queue is not None and self.node.queue.strict_fifo


class Waiting:
    """The pending workloads of all queues.

    A workload that fits nowhere is parked, with all of its queue that have its shape (scheduling equivalence), until
    something of its tree gives quota back; the head of a queue that is first in, first out, blocks it instead. A
    workload whose victims are leaving comes first in its queue. Asking for the heads costs no more than the number of
    shapes that wait. Source: Kueue, queues and requeueing.
    """

    def __init__(self, tree: QuotaTree, rules: Rules) -> None:
        """Make empty queues for those of `tree`."""
        self._rules, self._tree = rules, tree
        self._queues = {name: _Queue(node) for name, node in tree.queues.items() if not inactive(node, rules)}
        self._asking: dict[str, Asking] = {}
        self._after: dict[str, tuple[Assignment, int]] = {}
        #: Names of queues that may have a head, and those that have parked ones by their root.
        self._open: set[str] = set()
        self._parked: dict[str, set[str]] = {}

    def __contains__(self, workload: str) -> bool:
        """Say whether a workload waits."""
        return workload in self._asking

    def push(self, asking: Asking) -> None:
        """Add a workload; one of a queue that takes nobody waits for ever."""
        self._asking[asking.id] = asking
        queue = self._queues.get(asking.queue)
        if queue is None:
            return
        alike = queue.alike.setdefault(self._shape(asking), _Alike())
        heappush(alike.heap, (asking.created_s, asking.id))
        if not alike.parked:
            self._open.add(asking.queue)

    def remove(self, workload: str) -> None:
        """Take a workload away, if it waits."""
        asking = self._asking.pop(workload, None)
        self._after.pop(workload, None)
        if asking is not None and (queue := self._queues.get(asking.queue)) is not None:
            queue.sticky = "" if queue.sticky == workload else queue.sticky

    def heads(self) -> Iterator[Pending]:
        """Yield the first workload of every queue that is not blocked, in the order of their names."""
        for name in sorted(self._open):
            head = self._head(self._queues[name])
            if head is None:
                self._open.discard(name)
                continue
            after, releases = self._after.get(head.id, (None, 0))
            if releases != self._queues[name].node.root().releases:
                after = None
            yield Pending(head, after, preempting=head.id == self._queues[name].sticky)

    def settle(self, outcome: Outcome) -> None:
        """Take out those admitted, park what fits nowhere, and note whose victims are leaving."""
        for entry in outcome.admitted:
            self.remove(entry.asking.id)
        for entry in outcome.refused:
            self._park(entry.asking.id, passes=True)
        for entry in outcome.parked:
            if not self._remember(entry):
                self._park(entry.asking.id, root=_ANY if entry.mode is Mode.PREEMPT and entry.why else "")
        for entry in outcome.skipped:
            self._remember(entry)
        for entry in (*outcome.preempting, *outcome.deferred):
            self._after.pop(entry.asking.id, None)
            queue = self._queues[entry.asking.queue]
            if entry.victims and not queue.strict:
                queue.sticky = entry.asking.id

    def hold(self, workload: str) -> None:
        """Park a workload that has quota but finds no room on nodes, until anything leaves."""
        self._park(workload, root=_ANY)

    def wake(self, queue: str) -> None:
        """Return what is parked in the tree of a queue, from which something left, and what found no room."""
        self._wake(self._tree.queues[queue].root().name)
        self._wake(_ANY)

    def wake_all(self) -> None:
        """Return everything that is parked: nodes came or went."""
        for root in list(self._parked):
            self._wake(root)

    def _wake(self, root: str) -> None:
        for name in self._parked.pop(root, ()):
            waiting = self._queues[name]
            waiting.blocked = ""
            for alike in waiting.alike.values():
                alike.parked = False
            self._open.add(name)

    def _head(self, queue: _Queue) -> Asking | None:
        if queue.sticky in self._asking:
            return self._asking[queue.sticky]
        best: tuple[float, float, float, str] | None = None
        for shape in list(queue.alike):
            alike = queue.alike[shape]
            while alike.heap and self._gone(alike.heap[0]):
                heappop(alike.heap)
            if not alike.heap:
                if not alike.parked:
                    del queue.alike[shape]
                continue
            if alike.parked:
                continue
            created_s, name = alike.heap[0]
            asking = self._asking[name]
            usage = self._rules.queue_usage(asking) if self._rules.queue_usage else 0.0
            key = (usage, -asking.priority, created_s, name)
            best = key if best is None or key < best else best
        if best is None or best[3] == queue.blocked:
            return None
        return self._asking[best[3]]

    def _gone(self, one: tuple[float, str]) -> bool:
        asking = self._asking.get(one[1])
        return asking is None or asking.created_s != one[0]

    def _park(self, workload: str, root: str = "", *, passes: bool = False) -> None:
        """Park a workload and those like it; it blocks a queue that is first in, first out, unless others pass it."""
        asking = self._asking[workload]
        queue = self._queues[asking.queue]
        self._after.pop(workload, None)
        queue.sticky = "" if queue.sticky == workload else queue.sticky
        self._parked.setdefault(root or queue.node.root().name, set()).add(asking.queue)
        if queue.strict and not passes:
            queue.blocked = workload
        else:
            queue.alike[self._shape(asking)].parked = True

    def _remember(self, entry: Entry) -> bool:
        """Keep where the search for flavours stopped, if it did before the last, until quota is given back."""
        if not entry.assignment.left_to_try():
            return False
        root = self._queues[entry.asking.queue].node.root()
        self._after[entry.asking.id] = (entry.assignment, root.releases)
        return True

    def _shape(self, asking: Asking) -> Hashable:
        """Return what workloads have in common that fare alike in their queue."""
        if not self._rules.gates["SchedulingEquivalenceHashing"]:
            return asking.id
        local = asking.local_queue if self._rules.queue_usage else ""
        pods = tuple(pods.key for pods in asking.pod_sets)
        alone = (asking.invalid, asking.replaces, asking.gated)
        return (asking.priority, asking.flavours, asking.namespace, local, alone, asking.place, pods)
