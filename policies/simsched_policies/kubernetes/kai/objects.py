"""KAI's objects in Kubernetes manifests: Queues, PodGroups, and the labels of workloads that define theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from simsched.errors import nearest, tell
from simsched.manifests import (
    KAI_QUEUE,
    WORKLOAD_KINDS,
    Account,
    Fields,
    NodeFacts,
    Object,
    Workload,
    chosen,
    in_service,
    is_gpu,
    raise_any,
    read_nodes,
    read_objects,
    read_workloads,
    refuse_idle,
)
from simsched.words import counted
from simsched_policies.kubernetes.kai.model import (
    DEFAULT_QUEUE_PRIORITY,
    PRIORITIES,
    RESOURCES,
    UNLIMITED,
    Queue,
    Quota,
    preemptible_by_priority,
)
from simsched_policies.kubernetes.kueue.requests import constraints

_PREFIX = "kai.scheduler/"
_PREEMPTIBILITY, _PRIORITY = f"{_PREFIX}preemptibility", "priorityClassName"
_PREEMPTIBILITIES = ("preemptible", "non-preemptible")
#: Pod annotations, without the prefix, that ask for parts of GPUs.
_PARTS = ("gpu-fraction", "gpu-fraction-num-devices", "gpu-memory")


@dataclass(frozen=True)
class Group:
    """What a PodGroup declares of a job: its queue, minimum (None: all pods), priority, and whether it is preemptible.

    `nodes` are the numbers of those to which its pods may go (None: all).
    """

    queue: str = ""
    min_member: int | None = None
    priority: float = PRIORITIES["train"]
    preemptible: bool = True
    nodes: frozenset[int] | None = None


@dataclass(frozen=True)
class Declared:
    """Queues by name, and the PodGroups of jobs by name, with or without namespace."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)

    def is_leaf(self, name: str) -> bool:
        """Return whether a queue exists and takes jobs."""
        return name in self.queues and all(queue.parent != name for queue in self.queues.values())


def read_declared(path: Path, allow: Collection[str] = ()) -> Declared:
    """Read a file or folder of objects; raises `InputError` for errors and for unsupported fields.

    `allow` names fields that are not modelled but accepted. Objects of other schedulers are reported and skipped.
    """
    objects = read_objects(path)
    account = Account()
    queues: dict[str, Queue] = {}
    groups: dict[str, Group] = {}
    own = [one for one in objects if one.kind in ("Queue", "PodGroup") and one.group == "scheduling.run.ai"]
    for one in own:
        fields = Fields(one, account)
        fields.skip("apiVersion", "kind", "metadata", "status")
        spec = fields.part("spec", needed=True)
        if one.kind == "Queue":
            queues[one.name] = _queue(one.name, spec, float(len(queues)))
        else:
            groups[one.name] = groups[f"{one.namespace}/{one.name}"] = _group(spec)
        account.close(fields)
    _check_parents(chosen(own, "Queue"), queues, account)
    read = Account()
    nodes = in_service(read_nodes(objects, read))
    for workload in read_workloads(objects, read):
        if workload.suspended and not workload.queue:
            continue  # it never runs, since it is never resumed
        made = _group_of(workload, account)
        found = groups.get(workload.id, groups.get(workload.owner.name, made))
        groups[workload.id] = _of_workload(replace(found, queue=found.queue or made.queue), workload, nodes, account)
    account.judge(lambda kind, field_path: "is not modelled", allow)
    refuse_idle(allow, (account, read))
    raise_any(account.problems)
    others = {one.kind for one in objects} - {"Queue", "PodGroup", "Node", "Namespace", *WORKLOAD_KINDS}
    if others:
        tell(counted(len(others), "kind"), f"objects that kai does not read: {', '.join(sorted(others))}")
    return Declared(queues, groups)


def _check_parents(objects: Sequence[Object], queues: Mapping[str, Queue], account: Account) -> None:
    for one in objects:
        seen, above = {one.name}, queues[one.name].parent
        while above is not None:
            if above not in queues or above in seen:
                message = f"its parent '{above}' is {'above itself' if above in seen else 'not declared'}"
                account.problems.append(one.problem(("spec", "parentQueue"), message, nearest(above, queues)))
                break
            seen.add(above)
            above = queues[above].parent


def _queue(name: str, spec: Fields, created_s: float) -> Queue:
    spec.skip("displayName")
    resources = spec.part("resources")
    quotas = []
    for resource in RESOURCES:
        part = resources.part(resource)
        quotas.append(Quota(*(_at_least(part, key, least) for key, least in _QUOTA.items())))
    cpu, memory, gpu = quotas
    return Queue(
        name,
        spec.text("parentQueue") or None,
        (cpu, memory, gpu),
        spec.whole("priority", DEFAULT_QUEUE_PRIORITY),
        created_s,
        *(spec.seconds(key, 0.0) if key in spec else None for key in ("preemptMinRuntime", "reclaimMinRuntime")),
    )


#: The keys of a resource in the order of `Quota`, with the minimum of each.
_QUOTA = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 0.0}


def _at_least(part: Fields, key: str, least: float) -> float:
    value = part.number(key, 0.0)
    if value < least:
        part.fail(key, f"must be at least {least:g}, not {value:g}")
    return value


def _group(spec: Fields) -> Group:
    queue, name = spec.text("queue"), spec.text(_PRIORITY) or "train"
    if name not in PRIORITIES:
        spec.fail(_PRIORITY, f"is '{name}', which KAI does not ship", nearest(name, PRIORITIES))
    said = spec.text("preemptibility", of=_PREEMPTIBILITIES)
    return _made(queue, name, said, spec.maybe_whole("minMember", least=0))


def _made(queue: str, name: str, said: str, least: int | None = None) -> Group:
    priority = PRIORITIES.get(name, PRIORITIES["train"])
    return Group(queue, least or None, priority, said == "preemptible" if said else preemptible_by_priority(priority))


def _group_of(workload: Workload, account: Account) -> Group:
    """Return the PodGroup that KAI makes of a workload: queue, priority and preemptibility from its labels."""
    owner = workload.owner
    labels: dict[str, str] = {}
    for path, metadata in owner.metadata():
        labels = {**(metadata.get("labels") or {}), **labels}
        notes = metadata.get("annotations") or {}
        read = {KAI_QUEUE, _PREEMPTIBILITY}
        for name in sorted({*notes, *(metadata.get("labels") or {})}):
            if name in _PARTS or (name.startswith(_PREFIX) and name not in read):
                account.note(owner, (*path, "annotations" if name in notes else "labels", name))
    name = str(labels.get(_PRIORITY) or workload.pod_priority or "train")
    if name not in PRIORITIES:
        message = f"the class of priority '{name}' is none that KAI ships"
        account.problems.append(owner.problem((), message, nearest(name, PRIORITIES)))
    said = str(labels.get(_PREEMPTIBILITY, ""))
    if said not in ("", *_PREEMPTIBILITIES):
        path = ("metadata", "labels", _PREEMPTIBILITY)
        account.problems.append(owner.problem(path, f"is '{said}'", nearest(said, _PREEMPTIBILITIES)))
    return _made(str(labels.get(KAI_QUEUE, "")), name, said)


def _of_workload(group: Group, workload: Workload, nodes: Sequence[NodeFacts], account: Account) -> Group:
    """Return the PodGroup of a workload with its nodes; a minimum equal to all its GPU pods becomes None."""
    if not group.queue:
        remedy = f"label it {KAI_QUEUE}, or name its queue in its PodGroup"
        account.problems.append(workload.owner.problem(("metadata", "labels", KAI_QUEUE), "is missing", remedy))
    pods, least = sum(one.count for one in workload.pod_sets), group.min_member or 0
    if least > pods:
        message = f"has {counted(pods, 'pod')}, and its PodGroup starts with no fewer than {least}"
        account.problems.append(workload.owner.problem((), message, "ask for no more than these"))
    with_gpus = [one for one in workload.pod_sets if any(map(is_gpu, one.template.requests))]
    wishes = [constraints(one.template) for one in with_gpus]
    suited = frozenset(
        number
        for number, node in enumerate(nodes)
        if all(one.matches(node.labels) and one.repelled(node.taints) is None for one in wishes)
    )
    if wishes and not suited and (nodes or any(one.selector or one.affinity is not None for one in wishes)):
        message = "may go to none of the nodes, by its node selector, affinity and tolerations"
        account.problems.append(workload.owner.problem((), message, "give nodes with the labels that it asks for"))
    all_pods = least >= sum(one.count for one in with_gpus)
    return replace(
        group, min_member=None if all_pods else group.min_member, nodes=None if len(suited) == len(nodes) else suited
    )
