"""Kueue's own configuration (`config.kueue.x-k8s.io`), as objects of the model."""

from __future__ import annotations

from typing import Any

from simsched.errors import InputError
from simsched.manifests import READY, Fields
from simsched_policies.kubernetes.kueue.gates import gates
from simsched_policies.kubernetes.kueue.model import BOTH, AdmissionFairSharing, PodsReady

_STRATEGIES = tuple(rule.value for rule in BOTH)


def configured(fields: Fields) -> dict[str, Any]:
    """Return Kueue's own configuration as fields of `Setup`."""
    more: dict[str, Any] = {}
    fields.skip("health", "metrics", "webhook", "leaderElection", "controller", "internalCertManagement", "tls")
    fields.skip("clientConnection", "namespace", "pprofBindAddress", "objectRetentionPolicies")
    fields.part("integrations").skip("frameworks", "externalFrameworks", "podOptions", "labelKeysToCopy")
    fields.skip("manageJobsWithoutQueueName")  # a workload without a queue is always refused
    names = fields.part("featureGates")
    switched = {name: names.flag(name) for name in names}
    try:
        more["gates"] = gates(switched)
    except InputError as error:
        for problem in error.problems:
            fields.part("featureGates").fail(problem.where.rpartition(".")[2], problem.message, problem.remedy)
    fair = fields.part("fairSharing")
    if fair.there and fair.flag("enable", default=True):
        strategies = fair.texts("preemptionStrategies") or _STRATEGIES
        for one in strategies:
            if one not in _STRATEGIES:
                fair.fail("preemptionStrategies", f"'{one}' is no strategy", f"known: {', '.join(_STRATEGIES)}")
        more["strategies"] = tuple(strategies)
    usage = fields.part("admissionFairSharing")
    if usage.there:
        weights = usage.part("resourceWeights")
        more["fair_admission"] = AdmissionFairSharing(
            usage.seconds("usageHalfLifeTime", 0.0),
            usage.seconds("usageSamplingInterval", 300.0),
            {name: weights.number(name, 1.0) for name in weights},
        )
    if (waiting := _pods_ready(fields)) is not None:
        more["pods_ready"] = waiting
    checks = ("BlockUndeclared", "IgnoreUndeclared")
    more["ignore_undeclared"] = fields.part("resources").text("quotaCheckStrategy", checks[0], of=checks) == checks[1]
    return more


def _pods_ready(fields: Fields) -> PodsReady | None:
    """Return what Kueue does until pods are ready, None if that is not configured."""
    waiting, ready_s = fields.part("waitForPodsReady"), fields.stated(READY, least=0) or 0.0
    if not (waiting.there and waiting.flag("enable", default=True)):
        waiting.skip(*waiting)
        if ready_s:
            fields.fail("waitForPodsReady", f"is not on, and {READY} needs it", "turn it on, or leave that out")
        return None
    waiting.skip("recoveryTimeout")  # pods stay ready
    again = waiting.part("requeuingStrategy")
    timeout_s = waiting.seconds("timeout", PodsReady.timeout_s)
    if ready_s > timeout_s:
        waiting.fail("timeout", f"is less than the {ready_s:g} s of {READY}: all are evicted", "raise it")
    return PodsReady(
        ready_s,
        waiting.flag("blockAdmission"),
        timeout_s,
        again.whole("backoffBaseSeconds", 60, least=0),
        again.whole("backoffMaxSeconds", 3600, least=0),
        again.maybe_whole("backoffLimitCount", least=0),
        again.text("timestamp", "Eviction", of=("Eviction", "Creation")) == "Eviction",
    )
