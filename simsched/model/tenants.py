"""Tenants: who shares a cluster, and on what terms, as in an experiment's section `tenants`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simsched.arithmetic import ordered_sum
from simsched.keys import key

#: The parameter of a policy that is filled from the experiment's section `tenants`.
TENANTS_PARAMETER = "tenants"


@dataclass(frozen=True)
class Tenant:
    """What one tenant may use.

    `share` is the part of the cluster's GPUs that the tenant owns, `gpus` the same as a number, which takes precedence;
    without either it owns none. With `borrows` it may also use GPUs that others leave idle, up to `max_gpus` in total.
    `lends` is how many of its own GPUs others may use while idle (None: all). With `reclaims` it takes its own GPUs
    back from borrowers at once. `weight` matters if policies divide in proportion. Tenants of one `parent`, another
    tenant, share among themselves first; what the parent owns is for all below it.
    """

    share: float | None = key(None, "part of the cluster's GPUs that is the tenant's own", ge=0, le=1)
    gpus: int | None = key(None, "GPUs that are the tenant's own, instead of 'share'", ge=0)
    max_gpus: int | None = key(None, "GPUs that the tenant may use at once, its own and borrowed ones", ge=0)
    borrows: bool = key(True, "whether it may use GPUs that others leave idle")
    lends: int | None = key(None, "how many of its own GPUs others may use; by default all", ge=0)
    reclaims: bool = key(True, "whether it takes its own GPUs back from borrowers by preemption")
    weight: float = key(1.0, "its weight where a policy divides in proportion", ge=0)
    parent: str = key("", "the tenant above it, whose other tenants it shares with first")

    def own_gpus(self, total: int) -> int:
        """Return the tenant's own GPUs in a cluster of `total`; a share is rounded down."""
        if self.gpus is not None:
            return min(self.gpus, total)
        return int((self.share or 0.0) * total + 1e-9)

    def most_gpus(self, total: int) -> int:
        """Return the GPUs in a cluster of `total` that the tenant may use at once."""
        most = total if self.borrows else self.own_gpus(total)
        return most if self.max_gpus is None else min(most, self.max_gpus)


Tenants = Mapping[str, Tenant]


def excess(tenants: Tenants) -> str:
    """Describe what is wrong with the shares of all tenants together; empty if nothing is."""
    total = ordered_sum(tenant.share or 0.0 for tenant in tenants.values() if tenant.gpus is None)
    return f"the shares add up to {total:g}, more than the whole cluster" if total > 1 + 1e-9 else ""


def circle(tenants: Tenants) -> str:
    """Describe which tenant is above itself; empty if none is."""
    for name in sorted(tenants):
        seen, above = {name}, tenants[name].parent
        while above in tenants and above not in seen:
            seen.add(above)
            above = tenants[above].parent
        if above == name:
            return f"'{name}' is above itself; break the circle of parents"
    return ""
