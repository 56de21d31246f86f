"""An operator's input: a log and a description of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simsched.documents import yaml_lines
from simsched.errors import input_error
from simsched.reading import read_text
from simsched.workload import Trace, make_trace
from simsched.workload.readers import ClusterLog, Limits, head_of, is_log, read_log, read_nodes, read_trace

#: Groups of equal nodes, as in an experiment's `cluster.groups`.
Groups = Sequence[Mapping[str, Any]]
#: The default GPUs per node.
USUAL_NODE = 8
_UNNAMED_TYPE = "gpu"


@dataclass(frozen=True)
class OperatorLog:
    """A log as a trace to replay and, if it records waits, the log itself; `said` holds notes on reading."""

    trace: Trace
    log: ClusterLog | None
    said: str


def read_operator_log(
    path: Path,
    *,
    layout: str = "auto",
    time_zone: str = "UTC",
    gpus: int = 0,
    nodes: frozenset[str] = frozenset(),
    strict: bool = False,
) -> OperatorLog:
    """Read a scheduler's log, or any trace if waits do not matter.

    Leaves out (`strict`: rejects) invalid jobs, and those of more than `gpus` GPUs (0: any) or on other `nodes`.
    """
    if not path.exists():
        raise input_error(path, "there is no such file", "name the log of your cluster")
    if path.is_dir() or not (layout != "auto" or is_log(head_of(path))):
        trace = read_trace(path)
        return OperatorLog(trace, None, f"{path}: {len(trace)} jobs read, without recorded waits")
    log = read_log(path, head_of(path), layout=layout, time_zone=time_zone, limits=Limits(gpus, nodes), strict=strict)
    jobs = log.jobs()
    trace = make_trace(log.name, log.source, jobs.columns, origin=jobs.origin)
    return OperatorLog(trace, log, log.summary())


def cluster_groups(path: Path) -> Groups:
    """Read a cluster: `scontrol show node`, `sinfo -N`, or YAML with `nodes` and `gpus_per_node`, or `groups`.

    Raises `InputError` for a file without GPUs.
    """
    text = read_text(path)
    if "NodeName=" in text or "NODELIST" in text:
        groups = [
            {"nodes": nodes, "gpus_per_node": gpus, "gpu_type": kind or _UNNAMED_TYPE}
            for nodes, gpus, kind in read_nodes(path).groups()
        ]
        if not groups:
            raise input_error(path, "none of its nodes has GPUs", "give nodes with Gres=gpu:...")
        return groups
    data = yaml_lines.load(path).data
    cluster = data.get("cluster", data)
    if isinstance(cluster, dict) and isinstance(cluster.get("groups"), list):
        return list(cluster["groups"])
    if isinstance(cluster, dict) and "nodes" in cluster:
        return [{key: cluster[key] for key in ("nodes", "gpus_per_node", "gpu_type") if key in cluster}]
    raise input_error(path, "describes no cluster", "write `nodes: 10` and `gpus_per_node: 8`, or `groups:`")


def node_names(path: Path) -> frozenset[str]:
    """Return the node names of a Slurm cluster; none for YAML."""
    text = read_text(path)
    if "NodeName=" not in text and "NODELIST" not in text:
        return frozenset()
    return frozenset(node.name for node in read_nodes(path).nodes)


def total_gpus(groups: Groups) -> int:
    """Count the GPUs of groups."""
    return sum(int(one["nodes"]) * int(one.get("gpus_per_node", 4)) for one in groups)


def largest_type(groups: Groups) -> int:
    """Count the GPUs of the most frequent type."""
    counts: dict[str, int] = {}
    for one in groups:
        kind = str(one.get("gpu_type", ""))
        counts[kind] = counts.get(kind, 0) + total_gpus([one])
    return max(counts.values())


def peak_gpus(log: ClusterLog) -> int:
    """Return the most GPUs that a log's jobs held at once."""
    table = log.table
    gpus = np.ceil(table["gpus"].to_numpy("float64"))
    times = np.concatenate([table["end_s"].to_numpy("int64"), table["start_s"].to_numpy("int64")])
    changes = np.concatenate([-gpus, gpus])
    order = np.lexsort((changes, times))  # ends precede starts at an instant
    return int(np.cumsum(changes[order]).max())


def inferred_groups(log: ClusterLog) -> Groups:
    """Return nodes of 8 GPUs for the log's peak."""
    return [{"nodes": -(-peak_gpus(log) // USUAL_NODE), "gpus_per_node": USUAL_NODE, "gpu_type": _UNNAMED_TYPE}]
