"""AntMan in Muri's artifact: gangs that reserve GPUs, and opportunistic jobs in their gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simsched.model import Allocation, Cluster
from simsched.model.colocation import gap_turns
from simsched.policy import Place

from .books import TOLERANCE_S, Account, Artifact, Jobs

#: What a job adds to the utilisation of its GPUs; a GPU above the last may not take an opportunistic job. A guaranteed
#: job adds all but the drift when it reserves a GPU, and the drift when it has all: the rounding decides ties later.
_GUARANTEED, _OPPORTUNISTIC, _DRIFT, _BUSY = 0.1, 0.9, 0.01, 0.8

Gpu = tuple[int, int]


class Gpus:
    """The holder and utilisation of each GPU, in node order."""

    def __init__(self, nodes: Sequence[int]) -> None:
        """Start with empty nodes of this many GPUs."""
        self._of_node = [[(node, gpu) for gpu in range(gpus)] for node, gpus in enumerate(nodes)]
        self.holders: dict[Gpu, list[Account]] = {gpu: [] for node in self._of_node for gpu in node}
        self.held: dict[Account, list[Gpu]] = {}
        self._utilisation = dict.fromkeys(self.holders, 0.0)
        self._open = [list(gpus) for gpus in self._of_node]

    def open_to_guaranteed(self, node: int) -> list[Gpu]:
        """List the GPUs of a node that no guaranteed job holds."""
        return self._open[node]

    def idle(self) -> list[Gpu]:
        """List the GPUs that an opportunistic job may take, the least utilised first."""
        free = [gpu for gpu, use in self._utilisation.items() if use < _BUSY]
        return sorted(free, key=self._utilisation.__getitem__)

    def take(self, account: Account, gpus: Sequence[Gpu], utilisation: float) -> None:
        """Give a job GPUs, or reserve them."""
        for gpu in gpus:
            self.holders[gpu].append(account)
            self._utilisation[gpu] += utilisation
        self.held.setdefault(account, []).extend(gpus)
        self._reopen(gpus)

    def complete(self, account: Account) -> None:
        """Record that a guaranteed job has all its GPUs."""
        for gpu in self.held[account]:
            self._utilisation[gpu] += _DRIFT

    def release(self, account: Account) -> None:
        """Release a job's GPUs."""
        gpus = self.held.pop(account)
        for gpu in gpus:
            self.holders[gpu].remove(account)
            self._utilisation[gpu] -= _GUARANTEED if account.request.guaranteed else _OPPORTUNISTIC
        self._reopen(gpus)

    def _reopen(self, gpus: Sequence[Gpu]) -> None:
        for node in sorted({node for node, _ in gpus}):
            taken = {gpu for gpu in self._of_node[node] if any(a.request.guaranteed for a in self.holders[gpu])}
            self._open[node] = [gpu for gpu in self._of_node[node] if gpu not in taken]


class AntMan(Artifact):
    """Jobs are placed in the order of class, submission and row, and never preempted."""

    name: ClassVar[str] = "muri-artifact-antman"
    together_s: ClassVar[float] = TOLERANCE_S

    def begin(self, cluster: Cluster) -> None:
        """Start with empty GPUs."""
        super().begin(cluster)
        self._gpus = Gpus(self._nodes)
        self._pending: list[Account] = []

    def schedule(self, arrived: Sequence[Account], ended: Sequence[Account], now_s: float) -> Jobs:
        """Place the jobs that fit; opportunistic jobs run as fast as their current neighbours allow."""
        for account in ended:
            self._gpus.release(account)
        self._pending = sorted([*self._pending, *arrived], key=_rank)
        # Jobs continue in order of start: the first of two ends gives the time of both.
        before = [account for account in self._active if account.running]
        started = [account for account in self._pending if self._place(account)]
        for account in started:
            account.run(now_s, account.iteration_s, account.overhead_s)
        self._pending = [account for account in self._pending if not account.running]
        self._active = [*before, *started, *self._pending]
        for account in [*before, *started]:
            account.now_iteration_s = self._iteration_s(account)
        running = {account.request.id: account for account in [*before, *started]}
        jobs: Jobs = {job_id: self._allocation(one) for job_id, one in running.items()}
        for account in started:
            guaranteed = account.request.guaranteed
            beside = [job_id for job_id, other in running.items() if other.request.guaranteed != guaranteed]
            jobs[account.request.id] = Place(self._allocation(account), beside)
        return jobs

    def _allocation(self, account: Account) -> Allocation:
        counts: dict[int, int] = {}
        for node, _ in self._gpus.held[account]:
            counts[node] = counts.get(node, 0) + 1
        return tuple(counts.items())

    def _place(self, account: Account) -> bool:
        gpus = self._gpus
        if not account.request.guaranteed:
            idle = gpus.idle()[: account.gpus]
            if len(idle) == account.gpus:
                gpus.take(account, idle, _OPPORTUNISTIC)
            return len(idle) == account.gpus
        if account.gpus <= max(self._nodes):
            self._reserve_on_one_node(account)
        else:
            self._reserve_nodes(account)
        complete = len(gpus.held.get(account, ())) == account.gpus
        if complete:
            gpus.complete(account)
        return complete

    def _reserve_on_one_node(self, account: Account) -> None:
        """Take GPUs of the first node with enough, otherwise all of the one with most, permanently."""
        gpus, held = self._gpus, self._gpus.held.get(account, [])
        if held:
            node = held[0][0]
        else:
            free = [len(gpus.open_to_guaranteed(node)) for node in range(len(self._nodes))]
            node = next((node for node, count in enumerate(free) if count >= account.gpus), free.index(max(free)))
        taken = gpus.open_to_guaranteed(node)[: account.gpus - len(held)]
        if taken:
            gpus.take(account, taken, _GUARANTEED - _DRIFT)

    def _reserve_nodes(self, account: Account) -> None:
        for node, size in enumerate(self._nodes):
            free = self._gpus.open_to_guaranteed(node)
            missing = account.gpus - len(self._gpus.held.get(account, ()))
            if len(free) == size and missing > 0:
                self._gpus.take(account, free[:missing], _GUARANTEED - _DRIFT)

    def _iteration_s(self, account: Account) -> float:
        """Compute the seconds of an iteration, limited by the slowest GPU given its neighbours."""
        longest_s = account.iteration_s
        if account.request.guaranteed:
            return longest_s
        near = {other: None for gpu in self._gpus.held[account] for other in self._gpus.holders[gpu]}
        for other in near:
            if other is account:
                continue
            if not other.request.guaranteed:
                longest_s = max(longest_s, 2 * account.iteration_s)
            elif other.running:
                longest_s = max(longest_s, gap_turns(account.stages_s, other.stages_s) * other.iteration_s)
        return longest_s


def _rank(account: Account) -> tuple[bool, float, int]:
    return not account.request.guaranteed, account.request.submit_time_s, account.index
