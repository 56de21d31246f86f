"""Reads what the pods of workloads in manifests request of quota, nodes and topology."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from simsched.manifests import PodTemplate
from simsched.reading import whole_number
from simsched_policies.kubernetes.kueue.matching import Constraints
from simsched_policies.kubernetes.kueue.model import Slice, TopologyRequest

#: The prefix of Kueue's labels and annotations.
PREFIX = "kueue.x-k8s.io"


def constraints(template: PodTemplate) -> Constraints:
    """Return the affinity of pods."""
    return Constraints(tuple(sorted(template.selector.items())), template.affinity, template.tolerations)


def topology_request(notes: Mapping[str, str]) -> TopologyRequest | None:
    """Return the topology request in the annotations of a pod template; raises `ValueError` if it is inconsistent."""
    given = {key: notes[f"{PREFIX}/podset-{key}"] for key in _TOPOLOGY if f"{PREFIX}/podset-{key}" in notes}
    kinds = [kind for kind in ("required", "preferred", "unconstrained") if f"{kind}-topology" in given]
    if len(kinds) > 1:
        raise ValueError(f"asks for {kinds[0]} and {kinds[1]} topology, and only one of them is possible")
    slices = _slices(given)
    if not kinds:
        return TopologyRequest("unconstrained", "", slices) if slices else None
    kind = kinds[0]
    level = given[f"{kind}-topology"]
    if kind == "unconstrained":
        return TopologyRequest("unconstrained", "", slices) if level == "true" else None
    return TopologyRequest("required" if kind == "required" else "preferred", level, slices)


_TOPOLOGY = (
    "required-topology", "preferred-topology", "unconstrained-topology", "slice-required-topology", "slice-size",
    "slice-required-topology-constraints",
)  # fmt: skip
_MOST_LAYERS = 3


def _slices(given: Mapping[str, str]) -> tuple[Slice, ...]:
    layers = given.get("slice-required-topology-constraints")
    level, size = given.get("slice-required-topology"), given.get("slice-size")
    if layers is None:
        if (level is None) != (size is None):
            raise ValueError("a slice needs both podset-slice-required-topology and podset-slice-size")
        return () if level is None or size is None else (Slice(level, _size(size)),)
    if level is not None or size is not None:
        raise ValueError("gives slices both by podset-slice-required-topology and by its constraints")
    try:
        told = json.loads(layers)
        found = tuple(Slice(str(one["topology"]), _size(one["size"])) for one in told)
    except (KeyError, TypeError, json.JSONDecodeError):
        message = f"podset-slice-required-topology-constraints is not a list of topology and size: {layers:.60}"
        raise ValueError(message) from None
    if len(found) > _MOST_LAYERS or any(outer.size % inner.size for outer, inner in pairwise(found)):
        raise ValueError("slices have at most three layers, each size a divisor of the one before it")
    return found


def _size(value: Any) -> int:
    return whole_number(value, "the size of a slice", least=1)
