"""What a cluster administrator declares about quotas, and what a workload asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

#: A resource of one flavour, like ("a100", "gpu"): the unit in which quota is counted.
FlavourResource = tuple[str, str]
#: Amounts by flavour and resource, whole numbers.
Amounts = Mapping[FlavourResource, int]


class Within(Enum):
    """Whom a workload may preempt in its own queue."""

    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "lower-or-newer-equal-priority"


class Reclaim(Enum):
    """Whom a workload may preempt in queues of its cohort that borrow."""

    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    ANY = "any"


class Mode(Enum):
    """How a request stands to the quota: it fits now, only after preemption, or never."""

    FIT = "fit"
    PREEMPT = "preempt"
    NO_FIT = "no-fit"


class Reason(Enum):
    """Why a workload is preempted, in Kueue's words."""

    IN_QUEUE = "InClusterQueue"
    RECLAMATION = "InCohortReclamation"
    WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    FAIR_SHARING = "InCohortFairSharing"


@dataclass(frozen=True)
class Quota:
    """The quota of a node of the tree for one resource of one flavour; a limit of None is no limit.

    `nominal` is the node's own; it may borrow up to `borrowing_limit` beyond the quota of its subtree, and lends its
    cohort at most `lending_limit` of it.
    """

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True)
class Cohort:
    """A group of cluster queues and cohorts that lend each other quota."""

    name: str
    parent: str | None = None
    quotas: Mapping[FlavourResource, Quota] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True)
class ClusterQueue:
    """A queue with quotas and its rules of preemption.

    The flavours of `quotas` are tried in their order. With `borrow_preempts_lower` a workload that borrows may preempt
    others of lower priority, at most `borrow_max_priority` if set.
    """

    name: str
    cohort: str | None = None
    quotas: Mapping[FlavourResource, Quota] = field(default_factory=dict)
    weight: float = 1.0
    within: Within = Within.NEVER
    reclaim: Reclaim = Reclaim.NEVER
    borrow_preempts_lower: bool = False
    borrow_max_priority: int | None = None
    strict_fifo: bool = False
    borrow_before_next_flavour: bool = True
    preempt_before_next_flavour: bool = False


@dataclass(frozen=True)
class Workload:
    """A job as quota sees it: its queue, priority and the amounts that it holds or asks for.

    `created_s` orders the queue (creation, or the last eviction); `admitted_s` is when quota was reserved.
    `local_queue_usage` is the decayed usage of the user's queue under admission fair sharing.
    """

    id: str
    queue: str
    usage: Amounts = field(default_factory=dict)
    priority: int = 0
    created_s: float = 0.0
    admitted_s: float = 0.0
    evicted: bool = False
    local_queue_usage: float = 0.0


@dataclass(frozen=True)
class Incoming:
    """A workload that asks to be admitted; `contested` are the flavours and resources that need preemption."""

    workload: Workload
    contested: frozenset[FlavourResource]


@dataclass(frozen=True)
class Victim:
    """A workload to be preempted and why."""

    workload: Workload
    reason: Reason
