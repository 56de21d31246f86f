"""Cases of KAI-Scheduler's own integration tests, read from their Go tables.

A case is a cluster at rest, the expected fate of every pod, and the number of rounds. The defaults that the tables
leave to the builders of the tests are filled in here: one department above all queues, memory of GPUs, ages of jobs. A
case with an unknown word is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simsched_policies.production.go_values import Call, Composite, Name, read_go
from simsched_policies.production.kai.model import (
    DEFAULT_QUEUE_PRIORITY,
    FREE,
    PRIORITIES,
    SLACK,
    UNLIMITED,
    Ask,
    Constraint,
    Held,
    Job,
    Node,
    Pod,
    Queue,
    Quota,
    Rules,
    Snapshot,
    SubGroup,
    preemptible_by_priority,
)

_STATES: Final = ("Running", "Pending", "Releasing", "Bound", "Binding", "Allocated")
_MINUTE_S: Final = 60.0
_KNOWN: Final[Mapping[str, Any]] = {
    **{f"pod_status.{state}": state for state in _STATES},
    "constants.PriorityTrainNumber": PRIORITIES["train"],
    "constants.PriorityBuildPreemptibleNumber": PRIORITIES["build-preemptible"],
    "constants.PriorityInteractivePreemptibleNumber": PRIORITIES["build-preemptible"],
    "constants.PriorityBuildNumber": PRIORITIES["build"],
    "constants.PriorityInferenceNumber": PRIORITIES["inference"],
    "commonconstants.DefaultQueuePriority": DEFAULT_QUEUE_PRIORITY,
    "commonconstants.UnlimitedResourceQuantity": UNLIMITED,
    "time.Second": 1,
    "time.Minute": 60,
    "time.Hour": 3600,
    "v2alpha2.Preemptible": "preemptible",
    "v2alpha2.NonPreemptible": "non-preemptible",
}
_DEFAULT_PARENT: Final = "default"


class LeftOutError(Exception):
    """A case uses an unknown word."""


@dataclass(frozen=True)
class Expected:
    """The expected fate of a job's pods, or of one pod."""

    status: str
    node: str
    #: The total request of the pods, if the table states it: GPUs, millicores, bytes.
    gpus: float
    cpu_milli: float
    memory: float


@dataclass(frozen=True)
class Case:
    """A case of a table; pods of `deleted` jobs keep leaving instead of waiting again."""

    snapshot: Snapshot
    jobs: Mapping[str, Expected]
    pods: Mapping[str, Expected]
    rounds: int
    rounds_after: int
    deleted: frozenset[str] = field(default_factory=frozenset)


def cases_in(path: Path) -> Iterator[tuple[str, Case | LeftOutError]]:
    """Yield the cases of a file by name, in file order; the error in place of a skipped one."""
    file = read_go(path, _KNOWN)
    for function in file.functions:
        table = file.values(function).get("return")
        for entry in table if isinstance(table, tuple) else ():
            if isinstance(entry, Composite):
                basic = entry.get("TestTopologyBasic", entry)
                try:
                    yield str(basic.get("Name", "(no name)")), _case(entry)
                except LeftOutError as error:
                    yield str(basic.get("Name", "(no name)")), error


class _Words:
    """The fields of a struct, each of which must be read."""

    def __init__(self, struct: Any, where: str) -> None:
        if not isinstance(struct, Composite) or struct.items:
            raise LeftOutError(f"{where}: {struct!r:.60} is no struct")
        self._left, self._where = dict(struct.fields), where

    def take(self, name: str, default: Any = None) -> Any:
        """Return a field, which must have a plain value."""
        value = self.raw(name)
        if isinstance(value, Call) and value.name.endswith("Pointer") and len(value.args) == 1:
            value = value.args[0]
        if isinstance(value, Name | Call):
            raise LeftOutError(f"{self._where}.{name}: {value.text if isinstance(value, Name) else value.name}")
        return default if value is None else value

    def raw(self, name: str) -> Any:
        """Return a field as the reader parsed it."""
        return self._left.pop(name, None)

    def ignore(self, *names: str) -> None:
        """Skip fields that are not part of the outcome."""
        for name in names:
            self._left.pop(name, None)

    def end(self) -> None:
        """Refuse unread fields."""
        if self._left:
            raise LeftOutError(f"{self._where}.{min(self._left)}")


def _case(entry: Composite) -> Case:
    outer = _Words(entry, "case")
    words = _Words(outer.take("TestTopologyBasic"), "case")
    rounds, after = outer.take("RoundsUntilMatch", 0) or 2, outer.take("RoundsAfterMatch", 0) or 5
    outer.end()
    words.ignore("Name", "Mocks")
    topologies = dict(_topology(one) for one in words.take("Topologies", ()))
    nodes = tuple(_node(name, one) for name, one in words.take("Nodes", {}).items())
    queues = _queues(words)
    jobs, held, deleted = _jobs(words.take("Jobs", ()))
    held = _with_devices(nodes, jobs, held)
    expected = _expectations(words.take("JobExpectedResults", {}), {job.id for job in jobs})
    of_pods = _expectations(words.take("TaskExpectedResults", {}), {pod.id for job in jobs for pod in job.pods})
    words.end()
    if not expected and not of_pods:
        raise LeftOutError("nothing is expected of the jobs of the case")
    rules = Rules(max_consolidation_preemptees=-1, staleness_grace_s=0.0, skip_alike=False)
    now_s = _MINUTE_S * (len(jobs) + 1)
    snapshot = Snapshot(nodes, queues, jobs, held, topologies, now_s=now_s, rules=rules)
    missing = sorted({job.queue for job in jobs} - {queue.name for queue in queues})
    if missing:
        raise LeftOutError(f"queue {missing[0]} is not declared")
    return Case(snapshot, expected, of_pods, rounds, after, deleted)


def _topology(struct: Any) -> tuple[str, tuple[str, ...]]:
    words = _Words(struct, "Topology")
    name = _Words(words.take("ObjectMeta"), "ObjectMeta").take("Name", "")
    levels = _Words(words.take("Spec"), "TopologySpec").take("Levels", ())
    words.end()
    return name, tuple(_Words(level, "TopologyLevel").take("NodeLabel", "") for level in levels)


def _node(name: str, struct: Any) -> Node:
    words = _Words(struct, "Node")
    words.ignore("GPUName", "MigStrategy", "GPUMemorySynced")
    node = Node(
        name,
        words.take("GPUs", 0),
        1000 * words.take("CPUMillis", 0) or 20_000.0,
        words.take("CPUMemory", 0) / 1e6 or 20_000.0,
        float(words.take("GPUMemory", 0) or 100),
        _mig(words),
        words.take("Labels", {}),
    )
    words.end()
    return node


def _mig(words: _Words, name: str = "MigInstances") -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(key).rpartition("mig-")[2], n) for key, n in words.take(name, {}).items()))


def _queues(words: _Words) -> tuple[Queue, ...]:
    parents = words.take("Departments", ())
    found = [_queue(one, created_s, None, department=True) for created_s, one in enumerate(parents)]
    above = None if words.take("DisableDefaultDepartment", False) else _DEFAULT_PARENT
    if above and not parents:
        found.append(Queue(above, None, (FREE, FREE, FREE)))
    found += [_queue(one, created_s, above) for created_s, one in enumerate(words.take("Queues", ()))]
    names = {queue.name for queue in found}
    for queue in found:
        if queue.parent is not None and queue.parent not in names:
            raise LeftOutError(f"queue {queue.parent} is not declared")
    return tuple(found)


def _queue(struct: Any, created_s: float, above: str | None, *, department: bool = False) -> Queue:
    words = _Words(struct, "Queue")
    gpus = words.take("DeservedGPUs", 0)
    weight = gpus if department else words.take("GPUOverQuotaWeight", 0)
    queue = Queue(
        words.take("Name", ""),
        words.take("ParentQueue", above) or None,
        (
            Quota(words.take("DeservedCPUs", UNLIMITED), words.take("MaxAllowedCPUs", UNLIMITED), 1.0),
            Quota(_mb(words.take("DeservedMemory", UNLIMITED)), _mb(words.take("MaxAllowedMemory", UNLIMITED)), 1.0),
            Quota(gpus, words.take("MaxAllowedGPUs", 0) or UNLIMITED, weight),
        ),
        words.take("Priority", DEFAULT_QUEUE_PRIORITY),
        float(created_s),
    )
    words.end()
    return queue


def _mb(in_bytes: float) -> float:
    return in_bytes if in_bytes == UNLIMITED else in_bytes / 1e6


def _jobs(structs: Sequence[Any]) -> tuple[tuple[Job, ...], dict[str, Held], frozenset[str]]:
    jobs: list[Job] = []
    held: dict[str, Held] = {}
    deleted: set[str] = set()
    by_priority = sorted(structs, key=lambda one: -one.get("Priority", 0))
    for number, struct in enumerate(by_priority):
        words = _Words(struct, "Job")
        words.ignore("Namespace")
        name, priority = words.take("Name", ""), words.take("Priority", 0)
        ask = _ask(words)
        tasks = [_Words(task, "Task") for task in words.take("Tasks", ())]
        pods = tuple(_pod(task, f"{name}-{index}", ask, held) for index, task in enumerate(tasks))
        age_s = _MINUTE_S * (words.take("JobAgeInMinutes", 0) or len(structs) - number)
        now_s = _MINUTE_S * (len(structs) + 1)
        least, groups, constraint = _groups(words)
        said, stale_s = words.take("Preemptibility", ""), words.take("StaleDuration")
        jobs.append(
            Job(
                name,
                words.take("QueueName", ""),
                pods,
                priority,
                said == "preemptible" if said else preemptible_by_priority(priority),
                words.take("MinAvailable", least),
                groups,
                constraint,
                now_s - age_s,
                now_s - _MINUTE_S,
                None if stale_s is None else now_s - stale_s,
            )
        )
        if words.take("DeleteJobInTest", False):
            deleted.add(name)
        words.end()
        unknown = {pod.group for pod in pods} - {group.name for group in jobs[-1].leaves()}
        if unknown:
            raise LeftOutError(f"Task.SubGroupName: {min(unknown)} is not declared")
    return tuple(jobs), held, frozenset(deleted)


def _ask(words: _Words) -> Ask:
    gpus = float(words.take("RequiredGPUsPerTask", 0))
    memory, devices = words.take("RequiredGpuMemory", 0), words.take("RequiredMultiFractionDevicesPerTask", 0)
    shared = memory > 0 or gpus % 1 > 0
    return Ask(
        1000.0 * words.take("RequiredCPUsPerTask", 0),
        words.take("RequiredMemoryPerTask", 0) / 1e6,
        (devices or 1) if shared else int(gpus),
        round(gpus, 2) if shared and gpus else 1.0,
        float(memory),
        _mig(words, "RequiredMigInstances"),
    )


def _pod(task: _Words, name: str, ask: Ask, held: dict[str, Held]) -> Pod:
    state, node = task.take("State", ""), task.take("NodeName", "")
    if state not in _STATES:
        raise LeftOutError(f"Task.State: {state}")
    devices = tuple(task.take("GPUGroups", ()))
    if state != "Pending":
        held[name] = Held(node, devices if ask.shared else (), state == "Releasing")
    names = task.take("NodeAffinityNames", ())
    allowed = frozenset(names) if names else None
    own = task.take("RequiredGPUs")
    ask = ask if own is None else Ask(ask.cpu_milli, ask.memory_mb, own)
    pod = Pod(name, ask, task.take("SubGroupName", ""), task.take("Priority", 0), nodes=allowed)
    task.end()
    return pod


def _with_devices(nodes: Sequence[Node], jobs: Sequence[Job], held: Mapping[str, Held]) -> dict[str, Held]:
    """Return where pods are; those that share unnamed GPUs get separate GPUs while there are some."""
    asks = {pod.id: pod.ask for job in jobs for pod in job.pods if pod.id in held}
    found = dict(held)
    for node in nodes:
        here = [pod for pod in asks if held[pod].node == node.name]
        named = {device for pod in here for device in held[pod].devices}
        free = node.gpus - len(named) - sum(asks[pod].gpus for pod in here if not asks[pod].shared)
        left: dict[str, float] = {}
        for pod in here:
            if not asks[pod].shared or held[pod].devices:
                continue
            part = asks[pod].gpu_memory / node.gpu_memory or asks[pod].portion
            fresh = [f"{pod}-{number}" for number in range(min(asks[pod].gpus, free))]
            free -= len(fresh)
            left |= dict.fromkeys(fresh, 1.0)
            fitting = [device for device, room in left.items() if room + SLACK >= part and device not in fresh]
            taken = (*fresh, *fitting)[: asks[pod].gpus]
            left |= {device: left[device] - part for device in taken}
            found[pod] = Held(node.name, taken, held[pod].releasing)
    return found


def _groups(words: _Words) -> tuple[int | None, tuple[SubGroup, ...], Constraint | None]:
    """Return the minimum of a job without sub-groups, its sub-groups, and the constraint of the whole job."""
    root = words.raw("RootSubGroupSet")
    if root is None:
        return None, (), None
    if not isinstance(root, Call):
        raise LeftOutError(f"RootSubGroupSet: {root!r:.60}")
    if root.name == "DefaultSubGroup":
        return int(root.args[0]), (), None
    if root.name == "NewSubGroupSet" and isinstance(root.receiver, Name):
        return None, (), _constraint(root.args[1])
    raise LeftOutError(f"RootSubGroupSet: {root.name}")


def _constraint(struct: Any) -> Constraint | None:
    if struct is None:
        return None
    words = _Words(struct, "TopologyConstraintInfo")
    found = Constraint(words.take("Topology", ""), words.take("RequiredLevel", ""), words.take("PreferredLevel", ""))
    words.end()
    return found


def _expectations(structs: Mapping[str, Any], known: set[str]) -> dict[str, Expected]:
    """Return what is expected, by name; names missing from the case are skipped, as in the tests themselves."""
    return {name: _expected(one) for name, one in structs.items() if name in known}


def _expected(struct: Any) -> Expected:
    words = _Words(struct, "ExpectedResult")
    words.ignore("GPUGroups", "DontValidateGPUGroup", "ExpectedErrorMessage", "GPUsAccepted", "MigInstances")
    found = Expected(
        words.take("Status", ""),
        words.take("NodeName", ""),
        words.take("GPUsRequired", 0),
        words.take("MilliCpuRequired", 0),
        words.take("MemoryRequired", 0),
    )
    words.end()
    return found
