"""Tracks which jobs hold which GPU when GPUs can be shared.

A job gets the least shared GPUs, lowest index first; a GPU is free once its last holder leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from simsched.arithmetic import ordered_sum
from simsched.model import Allocation
from simsched.model.placement import SLACK


class Holders:
    """The holders of every GPU of a cluster, in order of arrival."""

    def __init__(self, gpus: Sequence[int], most: int) -> None:
        """Start with empty nodes of `gpus` GPUs each and at most `most` holders per GPU."""
        self.most = most
        #: The fraction a job takes of each of its GPUs, None without fractional GPUs.
        self.share_of: Callable[[str], float] | None = None
        self._holders: list[list[list[str]]] = [[[] for _ in range(count)] for count in gpus]
        #: GPU indices of each job, by node.
        self._gpus: dict[str, dict[int, list[int]]] = {}

    def copy_of(self, nodes: Collection[int]) -> Holders:
        """Return a copy in which `nodes` can change, to try out a decision."""
        twin = Holders((), self.most)
        twin.share_of = self.share_of
        touched = frozenset(nodes)
        twin._holders = [
            [list(gpu) for gpu in node] if index in touched else node for index, node in enumerate(self._holders)
        ]
        twin._gpus = {job_id: dict(gpus) for job_id, gpus in self._gpus.items() if not touched.isdisjoint(gpus)}
        return twin

    def take(self, job_id: str, allocation: Allocation, beside: Collection[str], onto: str | None = None) -> str | None:
        """Give a job free GPUs, those of jobs `beside` it or of job `onto`; return what is short, if anything."""
        if onto is not None:
            return self._take_those_of(onto, job_id, allocation)
        taken: dict[int, list[int]] = {}
        for node, count in allocation:
            shared = [gpu for gpu in range(len(self._holders[node])) if self._usable(node, gpu, beside)]
            usable = [gpu for gpu in shared if self._over(node, gpu, job_id) is None] if self.share_of else shared
            if len(usable) < count:
                free = sum(1 for gpu in usable if not self._holders[node][gpu])
                over = next((said for gpu in shared if (said := self._over(node, gpu, job_id))), "")
                also = f"; {over}" if over else ""
                return f"node {node} has {free} free GPUs and {len(usable) - free} to share, {count} are wanted{also}"
            usable.sort(key=lambda gpu, at=node: (len(self._holders[at][gpu]), gpu))  # type: ignore[misc]
            taken[node] = sorted(usable[:count])
        for node, gpus in taken.items():
            for gpu in gpus:
                self._holders[node][gpu].append(job_id)
        self._gpus[job_id] = taken
        return None

    def _take_those_of(self, other: str, job_id: str, allocation: Allocation) -> str | None:
        shared = self._gpus.get(other, {})
        if {node: len(gpus) for node, gpus in shared.items()} != dict(allocation):
            return f"it is to get the GPUs of job '{other}', which are others"
        for node, gpus in shared.items():
            for gpu in gpus:
                if len(self._holders[node][gpu]) >= self.most:
                    return f"GPU {gpu} of node {node} has {self.most} jobs already, and no more may share it"
                over = self._over(node, gpu, job_id)
                if over is not None:
                    return over
                self._holders[node][gpu].append(job_id)
        self._gpus[job_id] = dict(shared)
        return None

    def give_back(self, job_id: str) -> None:
        """Release a job's GPUs."""
        for node, gpus in self._gpus.pop(job_id, {}).items():
            for gpu in gpus:
                self._holders[node][gpu].remove(job_id)

    def free(self, node: int) -> int:
        """Return the number of unheld GPUs on a node."""
        return sum(1 for holders in self._holders[node] if not holders)

    def sharers(self, job_id: str) -> Iterator[Sequence[str]]:
        """Yield the holders of each GPU of a job, including the job."""
        for node, gpus in self._gpus.get(job_id, {}).items():
            for gpu in gpus:
                yield self._holders[node][gpu]

    def neighbours(self, job_id: str) -> tuple[str, ...]:
        """List the jobs that share a GPU with a job, in GPU order."""
        neighbours = dict.fromkeys(other for holders in self.sharers(job_id) for other in holders)
        neighbours.pop(job_id, None)
        return tuple(neighbours)

    def gpus(self, job_id: str) -> Mapping[int, Sequence[int]]:
        """Return the GPU indices of a job by node."""
        return self._gpus.get(job_id, {})

    def share(self, job_id: str) -> float:
        """Return a job's mean share of its GPUs, 1 without GPUs; without fractional GPUs, holders share equally."""
        if self.share_of is not None and job_id in self._gpus:
            return self.share_of(job_id)
        shares = [1 / len(holders) for holders in self.sharers(job_id)]
        return ordered_sum(shares) / len(shares) if shares else 1.0

    def most_on_a_gpu(self) -> int:
        """Return the largest number of holders of a GPU."""
        return max((len(holders) for node in self._holders for holders in node), default=0)

    def shares(self) -> Iterator[tuple[int, int, float]]:
        """Yield node, index and total share of each held GPU."""
        for node, gpus in enumerate(self._holders):
            for gpu, holders in enumerate(gpus):
                if holders and self.share_of is not None:
                    yield node, gpu, ordered_sum(map(self.share_of, holders))

    def _over(self, node: int, gpu: int, job_id: str) -> str | None:
        """Describe by how much a job's share would exceed a GPU, None if it fits."""
        if self.share_of is None:
            return None
        taken, wanted = ordered_sum(map(self.share_of, self._holders[node][gpu])), self.share_of(job_id)
        if taken + wanted <= 1 + SLACK:
            return None
        return f"{taken:g} of GPU {gpu} of node {node} is taken, and {wanted:g} is wanted"

    def _usable(self, node: int, gpu: int, beside: Collection[str]) -> bool:
        holders = self._holders[node][gpu]
        return len(holders) < self.most and all(holder in beside for holder in holders)
