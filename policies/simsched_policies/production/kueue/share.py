"""The dominant resource share of a node: how much it borrows, relative to what can be lent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simsched_policies.production.kueue.model import Amounts
from simsched_policies.production.kueue.tree import Node

#: A share of one is represented as 1,000.
SCALE = 1000


@dataclass(frozen=True)
class Share:
    """A node's share: the largest ratio of borrowed to lendable over its resources, in thousandths, and its weight."""

    ratio: float
    weight: float
    resource: str = ""

    @property
    def borrowing(self) -> bool:
        """Return whether the node uses more than the quota of its subtree."""
        return self.ratio > 0

    @property
    def weighted(self) -> float:
        """Return the ratio over the weight, infinite if a node of weight 0 borrows."""
        if not self.borrowing:
            return 0.0
        return math.inf if self.weight == 0 else self.ratio / self.weight

    @property
    def reported(self) -> float:
        """Return the share rounded up, as Kueue reports it."""
        return self.weighted if math.isinf(self.weighted) else math.ceil(self.weighted)

    def key(self) -> tuple[float, float]:
        """Order shares: by the weighted share, and by the bare ratio among infinite ones."""
        return (self.weighted, self.ratio if math.isinf(self.weighted) else 0.0)


def dominant_share(node: Node, added: Amounts | None = None) -> Share:
    """Return the share of a node with `added` on top of its usage.

    Only resources for which the subtree has an entry count. A resource's ratio is what the node uses above the quota of
    its subtree, summed over flavours, over the most that its parent could use; a root does not borrow. Source:
    Kueue, fair sharing (KEP-1714).
    """
    if node.parent is None:
        return Share(0.0, node.weight)
    borrowed: dict[str, int] = {}
    added = added or {}
    for resource, quota in node.subtree.items():
        over = node.usage.get(resource, 0) + added.get(resource, 0) - quota
        if over > 0:
            borrowed[resource[1]] = borrowed.get(resource[1], 0) + over
    lendable = node.parent.lendable
    best, name = 0.0, ""
    for kind in sorted(borrowed):
        if lendable.get(kind, 0) > 0 and (ratio := borrowed[kind] * SCALE / lendable[kind]) > best:
            best, name = ratio, kind
    return Share(best, node.weight, name)
