"""Tiresias' queues: by attained service, by the Gittins index within them, and with placement by skew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.validation.oracles.queues.loop import Job, Now, fitting
from tests.validation.oracles.queues.rules import gittins


class EveryInterval:
    """The variant that Pollux compares with: queues examined once an interval, each in the order of entry."""

    def __init__(self, gpus: int, limits: Sequence[int], interval: int) -> None:
        self.gpus, self.limits, self.interval = gpus, limits, interval
        self.queues: list[list[Job]] = [[] for _ in range(len(limits) + 1)]
        self.new: list[Job] = []

    def __call__(self, now: Now) -> Iterable[Job] | None:
        self.new += now.arrived
        if now.time == 0 or now.time % self.interval:
            return None
        self.queues = [[job for job in queue if job.end is None] for queue in self.queues]
        self.queues[0] += self.new
        self.new = []
        old = {job: level for level, queue in enumerate(self.queues) for job in queue}
        for job in now.active:  # in order of arrival
            level = sum(job.attained >= limit for limit in self.limits)
            if level > old[job]:
                self.queues[old[job]].remove(job)
                self.queues[level].append(job)
        return fitting([job for queue in self.queues for job in queue], self.gpus)


class OnEvents:
    """The paper's: decided when a job arrives, ends, or attains a limit or a point at which it is ranked anew.

    `samples` make it Tiresias-G, whose queues but the last are in the order of the index; else it is Tiresias-L.
    """

    def __init__(self, gpus: int, limits: Sequence[int], samples: Sequence[int] = (), ranks: int = 1) -> None:
        self.gpus, self.limits, self.samples = gpus, list(limits), samples
        self.points: list[int] = [0]
        for low, high in zip([0, *limits], limits, strict=False):
            self.points += [low + round((high - low) * (i / ranks) ** 2) for i in range(1, ranks)] + [high]
        self.points = sorted(set(self.points))

    def __call__(self, now: Now) -> Iterable[Job] | None:
        crossed = any(
            job.attained >= point > job.attained - job.gpus
            for job in now.active
            if job.running and job.attained
            for point in self.points
        )
        if not (now.happened or crossed):
            return None
        return self.choose(sorted(now.active, key=self.key))

    def choose(self, order: list[Job]) -> Iterable[Job]:
        return fitting(order, self.gpus)

    def key(self, job: Job) -> tuple[float, ...]:
        level = sum(job.attained >= limit for limit in self.limits)
        index = 0.0
        if self.samples and level < len(self.limits):
            point = max(point for point in self.points if point <= job.attained)
            index = gittins(self.samples, point, self.limits[level])
        started = job.first_start is not None
        return (level, -index, not started, job.first_start if started else job.submit)  # type: ignore[return-value]


class BySkew(OnEvents):
    """Tiresias-L that places skewed models on as few nodes as can be, and the others into fragments, preempting."""

    def __init__(self, nodes: int, size: int, limits: Sequence[int]) -> None:
        super().__init__(nodes * size, limits)
        self.nodes, self.size = nodes, size

    def choose(self, order: list[Job]) -> Iterable[Job]:
        runs = [job for job in order if job.running]
        yielded: list[Job] = []
        for place, job in enumerate(order):
            if job in runs:
                continue
            free = self.free(runs)
            if job in yielded:
                if all(free[node] >= gpus for node, gpus in (job.nodes or {}).items()):
                    runs.append(job)
                    continue
                found = self.placed(job, free)
            else:
                less_urgent = [other for other in reversed(order[place + 1 :]) if other in runs]
                found = self.cleared(job, less_urgent, runs, yielded)
            if found:
                if job.running:
                    job.running = False  # it moves, which is another start
                job.nodes = found
                runs.append(job)
        return runs

    def cleared(self, job: Job, less_urgent: list[Job], runs: list[Job], yielded: list[Job]) -> dict[int, int] | None:
        """Place a job, on what the least urgent free in number, else on what all less urgent ones could free."""
        missing = job.gpus - sum(self.free(runs))
        if missing > sum(other.gpus for other in less_urgent):
            return None
        while missing > 0:
            missing -= less_urgent[0].gpus
            yielded.append(less_urgent[0])
            runs.remove(less_urgent.pop(0))
        found = self.placed(job, self.free(runs))
        if found:
            return found
        found = self.placed(job, self.free([other for other in runs if other not in less_urgent]))
        for other in less_urgent if found else ():
            free = self.free(runs)
            if any(free[node] < found[node] and node in (other.nodes or {}) for node in found):  # type: ignore[index]
                runs.remove(other)
                yielded.append(other)
        return found

    def free(self, runs: Iterable[Job]) -> list[int]:
        held = [0] * self.nodes
        for job in runs:
            for node, gpus in (job.nodes or {}).items():
                held[node] += gpus
        return [self.size - gpus for gpus in held]

    def placed(self, job: Job, free: list[int]) -> dict[int, int] | None:
        if sum(free) < job.gpus:
            return None
        return self.together(job.gpus, free) if job.skewed else self.scattered(job.gpus, free)

    def together(self, gpus: int, free: list[int]) -> dict[int, int] | None:
        """As few nodes as an empty cluster would need, the last of them the fullest that will do."""
        fullest_last = sorted(range(self.nodes), key=lambda node: (-free[node], node))
        whole = fullest_last[: (gpus - 1) // self.size]
        left = gpus - sum(free[node] for node in whole)
        rest = [node for node in range(self.nodes) if node not in whole and free[node] >= left]
        if not rest:
            return None
        last = min(rest, key=lambda node: (free[node], node))
        return {**{node: free[node] for node in whole}, last: left}

    def scattered(self, gpus: int, free: list[int]) -> dict[int, int]:
        """A node with just so many free, else the nodes with the fewest free first."""
        exact = [node for node in range(self.nodes) if free[node] == gpus]
        if exact:
            return {exact[0]: gpus}
        found = {}
        for node in sorted((node for node in range(self.nodes) if free[node]), key=lambda node: (free[node], node)):
            found[node] = min(free[node], gpus)
            gpus -= found[node]
            if not gpus:
                break
        return found
