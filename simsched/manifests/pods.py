"""The requests of a pod, summed as in Kubernetes, and its constraints on nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simsched.manifests.fields import Fields

#: Fields of a pod that do not affect where and when it runs.
_IDLE = (
    "restartPolicy", "terminationGracePeriodSeconds", "serviceAccountName", "serviceAccount",
    "imagePullSecrets", "securityContext", "dnsPolicy", "dnsConfig", "hostname", "subdomain", "enableServiceLinks",
    "automountServiceAccountToken", "hostPID", "hostIPC", "shareProcessNamespace", "setHostnameAsFQDN",
    "preemptionPolicy", "hostAliases", "readinessGates", "os", "priority", "hostUsers",
)  # fmt: skip
_IDLE_CONTAINER = (
    "name", "image", "command", "args", "env", "envFrom", "volumeMounts", "volumeDevices", "workingDir",
    "imagePullPolicy", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "securityContext", "stdin",
    "stdinOnce", "tty", "terminationMessagePath", "terminationMessagePolicy", "resizePolicy",
)  # fmt: skip
#: Volumes that any node can offer, and the parts of a port that bind nothing of its node.
_IDLE_VOLUME = ("name", "emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "image")
_IDLE_PORT = ("name", "containerPort", "protocol")
#: The schedulers whose placement is modelled.
_SCHEDULERS = ("", "default-scheduler", "kai-scheduler")


class Taint(NamedTuple):
    """A mark on nodes that repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """Return the taint as Kueue prints it."""
        return f"{{{self.key} {self.value} {self.effect} <nil>}}"


class Toleration(NamedTuple):
    """Which taints a pod accepts; an empty key with `Exists` accepts all, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def accepts(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration accepts the taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class Expression(NamedTuple):
    """A requirement on a label; `Gt` and `Lt` compare integers."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()

    def met(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet the requirement; labels without the key meet only negations."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        numbers = [value or "", *self.values]
        if len(numbers) != 2 or not all(re.fullmatch("-?[0-9]{1,18}", one) for one in numbers):
            return False
        has, bound = map(int, numbers)
        return has > bound if self.operator == "Gt" else has < bound


@dataclass(frozen=True)
class PodTemplate:
    """A template of a pod: its requests by resource (thousandths of CPUs, else whole units), and where it may go.

    `affinity` lists terms of required node affinity, one of which must hold entirely (None: anywhere), and `preferred`
    the weights and terms of preferred nodes.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[Expression, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    preferred: tuple[tuple[int, tuple[Expression, ...]], ...] = ()


def pod_template(template: Fields) -> PodTemplate:
    """Read a pod template, or a pod."""
    return template.once(_template) if template.path else _template(template)


def _template(template: Fields) -> PodTemplate:
    metadata, spec = template.part("metadata"), template.part("spec", needed=True)
    metadata.skip("labels", "name", "namespace", "creationTimestamp", "generateName")
    spec.skip(*_IDLE)
    for volume in spec.parts("volumes"):
        volume.skip(*_IDLE_VOLUME)
    if spec.peek("schedulerName") in _SCHEDULERS:
        spec.skip("schedulerName")
    affinity = spec.part("affinity").part("nodeAffinity")
    return PodTemplate(
        _requests(spec),
        spec.labels("nodeSelector"),
        _affinity(affinity),
        tolerations(spec),
        spec.text("priorityClassName"),
        metadata.labels("annotations"),
        tuple(
            (one.whole("weight", 1, least=1), expressions(one.part("preference", needed=True)))
            for one in affinity.parts("preferredDuringSchedulingIgnoredDuringExecution")
        ),
    )


def _requests(spec: Fields) -> dict[str, int]:
    """Sum the containers; init containers count if they need more, sidecars in addition to all later containers."""
    total: dict[str, int] = {}
    for container in spec.parts("containers"):
        total = _sum(total, _of_container(container))
    if not total and "containers" not in spec:
        spec.fail("containers", "is missing", "a pod has at least one container")
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.parts("initContainers"):
        one = _of_container(container)
        if container.text("restartPolicy") == "Always":
            total, sidecars = _sum(total, one), _sum(sidecars, one)
            one = sidecars
        else:
            one = _sum(one, sidecars)
        most = _larger(most, one)
    whole = _larger(total, most)
    whole |= _resources(spec.part("resources"))  # those of the pod itself override those of its containers
    return dict(sorted(_sum(whole, amounts(spec.part("overhead"))).items()))


def _of_container(container: Fields) -> dict[str, int]:
    container.skip(*_IDLE_CONTAINER)
    for port in container.parts("ports"):
        port.skip(*_IDLE_PORT)
    return _resources(container.part("resources"))


def _resources(resources: Fields) -> dict[str, int]:
    """Return requests; a resource with a limit but no request is requested at its limit."""
    limits, requests = amounts(resources.part("limits")), amounts(resources.part("requests"))
    for name, units in requests.items():
        if units > limits.get(name, units):
            resources.fail("requests", f"asks for more of {name} than its limit", "raise the limit, or ask for less")
    return {**limits, **requests}


def amounts(part: Fields) -> dict[str, int]:
    """Return quantities by resource."""
    found = {name: part.amount(name, name, whole=True) for name in part}
    return {name: units for name, units in found.items() if units is not None}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def tolerations(spec: Fields, name: str = "tolerations") -> tuple[Toleration, ...]:
    """Read a list of tolerations."""
    found = []
    for one in spec.parts(name):
        one.skip("tolerationSeconds")
        operator = one.text("operator", "Equal", of=("Equal", "Exists"))
        found.append(Toleration(one.text("key"), operator, one.text("value"), one.text("effect", of=(*EFFECTS, ""))))
    return tuple(found)


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def taints(spec: Fields, name: str) -> tuple[Taint, ...]:
    """Read a list of taints."""
    found = []
    for one in spec.parts(name):
        one.skip("timeAdded")
        effect = one.text("effect", "NoSchedule", of=EFFECTS, needed=True)
        found.append(Taint(one.text("key", needed=True), one.text("value"), effect))
    return tuple(found)


def _affinity(affinity: Fields) -> tuple[tuple[Expression, ...], ...] | None:
    required = affinity.part("requiredDuringSchedulingIgnoredDuringExecution")
    if not required.there:
        return None
    return tuple(expressions(term) for term in required.parts("nodeSelectorTerms"))


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def expressions(term: Fields) -> tuple[Expression, ...]:
    """Read `matchExpressions`."""
    return tuple(
        Expression(
            one.text("key", needed=True), one.text("operator", "In", of=_OPERATORS, needed=True), one.texts("values")
        )
        for one in term.parts("matchExpressions")
    )


def label_selector(selector: Fields) -> tuple[Expression, ...]:
    """Read a label selector; an empty one matches everything."""
    labels = selector.labels("matchLabels")
    return (*(Expression(key, "In", (value,)) for key, value in labels.items()), *expressions(selector))
