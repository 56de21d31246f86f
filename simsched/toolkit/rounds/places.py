"""The GPUs of the units of a round: the ones they had, if possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from simsched.model import Allocation, Node
from simsched.toolkit.rounds.mechanism import Grant, Unit


@dataclass(frozen=True)
class Places:
    """GPUs of each unit, by index in its type, and the units that keep exactly what they had (extended leases)."""

    gpus: Mapping[Unit, tuple[int, ...]]
    extended: frozenset[Unit]


def keep_places(
    grants: Iterable[Grant],
    held: Mapping[Unit, tuple[str, tuple[int, ...]]],
    servers: Mapping[str, Sequence[Sequence[int]]],
) -> Places:
    """Place the units of one round.

    `held` gives the GPU type and GPUs of the last round; `servers` lists the GPUs of each type by server. Units are
    placed by descending number of GPUs, ties in the order given. A unit that stays on its type keeps its GPUs if no
    larger unit took them; the others take the fullest server that can hold them whole, else the emptiest servers first.
    Raises `ValueError` if a type has too few GPUs.
    """
    order = sorted(grants, key=lambda grant: -grant.num_gpus)
    free = {gpu_type: [list(gpus) for gpus in rows] for gpu_type, rows in servers.items()}
    placed: dict[Unit, tuple[int, ...]] = {}
    extended: set[Unit] = set()
    for grant in order:
        gpu_type, gpus = held.get(grant.unit, ("", ()))
        if gpu_type == grant.gpu_type and len(gpus) == grant.num_gpus and _take(free[gpu_type], gpus):
            placed[grant.unit] = gpus
            extended.add(grant.unit)
    for grant in order:
        if grant.unit not in placed:
            placed[grant.unit] = _first_fit(free[grant.gpu_type], grant)
    return Places(placed, frozenset(extended))


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
        placed = keep_places(runs, self._held, free).gpus
        self._held = {grant.unit: (grant.gpu_type, placed[grant.unit]) for grant in runs}
        return {grant.unit: self._allocation(grant.gpu_type, placed[grant.unit]) for grant in runs}

    def _allocation(self, gpu_type: str, gpus: Iterable[int]) -> Allocation:
        counts = Counter(self._node_of[gpu_type, gpu] for gpu in gpus)
        return tuple(sorted(counts.items()))
