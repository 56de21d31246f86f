"""Scaling out by throughput (or-elastic) and by utility, in plain loops that share nothing with engine and policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

#: Examples that a GPU takes in one iteration.
BATCH = 8


@dataclass(eq=False)
class Trainer:
    """A job that has examples left to see, on nodes of one GPU; `wants` nodes since a second."""

    submit: int
    work: int
    nodes: list[int] = field(default_factory=list)
    delay: int = 0
    wants: int = 1
    since: int | None = None
    measured: set[int] = field(default_factory=set)
    tried: list[int] = field(default_factory=list)
    final: bool = False
    end: float | None = None


@dataclass
class Cloud:
    """Nodes that are up, and when others will be."""

    nodes: int
    up: set[int]
    coming: dict[int, int] = field(default_factory=dict)


def grow_by_throughput(
    jobs: Sequence[Trainer],
    speed: Mapping[int, int],
    cloud: Cloud,
    *,
    interval: int,
    restart: int,
    start_delay: int,
    batches: int,
    threshold: float,
) -> list[float]:
    """Play or-elastic in steps of one node from one node; return the times at which the jobs end, in seconds."""
    time = 0
    while any(job.end is None for job in jobs):
        active = [job for job in jobs if job.submit <= time and job.end is None]
        asked = bool(time and time % interval == 0)
        while _joined(cloud, time) or asked:  # nodes without a delay join at once, and are another reason to decide
            asked = False
            if active:
                missing = _decide(active, speed, cloud, time, restart, batches, threshold)
                cloud.coming |= dict.fromkeys(missing, time + start_delay)
        for job in active:
            if job.nodes and job.delay:
                job.delay -= 1
            elif job.nodes:
                rate = speed[len(job.nodes)]
                job.measured.add(len(job.nodes))
                if job.work <= rate:
                    job.end, job.nodes = time + job.work / rate, []
                job.work -= rate
        time += 1
        assert time < 100_000, "the oracle makes no progress"
    return [job.end for job in jobs if job.end is not None]


def _joined(cloud: Cloud, time: int) -> bool:
    """Bring up the nodes that are due, and tell whether there are any."""
    due = {node for node, at in cloud.coming.items() if at <= time}
    cloud.up |= due
    cloud.coming = {node: at for node, at in cloud.coming.items() if node not in due}
    return bool(due)


def _decide(
    active: Sequence[Trainer],
    speed: Mapping[int, int],
    cloud: Cloud,
    time: int,
    restart: int,
    batches: int,
    threshold: float,
) -> list[int]:
    """Give jobs their nodes in order of arrival, let go of unwanted nodes, and list those to be asked for."""
    taken = {node for job in active for node in job.nodes}
    rest = sorted(set(range(cloud.nodes)) - taken, key=lambda node: (node not in cloud.up, node))
    wanted: set[int] = set()
    for job in active:
        if job.since is None:
            job.since = time
        room = len(job.nodes) + len(rest)
        held_s = restart + batches * BATCH * len(job.nodes) / speed[len(job.nodes)] if job.nodes else 0
        if not job.nodes or len(job.nodes) != min(job.wants, room):
            job.since = time
        elif not job.final and len(job.nodes) in job.measured and time - job.since >= held_s:
            _step(job, speed, room, threshold)
            job.since = time
        found = (job.nodes + rest)[: job.wants]
        rest = [node for node in rest if node not in found]
        if found and set(found) <= cloud.up and found != job.nodes:
            job.nodes, job.delay = found, restart
        wanted |= {*found, *job.nodes}
    cloud.up &= wanted
    cloud.coming = {node: at for node, at in cloud.coming.items() if node in wanted}
    return sorted(wanted - cloud.up - set(cloud.coming))


def _step(job: Trainer, speed: Mapping[int, int], room: int, threshold: float) -> None:
    """Take the last step back if it gained too little for its size, else make another."""
    now = len(job.nodes)
    if now not in job.tried:
        job.tried.append(now)
    if len(job.tried) > 1:
        before, after = job.tried[-2:]
        if (speed[after] - speed[before]) / (after - before) / (speed[before] / before) <= threshold:
            job.final, job.wants = True, max(now - 1, 1)
            return
    if now < room and now + 1 in speed:
        job.wants = now + 1


def size_by_utility(
    recent: Sequence[float],
    nodes: int,
    most: int,
    utility: Callable[[int], float],
    band: tuple[float, float, float],
    window: int,
    least: int,
) -> int:
    """Say how many nodes to provision: as many as now while the mean utility of the window lies in the band.

    Else, of all numbers above (below) it, the one whose utility is nearest to the target, the smaller on a tie; the
    number of now is among them.
    """
    low, target, high = band
    mean = sum(recent[-window:]) / window
    if len(recent) < window or low <= mean <= high:
        return nodes
    candidates = range(nodes, most + 1) if mean > high else range(least, nodes + 1)
    return min(candidates, key=lambda count: (abs(utility(count) - target), count), default=nodes)
