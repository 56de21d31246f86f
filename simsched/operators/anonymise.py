"""Replaces what names people and projects in Kubernetes objects, so that a cluster can be shared and decides alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simsched.manifests import WORKLOAD_KINDS, Object

#: The kinds that decisions follow from; others are left out.
_KINDS = {
    *WORKLOAD_KINDS, "Node", "Workload", "ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "Topology",
    "WorkloadPriorityClass", "PriorityClass", "AdmissionCheck", "Namespace", "Configuration", "Queue",
}  # fmt: skip
#: Fields that decide nothing and may tell something.
_DROPPED = {
    "managedFields", "env", "envFrom", "command", "args", "volumeMounts", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle", "message", "addresses", "nodeInfo", "images", "providerID", "podCIDR", "podCIDRs",
    "selfLink", "serviceAccountName", "serviceAccount", "imagePullSecrets", "description", "podIP", "podIPs", "hostIP",
    "hostIPs", "containerStatuses", "initContainerStatuses", "workingDir", "entrypoint", "runtimeEnvYAML",
    "hostAliases", "rayStartParams", "daemonEndpoints", "volumesInUse", "volumesAttached", "config", "securityContext",
}  # fmt: skip
#: Fields whose values are words of Kubernetes, moments, quantities or names of resources.
_KEPT = {
    "kind", "apiVersion", "type", "status", "operator", "effect", "restartPolicy", "whenCanBorrow", "whenCanPreempt",
    "withinClusterQueue", "reclaimWithinCohort", "policy", "queueingStrategy", "stopPolicy", "preference", "phase",
    "completionMode", "podReplacementPolicy", "controllerName", "reason", "coveredResources", "admissionMode",
    "dnsPolicy", "imagePullPolicy", "terminationMessagePolicy", "schedulerName", "submissionMode", "preemptionPolicy",
    "concurrencyPolicy", "cleanPodPolicy", "protocol", "requests", "limits", "allocatable", "capacity", "usage",
    "resourceUsage", "nominalQuota", "borrowingLimit", "lendingLimit", "weight", "fairSharing", "overhead", "qosClass",
    "featureGates", "preemptionStrategies", "integrations", "waitForPodsReady", "rayVersion", "terminationMessagePath",
    "priorityClassSource", "priorityClassRef",
}  # fmt: skip
_MARKS = {"labels", "annotations", "nodeSelector", "matchLabels", "nodeLabels"}
#: Parts of names of labels that say nothing of who uses them, and labels whose values say what a node is.
_PUBLIC = re.compile(
    r"(.*\.)?(kubernetes\.io|k8s\.io|x-k8s\.io|nvidia\.com|kai\.scheduler|kubeflow\.org)/.*|simsched/.*"
)
_TELLING = re.compile(
    r"kubernetes\.io/(arch|os)|node\.kubernetes\.io/instance-type|nvidia\.com/.*|simsched/(?!nodes).*"
    r"|.*kueue.*(size|count|time-seconds|podset)"
)
#: Names that have a meaning of their own: the queue of workloads without one, and sets of pods.
_MEANT = {"default", "main", "master", "worker", "launcher", "head", "submitter", ""}
_PLAIN = re.compile(r"[-+]?[0-9.]+[A-Za-z]{0,2}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|(?i:true|false|unknown|none)")


def anonymised(objects: Sequence[Object]) -> tuple[list[Object], dict[str, str]]:
    """Return objects with names, namespaces, images, labels and all other free text replaced, and what replaced them.

    The same text becomes the same word everywhere, and words sort like the texts, so that decisions stay as they are.
    Other kinds of objects, and fields that decide nothing, are left out.
    """
    kept = [one for one in objects if one.kind in _KINDS]
    texts: set[str] = set()

    def collect(text: str) -> str:
        texts.add(text)
        return text

    for one in kept:
        _changed({**one.data, "metadata": _metadata(one)}, "", collect)
    width = len(str(len(texts)))
    words = {text: f"n{place:0{width}d}" for place, text in enumerate(sorted(texts))}
    return [_renamed(one, words) for one in kept], words


def _renamed(one: Object, words: Mapping[str, str]) -> Object:
    data = _changed({**one.data, "metadata": _metadata(one)}, "", words.__getitem__)
    named = data["metadata"]
    return replace(one, name=named["name"], namespace=named.get("namespace", ""), data=data, where="", lines={})


def _metadata(one: Object) -> dict[str, Any]:
    found = {**one.part("metadata"), "name": one.name}
    return {**found, "namespace": one.namespace} if one.namespace else found


def _changed(data: Any, key: str, word: Callable[[str], str]) -> Any:
    """Return a part of an object below a key with its texts replaced."""
    if isinstance(data, dict):
        if key in _MARKS:
            return _marks(data, key, word)
        return {name: _value(value, name, key, word) for name, value in data.items() if name not in _DROPPED}
    if isinstance(data, list):
        return [_changed(each, key, word) for each in data]
    if isinstance(data, str) and not _PLAIN.fullmatch(data) and data not in _MEANT and not _PUBLIC.fullmatch(data):
        return word(data)
    return data


def _value(value: Any, name: str, key: str, word: Callable[[str], str]) -> Any:
    if name in _KEPT and not isinstance(value, dict if name == "status" else ()):
        return value
    if name == "name" and key == "resources":  # of a quota
        return value
    return _changed(value, name, word)


def _marks(data: Mapping[str, Any], key: str, word: Callable[[str], str]) -> dict[str, Any]:
    """Return labels or annotations; of annotations only those of schedulers."""
    found = {}
    for name, value in data.items():
        public = bool(_PUBLIC.fullmatch(name))
        if key == "annotations" and (not public or not re.match(r"(.*kueue.*|kai\.scheduler|simsched)/", name)):
            continue
        if name == "simsched/nodes":
            found[name] = re.sub(r"[^ =*]+(?=\*)", lambda text: word(text[0]), str(value))
        else:
            found[name if public else word(name)] = value if _TELLING.fullmatch(name) else _changed(value, "", word)
    return found
