"""Places in topologies for the pod sets to which a cycle gives flavours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simsched.manifests import NodeFacts
from simsched_policies.kubernetes.kueue.assign import Assignment, Attempt, Found, Grade
from simsched_policies.kubernetes.kueue.model import ResourceFlavor, Topology
from simsched_policies.kubernetes.kueue.reasons import Unfit, Why
from simsched_policies.kubernetes.kueue.topology import Domains, Usage
from simsched_policies.kubernetes.kueue.topology_assignment import Earlier, assign, most_pods


def domains_by_flavour(
    flavours: Mapping[str, ResourceFlavor], topologies: Mapping[str, Topology], nodes: Iterable[NodeFacts]
) -> dict[str, Domains]:
    """Return the tree of every flavour that has a topology."""
    nodes = list(nodes)
    return {
        name: Domains(topologies[flavour.topology].levels, nodes, flavour.labels, flavour.tolerations)
        for name, flavour in sorted(flavours.items())
        if flavour.topology is not None and flavour.topology in topologies
    }


def placed(
    assignment: Assignment,
    domains: Mapping[str, Domains],
    gates: Mapping[str, bool],
    *,
    empty: bool = False,
    earlier: Earlier | None = None,
    flavours: Mapping[str, ResourceFlavor] | None = None,
) -> tuple[Assignment, str]:
    """Place the pod sets whose flavour has a topology; return them with their places, or why one has none.

    With `empty`, pods that a topology placed are ignored. The sets of a flavour are placed in order, and see those that
    other flavours got on the same hosts; with `earlier`, sets that have places keep them.
    """
    found = list(assignment.found)
    by_flavour: dict[str, list[int]] = {}
    for number, one in enumerate(found):
        for flavour in dict.fromkeys(chosen.flavour for chosen in one.flavours.values() if chosen.flavour in domains):
            by_flavour.setdefault(flavour, []).append(number)
    several = len(by_flavour) > 1 and gates["TASHandleOverlappingFlavors"]
    here: list[Usage] = []
    for flavour, numbers in by_flavour.items():
        declared = (flavours or {}).get(flavour)
        name = declared.topology if declared is not None and declared.topology else "default"
        open_sets = [
            number for number in numbers if found[number].pods.count and not (earlier and found[number].places)
        ]
        pod_sets = [found[number].pods for number in open_sets]
        result = assign(domains[flavour], pod_sets, gates, earlier, empty=empty, name=name, beside=here)
        for number in open_sets:
            pods = found[number].pods
            if pods.name in result.reasons:
                why = result.reasons[pods.name]
                return _without(assignment, number, flavour, why), why
            places = result.assigned.get(pods.name)
            found[number] = found[number]._replace(places=places)
            if several:
                here += [Usage(values, pods.requests, count) for values, count in places or ()]
    return assignment._replace(found=tuple(found)), ""


def may_fit(assignment: Assignment, domains: Mapping[str, Domains]) -> bool:
    """Return whether each pod set that a topology places would fit on its own: faster than a search."""
    return all(
        one.pods.count <= most_pods(domains[flavour], one.pods)
        for one in assignment.found
        for flavour in {chosen.flavour for chosen in one.flavours.values()}
        if flavour in domains
    )


def _without(assignment: Assignment, number: int, flavour: str, reason: str) -> Assignment:
    found = list(assignment.found)
    attempt = Attempt(flavour, Grade.NO_FIT, 0, (Why(Unfit.NO_PLACE, reason),))
    others = tuple(one for one in found[number].attempts if one.flavour != flavour)
    found[number] = found[number]._replace(attempts=(*others, attempt))
    return assignment._replace(found=tuple(found))


def settled(
    assignment: Assignment,
    domains: Mapping[str, Domains],
    gates: Mapping[str, bool],
    flavours: Mapping[str, ResourceFlavor] | None = None,
) -> tuple[Assignment, str]:
    """Place what fits the quota; return it with the reason why it has no place now, empty if it has one.

    Without one, or if its quota needs preemption, it gets the places it would have on empty nodes; without those it
    fits nowhere. All resources of flavours with topologies are contested if it has no place now, whether or not there
    is quota. Source: Kueue, topology-aware scheduling with preemption.
    """
    there, why = placed(assignment, domains, gates, flavours=flavours)
    if assignment.grade is Grade.FIT and not why:
        return there, ""
    if why and assignment.grade is Grade.FIT:
        assignment = _contesting(there, domains)
    elif why:
        assignment, why = _contesting(assignment, domains), ""
    there, never = placed(assignment, domains, gates, empty=True, flavours=flavours)
    return (there._replace(grade=Grade.NO_FIT), never) if never else (there, why)


def _contesting(assignment: Assignment, domains: Mapping[str, Domains]) -> Assignment:
    """Return the assignment with its topology flavours marked as needing preemption: there is quota, but no place."""

    def worse(one: Found) -> Found:
        chosen = {
            resource: choice._replace(grade=min(choice.grade, Grade.NO_CANDIDATES))
            if choice.flavour in domains
            else choice
            for resource, choice in one.flavours.items()
        }
        return one._replace(flavours=chosen)

    return assignment._replace(
        found=tuple(map(worse, assignment.found)), grade=min(assignment.grade, Grade.NO_CANDIDATES)
    )
