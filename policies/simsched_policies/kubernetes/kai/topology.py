"""The domains of a topology in which the pods of a job are tried in turn. Source: KAI, plugin topology."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from simsched_policies.kubernetes.kai.model import Constraint, Pod
from simsched_policies.kubernetes.kai.room import Bools, Room

#: Label values from the coarsest level down to that of the domain.
Domain = tuple[str, ...]
#: Nodes to try, and the topology score of each, 0 to 10.
Candidate = tuple[Bools | None, Mapping[int, int]]


class Domains:
    """The domains of every topology of a snapshot."""

    def __init__(self, room: Room, topologies: Mapping[str, Sequence[str]]) -> None:
        """Sort nodes into domains; a node that lacks a label of a topology is outside it."""
        self._room, self._levels = room, topologies
        self._of: dict[str, dict[Domain, Bools]] = {}
        for name, labels in topologies.items():
            domains = self._of[name] = {}
            for index, node in enumerate(room.nodes):
                if all(label in node.labels for label in labels):
                    values = tuple(node.labels[label] for label in labels)
                    for depth in range(1, len(labels) + 1):
                        inside = domains.setdefault(values[:depth], np.zeros(len(room.nodes), dtype=np.bool_))
                        inside[index] = True

    def candidates(
        self,
        constraint: Constraint | None,
        pods: Sequence[Pod],
        asked: Sequence[float],
        nodes: Bools | None,
        held: Collection[int],
    ) -> Iterator[Candidate]:
        """Yield the places to try for pods that ask for an amount, within `nodes`; `held` are nodes of running pods."""
        if constraint is None or not (constraint.required or constraint.preferred):
            yield nodes, {}
            return
        levels = self._levels[constraint.topology]
        finest = levels.index(constraint.preferred or constraint.required) + 1
        coarsest = levels.index(constraint.required) + 1 if constraint.required else 0
        domains = self._of[constraint.topology]
        for depth in range(finest, coarsest - 1, -1):
            if depth == 0:
                yield nodes, self._likes(domains, finest, nodes, asked)
                continue
            inside = {key: mask if nodes is None else mask & nodes for key, mask in domains.items()}
            stay = {key[:coarsest] for key in domains if len(key) == coarsest and any(domains[key][n] for n in held)}
            for key in sorted(
                (key for key in domains if len(key) == depth), key=lambda key: self._rank(inside, key, asked)
            ):
                out = coarsest and stay and key[:coarsest] not in stay
                if not out and self._holds(inside[key], pods, asked):
                    yield inside[key], self._likes(inside, finest, inside[key], asked) if depth < finest else {}

    def _rank(self, inside: Mapping[Domain, Bools], key: Domain, asked: Sequence[float]) -> list[tuple[float, str]]:
        chain = [key[:depth] for depth in range(1, len(key) + 1)]
        return [(-self._ratio(inside[one], asked), one[-1]) for one in chain]

    def _ratio(self, nodes: Bools, asked: Sequence[float]) -> float:
        free = self._room.future(nodes)
        parts = [want / have if have > 0 else np.inf for want, have in zip(asked, free, strict=True) if want > 0]
        return max(parts, default=0.0)

    def _holds(self, nodes: Bools, pods: Sequence[Pod], asked: Sequence[float]) -> bool:
        """Return whether a domain may hold pods: enough copies of one shape, or the sum of several shapes."""
        if len({(pod.ask, pod.nodes) for pod in pods}) == 1:
            return bool(self._room.copies(pods[0])[nodes].sum() >= len(pods))
        return self._ratio(nodes, asked) <= 1

    def _likes(
        self, inside: Mapping[Domain, Bools], depth: int, nodes: Bools | None, asked: Sequence[float]
    ) -> dict[int, int]:
        """Return a score of 0 to 10 for each node, highest in the sub-domains with most room."""
        parts = {key: mask if nodes is None else mask & nodes for key, mask in inside.items() if len(key) == depth}
        fullest_first = sorted(
            (key for key, mask in parts.items() if mask.any()), key=lambda key: (-self._ratio(parts[key], asked), key)
        )
        return {
            int(node): 10 * rank // len(fullest_first)
            for rank, key in enumerate(fullest_first, start=1)
            for node in np.flatnonzero(parts[key])
        }
