"""Workloads of Kubernetes as the jobs of a trace: jobs of all kinds, pod groups and pods, with their priorities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from simsched.manifests import (
    Account,
    Fields,
    Object,
    PodSet,
    Workload,
    chosen,
    is_gpu,
    raise_any,
    read_objects,
    read_workloads,
)
from simsched.workload.readers.format import Format, Jobs
from simsched.workload.trace import EPOCH

_ANNOTATE = "annotate it with simsched/duration-s"
_MIB = 1 << 20


@dataclass(frozen=True)
class Stated:
    """What a user adds to the manifests: durations, by name or drawn, and the submission time of undated workloads.

    A name is that of the object, with or without its namespace, or its `generateName`.
    """

    durations_s: Mapping[str, float] = field(default_factory=dict)
    draw_s: Callable[[], float] | None = None
    submit_s: float | None = None


def jobs_of(objects: Sequence[Object], account: Account, stated: Stated | None = None) -> Jobs:
    """Return the workloads among objects as jobs; add problems to `account`.

    A job's duration comes from its annotation, else from the one stated for its name, else from its status, else from a
    draw. Suspended workloads without a queue never run and are left out.
    """
    stated = stated or Stated()
    there = read_workloads(objects, account)
    workloads = [one for one in there if one.queue or not one.suspended]
    places, origin = _submissions(workloads, account, stated)
    queues = {(one.namespace, one.name): _name(one, "clusterQueue") for one in chosen(objects, "LocalQueue")}
    classes = _classes(objects)
    rows = [
        {
            "job_id": one.id,
            "submit_time_s": place,
            "duration_s": _duration(one, account, stated),
            "tenant": queues.get((one.namespace, one.queue or "default"), one.namespace),
            "user": one.namespace,
            "queue": one.queue or ("default" if (one.namespace, "default") in queues else ""),
            "qos": one.priority_class or one.pod_priority,
            "priority": classes.get(one.priority_class or one.pod_priority, 0),
            "time_limit_s": one.limit_s or 0,
            **_shape(one.pod_sets),
        }
        for one, place in zip(workloads, places, strict=True)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    dropped = {"suspended without a queue": len(there) - len(workloads)}
    return Jobs(columns, None if origin is None else EPOCH + timedelta(seconds=origin), dropped)


def _submissions(workloads: Sequence[Workload], account: Account, stated: Stated) -> tuple[list[int], float | None]:
    """Return each submission in seconds after the first creation, or after the start from which annotations count."""
    created = [one.created_s for one in workloads if one.submit_s is None and one.created_s is not None]
    origin = min(created, default=None)
    found = []
    for one in workloads:
        at = one.submit_s
        if at is None:
            at = stated.submit_s if one.created_s is None or origin is None else one.created_s - origin
        if at is None:
            message = "does not say when it was created"
            remedy = "annotate it with simsched/submit-s, or state --submit-s"
            account.problems.append(one.owner.problem(("metadata", "creationTimestamp"), message, remedy))
        found.append(round(at or 0))
    return found, origin


def _duration(one: Workload, account: Account, stated: Stated) -> float:
    names = (one.id, one.owner.name, str(one.owner.part("metadata").get("generateName", "")))
    known = (one.duration_s, *(stated.durations_s.get(name) for name in names), one.ran_s)
    found = next((seconds for seconds in known if seconds is not None), None)
    if found is None and stated.draw_s is not None:
        found = stated.draw_s()
    if found is None:
        message = "does not say how long it runs"
        remedy = f"{_ANNOTATE}, or state --durations FILE or --duration DISTRIBUTION"
        account.problems.append(one.owner.problem((), message, remedy))
    return found or 1.0


def _name(one: Object, key: str) -> str:
    return str(one.part("spec").get(key, ""))


def _classes(objects: Sequence[Object]) -> dict[str, int]:
    """Return the values of priority classes; those of workloads take precedence over those of pods."""
    found: dict[str, int] = {}
    for kind in ("PriorityClass", "WorkloadPriorityClass"):
        found |= {one.name: Fields(one, Account()).whole("value", 0) for one in chosen(objects, kind)}
    return found


def _shape(pod_sets: Sequence[PodSet]) -> dict[str, int]:
    """Return GPUs, and also nodes, cores and memory if all pods with GPUs are equal.

    Launchers, heads and submitters that accompany pods with GPUs count against quotas but take no room on nodes. A
    workload without GPUs is only known to run on one node.
    """
    gpus = [sum(units for name, units in one.template.requests.items() if is_gpu(name)) for one in pod_sets]
    with_gpus = [one for one, own in zip(pod_sets, gpus, strict=True) if own] or list(pod_sets)
    total = sum(own * one.count for own, one in zip(gpus, pod_sets, strict=True))
    equal = len({tuple(sorted(one.template.requests.items())) for one in with_gpus}) == 1
    same = len({own for own in gpus if own}) <= 1
    count = sum(one.count for one in with_gpus)
    if not total:
        return {"num_gpus": 0, "num_nodes": 1, "cpu_milli": 0, "memory_mib": 0}
    requests = with_gpus[0].template.requests if equal and with_gpus else {}
    return {
        "num_gpus": total,
        "num_nodes": count if same else 0,
        "cpu_milli": requests.get("cpu", 0) * count,
        "memory_mib": requests.get("memory", 0) // _MIB * count,
    }


def _read(path: Path) -> Jobs:
    """Read the workloads of a file or folder, with durations from annotations or records."""
    account = Account()
    found = jobs_of(read_objects(path), account)
    raise_any(account.problems)
    return found


FORMAT = Format(
    "kubernetes",
    "workloads of Kubernetes: Job, JobSet, PyTorchJob, MPIJob, RayJob, RayCluster, Pod",
    "YAML documents, or the JSON list of `kubectl get ... -o json`",
    lambda head: head.line.startswith(("apiVersion:", "kind:")),
    _read,
)
