"""The quotas derived from an experiment's tenants: a cluster queue for each, a cohort for each parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simsched.model import Tenant
from simsched_policies.production.kueue.model import ClusterQueue, Cohort, FlavourResource, Quota, Reclaim, Within
from simsched_policies.production.kueue.tree import QuotaTree

#: The queue of undeclared tenants; it owns the rest.
OTHERS = "(others)"
#: The only resource that is counted.
RESOURCE = "gpu"
_ROOT = "(cluster)"
_Quotas = Mapping[FlavourResource, Quota]


@dataclass(frozen=True)
class Terms:
    """The rules of preemption that all queues have; a tenant that does not reclaim has `reclaim` never."""

    within: Within
    reclaim: Reclaim
    borrow_preempts_lower: bool = False
    borrow_max_priority: int | None = None
    strict_fifo: bool = False


def quotas_of(tenants: Mapping[str, Tenant], totals: Mapping[str, int], terms: Terms) -> QuotaTree:
    """Return the tree of GPU quotas; `totals` are by type.

    A tenant that others name as their parent is a cohort with its own GPUs, and a queue without any. All trees meet in
    one cohort, in which the queue of undeclared tenants owns the rest.
    """
    own = _own_gpus(tenants, totals)
    above = {tenant.parent for tenant in tenants.values() if tenant.parent}
    queues, cohorts = [], [Cohort(name, _ROOT) for name in sorted(above - set(tenants))]
    for name, tenant in sorted(tenants.items()):
        below = sum(sum(own[other].values()) for other in tenants if _is_below(tenants, other, name))
        quotas = {(kind, RESOURCE): _quota(tenant, own[name][kind], below) for kind in totals}
        parent = tenant.parent or _ROOT
        if name in above:
            cohorts.append(Cohort(name, parent, quotas, tenant.weight))
            parent, quotas = name, {key: Quota(0) for key in quotas}
        reclaim = terms.reclaim if tenant.reclaims else Reclaim.NEVER
        queues.append(_queue(name, parent, quotas, tenant.weight, reclaim, terms))
    rest = {(kind, RESOURCE): Quota(n - sum(gpus[kind] for gpus in own.values())) for kind, n in totals.items()}
    return QuotaTree([*queues, _queue(OTHERS, _ROOT, rest, 1.0, terms.reclaim, terms)], cohorts)


def _queue(name: str, parent: str, quotas: _Quotas, weight: float, reclaim: Reclaim, terms: Terms) -> ClusterQueue:
    return ClusterQueue(
        name,
        parent,
        quotas,
        weight,
        terms.within,
        reclaim,
        terms.borrow_preempts_lower,
        terms.borrow_max_priority,
        terms.strict_fifo,
    )


def _own_gpus(tenants: Mapping[str, Tenant], totals: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the own GPUs of tenants by type: a share of each type, or a number, from the first type on."""
    left = dict(totals)
    own: dict[str, dict[str, int]] = {}
    for name, tenant in sorted(tenants.items()):
        wanted = tenant.gpus
        own[name] = {}
        for kind, total in totals.items():
            gpus = own[name][kind] = min(tenant.own_gpus(total) if wanted is None else wanted, left[kind])
            wanted = None if wanted is None else wanted - gpus
            left[kind] -= gpus
    return own


def _is_below(tenants: Mapping[str, Tenant], name: str, above: str) -> bool:
    while name != above and name in tenants:
        name = tenants[name].parent
    return name == above


def _quota(tenant: Tenant, own: int, own_in_all: int) -> Quota:
    """Return the quota of a type; the total that may be borrowed, over all types, is what `own_in_all` leaves."""
    borrowing = None if tenant.max_gpus is None else max(0, tenant.max_gpus - own_in_all)
    return Quota(own, borrowing if tenant.borrows else 0, tenant.lends)
