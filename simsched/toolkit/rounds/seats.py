"""From the grants of a round to allocations: which nodes the GPUs of each unit are on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from simsched.model import Allocation, Node
from simsched.toolkit.rounds.mechanism import Grant, Unit
from simsched.toolkit.rounds.places import keep_places


class Seats:
    """Remembers the GPUs of the last round, so that whoever runs on stays where it was."""

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
        """Return the allocation of each unit that runs; its nodes ascend, and `up` tells which nodes may be used.

        Raises `ValueError` where the grants are more than a type has GPUs.
        """
        runs = [grant for grant in grants if grant.runs]
        free = {kind: [gpus for node, gpus in servers.items() if up[node]] for kind, servers in self._servers.items()}
        placed = keep_places(runs, self._held, free).gpus
        self._held = {grant.unit: (grant.gpu_type, placed[grant.unit]) for grant in runs}
        return {grant.unit: self._allocation(grant.gpu_type, placed[grant.unit]) for grant in runs}

    def _allocation(self, gpu_type: str, gpus: Iterable[int]) -> Allocation:
        counts = Counter(self._node_of[gpu_type, gpu] for gpu in gpus)
        return tuple(sorted(counts.items()))
