"""Nodes and GPUs for the units of a round: the ones they had, if possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from simsched.model import Allocation, Capacity, Node
from simsched.policy import Action, Decision, Onto, Place, View
from simsched.toolkit.placers import BEST_FIT
from simsched.toolkit.rounds.mechanism import Grant, Unit


def keep_places(
    grants: Iterable[Grant],
    held: Mapping[Unit, tuple[str, tuple[int, ...]]],
    servers: Mapping[str, Sequence[Sequence[int]]],
) -> dict[Unit, tuple[int, ...]]:
    """Place the units of one round; return their GPUs, by index in their type.

    `held` gives the GPU type and GPUs of the last round; `servers` lists the GPUs of each type by server. Units are
    placed by descending number of GPUs, ties in the order given. A unit that stays on its type keeps its GPUs if no
    larger unit took them; the others take the fullest server that can hold them whole, else the emptiest servers first.
    Raises `ValueError` if a type has too few GPUs.
    """
    order = sorted(grants, key=lambda grant: -grant.num_gpus)
    free = {gpu_type: [list(gpus) for gpus in rows] for gpu_type, rows in servers.items()}
    placed: dict[Unit, tuple[int, ...]] = {}
    for grant in order:
        gpu_type, gpus = held.get(grant.unit, ("", ()))
        if gpu_type == grant.gpu_type and len(gpus) == grant.num_gpus and _take(free[gpu_type], gpus):
            placed[grant.unit] = gpus
    for grant in order:
        if grant.unit not in placed:
            placed[grant.unit] = _first_fit(free[grant.gpu_type], grant)
    return placed


def _take(rows: list[list[int]], gpus: tuple[int, ...]) -> bool:
    wanted = set(gpus)
    if not wanted <= {gpu for row in rows for gpu in row}:
        return False
    for row in rows:
        row[:] = [gpu for gpu in row if gpu not in wanted]
    return True


def _first_fit(rows: list[list[int]], grant: Grant) -> tuple[int, ...]:
    whole = [row for row in rows if len(row) >= grant.num_gpus]
    order = [min(whole, key=len)] if whole else sorted(rows, key=len, reverse=True)
    gpus: list[int] = []
    for row in order:
        count = grant.num_gpus - len(gpus)
        gpus += row[:count]
        del row[:count]
    if len(gpus) < grant.num_gpus:
        raise ValueError(f"{'+'.join(grant.unit)} needs {grant.num_gpus} GPUs of {grant.gpu_type}, too few are free")
    return tuple(sorted(gpus))


class Seats:
    """Remembers the GPUs of the last round, so that units that keep running stay in place."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Number the GPUs of each type, node by node."""
        self._servers: dict[str, dict[int, list[int]]] = {}
        self._node_of: dict[tuple[str, int], int] = {}
        for node in nodes:
            servers = self._servers.setdefault(node.gpu_type, {})
            first = sum(len(gpus) for gpus in servers.values())
            servers[node.index] = list(range(first, first + node.gpus))
            self._node_of.update({(node.gpu_type, gpu): node.index for gpu in servers[node.index]})
        self._held: dict[Unit, tuple[str, tuple[int, ...]]] = {}

    def place(self, grants: Iterable[Grant], up: Sequence[bool]) -> dict[Unit, Allocation]:
        """Return the allocation of each unit that runs; its nodes ascend, and `up` says which nodes may be used.

        Raises `ValueError` if the grants exceed a type's GPUs.
        """
        runs = [grant for grant in grants if grant.runs]
        free = {kind: [gpus for node, gpus in servers.items() if up[node]] for kind, servers in self._servers.items()}
        placed = keep_places(runs, self._held, free)
        self._held = {grant.unit: (grant.gpu_type, placed[grant.unit]) for grant in runs}
        return {grant.unit: self._allocation(grant.gpu_type, placed[grant.unit]) for grant in runs}

    def _allocation(self, gpu_type: str, gpus: Iterable[int]) -> Allocation:
        counts = Counter(self._node_of[gpu_type, gpu] for gpu in gpus)
        return tuple(sorted(counts.items()))


class Allocator:
    """Places the grants of successive rounds.

    A job, or a pair on its own, keeps the GPUs of its type that it holds; if two jobs no longer run together, the first
    keeps them. The others take free GPUs, largest first: the fullest node that can hold a job whole, else the emptiest
    nodes.
    """

    def __init__(self) -> None:
        self._free = Capacity((), (), ())

    def allocate(self, grants: Iterable[Grant], view: View) -> Decision:
        """Place the jobs of running grants."""
        runs = [grant for grant in grants if grant.runs]
        if view.max_jobs_per_gpu == 1:
            return Decision.change(self._whole(runs, view))
        return Decision(_shared(sorted(runs, key=_by_size), view))

    def _whole(self, grants: Sequence[Grant], view: View) -> dict[str, Allocation]:
        """Return the changes since the last round, in the order of the jobs, if no GPU is shared."""
        nodes = view.nodes
        wanted = {grant.unit[0]: grant for grant in grants}
        changed: dict[str, Allocation] = {}
        leaving: list[Allocation] = []
        for job_id, job in view.jobs.items():
            held, grant = job.allocation, wanted.get(job_id)
            if not held:
                if grant is not None:
                    changed[job_id] = ()
            elif grant is None or nodes[held[0][0]].gpu_type != grant.gpu_type:
                changed[job_id] = ()
                leaving.append(held)
        coming = [grant for job_id, grant in wanted.items() if job_id in changed]
        if coming:
            free = self._now_free(view)
            for allocation in leaving:
                free.give_back(allocation)
            for grant in sorted(coming, key=_by_size):
                changed[grant.unit[0]] = _taken(free, grant)
        return changed

    def _now_free(self, view: View) -> Capacity:
        """Return the GPUs that are free now, updated from the last round."""
        if view.up != self._free.up:
            self._free = Capacity.of(view)
        elif self._free.free != view.free:
            for node, (known, now) in enumerate(zip(list(self._free.free), view.free, strict=True)):
                if known != now:
                    self._free.give_back(((node, now - known),))
        return self._free


def _shared(grants: Sequence[Grant], view: View) -> dict[str, Allocation | Action]:
    """Place all grants, the largest first, if several jobs may hold a GPU."""
    kept: dict[str, Allocation] = {}
    coming = [grant for grant in grants if not _stays(grant, view, kept)]
    held = [kept[grant.unit[0]] for grant in grants if grant.unit[0] in kept]
    free = Capacity.idle(view, held)
    jobs: dict[str, Allocation | Action] = {**kept}
    for grant in coming:
        at, (first, *others) = _taken(free, grant), grant.unit
        jobs[first] = Place(at, restart=bool(others or view.jobs[first].neighbours))
        jobs |= dict.fromkeys(others, Place(at, more=(Onto(first),), restart=True))
    return jobs


def _taken(free: Capacity, grant: Grant) -> Allocation:
    found = free.place(BEST_FIT, grant.num_gpus, (free.types.index(grant.gpu_type),))
    if found is None:
        raise ValueError(f"{'+'.join(grant.unit)} needs {grant.num_gpus} GPUs of {grant.gpu_type}, too few are free")
    return found


def _by_size(grant: Grant) -> int:
    return -grant.num_gpus


def _stays(grant: Grant, view: View, kept: dict[str, Allocation]) -> bool:
    """Return whether a unit stays in place; if it does, record what it holds."""
    first = view.jobs[grant.unit[0]]
    held, beside = first.allocation, first.neighbours
    if not held or view.nodes[held[0][0]].gpu_type != grant.gpu_type:
        return False
    if len(grant.unit) == 1:
        if any(other in kept for other in beside):
            return False
    elif set(beside) != set(grant.unit[1:]):
        return False
    kept.update(dict.fromkeys(grant.unit, held))
    return True


def emptiest(loads: Mapping[int, int], gpus: Sequence[int], wanted: int) -> Allocation:
    """Return `wanted` GPUs on the nodes with the least load per GPU; `loads` counts the GPUs of jobs by node.

    A node contributes at most all its GPUs; `gpus` counts the GPUs of every node of the cluster.
    """
    picked: list[tuple[int, int]] = []
    missing = wanted
    for node in sorted(loads, key=lambda node: (loads[node] / gpus[node], node)):
        taken = min(gpus[node], missing)
        picked.append((node, taken))
        missing -= taken
        if not missing:
            break
    return tuple(sorted(picked))
