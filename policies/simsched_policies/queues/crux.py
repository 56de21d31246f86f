"""Crux: the jobs with the most GPU computation per second of communication communicate first.

Source: Crux (SIGCOMM'24), section 4. The intensity of a job is its computation divided by the time that its traffic
takes on the slowest link. In order of decreasing intensity each job gets, at each level, the path whose uplinks are
least busy with earlier jobs; if jobs still share an uplink, the one of higher intensity is served first. Priority
levels are few: a job gets the level after those of higher intensity that it meets, up to the last, which the rest
share.

Deviations: how busy a job keeps an uplink is the share of its steps that wait for it, as if it were alone. The factor
that favours short steps and little overlap is not published as a formula and is left out; only exposed traffic counts.
Jobs start first come, first served.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Cluster
from simsched.model.topology import Route, site_of
from simsched.policy import Decision, JobView, Place, Traits, View
from simsched.policy.signals import PLANS
from simsched_policies.queues.by_key import Fifo

#: The priority of a job's communication (0 is the highest), and its path at each level.
_Route = tuple[int, tuple[int, ...]]


@dataclass
class Crux(Fifo):
    """Starts jobs as `fifo` does, and gives those on uplinks their paths and one of `most_levels` by intensity."""

    name: ClassVar[str] = "crux"
    traits: ClassVar[Traits] = Traits(needs={PLANS})

    most_levels: int = 8
    _cluster: Cluster | None = field(default=None, init=False, repr=False)
    _routes: dict[str, _Route] = field(default_factory=dict, init=False, repr=False)

    def begin(self, cluster: Cluster) -> None:
        """Record the uplinks."""
        self._cluster = cluster

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the longest-waiting jobs, and route all running jobs over their shared uplinks."""
        decision = super().decide(view, rng)
        cluster = self._cluster
        if cluster is None or not cluster.tiered or (not decision.jobs and not view.finished and not view.lost):
            return decision
        held = {job.id: job.allocation for job in view.jobs.values() if job.running} | decision.allocations
        routes = self._routed({view.jobs[job_id]: at for job_id, at in held.items() if at}, cluster)
        known, self._routes = self._routes, routes
        jobs = dict(decision.jobs)
        for job_id, (level, paths) in routes.items():
            if job_id in jobs or known.get(job_id) != (level, paths):
                jobs[job_id] = Place(held[job_id], more=(Route(level, paths),))
        return decision._replace(jobs=jobs)

    def _routed(self, held: dict[JobView, Allocation], cluster: Cluster) -> dict[str, _Route]:
        """Return the paths of each job, and its level: after all jobs of higher intensity that share an uplink."""
        used: dict[Hashable, int] = {}
        busy: dict[Hashable, float] = {}
        routes: dict[str, _Route] = {}
        traffic = [(_traffic(job, at, cluster), job, at) for job, at in held.items()]
        for (_, waits), job, at in sorted(traffic, key=lambda one: -one[0][0]):
            links: list[Hashable] = [("node", node) for node, _ in at] if len(at) > 1 else []
            paths = []
            for level, uplinks in zip(cluster.levels, _uplinks(at, cluster), strict=True):
                path = _least_busy(uplinks, busy)
                busy |= {one: busy.get(one, 0.0) + waits.get(level.name, 0.0) for one in uplinks[path]}
                links += uplinks[path]
                paths.append(path)
            urgency = min(max((used.get(link, 0) for link in links), default=0), self.most_levels - 1)
            used |= dict.fromkeys(links, urgency + 1)
            routes[job.id] = urgency, tuple(paths)
        return routes


def _uplinks(at: Allocation, cluster: Cluster) -> Iterator[list[tuple[Hashable, ...]]]:
    """Yield for each level the uplinks that an allocation crosses on each path, none within one domain."""
    for place, level in enumerate(cluster.levels):
        by_path = [cluster.uplinks(at, place, path) for path in range(level.paths)]
        yield [links if len(links) > 1 else () for links in by_path]


def _least_busy(uplinks: Sequence[Sequence[Hashable]], busy: Mapping[Hashable, float]) -> int:
    """Return the path whose busiest uplink has the most idle time; ties go to the first."""
    most = [max((busy.get(one, 0.0) for one in path), default=0.0) for path in uplinks]
    return most.index(min(most))


def _traffic(job: JobView, at: Allocation, cluster: Cluster) -> tuple[float, dict[str, float]]:
    """Return a job's intensity, and the share of its steps that wait for the uplinks of each level.

    The intensity is the GPU-seconds of computation for each second that a step waits for its slowest uplink.
    """
    plans = job[PLANS]
    if plans is None:
        return 0.0, {}
    site, batch, asked = site_of(cluster, at), job.request.batch_size, job.request.plan
    fits = asked is not None and asked.gpus == site.gpus
    parts = plans.parts(asked, site, batch) if asked is not None and fits else plans.best(site, batch).parts
    names = [one.name for one in cluster.within] + [one.name for one in cluster.levels if one.uplink is not None]
    waits = {name: seconds / parts.total for name, seconds in zip(names, parts.across, strict=True)}
    most = max(parts.across, default=0.0)
    return (float(site.gpus * parts.compute / most) if most else inf), waits
