"""What a cluster administrator declares about queues and quotas, and what a workload asks of them.

Amounts are integers in the base unit of their resource: thousandths of a core for `cpu`, bytes for memory and storage,
units for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from simsched.manifests import Taint, Toleration
from simsched_policies.kubernetes.kueue.gates import DEFAULTS
from simsched_policies.kubernetes.kueue.matching import ANYWHERE, Constraints, Labels, Term

#: A resource of one flavour, such as ("a100", "gpu"): the unit in which quota is counted.
FlavourResource = tuple[str, str]
#: The number of pods in a domain of a topology, by its values; by host alone if hosts are the lowest level.
Places = tuple[tuple[tuple[str, ...], int], ...]
#: Amounts by flavour and resource, whole numbers.
Amounts = Mapping[FlavourResource, int]


class Within(Enum):
    """Which workloads of its own queue a workload may preempt."""

    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "lower-or-newer-equal-priority"


class Reclaim(Enum):
    """Which workloads a workload may preempt in borrowing queues of its cohort."""

    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    ANY = "any"


class Mode(Enum):
    """How a request relates to the quota: it fits now, only after preemption, or never."""

    FIT = "fit"
    PREEMPT = "preempt"
    NO_FIT = "no-fit"

    @property
    def rank(self) -> int:
        """Return a number; higher is better."""
        return (Mode.NO_FIT, Mode.PREEMPT, Mode.FIT).index(self)


class Reason(Enum):
    """Why a workload is preempted, in Kueue's words."""

    IN_QUEUE = "InClusterQueue"
    RECLAMATION = "InCohortReclamation"
    WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    FAIR_SHARING = "InCohortFairSharing"


@dataclass(frozen=True)
class Quota:
    """The quota of a node of the tree for one resource of one flavour; None means no limit.

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
class ResourceFlavor:
    """A kind of nodes: their labels and taints, tolerations added to its pods, and its topology, if any."""

    name: str
    labels: Labels = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None


@dataclass(frozen=True)
class Topology:
    """The levels of a topology, as labels of nodes, coarsest first."""

    name: str
    levels: tuple[str, ...]


class Preference(Enum):
    """What a flavour search without a fit prefers."""

    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


class Stop(Enum):
    """Whether a queue is stopped: new workloads wait, and with draining, running ones are evicted too."""

    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


@dataclass(frozen=True)
class ClusterQueue:
    """A queue with quotas and its rules of preemption.

    The flavours of `quotas` are tried in order. With `borrow_preempts_lower` a workload that borrows may preempt
    others of lower priority, at most `borrow_max_priority` if set. Each of `groups` lists resources that share one
    flavour; without groups, resources with the same flavours do. Workloads come from namespaces whose labels meet the
    term `namespaces` (None: from none). `checks` lists admission checks, each with the flavours that it is for (empty:
    all). With `by_usage` admission fair sharing orders the queue.
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
    preference: Preference = Preference.BORROWING
    groups: tuple[tuple[str, ...], ...] = ()
    namespaces: Term | None = ()
    checks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stop: Stop = Stop.NONE
    by_usage: bool = False


@dataclass(frozen=True)
class LocalQueue:
    """A queue of a namespace, from which workloads reach a cluster queue."""

    namespace: str
    name: str
    queue: str
    weight: float = 1.0
    stop: Stop = Stop.NONE


@dataclass(frozen=True)
class AdmissionCheck:
    """A second phase of admission: a workload with quota starts when the check is ready, `delay_s` later.

    If a check `provisions` nodes, pods are placed only when it is ready.
    """

    name: str
    delay_s: float = 0.0
    active: bool = True
    provisions: bool = False


@dataclass(frozen=True)
class Slice:
    """Pods that stay together: `size` of them within one domain of a level."""

    level: str
    size: int


@dataclass(frozen=True)
class TopologyRequest:
    """How to place the pods of a set: all in one domain of `level`, preferably so, or anywhere; in slices.

    `slices` lists layers from the outermost to the innermost. Source: Kueue, topology-aware scheduling.
    """

    kind: Literal["required", "preferred", "unconstrained"]
    level: str = ""
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True)
class PodSet:
    """Pods of one shape: their number (at least `min_count` under partial admission) and the request of each.

    Sets with the same `group` get the same flavours and are placed together.
    """

    name: str = "main"
    count: int = 1
    requests: Mapping[str, int] = field(default_factory=dict)
    min_count: int | None = None
    where: Constraints = ANYWHERE
    topology: TopologyRequest | None = None
    group: str = ""

    @property
    def key(self) -> Hashable:
        """Return a key shared by pod sets that are treated alike."""
        asked = tuple(sorted(self.requests.items()))
        return (self.name, self.count, self.min_count, asked, self.where, self.topology, self.group)

    def total(self, resource: str) -> int:
        """Return what all pods together request of a resource."""
        return self.count * self.requests.get(resource, 0)


@dataclass(frozen=True)
class Asking:
    """A pending workload: its pod sets and its state in the queue.

    `flavours` are those with suitable nodes (None: all). `created_s` orders the queue. `invalid` is the reason why the
    workload can never be admitted (limits of its namespace). `replaces` names the admitted workload of which this is a
    larger or smaller slice; an `elastic` workload may get such slices. If `gated`, it may not preempt. `place` holds
    what else determines the places of its pods, `ready_s` the seconds until they are ready (None: as configured).
    """

    id: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    created_s: float = 0.0
    flavours: frozenset[str] | None = None
    namespace: str = ""
    local_queue: str = ""
    invalid: str = ""
    replaces: str = ""
    gated: bool = False
    elastic: bool = False
    place: Hashable = None
    ready_s: float | None = None


@dataclass(frozen=True)
class AdmissionFairSharing:
    """How past usage orders local queues: its half-life, its sampling interval, and weights of resources."""

    half_life_s: float
    sampling_s: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PodsReady:
    """What happens until the pods of an admitted workload are ready, which takes `ready_s` (`waitForPodsReady`).

    If it `blocks`, nothing else is admitted until then. A workload whose pods find no room within `timeout_s` is
    evicted and waits again after `backoff_s`, twice as long each time up to `backoff_most_s`, and after more than
    `backoff_limit` evictions never (None: no limit); `by_eviction`, the last eviction orders it in its queue.
    """

    ready_s: float = 0.0
    blocks: bool = False
    timeout_s: float = 1800.0
    backoff_s: float = 60.0
    backoff_most_s: float = 3600.0
    backoff_limit: int | None = None
    by_eviction: bool = True


@dataclass(frozen=True)
class Setup:
    """Everything that an administrator declares for one Kueue.

    `flavours` None means flavours of any name, without labels and taints. `namespaces` are labels by name.
    `strategies` are those of fair sharing in Kueue's words, None if it is off. With `ignore_undeclared` resources
    that no group of a queue covers are not checked.
    """

    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    flavours: Mapping[str, ResourceFlavor] | None = None
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    checks: Mapping[str, AdmissionCheck] = field(default_factory=dict)
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    strategies: tuple[str, ...] | None = None
    fair_admission: AdmissionFairSharing | None = None
    ignore_undeclared: bool = False
    gates: Mapping[str, bool] = field(default_factory=lambda: DEFAULTS)
    pods_ready: PodsReady | None = None


class Rule(Enum):
    """When a preemptor may take from another queue, in Kueue's words."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"


#: Both rules, the first before the second.
BOTH = (Rule.FINAL_SHARE, Rule.INITIAL_SHARE)


@dataclass(frozen=True)
class Assigned:
    """What a pod set holds: the number of pods, their total request, and the flavour of each resource.

    `places` are the places of the pods if a topology places them, each with the request `pod`.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    flavours: Mapping[str, str]
    places: Places | None = None
    pod: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """How cycles assign flavours, orders workloads and preempts: by priority, or for fair sharing.

    `queue_usage` returns the decayed usage of a pending workload's local queue (admission fair sharing), None if that
    is off. `flavours` None means flavours of any name without labels, `namespaces` None any namespace.
    """

    fair_sharing: bool = False
    strategies: Sequence[Rule] = BOTH
    queue_usage: Callable[[Asking], float] | None = None
    flavours: Mapping[str, ResourceFlavor] | None = None
    namespaces: Mapping[str, Labels] | None = None
    ignore_undeclared: bool = False
    gates: Mapping[str, bool] = field(default_factory=lambda: DEFAULTS)
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    checks: Mapping[str, AdmissionCheck] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """A workload as quota sees it: its queue, priority and the amounts that it holds or asks for.

    `created_s` orders the queue; `admitted_s` is when quota was reserved. `local_queue_usage` is the decayed usage of
    the user's queue under admission fair sharing.
    """

    id: str
    queue: str
    usage: Amounts = field(default_factory=dict)
    priority: int = 0
    created_s: float = 0.0
    admitted_s: float = 0.0
    evicted: bool = False
    local_queue_usage: float = 0.0
    assigned: tuple[Assigned, ...] = ()


@dataclass(frozen=True)
class Incoming:
    """A workload that asks to be admitted; `contested` are the flavours and resources that need preemption.

    `has_place` says whether its pods find a place in their topology now, None if no topology places them.
    """

    workload: Workload
    contested: frozenset[FlavourResource]
    has_place: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Victim:
    """A workload to be preempted and why."""

    workload: Workload
    reason: Reason
