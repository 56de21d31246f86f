"""What Kueue has decided on workloads, as `Workload` objects record it: their quota, flavours and places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from simsched.manifests.fields import Account, Fields, chosen
from simsched.manifests.objects import Object
from simsched.manifests.workloads import Workload

#: An annotation of simsched: the nodes of pods that no topology places, as in `main=node-1*2 main=node-2`.
NODES = "simsched/nodes"


@dataclass(frozen=True)
class Granted:
    """What the pods of a set hold: their number, the total of each resource, and its flavour.

    `places` are values of `levels` of a topology, each with its number of pods (None: no topology places them), and
    `hosts` the nodes of pods without a topology where they are known.
    """

    name: str
    count: int
    usage: Mapping[str, int]
    flavours: Mapping[str, str]
    levels: tuple[str, ...] = ()
    places: tuple[tuple[tuple[str, ...], int], ...] | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Admission:
    """Where a workload stands: what it holds and since when (in seconds since 1970), and whether it is over.

    `granted` is empty for one that waits, which the scheduler has `tried` in vain or not.
    """

    granted: tuple[Granted, ...] = ()
    since_s: float = 0.0
    finished: bool = False
    tried: bool = False


def read_admissions(objects: Sequence[Object], account: Account) -> dict[tuple[str, str, str], Admission]:
    """Read the `Workload` objects, by namespace, kind and name of the job or pod that owns them.

    Each is also found by no kind and its own name, which is that of a group of pods. `account` gets problems only: what
    is not read of a `Workload` follows from its job.
    """
    found: dict[tuple[str, str, str], Admission] = {}
    for one in chosen(objects, "Workload"):
        if one.group.endswith("kueue.x-k8s.io"):
            found |= dict.fromkeys(_owners(one), _admission(Fields(one, account)))
    return found


def admission_of(workload: Workload, admissions: Mapping[tuple[str, str, str], Admission]) -> Admission | None:
    """Return what Kueue has decided on a workload, None if no object says so."""
    one = workload.owner
    return admissions.get((one.namespace, one.kind, one.name)) or admissions.get((one.namespace, "", one.name))


def _owners(one: Object) -> Iterator[tuple[str, str, str]]:
    listed = one.part("metadata").get("ownerReferences")
    owners = [own for own in listed if isinstance(own, dict)] if isinstance(listed, list) else []
    for own in (*owners, {"name": one.name}):
        yield one.namespace, str(own.get("kind", "")), str(own.get("name", ""))


def _admission(fields: Fields) -> Admission:
    status = fields.part("status")
    held: dict[str, float] = {}
    tried = False
    for one in status.parts("conditions"):
        if one.peek("status") == "True":
            held[one.text("type")] = one.moment("lastTransitionTime") or 0.0
        elif one.text("type") == "QuotaReserved":
            tried = True
    if "Finished" in held:
        return Admission(finished=True)
    given = status.part("admission")
    if not given.there:
        return Admission(tried=tried)
    hosts = _hosts(fields)
    granted = tuple(_granted(one, hosts) for one in given.parts("podSetAssignments"))
    return Admission(granted, held.get("QuotaReserved", 0.0))


def _granted(one: Fields, hosts: Mapping[str, Mapping[str, int]]) -> Granted:
    name, used = one.text("name", "main"), one.part("resourceUsage")
    usage = {resource: used.amount(resource, resource) or 0 for resource in used}
    topology = one.part("topologyAssignment")
    levels = topology.texts("levels")
    places = tuple(_places(topology, len(levels))) if topology.there else None
    return Granted(name, one.whole("count", 1), usage, one.labels("flavors"), levels, places,
                   hosts.get(name, {}))  # fmt: skip


def _places(topology: Fields, levels: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the domains of an assignment: one by one (v1beta1), or in slices with common parts (v1beta2)."""
    for one in topology.parts("domains"):
        yield one.texts("values"), one.whole("count", 1, least=1)
    for part in topology.parts("slices"):
        number = part.whole("domainCount", 1, least=1)
        values = [_each(one, number, "values") for one in part.parts("valuesPerLevel")]
        counts = _each(part.part("podCounts"), number, "numbers")
        if len(values) != levels or any(len(each) != number for each in (*values, counts)):
            part.fail("", f"names not {number} domains of {levels} levels", "give the object as kubectl prints it")
            continue
        for place in range(number):
            yield tuple(str(each[place]) for each in values), int(counts[place])


def _each(one: Fields, number: int, what: str) -> Sequence[str | int]:
    """Return what each domain of a slice has: one value for all, or texts with a common beginning and end."""
    if what == "numbers":
        return [one.whole("universal", 0)] * number if "universal" in one else one.wholes("individual")
    if "universal" in one:
        return [one.text("universal")] * number
    individual = one.part("individual")
    before, after = individual.text("prefix"), individual.text("suffix")
    return [f"{before}{root}{after}" for root in individual.texts("roots")]


def _hosts(fields: Fields) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for word in str(fields.owner.marks().get(NODES, "")).split():
        name, _, node = word.partition("=")
        host, _, times = node.partition("*")
        found.setdefault(name, Counter())[host] += int(times) if times.isdigit() else 1
    return found


def nodes_text(hosts: Mapping[str, Mapping[str, int]]) -> str:
    """Return nodes by set of pods as the annotation `simsched/nodes` has them."""
    each = ((name, host, number) for name, nodes in sorted(hosts.items()) for host, number in sorted(nodes.items()))
    return " ".join(f"{name}={host}*{number}" for name, host, number in each)
