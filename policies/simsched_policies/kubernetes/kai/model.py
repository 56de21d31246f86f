"""Queues, jobs, pods and nodes of a snapshot, and the rules that an administrator sets.

Source: KAI-Scheduler, Queue (scheduling.run.ai/v2), PodGroup (v2alpha2), and the configuration of its scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

#: The resources that queues count, in the order of `Amounts`: millicores, 10^6 bytes, GPUs.
RESOURCES: Final = ("cpu", "memory", "gpu")
CPU, MEMORY, GPU = range(3)
Amounts = tuple[float, float, float]
NOTHING: Final[Amounts] = (0.0, 0.0, 0.0)
#: The value of an unlimited quota or limit.
UNLIMITED: Final = -1.0
SLACK: Final = 1e-6

#: Priorities of the classes that KAI ships; below "build", a job is preemptible by default.
PRIORITIES: Final[Mapping[str, int]] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
DEFAULT_QUEUE_PRIORITY: Final = 100


def plus(one: Amounts, other: Amounts, times: float = 1.0) -> Amounts:
    """Add `times` another amount to one."""
    return (one[0] + times * other[0], one[1] + times * other[1], one[2] + times * other[2])


def exceeds(amount: float, bound: float) -> bool:
    """Return whether an amount is above a bound, which may be unlimited."""
    return bound != UNLIMITED and amount > bound + SLACK


def within(amounts: Amounts, bounds: Amounts) -> bool:
    """Return whether no amount is above its bound."""
    return not any(map(exceeds, amounts, bounds))


def preemptible_by_priority(priority: int) -> bool:
    """Return whether a job is preemptible by default."""
    return priority < PRIORITIES["build"]


@dataclass(frozen=True)
class Quota:
    """What a queue has of one resource: `quota` is deserved, `limit` is the maximum; -1 is unlimited for both."""

    quota: float = 0.0
    limit: float = 0.0
    weight: float = 0.0


#: The quota of a resource that a queue does not restrict.
FREE: Final = Quota(UNLIMITED, UNLIMITED, 1.0)


@dataclass(frozen=True)
class Queue:
    """A queue; only those without children take jobs. `quotas` are in the order of `RESOURCES`."""

    name: str
    parent: str | None = None
    quotas: tuple[Quota, Quota, Quota] = (FREE, FREE, FREE)
    priority: int = DEFAULT_QUEUE_PRIORITY
    created_s: float = 0.0
    preempt_min_runtime_s: float | None = None
    reclaim_min_runtime_s: float | None = None


@dataclass(frozen=True)
class Ask:
    """What a pod asks for: whole GPUs, or a `portion` or `gpu_memory` (in the unit of the nodes) of each of `gpus`.

    `mig` are instances by profile, such as ("1g.5gb", 2).
    """

    cpu_milli: float = 0.0
    memory_mb: float = 0.0
    gpus: int = 0
    portion: float = 1.0
    gpu_memory: float = 0.0
    mig: tuple[tuple[str, int], ...] = ()

    @property
    def shared(self) -> bool:
        """Whether it asks for parts of GPUs."""
        return self.gpus > 0 and (self.portion < 1 or self.gpu_memory > 0)

    def amounts(self, smallest_gpu_memory: float) -> Amounts:
        """Return what queues count; GPU memory counts as a fraction of the smallest GPU of the cluster."""
        part = self.gpu_memory / smallest_gpu_memory if self.gpu_memory else self.portion
        of_mig = sum(mig_gpus(profile) * number for profile, number in self.mig)
        return (self.cpu_milli, self.memory_mb, self.gpus * part + of_mig)


def mig_gpus(profile: str) -> int:
    """Return how many GPUs a MIG profile counts as: the 3 of 3g.20gb."""
    return int(profile.partition("g")[0])


@dataclass(frozen=True)
class Constraint:
    """Levels of a topology that a job, or a part of it, must not or preferably does not cross; empty for none."""

    topology: str
    required: str = ""
    preferred: str = ""


@dataclass(frozen=True)
class SubGroup:
    """A part of a job with its own minimum, inside the sub-group `parent` if given."""

    name: str
    min_member: int = 0
    parent: str = ""
    constraint: Constraint | None = None


@dataclass(frozen=True)
class Pod:
    """A pod; `leader` goes first in its sub-group, `nodes` are those that its selectors and tolerations allow."""

    id: str
    ask: Ask
    group: str = ""
    priority: int = 0
    leader: bool = False
    created_s: float = 0.0
    nodes: frozenset[str] | None = None


@dataclass(frozen=True)
class Job:
    """A pod group: it starts with `min_member` pods of each sub-group at once; beyond them it is elastic.

    Without `groups` it has one, of all its pods, with `min_member` (None: all of them).
    """

    id: str
    queue: str
    pods: tuple[Pod, ...]
    priority: float = PRIORITIES["train"]
    preemptible: bool = True
    min_member: int | None = None
    groups: tuple[SubGroup, ...] = ()
    constraint: Constraint | None = None
    created_s: float = 0.0
    started_s: float = 0.0
    #: Since when it has been running below its minimum; None if it is not.
    stale_since_s: float | None = None

    def leaves(self) -> tuple[SubGroup, ...]:
        """Return the sub-groups that hold pods."""
        if not self.groups:
            number = len(self.pods) if self.min_member is None else self.min_member
            return (SubGroup("", number),)
        parents = {group.parent for group in self.groups}
        return tuple(group for group in self.groups if group.name not in parents)


@dataclass(frozen=True)
class Node:
    """A node with its allocatable resources; `gpu_memory` is that of each GPU."""

    name: str
    gpus: int = 0
    cpu_milli: float = 20_000.0
    memory_mb: float = 20_000.0
    gpu_memory: float = 100.0
    mig: tuple[tuple[str, int], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """Where a pod is: `devices` name the GPUs that it shares; a `releasing` pod is terminating."""

    node: str
    devices: tuple[str, ...] = ()
    releasing: bool = False


Action = Literal["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
ACTIONS: Final[tuple[Action, ...]] = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")


@dataclass(frozen=True)
class Rules:
    """The configuration of the scheduler, with KAI's defaults."""

    actions: tuple[Action, ...] = ACTIONS
    k_value: float = 1.0
    max_consolidation_preemptees: int = 16
    saturation_multiplier: float = 1.0
    reclaim_min_runtime_by: Literal["lca", "queue"] = "lca"
    staleness_grace_s: float = 60.0
    placement: Literal["binpack", "spread"] = "binpack"
    devices: Literal["pack", "spread"] = "pack"
    #: How many pods may share a GPU (0: as many as fit).
    max_per_device: int = 0
    skip_alike: bool = True


@dataclass(frozen=True)
class Snapshot:
    """The input of a round: `held` places the pods with nodes; `usage` is each queue's use over time, by resource."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...]
    held: Mapping[str, Held] = field(default_factory=dict)
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usage: Mapping[str, Amounts] = field(default_factory=dict)
    now_s: float = 0.0
    rules: Rules = field(default_factory=Rules)


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Add amounts up."""
    found = NOTHING
    for one in amounts:
        found = plus(found, one)
    return found
