"""Workloads: jobs of every kind and pods, as sets of equal pods that start together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from simsched.errors import nearest
from simsched.manifests.fields import Account, Fields
from simsched.manifests.objects import Object, marks_of
from simsched.manifests.pods import PodTemplate, pod_template

_KUEUE = "kueue.x-k8s.io"
QUEUE = f"{_KUEUE}/queue-name"
PRIORITY = f"{_KUEUE}/priority-class"
MOST_SECONDS = f"{_KUEUE}/max-exec-time-seconds"
MIN_PARALLELISM = f"{_KUEUE}/job-min-parallelism"
POD_SET_GROUP = f"{_KUEUE}/podset-group-name"
GROUP = f"{_KUEUE}/pod-group-name"
GROUP_SIZE = f"{_KUEUE}/pod-group-total-count"
KAI_QUEUE = "kai.scheduler/queue"
#: Annotations of simsched, in seconds: the duration and the submission of a workload, and until its pods are ready.
DURATION = "simsched/duration-s"
SUBMISSION = "simsched/submit-s"
READY = "simsched/ready-s"
#: Labels and annotations of Kueue that are read, on workloads and on templates of their pods.
_OF_WORKLOADS = {QUEUE, PRIORITY, MOST_SECONDS, MIN_PARALLELISM, GROUP, GROUP_SIZE} | {
    f"{_KUEUE}/{name}"
    for name in (
        "pod-group-fast-admission", "managed", "role-hash", "workload", "job-completions-equal-parallelism",
        "retriable-in-group", "pod-suspending-parent",
    )
}  # fmt: skip
_OF_PODS = {POD_SET_GROUP, f"{_KUEUE}/podset", f"{_KUEUE}/workload"} | {
    f"{_KUEUE}/podset-{name}"
    for name in (
        "required-topology", "preferred-topology", "unconstrained-topology", "slice-required-topology", "slice-size",
        "slice-required-topology-constraints",
    )
}  # fmt: skip
#: An annotation of JobSet that binds each of its jobs to a domain of its own.
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


@dataclass(frozen=True)
class PodSet:
    """Equal pods of a workload: their number, and the least number with which it may start (None: all)."""

    name: str
    count: int
    template: PodTemplate
    min_count: int | None = None


@dataclass(frozen=True, eq=False)
class Workload:
    """A workload. `id` is its namespace and name, with its kind in between if two kinds share them.

    `queue` is the local queue that it names, `priority_class` the class of workloads and `pod_priority` that of pods.
    Times are in seconds: `created_s` since 1970, `submit_s` since the start and `duration_s`, both from annotations;
    `ran_s` from its recorded start to its end. It stops after `limit_s`. A suspended one without a queue never runs.
    Its pods are ready `ready_s` after its admission.
    """

    id: str
    owner: Object
    pod_sets: tuple[PodSet, ...]
    queue: str = ""
    priority_class: str = ""
    pod_priority: str = ""
    created_s: float | None = None
    submit_s: float | None = None
    duration_s: float | None = None
    ran_s: float | None = None
    limit_s: float | None = None
    suspended: bool = False
    ready_s: float | None = None

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.owner.namespace

    def total(self, resource: str) -> int:
        """Return the total request of all pods for a resource."""
        return sum(pods.count * pods.template.requests.get(resource, 0) for pods in self.pod_sets)


def read_workloads(objects: Sequence[Object], account: Account) -> list[Workload]:
    """Read the workloads among objects, in order; `account` records problems and unread fields."""
    found: list[Workload] = []
    groups: dict[tuple[str, str], list[tuple[Workload, int]]] = {}
    strangers = []
    for one in objects:
        if one.kind not in _KINDS:
            if not one.group.endswith(_KUEUE) and has_pods(one.data):
                account.note(one, ("kind",) if names_queue(one) else ("spec",))
                strangers.append(one)
            continue
        fields = Fields(one, account)
        workload, group, size = _workload(fields)
        if group:
            groups.setdefault((one.namespace, group), []).append((workload, size))
        else:
            found.append(workload)
        account.close(fields)
    found += [_grouped(name, pods, account) for (_, name), pods in groups.items()]
    if strangers and not found:
        remedy = f"known: {', '.join(WORKLOAD_KINDS)}"
        account.problems.append(strangers[0].problem(("kind",), "is of a kind of workloads that is not read", remedy))
    times = Counter(workload.id for workload in found)
    return [
        replace(each, id=f"{each.namespace}/{each.owner.kind}/{each.owner.name}") if times[each.id] > 1 else each
        for each in found
    ]


def _workload(fields: Fields) -> tuple[Workload, str, int]:
    """Return a workload and, for a pod, its group and the number of pods in that group."""
    owner, read = fields.owner, _KINDS[fields.owner.kind]
    fields.skip("apiVersion", "kind")
    metadata, spec = fields.part("metadata"), fields.part("spec", needed=True)
    metadata.skip("name", "namespace", "generateName", "uid", "resourceVersion", "generation", "managedFields")
    metadata.skip("selfLink", "ownerReferences", "finalizers")
    labels, notes = metadata.labels("labels"), metadata.labels("annotations")
    _note_marks(owner, fields.account)
    pod_sets = tuple(read(fields, notes))
    policy = spec.part("runPolicy")
    scheduling = policy.part("schedulingPolicy").text("priorityClass")
    policy.skip("cleanPodPolicy", "ttlSecondsAfterFinished", "backoffLimit", "suspend")
    limits = (
        fields.stated(MOST_SECONDS, where="labels"),
        spec.maybe_whole("activeDeadlineSeconds", least=1),
        policy.maybe_whole("activeDeadlineSeconds", least=1),
    )
    group = labels.get(GROUP, notes.get(GROUP, "")) if owner.kind == "Pod" else ""
    workload = Workload(
        f"{owner.namespace}/{owner.name}",
        owner,
        pod_sets,
        labels.get(QUEUE, notes.get(QUEUE, "")),
        labels.get(PRIORITY, ""),
        scheduling or next((name for one in pod_sets if (name := one.template.priority_class)), ""),
        metadata.moment("creationTimestamp"),
        fields.stated(SUBMISSION, least=0),
        fields.stated(DURATION),
        _ran(fields),
        min((float(one) for one in limits if one), default=None),
        spec.flag("suspend"),
        fields.stated(READY, least=0),
    )
    return workload, group, int(fields.stated(GROUP_SIZE) or 0)


def _note_marks(owner: Object, account: Account) -> None:
    """Record the labels and annotations of Kueue and JobSet that are not read where they are."""
    for path, metadata in owner.metadata():
        known = _OF_PODS if len(path) > 1 else _OF_WORKLOADS | (_OF_PODS if owner.kind == "Pod" else set())
        for where in ("labels", "annotations"):
            for name in marks_of(metadata, where):
                if (str(name).partition("/")[0].endswith(_KUEUE) and name not in known) or name == EXCLUSIVE:
                    account.note(owner, (*path, where, name))


def has_pods(data: object) -> bool:
    """Return whether data hold containers, at any depth."""
    if isinstance(data, Mapping):
        return "containers" in data or any(map(has_pods, data.values()))
    return isinstance(data, list) and any(map(has_pods, data))


def names_queue(one: Object) -> bool:
    """Return whether an object or a template in it names a queue of Kueue or KAI."""
    marks = (marks_of(metadata, where) for _, metadata in one.metadata() for where in ("labels", "annotations"))
    return any(name in names for names in marks for name in (QUEUE, KAI_QUEUE))


def _ran(fields: Fields) -> float | None:
    """Return the seconds from the start to the end that the status records, None if it records none."""
    status = fields.part("status")
    start, end = status.moment("startTime"), status.moment("completionTime")
    status.skip(*status)
    return None if start is None or end is None or end < start else max(end - start, 1.0)


def _grouped(name: str, pods: Sequence[tuple[Workload, int]], account: Account) -> Workload:
    """Combine the pods of a group into one workload: pods of one shape form a set."""
    first, size = pods[0]
    if len(pods) != size:
        message = f"the pod group '{name}' has {len(pods)} pods of {size or 'an unsaid number'}"
        remedy = f"give all pods, and say how many in the annotation {GROUP_SIZE}"
        account.problems.append(first.owner.problem(("metadata",), message, remedy))
    shapes: dict[str, list[PodTemplate]] = {}
    for one, _ in pods:
        template = one.pod_sets[0].template
        shapes.setdefault(repr(replace(template, notes={})), []).append(template)
    sets = tuple(PodSet(f"set-{number}", len(one), one[0]) for number, one in enumerate(shapes.values(), 1))
    created = [one.created_s for one, _ in pods if one.created_s is not None]
    durations = [one.duration_s for one, _ in pods if one.duration_s is not None]
    owner = replace(first.owner, name=name)
    return replace(
        first,
        id=f"{first.namespace}/{name}",
        owner=owner,
        pod_sets=sets,
        created_s=max(created, default=None),  # the workload exists only once all pods do
        duration_s=max(durations, default=None),
    )


def _main(fields: Fields, notes: Mapping[str, str]) -> Iterator[PodSet]:
    yield _pods_of_job(fields.part("spec"), "main", notes)


def _pods_of_job(spec: Fields, name: str, notes: Mapping[str, str], times: int = 1) -> PodSet:
    parallelism = spec.whole("parallelism", 1, least=1)
    completions = spec.maybe_whole("completions", least=1)
    spec.skip("backoffLimit", "completionMode", "ttlSecondsAfterFinished", "manualSelector", "selector")
    spec.skip("podReplacementPolicy", "suspend", "podFailurePolicy", "backoffLimitPerIndex", "maxFailedIndexes")
    count = times * min(parallelism, parallelism if completions is None else completions)
    least = spec.stated(MIN_PARALLELISM) if MIN_PARALLELISM in notes else None
    if least is not None and least > parallelism:
        path = ("metadata", "annotations", MIN_PARALLELISM)
        message = f"{least:g} is more than the parallelism of {parallelism}"
        spec.account.problems.append(spec.owner.problem(path, message, "ask for no more than the job has pods"))
    return PodSet(name, count, pod_template(spec.part("template", needed=True)), int(least) if least else None)


def _job_set(fields: Fields, notes: Mapping[str, str]) -> Iterator[PodSet]:
    spec = fields.part("spec")
    spec.skip("network", "ttlSecondsAfterFinished")
    jobs = spec.parts("replicatedJobs")
    if not jobs:
        spec.fail("replicatedJobs", "is missing or empty", "a JobSet has at least one")
    for one in jobs:
        template = one.part("template", needed=True)
        template.skip("metadata")
        inner = template.part("spec", needed=True)
        inner.skip("activeDeadlineSeconds")
        yield _pods_of_job(inner, one.text("name", needed=True), {}, one.whole("replicas", 1, least=1))


def _replicas(key: str, *roles: str) -> Callable[[Fields, Mapping[str, str]], Iterator[PodSet]]:
    def read(fields: Fields, notes: Mapping[str, str]) -> Iterator[PodSet]:
        spec = fields.part("spec")
        spec.skip("sshAuthMountPath", "slotsPerWorker", "mpiImplementation", "launcherCreationPolicy", "nprocPerNode")
        specs = spec.part(key, needed=True)
        if specs.there and not any(role in specs for role in roles):
            specs.fail("", f"has none of {', '.join(roles)}")
        for role in roles:
            if role in specs:
                one = specs.part(role)
                one.skip("restartPolicy")
                count = one.whole("replicas", 1, least=1)
                yield PodSet(role.lower(), count, pod_template(one.part("template", needed=True)))

    return read


def _ray_cluster(spec: Fields) -> Iterator[PodSet]:
    spec.skip("rayVersion", "headServiceAnnotations", "gcsFaultToleranceOptions")
    if spec.flag("enableInTreeAutoscaling"):
        spec.fail("enableInTreeAutoscaling", "is not modelled: it changes how many pods there are", "take it out")
    head = spec.part("headGroupSpec", needed=True)
    head.skip("rayStartParams", "serviceType", "enableIngress", "headService")
    yield PodSet("head", 1, pod_template(head.part("template", needed=True)))
    for group in spec.parts("workerGroupSpecs"):
        group.skip("rayStartParams", "minReplicas", "maxReplicas", "scaleStrategy", "idleTimeoutSeconds")
        count = group.whole("replicas", 1, least=0) * group.whole("numOfHosts", 1, least=1)
        template = pod_template(group.part("template", needed=True))
        if count:
            yield PodSet(group.text("groupName", needed=True), count, template)


#: The default requests of the pod that submits a RayJob (KubeRay).
_SUBMITTER = PodTemplate({"cpu": 500, "memory": 200 << 20})


def _ray_job(fields: Fields, notes: Mapping[str, str]) -> Iterator[PodSet]:
    spec = fields.part("spec")
    spec.skip(
        "entrypoint", "runtimeEnvYAML", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "jobId", "metadata"
    )
    spec.skip("backoffLimit", "submitterConfig", "entrypointNumCpus", "entrypointNumGpus", "deletionStrategy")
    if "clusterSelector" in spec:
        spec.fail("clusterSelector", "is not modelled: the job would run in another's pods", "give rayClusterSpec")
    yield from _ray_cluster(spec.part("rayClusterSpec", needed=True))
    mode = spec.text("submissionMode", "K8sJobMode", of=("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"))
    template = spec.part("submitterPodTemplate")
    submitter = pod_template(template) if template.there else _SUBMITTER
    if mode == "SidecarMode":
        spec.fail("submissionMode", "SidecarMode is not modelled", "use K8sJobMode")
    elif mode == "K8sJobMode":
        yield PodSet("submitter", 1, submitter)


def _alone(fields: Fields, notes: Mapping[str, str]) -> Iterator[PodSet]:
    yield PodSet("main", 1, pod_template(fields))


def _ray(fields: Fields, notes: Mapping[str, str]) -> Iterator[PodSet]:
    yield from _ray_cluster(fields.part("spec"))


_KINDS: Mapping[str, Callable[[Fields, Mapping[str, str]], Iterator[PodSet]]] = {
    "Job": _main,
    "JobSet": _job_set,
    "PyTorchJob": _replicas("pytorchReplicaSpecs", "Master", "Worker"),
    "MPIJob": _replicas("mpiReplicaSpecs", "Launcher", "Worker"),
    "RayJob": _ray_job,
    "RayCluster": _ray,
    "Pod": _alone,
}
#: The kinds of workloads that are read.
WORKLOAD_KINDS = tuple(_KINDS)

#: The effect, not modelled here, of a field of a workload or node, by the end of its path.
_OUTCOME = {
    "podAffinity": "binds pods to others, which is not modelled",
    "podAntiAffinity": "keeps pods apart, which is not modelled",
    "topologySpreadConstraints": "spreads pods, which is not modelled",
    "schedulingGates": "holds pods back, which is not modelled",
    "resourceClaims": "claims devices one by one, which is not modelled",
    "nodeName": "binds a pod to a node, which is not modelled",
    "managedBy": "hands the job to another controller, which is not modelled",
    "matchFields": "binds pods to nodes by name, which is not modelled",
    "elasticPolicy": "changes how many pods there are, which is not modelled",
    "hostPort": "takes a port of its node, which is not modelled",
    "awsElasticBlockStore": "binds pods to a zone, which is not modelled",
    "gcePersistentDisk": "binds pods to a zone, which is not modelled",
    "azureDisk": "binds pods to a zone, which is not modelled",
    "exclusive-topology": "gives each job a domain of its own, which is not modelled",
    "kind": "objects of this kind are not read, and it names a queue",
}


def changes_of_pods(kind: str, path: str) -> str:
    """Describe what an unread field of a workload or node would change, empty if it changes nothing."""
    if f".{_KUEUE}/" in path:
        name = _KUEUE + path.rpartition(f".{_KUEUE}")[2]
        meant = "" if name in _OF_WORKLOADS | _OF_PODS else nearest(name, _OF_WORKLOADS | _OF_PODS)
        hint = f" ({meant})" if meant.startswith("did") else ""
        return f"is not known to the model of Kueue, or is not read there{hint}"
    return _OUTCOME.get(re.split(r"[./]", path)[-1].removesuffix("[]"), "")
