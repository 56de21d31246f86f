"""What a cell's manifest says of its input, and the name that follows from what determines its tables."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import Any

from simsched.experiment.cluster import ClusterSpec
from simsched.model.cluster import Cluster


def groups_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Describe a cluster as runs of equal nodes, however it was written."""
    runs = itertools.groupby(cluster.nodes, key=lambda node: (node.gpus, node.gpu_type))
    return [{"nodes": len(list(run)), "gpus_per_node": gpus, "gpu_type": kind} for (gpus, kind), run in runs]


def conditions_of_cluster(spec: ClusterSpec, cluster: Cluster) -> dict[str, Any]:
    """Return the levels, the prices and the power of a cluster, each where it has any."""
    about: dict[str, Any] = {}
    if spec.topology:
        about["topology"] = [level.described() for level in cluster.levels]
    if spec.node_price_per_h is not None:
        about["node_price_per_h"] = spec.node_price_per_h
    if spec.gpu_price_per_h:
        about["gpu_price_per_h"] = dict(spec.gpu_price_per_h)
    power = spec.drawn_w()
    if power is not None:
        about["power"] = power
    return about


def key_of(about: Mapping[str, Any]) -> str:
    """Name a cell by all that determines its tables.

    The experiment's name is not part of that, and of an input file neither is its place, only its content.
    """
    determining = {name: value for name, value in about.items() if name != "experiment"}
    determining["policy"] = {name: value for name, value in about["policy"].items() if name != "name"}
    files = about.get("policy_files", {})
    params = about["policy"]["params"].items()
    determining["policy"]["params"] = {name: value for name, value in params if name not in files}
    text = json.dumps(determining, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]
