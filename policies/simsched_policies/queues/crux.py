"""Crux: jobs that keep the most GPUs busy for each second on the network communicate first.

Source: Crux (SIGCOMM'24), section 4. The intensity of a job is its computation divided by the time that its traffic
takes on the slowest link; where jobs meet on uplinks, the one of higher intensity is served first. Levels are few: a
job gets the level after those of higher intensity that it meets, up to the last, which the rest share.

Deviations: a domain has one uplink, so that there are no paths to choose among. The factor that favours short steps and
little overlap is not published as a formula and is left out; only exposed traffic counts. Which
jobs start is decided as first come, first served.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

import numpy as np

from simsched.model import Allocation, Cluster, site_of
from simsched.policy import PLANS, Decision, JobView, Place, Traits, View
from simsched_policies.queues.by_key import Fifo


@dataclass
class Crux(Fifo):
    """Starts jobs as `fifo` does, and gives each of those that meet on uplinks one of `most_levels` by intensity."""

    name: ClassVar[str] = "crux"
    traits: ClassVar[Traits] = Traits(needs={PLANS})

    most_levels: int = 8
    _cluster: Cluster | None = field(default=None, init=False, repr=False)
    _levels: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def begin(self, cluster: Cluster) -> None:
        """Learn which uplinks there are."""
        self._cluster = cluster

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the longest waiting, and rank all that run on the uplinks that they share."""
        decision = super().decide(view, rng)
        cluster = self._cluster
        if cluster is None or not cluster.tiered or (not decision.jobs and not view.finished and not view.lost):
            return decision
        held = {job.id: job.allocation for job in view.jobs.values() if job.running} | decision.allocations
        levels = self._ranked({view.jobs[job_id]: at for job_id, at in held.items() if at}, cluster)
        known, self._levels = self._levels, levels
        jobs = dict(decision.jobs)
        for job_id, level in levels.items():
            if job_id in jobs or known.get(job_id) != level:
                jobs[job_id] = Place(held[job_id], uplink_level=level)
        return decision._replace(jobs=jobs)

    def _ranked(self, held: dict[JobView, Allocation], cluster: Cluster) -> dict[str, int]:
        """Return the level of each job: after all jobs of higher intensity with which it shares an uplink."""
        used: dict[Hashable, int] = {}
        levels: dict[str, int] = {}
        order = sorted(held.items(), key=lambda pair: -_intensity(pair[0], pair[1], cluster))
        for job, at in order:
            links = _uplinks(at, cluster)
            level = min(max((used.get(link, 0) for link in links), default=0), self.most_levels - 1)
            used |= dict.fromkeys(links, level + 1)
            levels[job.id] = level
        return levels


def _intensity(job: JobView, at: Allocation, cluster: Cluster) -> float:
    """Return the GPU-seconds of computation for each second that a step waits for its slowest uplink."""
    plans = job[PLANS]
    if plans is None:
        return 0.0
    site, batch, asked = site_of(cluster, at), job.request.batch_size, job.request.plan
    fits = asked is not None and asked.gpus == site.gpus
    parts = plans.parts(asked, site, batch) if asked is not None and fits else plans.best(site, batch).parts
    waits = max(parts.across, default=0.0)
    return float(site.gpus * parts.compute / waits) if waits else inf


def _uplinks(at: Allocation, cluster: Cluster) -> set[Hashable]:
    """Return the uplinks that an allocation crosses: of its nodes, and of its domains at each level."""
    found: set[Hashable] = {("node", node) for node, _ in at} if len(at) > 1 else set()
    for place, level in enumerate(cluster.levels):
        domains = {cluster.nodes[node].domains[place] for node, _ in at}
        if level.uplink is not None and len(domains) > 1:
            found |= {(level.name, domain) for domain in domains}
    return found
