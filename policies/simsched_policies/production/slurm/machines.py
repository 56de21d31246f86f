"""The nodes of a cluster as a backfill pass sees them: the requests of jobs, and the releases of running ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from simsched.model import Allocation, Capacity, Node, NodeShape
from simsched.model.capacity import Room, beside_of
from simsched.model.placement import Amount, node_labels
from simsched.policy import JobView
from simsched_policies.production.slurm.backfill import Releases
from simsched_policies.production.slurm.nodes import Pass
from simsched_policies.production.slurm.options import Partition, Reservation
from simsched_policies.production.slurm.waiting import Held

Ints = npt.NDArray[np.int64]
#: More than any job asks for of cores or memory, where these are not limited; sums of it stay integers.
_PLENTY = 1 << 40


class Machines:
    """All nodes, the requests ("wants") of jobs by index, and when running jobs release what they hold."""

    def __init__(self, nodes: Sequence[Node], reservations: Sequence[Reservation]) -> None:
        self._nodes = nodes
        self._named = {name for node in nodes for name in node.partitions}
        labels = node_labels(node.gpu_type for node in nodes)
        self._labels = {label: node.index for label, node in zip(labels, nodes, strict=True)}
        #: The index of each named reservation; of the first one if it repeats.
        self._reserved = {one.name: i for i, one in reversed([*enumerate(reservations, 1)]) if one.name}
        self._reservations = reservations
        self._changes = sorted({float(time) for one in reservations for time in (one.start_s, one.end_s)})
        rows = [
            (node, one.start_s, one.end_s, self._reserved.get(one.name, i))
            for i, one in enumerate(reservations, 1)
            for node in one.nodes
            if node < len(nodes)
        ]
        self.blocks: Ints = np.array(rows, dtype=np.int64).reshape(-1, 4)
        room = Room.of(nodes)
        self._whole = np.stack([room.gpus, room.cpu_milli, room.memory_mib, np.zeros_like(room.gpus)], axis=1)
        kinds = {(node.gpu_type, node.partitions): None for node in nodes}
        #: The index of each node's kind: its type and partitions.
        self._kind = np.array([list(kinds).index((one.gpu_type, one.partitions)) for one in nodes], dtype=np.int64)
        self._wants: dict[tuple[int, ...], int] = {}
        #: The allowed nodes, separate for each partition: a job waiting in one delays no job of another.
        self._masks: dict[tuple[str, tuple[bool, ...]], int] = {}
        self._tables: tuple[Ints, npt.NDArray[np.bool_], Ints] | None = None
        self._releases = Releases(width=4)
        #: The shape of each want, and the bits of its allowed nodes.
        self._shapes: list[tuple[NodeShape, int]] = []
        self._choices: dict[Hashable, list[tuple[int, str, int]]] = {}
        #: GPUs requested by multi-node jobs that wait or run, by the type to which each is bound.
        self._demand: dict[str, int] = {}
        #: Where wants have room; cached until something is taken or released.
        self._room_now: dict[int, Allocation | None] = {}
        self._room_of: tuple[Capacity | None, int] = (None, 0)

    def want_of(self, job: JobView, partition: Partition, free: Capacity) -> int:
        """Return the index of a job's want on the nodes of its partition and types.

        A job of several nodes, or of any number, is bound to one type: among those with room, the least in demand. One
        that held nodes at the start of the replay is bound to these, if they have room for it now.
        """
        request, facts = job.request, job.facts
        named = request.terms.reservation if request.terms is not None else ""
        shape = request.shape or NodeShape(0, Amount(request.num_gpus))
        key = (shape, request.queue, facts.gpu_types, named)
        choices = self._choices.get(key)
        if choices is None:
            reserved = self._reserved.get(named, 0)
            allowed = [self._allows(node, job, partition, reserved) for node in self._nodes]
            queue = request.queue if request.queue in self._named else ""
            choices = self._choices[key] = self._bound(shape, queue, allowed, reserved)
        want, kind, _ = min(choices, key=lambda one: self._demand.get(one[1], 0) / one[2])
        if shape.nodes != 1:
            self._demand[kind] = self._demand.get(kind, 0) + request.num_gpus
        held = {self._labels.get(name, -1) for name in request.terms.held_nodes} if request.terms is not None else set()
        if held and -1 not in held:
            mine = self._number(shape, request.queue, [node.index in held for node in self._nodes], 0)
            want = mine if self.place_now(mine, free) is not None else want
        return want

    def _allows(self, node: Node, job: JobView, partition: Partition, reserved: int) -> bool:
        if reserved and node.index not in self._reservations[reserved - 1].nodes:
            return False
        if not job.facts.runs_on(node.gpu_type):
            return False
        if job.request.queue in self._named:
            return job.request.queue in node.partitions
        return not partition.gpu_type or partition.gpu_type == node.gpu_type

    def _bound(
        self, shape: NodeShape, queue: str, allowed: Sequence[bool], reserved: int
    ) -> list[tuple[int, str, int]]:
        """List the alternative wants of a job, each with its GPU type and the number of GPUs of that type."""
        by_type: dict[str, list[int]] = {}
        for node, may in zip(self._nodes, allowed, strict=True):
            if may:
                by_type.setdefault(node.gpu_type, []).append(node.index)
        if shape.nodes == 1 or len(by_type) < 2:
            return [(self._number(shape, queue, allowed, reserved), next(iter(by_type), ""), 1)]
        found = []
        for kind, nodes in by_type.items():
            gpus = sum(self._nodes[node].gpus for node in nodes)
            if gpus >= max(shape.nodes, 1) * shape.each.gpus and len(nodes) >= shape.nodes:
                own = [may and node.gpu_type == kind for node, may in zip(self._nodes, allowed, strict=True)]
                found.append((self._number(shape, queue, own, reserved), kind, max(gpus, 1)))
        return found or [(self._number(shape, queue, allowed, reserved), "", 1)]

    def _number(self, shape: NodeShape, queue: str, allowed: Sequence[bool], reserved: int) -> int:
        mask, each = self._masks.setdefault((queue, tuple(allowed)), len(self._masks)), shape.each
        bits = sum(1 << node.index for node, may in zip(self._nodes, allowed, strict=True) if may)
        row = (shape.nodes, each.gpus, each.cpu_milli, each.memory_mib, mask, int(shape.exclusive), reserved)
        self._tables = None
        number = self._wants.setdefault(row, len(self._wants))
        if number == len(self._shapes):
            self._shapes.append((shape._replace(gpu_types=None), bits))
        return number

    def place_now(self, want: int, free: Capacity) -> Allocation | None:
        """Return the nodes that a job would get now, ignoring reservations and waiting jobs; None without room."""
        known, changes = self._room_of
        if known is not free or changes != free.changes:
            self._room_now, self._room_of = {}, (free, free.changes)
        if want not in self._room_now:
            shape, among = self._shapes[want]
            self._room_now[want] = free.place_of(shape, among)
        return self._room_now[want]

    @property
    def amounts(self) -> Ints:
        """Return the total cores and memory of each want, and its nodes."""
        return self._arrays()[2]

    def _arrays(self) -> tuple[Ints, npt.NDArray[np.bool_], Ints]:
        if self._tables is None:
            wants = np.array(list(self._wants), dtype=np.int64).reshape(-1, 7)
            times = np.maximum(wants[:, 0], 1)
            self._tables = (
                wants,
                np.array([one for _, one in self._masks], dtype=np.bool_).reshape(len(self._masks), -1),
                np.stack([wants[:, 2] * times, wants[:, 3] * times, wants[:, 0]], axis=1),
            )
        return self._tables

    def hold(self, held: Held, sign: int = 1) -> None:
        """Record that a job holds nodes until its limit, or with a `sign` of -1 that it has released them."""
        shape = held.request.shape
        if sign < 0 and (shape is None or shape.nodes != 1):
            kind = self._nodes[held.allocation[0][0]].gpu_type
            self._demand[kind] = max(self._demand.get(kind, 0) - held.gpus, 0)
        beside = dict(beside_of(self._nodes, shape, held.allocation)) if shape is not None else {}
        for node, gpus in held.allocation:
            (self._releases.add if sign > 0 else self._releases.remove)(held.end, node, gpus, *beside.get(node, (0, 0)))

    def begin(self, free: Capacity, *, alone: bool = False) -> Pass:
        """Return the state for a pass; `alone`, as if running jobs never ended."""
        whole, level = self._whole.copy(), self._whole.copy()
        level[:, 0] = free.free
        room = free.room
        if room is not None:
            level[:, 1], level[:, 2] = room.cpu_milli, room.memory_mib
        down = ~np.array(free.up, dtype=np.bool_)
        level[down, :3] = whole[down, :3] = -1
        ends, rows = self._releases.columns
        wants, masks = self._arrays()[:2]
        stuck = np.zeros(len(wants), dtype=np.bool_)
        return Pass(level, whole, ends[:0] if alone else ends, rows, self.blocks, wants, masks, stuck)

    def counted(self, state: Pass, able: npt.NDArray[np.bool_]) -> Pass:
        """Return a pass with one node for all nodes of a kind, which counts GPUs; `able` wants have room on nodes."""
        count = int(self._kind.max()) + 1
        level, whole = (np.zeros((count, 4), dtype=np.int64) for _ in range(2))
        for sums, each in ((level, state.free), (whole, state.whole)):
            np.add.at(sums, self._kind, each.clip(0, _PLENTY))
        rows, wants = state.rows.copy(), state.wants.copy()
        rows[:, 0] = self._kind[rows[:, 0]]
        wants[:, 1:4] *= np.maximum(wants[:, :1], 1)
        masks = np.stack([state.masks[:, self._kind == kind].any(axis=1) for kind in range(count)], axis=1)
        wants[:, 0] = (masks.sum(axis=1)[wants[:, 4]] < 2) | (wants[:, 1] == 0)
        wants[:, 5:] = 0
        return Pass(level, whole, state.ends, rows, state.blocks[:0], wants, masks, ~able)

    def next_change_s(self, now_s: float) -> float | None:
        """Return when the next reservation starts or ends."""
        coming = bisect_right(self._changes, now_s)
        return self._changes[coming] if coming < len(self._changes) else None
