"""Workloads that lost a node: they keep their quota while its pods are placed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from simsched.model import Allocation
from simsched_policies.kubernetes.kueue.cycle import Pending
from simsched_policies.kubernetes.kueue.model import Asking, Assigned, Workload
from simsched_policies.kubernetes.kueue.tree import QuotaTree


def second_passes(tree: QuotaTree, lame: Mapping[str, Asking]) -> list[Pending]:
    """Return the workloads that lack a node, with their missing hosts; one whose host is back keeps its places.

    A second pass of the next cycle places only the pods of the failed node. Source: Kueue, topology-aware scheduling,
    replacement of failed nodes.
    """
    found = []
    for number, asking in lame.items():
        held = tree.queues[asking.queue].held[number]
        lacks = _lacking(tree, held)
        found.append(Pending(asking, holds=held, failed=lacks, keeps=not lacks))
    return found


def repairable(
    tree: QuotaTree, workload: Workload, allocation: Allocation, up: Sequence[bool], gates: Mapping[str, bool]
) -> bool:
    """Return whether a workload that lost GPUs keeps its quota: one node failed, and a topology of hosts placed it."""
    by_host = all(
        one.places is not None and any(tree.topologies[name].by_host for name in _placing(tree, one))
        for one in workload.assigned
    )
    failed = [node for node, _ in allocation if not up[node]]
    return gates["TASFailedNodeReplacement"] and by_host and len(failed) == 1


def moved(tree: QuotaTree, workload: Workload, assigned: tuple[Assigned, ...]) -> Workload:
    """Move a workload to other places with the same quota, and return the updated one."""
    for sign, parts in ((-1, workload.assigned), (1, assigned)):
        for one in parts:
            tree.place(one, sign)
    after = replace(workload, assigned=assigned)
    tree.queues[workload.queue].held[workload.id] = after
    return after


def _lacking(tree: QuotaTree, workload: Workload) -> tuple[str, ...]:
    """Return the hosts of a workload's pods that have left their topology."""
    return tuple(
        sorted(
            {
                values[-1]
                for one in workload.assigned
                for values, _ in one.places or ()
                for name in _placing(tree, one)
                if tree.topologies[name].leaf(values) is None
            }
        )
    )


def _placing(tree: QuotaTree, one: Assigned) -> set[str]:
    return set(one.flavours.values()) & set(tree.topologies)
