"""The modelled version of Kueue, and its feature gates by name with their defaults."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from simsched.errors import InputError, Problem

#: The version whose rules and defaults these are.
VERSION = "v0.20.0-devel (main of 2026-08-22)"

#: Gates whose other state is modelled too, and their defaults.
SWITCHES: Mapping[str, bool] = {
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "FlavorFungibility": True,
    "MultiKueueOrchestratedPreemption": False,
    "PartialAdmission": True,
    "PrioritizePreemptorWorkloads": False,
    "PrioritySortingWithinCohort": True,
    "ReclaimablePods": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "SchedulingEquivalenceHashing": True,
    "SkipReassignmentForPodOwnedWorkloads": True,
    "TASBalancedPlacement": False,
    "TASFailedNodeReplacement": True,
    "TASFailedNodeReplacementFailFast": True,
    "TASMultiLayerTopology": True,
    "TASProfileMixed": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TASRespectNodeAffinityPreferred": False,
    "TopologyAwareScheduling": True,
}
#: Gates that are modelled only in their default state.
FIXED: Mapping[str, bool] = {
    "AdmissionFairSharing": True,
    "AdmissionGatedBy": True,
    "ConcurrentAdmission": False,
    "ElasticJobsViaWorkloadSlices": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "PriorityBoost": False,
    "QuotaCheckStrategy": True,
    "SchedulerLibraryIntegration": False,
    "TASHandleOverlappingFlavors": True,
    "TASReplaceNodeDueToNotReadyOverFixedTime": False,
    "TASReplaceNodeOnNodeTaints": True,
    "TASReplaceNodeOnPodTermination": True,
    "WorkloadPriorityClassDefaulting": True,
}
#: Gates that change how Kueue computes or reports, not what it decides.
WITHOUT_EFFECT = frozenset(
    {
        *("TASCacheNodeMatchResults", "UnadmittedWorkloadsObservability", "VectorizedResourceRequests"),
        *("WorkloadRequestUseMergePatch",),
    }
)
#: Rules of an earlier release, off in the modelled version; a release sets them, no gate does: the search for a flavor
#: ends at one that preemption might free even without victims; a cycle has one order, by borrowing, share, priority and
#: age; pods go to the domain with the most room.
RULES: Mapping[str, bool] = {"StopsWithoutVictims": False, "OneOrder": False, "MostRoom": False}
DEFAULTS: Mapping[str, bool] = {**SWITCHES, **FIXED, **RULES}
#: The releases that can be modelled: their full names, and their rules.
RELEASES: Mapping[str, tuple[str, Mapping[str, bool]]] = {
    "main": (VERSION, RULES),
    "v0.10": (
        "v0.10.2 (search of flavors, order of a cycle and choice of domains; else as main)",
        dict.fromkeys(RULES, True),
    ),
}


def gates(changes: Mapping[str, bool] | None = None, where: str = "featureGates") -> Mapping[str, bool]:
    """Return all gates with `changes` made to the defaults.

    Raises `InputError` for a gate that is unknown or modelled only in its default state; `where` names its location.
    """
    problems = []
    for name, on in (changes or {}).items():
        if name in WITHOUT_EFFECT:
            continue
        if name not in SWITCHES and name not in FIXED:
            close = difflib.get_close_matches(name, {**SWITCHES, **FIXED}, n=1)
            hint = f"did you mean {close[0]}?" if close else "leave it out, or name one that is listed in the docs"
            problems.append(Problem(f"{where}.{name}", f"is no gate that the model of Kueue {VERSION} knows", hint))
        elif name in FIXED and on is not FIXED[name]:
            state = "on" if FIXED[name] else "off"
            problems.append(Problem(f"{where}.{name}", f"is modelled only {state}", "leave it at its default"))
    if problems:
        raise InputError(*problems)
    return {**DEFAULTS, **(changes or {})}
