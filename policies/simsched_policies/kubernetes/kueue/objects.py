"""Reads Kueue's objects and workloads into the model: the fields of `kueue.x-k8s.io/v1beta2` (and v1beta1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from simsched.errors import nearest
from simsched.manifests import (
    MIN_PARALLELISM,
    POD_SET_GROUP,
    WORKLOAD_KINDS,
    Account,
    Expression,
    Fields,
    NodeFacts,
    Object,
    PodSet as Pods,
    Workload as Stated,
    chosen,
    label_selector,
    names_queue,
    raise_any,
    read_nodes,
    read_objects,
    read_workloads,
    refuse_idle,
    taints,
    tolerations,
)
from simsched.manifests.admissions import Admission, admission_of, read_admissions
from simsched_policies.kubernetes.kueue.configuration import configured
from simsched_policies.kubernetes.kueue.gates import VERSION
from simsched_policies.kubernetes.kueue.model import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    FlavourResource,
    LocalQueue,
    PodSet,
    Preference,
    Quota,
    Reclaim,
    ResourceFlavor,
    Setup,
    Stop,
    Topology,
    Within,
)
from simsched_policies.kubernetes.kueue.requests import PREFIX, constraints, topology_request

#: An annotation of simsched: the seconds until an admission check is ready.
DELAY = "simsched/delay-s"
_WITHIN = {"Never": Within.NEVER, "LowerPriority": Within.LOWER_PRIORITY,
           "LowerOrNewerEqualPriority": Within.LOWER_OR_NEWER_EQUAL_PRIORITY}  # fmt: skip
_RECLAIM = {"Never": Reclaim.NEVER, "LowerPriority": Reclaim.LOWER_PRIORITY, "Any": Reclaim.ANY}
#: Priority classes that every cluster has.
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
#: Kinds of Kueue that add nothing: those for other clusters, and those that Kueue derives from jobs.
_IDLE_KINDS = {"ProvisioningRequestConfig", "MultiKueueConfig", "MultiKueueCluster", "Workload"}
#: What fields would change that are read but not modelled.
_CHANGES = {
    ("AdmissionCheck", "spec.controllerName"): "sends workloads to other clusters, which is not modelled",
    ("Workload", "spec.active"): "deactivates its job, which is not modelled",
}
#: Kinds that change what pods request, or may request.
_BINDING_KINDS = {"LimitRange", "ResourceQuota"}


@dataclass(frozen=True)
class Job:
    """A workload for the policy: its queue, the requests of its pods, its priority, and where it stands."""

    id: str
    namespace: str
    local_queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    ready_s: float | None = None
    created_s: float | None = None
    stands: Admission | None = None


@dataclass(frozen=True)
class Declared:
    """The content of manifests: the administrator's setup, the workloads by the names of their jobs, the nodes."""

    setup: Setup
    jobs: Mapping[str, Job] = field(default_factory=dict)
    nodes: tuple[NodeFacts, ...] = ()


def declared(path: Path, allow: Collection[str] = ()) -> Declared:
    """Read a file or folder of manifests, as `declared_by`."""
    if path.is_file():
        return _declared_in(path, sha256(path.read_bytes()).digest(), tuple(allow))
    return declared_by(read_objects(path), allow)


@lru_cache(maxsize=1)
def _declared_in(path: Path, digest: bytes, allow: tuple[str, ...]) -> Declared:
    """Read a file once for the checks before a run and the run itself."""
    return declared_by(read_objects(path), allow)


def declared_by(objects: Sequence[Object], allow: Collection[str] = (), workloads: Sequence[Stated] = ()) -> Declared:
    """Read objects; `workloads` are those among them if they were read before.

    Fields that are not modelled are reported; those that would change the outcome are refused unless `allow` names
    them. Raises `InputError` with all problems.
    """
    account, pods = Account(), Account()
    found = _Reader(objects, account, pods, workloads).read()
    account.judge(changes_outcome, allow)
    refuse_idle(allow, (account, pods))
    raise_any(account.problems)
    return found


def changes_outcome(kind: str, path: str) -> str:
    """Return what a field that is not read would change."""
    if path == "kind":
        return "objects of this kind are not read"
    if (kind, path) in _CHANGES:
        return _CHANGES[kind, path]
    if path.endswith("/queue-name"):
        return "names no queue, so that Kueue would let it run beside all quotas"
    if path.endswith(MIN_PARALLELISM):
        return "starts a job with fewer pods than it has, which a run does not do"
    return f"is not known to the model of Kueue {VERSION}"


class _Reader:
    """Reads all kinds, one per method."""

    def __init__(
        self, objects: Sequence[Object], account: Account, pods: Account, workloads: Sequence[Stated] = ()
    ) -> None:
        self._objects, self._account, self._pods, self._workloads = objects, account, pods, workloads
        self._flavours: dict[str, ResourceFlavor] = {}
        self._topologies: dict[str, Topology] = {}
        self._queues: list[ClusterQueue] = []
        self._cohorts: list[Cohort] = []
        self._local: list[LocalQueue] = []
        self._checks: dict[str, AdmissionCheck] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._priorities: dict[str, int] = {}
        self._pod_priorities: dict[str, int] = {}
        self._default_priority = 0
        self._more: dict[str, Any] = {}
        self._named_flavours: list[tuple[Fields, str]] = []

    def read(self) -> Declared:
        for one in self._objects:
            if one.kind not in _READERS or (one.group and not one.group.endswith(("kueue.x-k8s.io", "k8s.io"))):
                self._stranger(one)
                continue
            fields = Fields(one, self._account)
            fields.skip("apiVersion", "kind", "status")
            if one.kind != "Namespace":
                fields.skip("metadata")
            _READERS[one.kind](self, fields)
            self._account.close(fields)
        jobs = list(self._jobs())
        nodes = tuple(read_nodes(self._objects, self._pods))
        for job in jobs:
            self._namespaces.setdefault(job.namespace, {"kubernetes.io/metadata.name": job.namespace})
        setup = Setup(
            tuple(self._queues),
            tuple(self._cohorts),
            tuple(self._local),
            self._flavours,
            self._topologies,
            self._checks,
            self._namespaces,
            self._priorities,
            **self._more,
        )
        self._check_names()
        return Declared(setup, {one.id: one for one in jobs}, nodes)

    def _stranger(self, one: Object) -> None:
        """Report objects of Kueue, and workloads of its queues, of kinds that are not read."""
        known = one.kind in (*WORKLOAD_KINDS, "Node", *_IDLE_KINDS)
        if one.kind == "Workload" and one.part("spec").get("active") is False:
            self._account.note(one, ("spec", "active"))
        named = names_queue(one) or one.group.endswith(PREFIX) or one.kind in _BINDING_KINDS
        if named and not known:
            self._account.note(one, ("kind",))

    def _check_names(self) -> None:
        """Report references to unknown names."""
        queues = {one.name for one in self._queues}
        for kind, path, what, known in (
            ("LocalQueue", ("spec", "clusterQueue"), "ClusterQueue", queues),
            ("ResourceFlavor", ("spec", "topologyName"), "Topology", set(self._topologies)),
        ):
            for one in chosen(self._objects, kind):
                name = one.part("spec").get(path[1])
                if isinstance(name, str) and name not in known:
                    self._missing(one, path, what, name, known)

        for fields, name in self._named_flavours:
            if name not in self._flavours:
                self._missing(fields.owner, (*fields.path, "name"), "ResourceFlavor", name, self._flavours)

    def _missing(self, one: Object, path: tuple[str | int, ...], kind: str, name: str, known: Collection[str]) -> None:
        self._account.problems.append(one.problem(path, f"there is no {kind} '{name}'", nearest(name, known)))

    def flavour(self, fields: Fields) -> None:
        spec = fields.part("spec")
        name = fields.owner.name
        topology = spec.text("topologyName")
        labels = spec.labels("nodeLabels")
        if topology and not labels:
            spec.fail("nodeLabels", "is missing", "a flavour with a topology names at least one label of its nodes")
        self._flavours[name] = ResourceFlavor(
            name,
            labels,
            taints(spec, "nodeTaints"),
            tolerations(spec),
            topology or None,
        )

    def topology(self, fields: Fields) -> None:
        levels = [one.text("nodeLabel", needed=True) for one in fields.part("spec", needed=True).parts("levels")]
        if "kubernetes.io/hostname" in levels[:-1]:
            fields.part("spec").fail("levels", "kubernetes.io/hostname can only be the lowest level", "put it last")
        self._topologies[fields.owner.name] = Topology(fields.owner.name, tuple(levels))

    def local_queue(self, fields: Fields) -> None:
        spec = fields.part("spec", needed=True)
        self._local.append(
            LocalQueue(
                fields.owner.namespace,
                fields.owner.name,
                spec.text("clusterQueue", needed=True),
                spec.part("fairSharing").number("weight", 1.0),
                Stop(spec.text("stopPolicy", "None", of=[one.value for one in Stop])),
            )
        )

    def cohort(self, fields: Fields) -> None:
        spec = fields.part("spec")
        parent = spec.text("parentName") or spec.text("parent")
        quotas, _ = self._quotas(spec)
        weight = spec.part("fairSharing").number("weight", 1.0)
        self._cohorts.append(Cohort(fields.owner.name, parent or None, quotas, weight))

    def queue(self, fields: Fields) -> None:
        spec = fields.part("spec", needed=True)
        quotas, groups = self._quotas(spec)
        preemption, fungibility = spec.part("preemption"), spec.part("flavorFungibility")
        within, reclaim = (
            preemption.text(key, "Never", of=known)
            for key, known in (("withinClusterQueue", _WITHIN), ("reclaimWithinCohort", {**_RECLAIM, **_WITHIN}))
        )
        borrow = preemption.part("borrowWithinCohort")
        borrows = borrow.text("policy", "Never", of=("Never", "LowerPriority")) == "LowerPriority"
        if borrows and reclaim == "Never":
            preemption.fail(
                "borrowWithinCohort", "needs reclaimWithinCohort, which is Never", "set it, or take this out"
            )
        borrow_next = fungibility.text(
            "whenCanBorrow", "MayStopSearch", of=("MayStopSearch", "Borrow", "TryNextFlavor")
        )
        preempt_next = fungibility.text(
            "whenCanPreempt", "TryNextFlavor", of=("MayStopSearch", "Preempt", "TryNextFlavor")
        )
        preference = fungibility.text("preference", "", of=("", *(one.value for one in Preference)))
        if preference and not borrow_next == preempt_next == "TryNextFlavor":
            fungibility.fail("preference", "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor", "set both")
        mode = spec.part("admissionScope").text(
            "admissionMode", "", of=("", "UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
        )
        self._queues.append(
            ClusterQueue(
                fields.owner.name,
                spec.text("cohortName") or spec.text("cohort") or None,
                quotas,
                spec.part("fairSharing").number("weight", 1.0),
                _WITHIN[within],
                Reclaim(_WITHIN[reclaim].value) if reclaim in _WITHIN else _RECLAIM[reclaim],
                borrows,
                borrow.maybe_whole("maxPriorityThreshold"),
                spec.text("queueingStrategy", "BestEffortFIFO", of=("BestEffortFIFO", "StrictFIFO")) == "StrictFIFO",
                borrow_next != "TryNextFlavor",
                preempt_next != "TryNextFlavor",
                Preference(preference or Preference.BORROWING.value),
                groups,
                _selector(spec),
                self._checks_of(spec),
                Stop(spec.text("stopPolicy", "None", of=[one.value for one in Stop])),
                mode == "UsageBasedAdmissionFairSharing",
            )
        )

    def _quotas(self, spec: Fields) -> tuple[dict[FlavourResource, Quota], tuple[tuple[str, ...], ...]]:
        """Return quotas in the order of groups and flavours, and the resources of each group."""
        quotas: dict[FlavourResource, Quota] = {}
        groups: list[tuple[str, ...]] = []
        for group in spec.parts("resourceGroups"):
            covered = group.texts("coveredResources")
            again = [name for name in covered if any(name in other for other in groups)]
            if again:
                group.fail("coveredResources", f"'{again[0]}' is in another group too", "keep it in one of them")
            groups.append(covered)
            for flavour in group.parts("flavors"):
                name = flavour.text("name", needed=True)
                self._named_flavours.append((flavour, name))
                named = []
                for one in flavour.parts("resources"):
                    resource = one.text("name", needed=True)
                    named.append(resource)
                    nominal = one.amount("nominalQuota", resource)
                    if nominal is None and "nominalQuota" not in one:
                        one.fail("nominalQuota", "is missing", "say how much, 0 for none")
                    limits = (one.amount(key, resource) for key in ("borrowingLimit", "lendingLimit"))
                    quotas[name, resource] = Quota(nominal or 0, *limits)
                if sorted(named) != sorted(covered):
                    message = f"names {', '.join(named) or 'nothing'}, and the group covers {', '.join(covered)}"
                    flavour.fail("resources", message, "give each covered resource once, 0 for none of it")
        return quotas, tuple(groups)

    def _checks_of(self, spec: Fields) -> dict[str, frozenset[str]]:
        found = {name: frozenset[str]() for name in spec.texts("admissionChecks")}
        for one in spec.part("admissionChecksStrategy").parts("admissionChecks"):
            found[one.text("name", needed=True)] = frozenset(one.texts("onFlavors"))
        return found

    def check(self, fields: Fields) -> None:
        spec = fields.part("spec")
        spec.skip("parameters", "retryDelayMinutes")
        if not spec.peek("controllerName").endswith("/multikueue"):
            spec.skip("controllerName")
        delay_s = fields.stated(DELAY, least=0)
        if delay_s is None and DELAY not in fields.owner.marks():
            path = ("metadata", "annotations", DELAY)
            remedy = "write the seconds from the reservation of quota to its being ready"
            problem = fields.owner.problem(path, "says not how long the check takes", remedy)
            self._account.problems.append(problem)
        self._checks[fields.owner.name] = AdmissionCheck(fields.owner.name, delay_s or 0.0)

    def namespace(self, fields: Fields) -> None:
        metadata = fields.part("metadata")
        for name in metadata:
            metadata.skip(name)
        fields.skip("spec")
        name = fields.owner.name
        self._namespaces[name] = {"kubernetes.io/metadata.name": name, **metadata.labels("labels")}

    def priority(self, fields: Fields) -> None:
        fields.skip("description")
        self._priorities[fields.owner.name] = fields.whole("value", 0)
        if "value" not in fields:
            fields.fail("value", "is missing", "say the priority, higher being more urgent")

    def pod_priority(self, fields: Fields) -> None:
        fields.skip("description", "preemptionPolicy")
        value = self._pod_priorities[fields.owner.name] = fields.whole("value", 0)
        if fields.flag("globalDefault"):
            self._default_priority = value

    def configuration(self, fields: Fields) -> None:
        self._more = configured(fields)

    def _jobs(self) -> Iterator[Job]:
        local = {(one.namespace, one.name) for one in self._local}
        admissions = read_admissions(self._objects, self._account)
        for one in self._workloads or read_workloads(self._objects, self._pods):
            queue = one.queue or ("default" if (one.namespace, "default") in local else "")
            path = ("metadata", "labels", f"{PREFIX}/queue-name")
            if not queue:
                self._account.note(one.owner, path)
                continue
            if (one.namespace, queue) not in local:
                known = {name for namespace, name in local if namespace == one.namespace}
                self._missing(one.owner, path, f"LocalQueue in the namespace '{one.namespace}' called", queue, known)
            if any(pods.min_count is not None for pods in one.pod_sets):
                self._account.note(one.owner, ("metadata", "annotations", MIN_PARALLELISM))
            named = one.priority_class or ("default" if "default" in self._priorities else "")
            sets = tuple(self._pod_set(one.owner, pods) for pods in one.pod_sets)
            priority = self._priority(one.owner, named, one.pod_priority)
            stands = admission_of(one, admissions)
            yield Job(one.id, one.namespace, queue, sets, priority, one.ready_s, one.created_s, stands)
        self._account.problems += self._pods.problems

    def _priority(self, owner: Object, name: str, pod_name: str) -> int:
        known, named = (self._priorities, name) if name else (self._pod_priorities, pod_name)
        if not named or named in _SYSTEM:
            return _SYSTEM.get(named, self._default_priority)
        if named not in known:
            kind, where = ("WorkloadPriorityClass", "labels") if name else ("PriorityClass", "")
            path = ("metadata", where, f"{PREFIX}/priority-class") if where else ("spec",)
            self._missing(owner, path, kind, named, known)
        return known.get(named, 0)

    def _pod_set(self, owner: Object, pods: Pods) -> PodSet:
        template = pods.template
        try:
            topology = topology_request(template.notes)
        except ValueError as error:
            self._account.problems.append(owner.problem((), f"pod set '{pods.name}' {error}", "ask for one of them"))
            topology = None
        group = template.notes.get(POD_SET_GROUP, "")
        return PodSet(pods.name, pods.count, template.requests, pods.min_count, constraints(template), topology, group)


_READERS = {
    "ResourceFlavor": _Reader.flavour, "Topology": _Reader.topology, "ClusterQueue": _Reader.queue,
    "Cohort": _Reader.cohort, "LocalQueue": _Reader.local_queue, "AdmissionCheck": _Reader.check,
    "Namespace": _Reader.namespace, "WorkloadPriorityClass": _Reader.priority,
    "PriorityClass": _Reader.pod_priority, "Configuration": _Reader.configuration,
}  # fmt: skip


def _selector(spec: Fields) -> tuple[Expression, ...] | None:
    """Return the namespaces from which a queue takes workloads; none without a selector."""
    selector = spec.part("namespaceSelector")
    return label_selector(selector) if selector.there else None
