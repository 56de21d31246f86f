"""What a cluster administrator declares about queues and quotas, and what a workload asks of them.

Amounts are whole numbers in the base unit of their resource: thousandths of a core for `cpu`, bytes for memory and
storage, pieces for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from simsched_policies.production.kueue.gates import DEFAULTS
from simsched_policies.production.kueue.matching import ANYWHERE, Constraints, Labels, Taint, Term, Toleration

#: A resource of one flavour, like ("a100", "gpu"): the unit in which quota is counted.
FlavourResource = tuple[str, str]
#: How many pods lie in a domain of a topology, by its values; the host alone where hosts are the lowest level.
Places = tuple[tuple[tuple[str, ...], int], ...]
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

    @property
    def rank(self) -> int:
        """Return a number that is higher the better."""
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
    """What a search for a flavour that ends without a fit puts first."""

    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


class Stop(Enum):
    """Whether a queue is stopped: new ones wait, and with draining running ones are evicted too."""

    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


@dataclass(frozen=True)
class ClusterQueue:
    """A queue with quotas and its rules of preemption.

    The flavours of `quotas` are tried in their order. With `borrow_preempts_lower` a workload that borrows may preempt
    others of lower priority, at most `borrow_max_priority` if set. Each of `groups` lists resources that take one
    flavour together; without any, those with the same flavours do. Workloads come from namespaces whose labels meet
    the term `namespaces` (None: from none). `checks` lists admission checks, each with the flavours that it is for
    (empty: all). With `by_usage` admission fair sharing orders the queue.
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

    A check that `provisions` nodes has its pods placed only when it is ready.
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
    """How the pods of a set are to lie: all in one domain of `level`, if possible so, or anywhere; in slices.

    `slices` lists layers from the outer to the inner. Source: Kueue, topology-aware scheduling.
    """

    kind: Literal["required", "preferred", "unconstrained"]
    level: str = ""
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True)
class PodSet:
    """Pods of one shape: how many (at least `min_count` under partial admission) and what each requests.

    Sets with the same `group` take the same flavours and lie together.
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
        """Return what pod sets have in common that fare alike."""
        asked = tuple(sorted(self.requests.items()))
        return (self.name, self.count, self.min_count, asked, self.where, self.topology, self.group)

    def total(self, resource: str) -> int:
        """Return what all pods together request of a resource."""
        return self.count * self.requests.get(resource, 0)


@dataclass(frozen=True)
class Asking:
    """A pending workload: its sets of pods, and how it stands in its queue.

    `flavours` are those whose nodes suit it (None: all). `created_s` orders the queue. `invalid` tells why the workload
    can never be admitted (limits of its namespace). `replaces` names the admitted workload of which this is a larger or
    smaller slice; an `elastic` workload may get such slices. Where `gated`, it may not preempt. `place` is what else
    decides where its pods go.
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


@dataclass(frozen=True)
class AdmissionFairSharing:
    """How past usage orders local queues: its half-life, how often it is sampled, and weights of resources."""

    half_life_s: float
    sampling_s: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """All that an administrator declares, as one Kueue reads it.

    `flavours` None stands for flavours without labels and taints under any name. `namespaces` are labels by name.
    `strategies` are those of fair sharing in Kueue's words, None where it is off. With `ignore_undeclared` resources
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


@dataclass(frozen=True)
class Assigned:
    """What a set of pods holds: how many pods, what they request together, and the flavour of each resource.

    `places` says where the pods lie where a topology places them, each pod with what `pod` requests.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    flavours: Mapping[str, str]
    places: Places | None = None
    pod: Mapping[str, int] = field(default_factory=dict)


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

    `has_place` says whether its pods find a place in their topology now, None where none places them.
    """

    workload: Workload
    contested: frozenset[FlavourResource]
    has_place: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Victim:
    """A workload to be preempted and why."""

    workload: Workload
    reason: Reason
