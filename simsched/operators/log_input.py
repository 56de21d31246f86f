"""An operator's input: a log and a description of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.documents import section_of, yaml_lines
from simsched.errors import input_error, tell
from simsched.experiment.cluster import ClusterSpec, GroupSpec
from simsched.model import Capacity, Node
from simsched.model.placement import node_labels
from simsched.operators.changes import group_names
from simsched.reading import read_text
from simsched.words import counted
from simsched.workload import Trace, kinds_of, make_trace, read_nodes as read_node_list, shapes_of
from simsched.workload.readers import (
    ClusterLog,
    Limits,
    SlurmCluster,
    SlurmNode,
    describes_nodes,
    head_of,
    is_log,
    read_log,
    read_nodes,
    read_settings,
    read_trace,
)

#: Groups of equal nodes, as in an experiment's `cluster.groups`.
Groups = Sequence[Mapping[str, Any]]
#: The default GPUs per node.
USUAL_NODE = 8
_UNNAMED_TYPE = "gpu"


@dataclass(frozen=True)
class OperatorLog:
    """A log as a trace to replay and, if it records waits, the log itself; `said` holds notes on reading.

    `labels` are the nodes by name, in the form of `Terms.held_nodes`. Users cancel jobs of the trace at the times in
    `withdrawn`, which count as those of the trace do.
    """

    trace: Trace
    log: ClusterLog | None
    said: str
    labels: Mapping[str, str] = field(default_factory=dict)
    withdrawn: Mapping[str, int] = field(default_factory=dict)


def read_operator_log(
    path: Path,
    *,
    layout: str = "auto",
    time_zone: str = "UTC",
    gpus: int = 0,
    nodes: frozenset[str] = frozenset(),
    with_gpus: frozenset[str] = frozenset(),
    strict: bool = False,
) -> OperatorLog:
    """Read a scheduler's log, or any trace if waits do not matter; raises `InputError` if there is none.

    Leaves out (`strict`: rejects) invalid jobs, and jobs of more than `gpus` GPUs (0: any) or on other `nodes`. Keeps
    jobs without GPUs if they ran only on nodes `with_gpus`.
    """
    if not path.exists():
        raise input_error(path, "there is no such file", "name the log of your cluster")
    if path.is_dir() or not (layout != "auto" or is_log(head_of(path))):
        trace = read_trace(path)
        return OperatorLog(trace, None, f"{path}: {len(trace)} jobs read, without recorded waits")
    limits = Limits(gpus, nodes, with_gpus)
    log = read_log(path, head_of(path), layout=layout, time_zone=time_zone, limits=limits, strict=strict)
    jobs = log.jobs()
    trace = make_trace(log.name, log.source, jobs.columns, origin=jobs.origin)
    more = {what: count for what, count in jobs.adjusted.items() if count and what not in log.adjusted}
    said = [log.summary(), *(f"  changed: {count} {what}" for what, count in sorted(more.items()))]
    return OperatorLog(trace, log, "\n".join(said))


def cluster_groups(path: Path) -> Groups:
    """Read a cluster: `scontrol show node`, `sinfo -N`, or YAML with `nodes` and `gpus_per_node`, or `groups`.

    Raises `InputError` with every wrong key and its line, or if the file has no GPUs.
    """
    text = read_text(path)
    if describes_nodes(text):
        groups = groups_of(read_nodes(path))
        if not groups:
            raise input_error(path, "none of its nodes has GPUs", "give nodes with Gres=gpu:...")
        return groups
    document = yaml_lines.load(path)
    inner = document.data.get("cluster")
    if isinstance(inner, dict):
        lines = {key[1:]: line for key, line in document.lines.items() if key[0] == "cluster"}
        document = replace(document, data=inner, lines=lines)
    cluster = document.data
    if not {"groups", "nodes"} & set(cluster):
        raise input_error(path, "describes no cluster", "write `nodes: 10` and `gpus_per_node: 8`, or `groups:`")
    section_of(document, ClusterSpec)
    one = {key: cluster[key] for key in ("nodes", "gpus_per_node", "gpu_type") if key in cluster}
    for key in sorted(set(cluster) - set(one) - {"groups"}):
        tell(path, f"'{key}' is not read from here", f"give it as -o cluster.{key}=...", line=document.line((key,)))
    made: Groups = cluster.get("groups", [one])
    return list(made)


def nodes_of(path: Path) -> tuple[Node, ...]:
    """Read the nodes of a cluster as `cluster_groups` does, or from a published list of nodes (`.csv`)."""
    if path.name.endswith((".csv", ".csv.gz")):
        return tuple(read_node_list(path))
    return ClusterSpec(groups=tuple(GroupSpec(**group) for group in cluster_groups(path))).build().nodes


def groups_of(nodes: SlurmCluster) -> Groups:
    """Return the nodes with GPUs in groups of equal nodes."""
    return [_group(make) for make in nodes.makes()]


def with_partitions(nodes: SlurmCluster, log: ClusterLog) -> SlurmCluster:
    """Return the nodes with their partitions; by default those whose jobs ran on a node."""
    if any(node.partitions for node in nodes.nodes):
        return nodes
    ran: dict[str, set[str]] = {}
    for queue, names in log.table[["queue", "nodes"]].drop_duplicates().itertuples(index=False, name=None):
        for name in names.split(",") if queue and names else ():
            ran.setdefault(name, set()).add(queue)
    return SlurmCluster(tuple(replace(node, partitions=tuple(sorted(ran.get(node.name, ())))) for node in nodes.nodes))


def _group(make: Sequence[SlurmNode]) -> Mapping[str, Any]:
    """Return a group of equal nodes, with cores, memory and partitions if given."""
    one = make[0]
    more = {"cores_per_node": one.cpus, "memory_gb_per_node": one.memory_mb / 1024, "partitions": list(one.partitions)}
    group = {"nodes": len(make), "gpus_per_node": one.gpus, "gpu_type": one.gpu_type or _UNNAMED_TYPE}
    return {**group, **{key: value for key, value in more.items() if value}}


def fitted_to(found: OperatorLog, groups: Groups, *, nodes: SlurmCluster | None = None) -> tuple[OperatorLog, Groups]:
    """Match a log with a cluster and report what of either cannot be used.

    GPU types that the cluster lacks do not constrain jobs. Cores and memory count if both the log and the cluster have
    them. A job of a log is proof that it fits: nodes are corrected, or jobs clipped, if the two contradict each other.
    """
    said, table = [found.said], found.trace.table
    types = {str(one.get("gpu_type", "")).lower(): str(one.get("gpu_type", "")) for one in groups}
    if "gpu_types" in table:
        named = {
            text: [types.get(kind.lower(), "") for kind in text.split("|")] for text in table["gpu_types"].unique()
        }
        unknown = sorted(text for text, kinds in named.items() if text and not all(kinds))
        if unknown:
            count = int(table["gpu_types"].isin(unknown).sum())
            said.append(
                f"  {counted(count, 'job')} on {', '.join(unknown)}, which the cluster lacks, may run on any type"
            )
        kept = {text: "|".join(kinds) if all(kinds) else "" for text, kinds in named.items()}
        table = table.assign(gpu_types=table["gpu_types"].map(kept))
    beside = [name for name in ("cpu_milli", "memory_mib") if name in table]
    if not beside or not any("cores_per_node" in one or "memory_gb_per_node" in one for one in groups):
        keys = ("cores_per_node", "memory_gb_per_node")
        groups = [{key: value for key, value in one.items() if key not in keys} for one in groups]
        table = table.drop(columns=beside)
    away = sum(not node.works for node in nodes.nodes if node.gpus) if nodes is not None else 0
    said += (
        [f"  {counted(away, 'node')} down or draining when the cluster was described; they count as up"] if away else []
    )
    table, groups, fitted = _with_room(table, groups, ran=found.log is not None)
    said += fitted
    columns = {str(name): table[name] for name in table}
    labels = found.labels if nodes is None else _labels(nodes)
    return replace(found, trace=replace(found.trace, columns=columns), said="\n".join(said), labels=labels), groups


def _labels(nodes: SlurmCluster) -> dict[str, str]:
    made = [one for make in nodes.makes() for one in make]
    labels = node_labels(one.gpu_type or _UNNAMED_TYPE for one in made)
    return dict(zip([one.name for one in made], labels, strict=True))


def held_nodes(found: OperatorLog, table: pd.DataFrame, runs: npt.NDArray[np.bool_]) -> list[str]:
    """Return the labels of the nodes that each running job holds; empty if one of them is unknown."""
    texts = {}
    for text in table["nodes"][runs].unique():
        labels = [found.labels.get(name, "") for name in text.split(",")]
        texts[text] = " ".join(labels) if all(labels) else ""
    return [texts[text] if held else "" for text, held in zip(table["nodes"], runs.tolist(), strict=True)]


class _Beside(NamedTuple):
    """A resource beside GPUs: its column of a trace, and its key of a group in units of `unit`."""

    column: str
    key: str
    unit: int
    noun: str
    kind: type


_BESIDE = (
    _Beside("cpu_milli", "cores_per_node", 1000, "cores", int),
    _Beside("memory_mib", "memory_gb_per_node", 1024, "GiB of memory", float),
)
_SHAPE = ("num_nodes", "gpu_types", "cpu_milli", "memory_mib", "exclusive")
#: A job that held up to so many times what a node is said to have corrects the node: GB for GiB, rounding.
_LARGER = 1.25


@dataclass(frozen=True)
class _Kinds:
    """The different requests of a trace's jobs: a row each, the row of each job, and the GPU hours of each job."""

    rows: pd.DataFrame
    number: npt.NDArray[np.integer[Any]]
    gpu_h: npt.NDArray[np.float64]

    @classmethod
    def of(cls, table: pd.DataFrame) -> _Kinds:
        rows, number = kinds_of(table, ("queue", "num_gpus", *_SHAPE))
        return cls(rows, number, (table["num_gpus"] * table["duration_s"]).to_numpy("float64") / 3600)

    def misfits(self, groups: Groups, **without: int) -> npt.NDArray[np.bool_]:
        """Return which requests do not fit on the idle nodes of their queue; `without` replaces columns."""
        rows = self.rows.assign(**{name: value for name, value in without.items() if name in self.rows})
        shapes = shapes_of(rows).get("shape", [None] * len(rows))
        made = [GroupSpec(**{**one, "partitions": tuple(one.get("partitions", ()))}) for one in groups]
        nodes = ClusterSpec(groups=tuple(made)).build().nodes
        named = {name for node in nodes for name in node.partitions}
        fits: dict[tuple[str, Any], bool] = {}
        for queue, shape in zip(rows["queue"], shapes, strict=True):
            if (queue, shape) not in fits:
                up = [queue not in named or queue in node.partitions for node in nodes]
                free = [node.gpus if works else 0 for node, works in zip(nodes, up, strict=True)]
                fits[queue, shape] = shape is None or Capacity(nodes, up, free).place_of(shape) is not None
        return np.array([not fits[one] for one in zip(rows["queue"], shapes, strict=True)], dtype=bool)

    def lack(self, groups: Groups, beside: _Beside) -> npt.NDArray[np.bool_]:
        """Return which requests a resource alone keeps from fitting."""
        others = {one.column: 0 for one in _BESIDE if one is not beside}
        return self.misfits(groups, **others) & ~self.misfits(groups, **others, **{beside.column: 0})

    def weight(self, chosen: npt.NDArray[np.bool_]) -> str:
        """Count the jobs of some requests, with their share of the GPU hours."""
        mine = chosen[self.number]
        hours = self.gpu_h[mine].sum()
        share = 100 * hours / max(self.gpu_h.sum(), 1e-9)
        return f"{counted(int(mine.sum()), 'job')} ({hours:,.0f} GPU hours, {share:.1f} % of all)"

    def parts(self, groups: Groups) -> npt.NDArray[np.float64]:
        """Return on how many nodes of each group (rows) each request lies; 0 where it may not use the group."""
        rows = self.rows
        gpus, nodes = rows["num_gpus"].to_numpy("float64"), rows.get("num_nodes", pd.Series(0, rows.index)).to_numpy()
        types = [text.split("|") if text else [] for text in rows.get("gpu_types", pd.Series("", rows.index))]
        named = {name for one in groups for name in one.get("partitions", ())}
        found = np.zeros((len(groups), len(rows)))
        for place, one in enumerate(groups):
            each, queues = int(one.get("gpus_per_node", 4)), one.get("partitions", ())
            typed = np.array([not kinds or one.get("gpu_type") in kinds for kinds in types], dtype=bool)
            may = typed & (~rows["queue"].isin(named) | rows["queue"].isin(queues)).to_numpy()
            lies = np.where(nodes > 0, nodes, np.maximum(gpus / each, 1))
            found[place] = np.where(may & (gpus <= lies * each), lies, 0)
        return found


def _with_room(table: pd.DataFrame, groups: Groups, *, ran: bool) -> tuple[pd.DataFrame, Groups, list[str]]:
    """Make room for jobs that `ran` and yet do not fit on the idle nodes of their queue, and report how.

    Nodes get the cores or memory that a job held on them if that is a little more than they are said to have; other
    jobs are clipped to whole nodes. What lacks GPUs nonetheless is left out.
    """
    kinds, said = _Kinds.of(table), list[str]()
    for beside in _BESIDE if ran and kinds.misfits(groups).any() else ():
        if beside.column in table:
            groups, more = _corrected(kinds, groups, beside)
            clipped, less = _clipped(kinds, groups, beside)
            table = table.assign(**{beside.column: clipped[kinds.number]})
            kinds, said = _Kinds.of(table), [*said, *more, *less]
    if ran and "num_nodes" in table:
        lacks = kinds.misfits(groups) & ~kinds.misfits(groups, num_nodes=0)
        if lacks.any():
            said.append(
                f"  clipped: {kinds.weight(lacks)} to any number of nodes, as they ran, and no nodes are so large"
            )
            table = table.assign(num_nodes=np.where(lacks[kinds.number], 0, table["num_nodes"]))
            kinds = _Kinds.of(table)
    lacks = kinds.misfits(groups)
    if lacks.any():
        said.append(f"  left out: {kinds.weight(lacks)}, since the idle nodes of their partition lack GPUs")
        table = table[~lacks[kinds.number]].reset_index(drop=True)
    return table, groups, said


def _corrected(kinds: _Kinds, groups: Groups, beside: _Beside) -> tuple[Groups, list[str]]:
    """Give nodes what a job held on them, if that is at most `_LARGER` times what they are said to have."""
    lacks, parts, said = kinds.lack(groups, beside), kinds.parts(groups), list[str]()
    found = [dict(one) for one in groups]
    for one, lies, name in zip(found, parts, group_names(groups), strict=True):
        has = one.get(beside.key, np.inf)
        asked = kinds.rows[beside.column].to_numpy("float64") / np.maximum(lies, 1e-9) / beside.unit
        more = lacks & (lies > 0) & (asked > has) & (asked <= _LARGER * has)
        if more.any():
            one[beside.key] = beside.kind(np.ceil(asked[more].max()))
            said.append(
                f"  corrected: nodes of {name} have {one[beside.key]:g} {beside.noun}, not {has:g}, as "
                f"{kinds.weight(more)} held more of one"
            )
    return found, said


def _clipped(kinds: _Kinds, groups: Groups, beside: _Beside) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Clip requests to whole nodes where they do not fit otherwise."""
    lacks = kinds.lack(groups, beside)
    asked = kinds.rows[beside.column].to_numpy("int64")
    most = np.max(
        [lies * one.get(beside.key, 0) for lies, one in zip(kinds.parts(groups), groups, strict=True)], axis=0
    )
    said = (
        [f"  clipped: {kinds.weight(lacks)} to the {beside.noun} of whole nodes, since they ran"] if lacks.any() else []
    )
    return np.where(lacks, np.minimum(asked, np.floor(most * beside.unit)), asked).astype("int64"), said


def policy_settings(
    paths: Sequence[Path], found: OperatorLog, nodes: SlurmCluster | None, *, time_zone: str = "UTC"
) -> tuple[dict[str, Any], str]:
    """Return the parameters of `slurm-backfill` from an administrator's files, and their other settings."""
    settings = read_settings(paths)
    names = [one.name for make in nodes.makes() for one in make] if nodes is not None else []
    lasts_s = int(found.trace.column("submit_time_s")[-1])
    return settings.params_from(found.trace.origin, names, time_zone, lasts_s), settings.said()


def slurm_nodes(path: Path) -> SlurmCluster | None:
    """Return the nodes of a Slurm cluster; None for YAML."""
    text = read_text(path)
    return read_nodes(path) if describes_nodes(text) else None


def total_gpus(groups: Groups) -> int:
    """Return the number of GPUs of groups."""
    return sum(int(one["nodes"]) * int(one.get("gpus_per_node", 4)) for one in groups)


def largest_type(groups: Groups) -> int:
    """Return the number of GPUs of the most frequent type."""
    counts: dict[str, int] = {}
    for one in groups:
        kind = str(one.get("gpu_type", ""))
        counts[kind] = counts.get(kind, 0) + total_gpus([one])
    return max(counts.values())


def held_over_time(table: pd.DataFrame) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sorted starts and ends of jobs, and how many GPUs are held from then on; jobs without an end stay."""
    gpus = np.ceil(table["gpus"].to_numpy("float64"))
    times = np.concatenate([table["end_s"].where(table["end_s"] >= 0, np.inf), table["start_s"]]).astype("float64")
    order = np.argsort(times, kind="stable")  # at the same instant, ends precede starts
    return times[order], np.cumsum(np.concatenate([-gpus, gpus])[order])


def peak_gpus(log: ClusterLog) -> int:
    """Return the most GPUs that a log's jobs held at once."""
    return int(held_over_time(log.table)[1].max())


def inferred_groups(log: ClusterLog) -> Groups:
    """Return nodes of 8 GPUs for the log's peak."""
    return [{"nodes": -(-peak_gpus(log) // USUAL_NODE), "gpus_per_node": USUAL_NODE, "gpu_type": _UNNAMED_TYPE}]
