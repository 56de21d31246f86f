"""Cases of topology assignments in our format: the expected and the found assignment of each pod set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simsched_policies.kubernetes.kueue.model import Places
from simsched_policies.kubernetes.kueue.topology import Domains, Usage
from simsched_policies.kubernetes.kueue.topology_assignment import Earlier, assign

from tests.conformance.kueue_coverage import gates_of
from tests.conformance.kueue_forms import assignment_of, nodes_of, pods_of, tolerations_of

Json = Mapping[str, Any]


def compared(case: Json) -> tuple[object, object]:
    """Return the expected and the found assignments of a case's pod sets."""
    gates = gates_of(case)
    found = assign(domains_of(case), [pods_of(entry) for entry in case["pod_sets"]], gates, _earlier(case, gates))
    got = {**{name: written(one) for name, one in found.assigned.items()}, **found.reasons}
    return {name: _expected(one) for name, one in case["placement"].items()}, got


def domains_of(case: Json) -> Domains:
    """Return the topology of a case with its usage."""
    tolerations = tolerations_of({"tolerations": case.get("flavour_tolerations", ())})
    domains = Domains(case["levels"], nodes_of(case), case.get("flavour_labels", {}), tolerations)
    for entry in [*case.get("used", ()), *(case.get("used_by_others", ()) if domains.by_host else ())]:
        domains.change(Usage(tuple(entry["values"]), entry["request"], entry["count"]))
    return domains


def _earlier(case: Json, gates: Mapping[str, bool]) -> Earlier:
    had = {entry.get("name", "main"): entry["previous"] for entry in case["pod_sets"] if entry.get("previous")}
    assigned = {name: assignment_of(one) for name, one in {**had, **case.get("assigned", {})}.items()}
    return Earlier(assigned, tuple(case.get("unhealthy_nodes", ())), keeps_places(case, gates))


def keeps_places(workload: Json, gates: Mapping[str, bool]) -> bool:
    """Return whether a workload keeps its places regardless of failures: it is a single pod without an owner."""
    single = workload.get("owners") == ["Pod"] and not workload.get("is_pod_group", False)
    return single and gates["SkipReassignmentForPodOwnedWorkloads"]


def written(assignment: Places) -> list[list[object]]:
    """Return an assignment as a list of values and counts."""
    return [[list(values), count] for values, count in assignment]


def _expected(one: Json) -> object:
    return one["reason"] if "reason" in one else written(assignment_of(one))
