"""The nodes on which a job wants its GPUs, and the pods of which it consists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from simsched.words import counted

#: Thousandths in a whole GPU.
GPU_MILLI = 1000


def models_of(gpu_spec: str) -> frozenset[str]:
    """Return the models in a text, separated by |; empty for an empty text."""
    return frozenset(name.strip() for name in gpu_spec.split("|") if name.strip())


@dataclass(frozen=True)
class Pod:
    """The request of a pod: thousandths of cores, MiB, and `gpu_milli` / 1000 of each of `num_gpus` GPUs.

    `gpu_spec` names the models that it accepts, separated by |; any if it is empty.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpus: int
    gpu_milli: int
    gpu_spec: str = ""

    @property
    def total_milli(self) -> int:
        """Return the thousandths of GPUs that it asks for in total."""
        return self.num_gpus * self.gpu_milli

    @property
    def gpu_models(self) -> frozenset[str]:
        """Return the models that it accepts; empty means any."""
        return models_of(self.gpu_spec)

    @property
    def shares(self) -> bool:
        """Return whether it wants a fraction of one GPU."""
        return self.num_gpus == 1 and self.gpu_milli < GPU_MILLI


Request = TypeVar("Request", bound=Hashable)

#: The amount by which parts may exceed a whole GPU, since sums of decimal fractions are inexact.
SLACK = 1e-9
#: The share of all requests that the usual ones cover.
COVERED = 0.95


def usual_requests(counts: Counter[Request], covered: float = COVERED) -> list[tuple[Request, float]]:
    """Return the most frequent requests that cover the share `covered`, each with its share; shares add up to 1.

    Ties go to the request counted first. Source: Weng et al., "Beware of Fragmentation" (ATC'23), section 3, the
    classes of its target workload.
    """
    total, seen, kept = counts.total(), 0, []
    for request, count in counts.most_common():
        kept.append((request, count))
        seen += count
        if seen >= covered * total:
            break
    return [(request, count / seen) for request, count in kept]


class Amount(NamedTuple):
    """The amount wanted of a node: GPUs, thousandths of each of them, thousandths of cores, and memory in MiB."""

    gpus: int
    gpu_milli: int = GPU_MILLI
    cpu_milli: int = 0
    memory_mib: int = 0


#: A whole GPU and nothing else.
_WHOLE = Amount(1)


class NodeShape(NamedTuple):
    """`nodes` nodes of one type with the amount `each` on every one; with 0 nodes, `each` in total on any nodes.

    `gpu_types` are those allowed (None: any); all nodes are in one domain of the level `within`, counted from 0, the
    lowest above the nodes (None: anywhere). An `exclusive` job shares its nodes with no other.
    """

    nodes: int
    each: Amount
    gpu_types: tuple[str, ...] | None = None
    within: int | None = None
    exclusive: bool = False

    @property
    def binds(self) -> bool:
        """Return whether it restricts more than the number and the types of GPUs."""
        return bool(self.nodes or self.each[1:] != _WHOLE[1:] or self.within is not None or self.exclusive)

    @property
    def said(self) -> str:
        """Describe in words what it wants."""
        each = self.each
        parts = [counted(each.gpus, "GPU")]
        parts += [f"{each.cpu_milli / 1000:g} cores"] if each.cpu_milli else []
        parts += [f"{each.memory_mib} MiB"] if each.memory_mib else []
        types = f" of type {' or '.join(self.gpu_types)}" if self.gpu_types is not None else ""
        on = f" on each of {counted(self.nodes, 'node')}" if self.nodes else ""
        return f"{', '.join(parts)}{on}{types}{', to itself' if self.exclusive else ''}"

    def beside(self, gpus: int) -> tuple[int, int]:
        """Return the thousandths of cores and the MiB for `gpus` of its GPUs on a node, rounded up."""
        each, whole = self.each, self.each.gpus
        if not whole:
            return each.cpu_milli, each.memory_mib
        return -(-each.cpu_milli * gpus // whole), -(-each.memory_mib * gpus // whole)

    def is_like(self, gpus: tuple[int, ...]) -> bool:
        """Return whether nodes with these GPUs have the shape; a node may hold several parts of it."""
        whole = self.each.gpus
        if not self.nodes:
            return sum(gpus) == whole
        if not whole:
            return len(gpus) == self.nodes and not any(gpus)
        return sum(gpus) == self.nodes * whole and not any(one % whole for one in gpus)


def node_labels(types: Iterable[str]) -> list[str]:
    """Name nodes, given by their GPU types in order, as `Terms.held_nodes` does: a100:0, a100:1, t4:0."""
    counts: Counter[str] = Counter()
    found = []
    for kind in types:
        found.append(f"{kind}:{counts[kind]}")
        counts[kind] += 1
    return found


class Terms(NamedTuple):
    """Conditions for the start of a job besides room: its reservation, and the jobs that must end before it.

    At most `group_limit` jobs of its group (a job array) run at once (0: all); `licences` are names and counts. On
    submission it had waited `waited_s` seconds; a job that runs when a replay starts held `held_nodes`, named as by
    `node_labels`.
    """

    reservation: str = ""
    after: tuple[str, ...] = ()
    group_limit: int = 0
    licences: tuple[tuple[str, int], ...] = ()
    waited_s: int = 0
    held_nodes: tuple[str, ...] = ()
