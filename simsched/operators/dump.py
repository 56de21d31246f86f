"""A Kubernetes cluster at a moment: what `kubectl get` printed, with what runs, waits and has run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simsched.errors import input_error, tell
from simsched.manifests import (
    WORKLOAD_KINDS,
    Account,
    Object,
    Workload,
    is_gpu,
    read_nodes,
    read_objects,
    read_workloads,
    written,
)
from simsched.manifests.admissions import NODES, Admission, admission_of, nodes_text, read_admissions
from simsched.reading import moment
from simsched.words import counted

#: The fewest durations that stand for those of similar jobs.
_ENOUGH = 12
#: How often a duration is drawn until it is longer than a job has run.
_TRIES = 100
_NONE = (np.zeros(0), np.zeros(0))
#: The taint that Kubernetes gives to nodes that take no new pods.
_CLOSED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Likeness(NamedTuple):
    """By what the durations of jobs resemble each other: the user (a namespace), queue, image and number of GPUs."""

    user: str
    queue: str
    image: str
    gpus: int


class Past(NamedTuple):
    """A job that has run: what it was like, and for how many seconds until it ended, or until now."""

    like: Likeness
    seconds: float
    ended: bool = True


@dataclass(frozen=True)
class Standing:
    """A workload that runs or waits: what it is like, and how long it has run if it does (-1: it waits).

    A `parked` one was tried, and is not tried again before something ends. `known_s` is its duration if stated.
    """

    workload: Workload
    like: Likeness
    ran_s: float
    known_s: float | None = None
    parked: bool = False


@dataclass(frozen=True)
class Dump:
    """A cluster at second `now_s` since 1970: the objects to replay, the workloads there, and those that ended."""

    path: Path
    objects: tuple[Object, ...]
    now_s: float
    standing: tuple[Standing, ...]
    past: tuple[Past, ...]
    #: When workloads that came in the past were created, each with its object.
    came: tuple[tuple[float, Workload, Likeness], ...] = ()

    def summary(self) -> str:
        """Say what was read."""
        running = sum(one.ran_s >= 0 for one in self.standing)
        at = datetime.fromtimestamp(self.now_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        waiting, ended = len(self.standing) - running, sum(one.ended for one in self.past)
        return f"{self.path}: at {at} {running} workloads ran and {waiting} waited; {ended} had ended"


def read_dump(path: Path, *, now_s: float | None = None, known: Mapping[str, float] | None = None) -> Dump:
    """Read a cluster's objects; `now_s` is the moment if not that of the latest timestamp, `known` durations by name.

    Pods of jobs say where these run, and other pods take room on their nodes; nodes that take no new pods keep those
    that run there. Raises `InputError` for invalid objects.
    """
    objects = read_objects(path)
    now_s = _latest_s(path, objects) if now_s is None else now_s
    roots, pods = _roots(objects)
    account, quiet = Account(), Account()
    workloads = read_workloads(roots, account)
    admissions = read_admissions(objects, account)
    standing, past, came, gone = list[Standing](), list[Past](), list[tuple[float, Workload, Likeness]](), set[int]()
    queues = {(one.namespace, one.name) for one in objects if one.kind == "LocalQueue"}
    unsaid, strict = 0, _strict(objects)
    for one in workloads:
        admission, like = admission_of(one, admissions), likeness(one, queues)
        if one.created_s is not None and one.created_s <= now_s:
            came.append((one.created_s, one, like))
        if (admission is not None and admission.finished) or _ended(one.owner):
            gone.add(id(one.owner.data))
            past += [] if one.ran_s is None else [Past(like, one.ran_s)]
            continue
        runs = admission is not None and bool(admission.granted)
        unsaid += admission is None and bool(one.queue) and "startTime" in one.owner.part("status")
        ran_s = _elapsed_s(admission, now_s) if admission is not None and runs else -1.0
        parked = admission is not None and admission.tried and (one.namespace, like.queue) not in strict
        past += [Past(like, ran_s, ended=False)] if runs else []
        standing.append(Standing(one, like, ran_s, _known(one, known or {}), parked and not runs))
    if unsaid:
        tell(path, f"{counted(unsaid, 'workload')} ran, and no Workload object says what they hold: they count as "
             "waiting", "add kubectl get workloads -A -o yaml")  # fmt: skip
    kept = [one for one in roots if id(one.data) not in gone]
    return Dump(path, tuple(_prepared(kept, pods, quiet)), now_s, tuple(standing), tuple(past), tuple(came))


def _strict(objects: Sequence[Object]) -> set[tuple[str, str]]:
    """Return the local queues whose first workload blocks those behind it, by namespace and name."""
    strict = {one.name for one in objects if one.kind == "ClusterQueue"
              and one.part("spec").get("queueingStrategy") == "StrictFIFO"}  # fmt: skip
    local = [one for one in objects if one.kind == "LocalQueue"]
    return {(one.namespace, one.name) for one in local if one.part("spec").get("clusterQueue") in strict}


def likeness(one: Workload, queues: Iterable[tuple[str, str]] = ()) -> Likeness:
    """Return what a workload is like."""
    gpus = sum(
        units * pods.count for pods in one.pod_sets for name, units in pods.template.requests.items() if is_gpu(name)
    )
    queue = one.queue or ("default" if (one.namespace, "default") in queues else "")
    return Likeness(one.namespace, queue, next(_images(one.owner.part("spec")), ""), gpus)


def _images(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for one in data.get("containers") or ():
            if isinstance(one, dict) and isinstance(one.get("image"), str):
                yield one["image"]
    for part in data.values() if isinstance(data, dict) else data:
        if isinstance(part, dict | list):
            yield from _images(part)


def _known(one: Workload, known: Mapping[str, float]) -> float | None:
    if one.duration_s is not None:
        return one.duration_s
    return next((known[name] for name in (one.id, one.owner.name) if name in known), None)


def _elapsed_s(admission: Admission, now_s: float) -> float:
    return max(now_s - admission.since_s, 0.0) if admission.since_s else 0.0


def _ended(one: Object) -> bool:
    status = one.part("status")
    listed = status.get("conditions")
    said = {str(each.get("type")) for each in listed if isinstance(each, dict) and each.get("status") == "True"} if (
        isinstance(listed, list)) else set[str]()  # fmt: skip
    ends = {"Complete", "Completed", "Failed", "Succeeded"}
    return bool(said & ends) or status.get("phase") in ("Succeeded", "Failed") or "completionTime" in status


def _latest_s(path: Path, objects: Sequence[Object]) -> float:
    """Return the latest timestamp of creations and conditions."""
    latest = max((text for one in objects for text in _stamps(one)), default="")
    if not latest:
        raise input_error(path, "has no timestamps, so its moment is unknown", "state it: --now 2026-01-31T12:00:00")
    found = moment(latest, "a timestamp")
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _stamps(one: Object) -> Iterator[str]:
    status, conditions = one.part("status"), one.part("status").get("conditions")
    listed = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    values = [one.part("metadata").get("creationTimestamp"), status.get("startTime"), status.get("completionTime")]
    values += [each.get(key) for each in listed for key in ("lastTransitionTime", "lastHeartbeatTime")]
    yield from (text for text in values if isinstance(text, str) and text[-1:] == "Z" and text[:1].isdigit())


def _owner(one: Object) -> tuple[str, str, str]:
    """Return namespace, kind and name of an object's controller, empty without one."""
    listed = one.part("metadata").get("ownerReferences")
    for own in listed if isinstance(listed, list) else ():
        if isinstance(own, dict) and own.get("controller"):
            return one.namespace, str(own.get("kind", "")), str(own.get("name", ""))
    return "", "", ""


def _roots(objects: Sequence[Object]) -> tuple[list[Object], list[tuple[Object, tuple[str, str, str]]]]:
    """Return the objects that stand for themselves, and running pods of others, each with its workload (or none).

    Jobs of job sets and pods of jobs belong to what owns them.
    """
    kinds = {(one.namespace, one.kind, one.name): one for one in objects if one.kind in WORKLOAD_KINDS}
    roots, pods = list[Object](), list[tuple[Object, tuple[str, str, str]]]()
    for one in objects:
        top, owner = ("", "", ""), _owner(one) if one.kind in WORKLOAD_KINDS else ("", "", "")
        while owner in kinds:
            top, owner = owner, _owner(kinds[owner])
        strange = one.kind == "Pod" and not top[1] and not _queued(one)
        if one.kind == "Pod" and (top[1] or strange) and one.part("spec").get("nodeName") and not _ended(one):
            pods.append((one, top))
        if not top[1] and not strange:
            roots.append(one)
    return roots, pods


def _queued(one: Object) -> bool:
    return any(name.startswith("kueue.x-k8s.io/") for name in one.marks("labels"))


def _prepared(
    objects: Sequence[Object], pods: Sequence[tuple[Object, tuple[str, str, str]]], account: Account
) -> Iterator[Object]:
    """Yield the objects as a replay reads them: nodes with taints and what is free, workloads with their hosts."""
    taken: dict[str, Counter[str]] = {}
    hosts: dict[tuple[str, str, str], dict[str, Counter[str]]] = {}
    for pod, owner in pods:
        node = str(pod.part("spec").get("nodeName"))
        if owner[1]:
            name = str(pod.marks("labels").get("kueue.x-k8s.io/podset", "main"))
            hosts.setdefault(owner, {}).setdefault(name, Counter())[node] += 1
        else:
            (alone,) = read_workloads([pod], account)
            taken.setdefault(node, Counter()).update({**alone.pod_sets[0].template.requests, "pods": 1})
    for one in objects:
        if one.kind == "Node":
            yield _open(one, taken.get(one.name, Counter()), account)
        elif one.kind == "Workload":
            yield _slim(one, hosts)
        else:
            yield one


def _open(one: Object, taken: Mapping[str, int], account: Account) -> Object:
    """Return a node that is ready, closed by a taint if it took no new pods, without what strange pods take."""
    spec, status = one.part("spec"), one.part("status")
    listed = [each for each in status.get("conditions") or () if isinstance(each, dict)]
    ready = all(each.get("status") == "True" for each in listed if each.get("type") == "Ready")
    free = dict(one.part("status", "allocatable"))
    if taken:
        units = read_nodes([one], account)[0].allocatable
        free |= {name: written(name, max(units[name] - count, 0)) for name, count in taken.items() if name in units}
    taints = list(spec.get("taints") or ())
    if (spec.get("unschedulable") or not ready) and _CLOSED["key"] not in [str(each.get("key")) for each in taints]:
        taints.append(_CLOSED)
    data = {**one.data, "spec": {"taints": taints} if taints else {}, "status": {"allocatable": free}}
    return replace(one, data=data)


def _slim(one: Object, hosts: Mapping[tuple[str, str, str], Mapping[str, Mapping[str, int]]]) -> Object:
    """Return a `Workload` with only its state, and the nodes of its pods."""
    metadata = {key: value for key, value in one.part("metadata").items() if key in ("name", "namespace")}
    listed = one.part("metadata").get("ownerReferences") or ()
    owners = [{key: own.get(key) for key in ("kind", "name")} for own in listed if isinstance(own, dict)]
    keys = [(one.namespace, str(own["kind"]), str(own["name"])) for own in owners]
    on = next((hosts[key] for key in keys if key in hosts), {})
    notes = {NODES: nodes_text(on)} if on else {}
    spec = {key: value for key, value in one.part("spec").items() if key == "active"}
    status = {key: value for key, value in one.part("status").items() if key in ("admission", "conditions")}
    data = {"apiVersion": one.data.get("apiVersion"), "kind": one.kind, "spec": spec, "status": status,
            "metadata": {**metadata, "ownerReferences": owners, "annotations": notes}}  # fmt: skip
    return replace(one, data=data)


@dataclass(frozen=True)
class Durations:
    """Durations of past jobs, by what jobs are like: the more alike the better, as soon as there are enough.

    Each group has durations in order and the probability of each. Jobs that still run say that theirs are longer, so
    that long ones are not missed (Kaplan and Meier, J. Am. Stat. Assoc. 1958); what is left to 1 is longer than all.
    """

    groups: Mapping[tuple[Any, ...], tuple[np.ndarray, np.ndarray]]
    other: Callable[[], float] | None = None

    @classmethod
    def of(cls, past: Iterable[Past], other: Callable[[], float] | None = None) -> Durations:
        """Collect them; `other` draws those of jobs that resemble none."""
        groups: dict[tuple[Any, ...], list[tuple[float, bool]]] = {}
        for one in past:
            for key in _alike(one.like):
                groups.setdefault(key, []).append((one.seconds, not one.ended))
        found = {key: _weighed(sorted(values)) for key, values in groups.items()}
        return cls({key: one for key, one in found.items() if len(one[0])}, other)

    def again(self, rng: np.random.Generator) -> Durations:
        """Return the same durations with probabilities as uncertain as their number leaves them (Rubin 1981)."""
        drawn = {}
        for key, (seconds, shares) in self.groups.items():
            masses = np.append(shares, max(1.0 - shares.sum(), 0.0)) * rng.exponential(size=len(shares) + 1)
            drawn[key] = (seconds, masses[:-1] / masses.sum())
        return Durations(drawn, self.other)

    def draw(self, like: Likeness, elapsed_s: float, rng: np.random.Generator) -> float | None:
        """Draw the whole duration of a job that has run for some time; None if nothing resembles it."""
        for key in _alike(like):
            seconds, shares = self.groups.get(key, _NONE)
            if not len(seconds) or (len(seconds) < _ENOUGH and key):
                continue
            first = int(np.searchsorted(seconds, elapsed_s, side="right"))
            if first < len(seconds):
                upto = np.cumsum(shares[first:])
                mass = rng.random() * (upto[-1] + max(1.0 - float(np.sum(shares)), 0.0))
                if mass < upto[-1]:
                    return float(seconds[first + int(np.searchsorted(upto, mass, side="right"))])
                return float(seconds[-1]) * (1 + float(rng.exponential()))
        if self.other is not None:
            drawn = [self.other() for _ in range(_TRIES if elapsed_s else 1)]
            longer = next((seconds for seconds in drawn if seconds > elapsed_s), None)
            if longer is not None:
                return longer
        if not self.groups and self.other is None:
            return None
        return elapsed_s * (1 + float(rng.exponential())) + 1  # longer than all others


def _weighed(values: Sequence[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the durations of ended jobs and their probabilities; the mass of those that run goes to longer ones."""
    seconds, shares, mass = list[float](), list[float](), 1.0 / len(values)
    for place, (value, runs) in enumerate(values):
        if not runs:
            seconds.append(value)
            shares.append(mass)
        elif place + 1 < len(values):
            mass *= 1 + 1 / (len(values) - place - 1)
    return np.array(seconds), np.array(shares)


def _alike(like: Likeness) -> Iterator[tuple[Any, ...]]:
    """Yield the groups of a job, the most alike first."""
    user, queue, image, gpus = like
    yield ("all", user, queue, image, gpus)
    yield ("image", user, image) if image else ("user", user, gpus)
    yield ("size", queue, gpus)
    yield ("gpus", gpus)
    yield ()


def past_of(path: Path) -> tuple[list[Past], dict[str, float]]:
    """Return the jobs of a trace or log as past ones, without images, and their mean durations by name."""
    from simsched.operators.log_input import read_operator_log  # it loads pandas, which takes as long as an answer

    table = read_operator_log(path).trace.table
    names = [table[name] if name in table else [""] * len(table) for name in ("user", "queue")]
    rows = zip(*names, table["num_gpus"], table["duration_s"], strict=True)
    means = table.groupby(table["job_id"].astype(str))["duration_s"].mean()
    past = [Past(Likeness(str(user), str(queue), "", int(gpus)), float(seconds)) for user, queue, gpus, seconds in rows]
    return past, {str(name): float(seconds) for name, seconds in means.items()}
