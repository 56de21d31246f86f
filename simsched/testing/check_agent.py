"""The conformance kit for agents, which pick the batches of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, AgentFactory, Measurement
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.errors import InputError
from simsched.model import BatchChoice, Cluster, JobSpec, Site
from simsched.model.application import facts_of
from simsched.model.fitted import FittedApplication
from simsched.model.topology import site_of
from simsched.plugins import parameters
from simsched.policy import Decision, Policy, Traits, View
from simsched.testing.builders import Applications, random_jobs, two_type_application
from simsched.testing.check_policy import Failure, expect, failures_of, same_global_randomness

#: Makes a fresh instance of the agents under test.
Maker = Callable[[], AgentFactory]

_CLUSTER = Cluster.uniform(2, 4)
#: Allocations of (node, GPUs) from one GPU to all of both nodes.
_PLACES = (((0, 1),), ((0, 2),), ((0, 4),), ((0, 1), (1, 1)), ((0, 4), (1, 4)))
_JOBS = 12
_BATCH = 64


def check_agent(make: Maker, *, seeds: int = 3) -> list[Failure]:
    """Run the whole kit on agents and return the failures, empty if they conform.

    `make` is the class that an experiment names, or any function that creates a fresh instance; `seeds` is the number
    of random workloads.
    """
    return failures_of(make, {name: partial(check, make, seeds) for name, check in CHECKS.items()})


class _Shares(Policy):
    """Divides each node's GPUs among the jobs, so that a job's GPUs change whenever another comes or goes.

    No job gets more GPUs than its requested batch can be split over, since agents may keep that batch.
    """

    name: ClassVar[str] = "shares"
    traits: ClassVar[Traits] = Traits(rigid=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Divide the GPUs."""
        held = {}
        for i, node in enumerate(view.nodes):
            jobs = list(view.jobs.values())[i :: len(view.nodes)][: node.gpus]
            for job in jobs:
                most = job.request.batch_size // two_type_application().limits.min_local_bsz
                held[job.id] = ((i, min(most, node.gpus // len(jobs))),)
        return Decision(held)


@dataclass(frozen=True)
class _Beside:
    """A job with its agent, driven without an engine."""

    app: FittedApplication
    agent: Agent

    def batches(self) -> Iterator[tuple[Site, int, BatchChoice]]:
        """Request batches in two passes over all placements and epochs, and report the job's measurements of each."""
        for epoch in range(2 * self.app.epochs):
            for place in _PLACES:
                site = site_of(_CLUSTER, place)
                batch = self.agent.choose(site, epoch % self.app.epochs)
                yield site, epoch % self.app.epochs, batch
                running = self.app.run(site, batch, epoch % self.app.epochs)
                assert running.step is not None
                assert running.gradient is not None
                measured = running.step, running.gradient, epoch % self.app.epochs
                self.agent.observe(Measurement(site, batch.local_bsz, *measured))


def _beside(make: Maker, name: str = "a") -> _Beside:
    app, agents = two_type_application(), make()
    agents.begin(_CLUSTER)
    spec = JobSpec(name, 0, 2, application=app.name, batch_size=_BATCH)
    return _Beside(app, agents.agent(spec.request, facts_of(app, spec.shape)))


def _declaration(make: Maker, seeds: int) -> None:
    agents = make()
    expect(isinstance(getattr(agents, "name", None), str) and bool(agents.name), "it has no name")
    expect(bool(type(agents).__doc__), "it has no docstring that describes it")
    required = [one.name for one in parameters(type(agents)) if one.required]
    expect(not required, f"it has parameters without defaults: {', '.join(required)}")


def _members(make: Maker, seeds: int) -> None:
    agent = _beside(make).agent
    missing = [name for name in ("choose", "observe", "stale", "goodput") if not hasattr(agent, name)]
    expect(not missing, f"the agent of a job lacks {', '.join(missing)}")


def _within_limits(make: Maker, seeds: int) -> None:
    beside = _beside(make)
    limits = beside.app.limits
    for site, epoch, batch in beside.batches():
        place = f"on {site.gpus} GPUs in epoch {epoch}"
        expect(isinstance(batch, BatchChoice), f"{place} it returned {batch!r} instead of a BatchChoice")
        fits = limits.min_local_bsz <= batch.local_bsz <= limits.max_local_bsz
        least, most = limits.min_local_bsz, limits.max_local_bsz
        expect(fits, f"{place} it chose {batch.local_bsz} examples a GPU, but {least} to {most} fit")
        total = batch.total(site.gpus)
        expect(total <= limits.max_batch_size, f"{place} it chose {total} in all, of at most {limits.max_batch_size}")


def _not_stale_means_the_same(make: Maker, seeds: int) -> None:
    beside = _beside(make)
    for site, epoch, batch in beside.batches():
        if not beside.agent.stale:
            again = beside.agent.choose(site, epoch)
            expect(again == batch, f"it is not stale, but chose {again} after {batch} on {site.gpus} GPUs")


def _deterministic(make: Maker, seeds: int) -> None:
    first, second = (list(_beside(make).batches()) for _ in range(2))
    expect(first == second, "the same measurements give other batches")


def _names_are_labels(make: Maker, seeds: int) -> None:
    first, second = (list(_beside(make, name).batches()) for name in ("a", "another"))
    expect(first == second, "a job by another name gets other batches")


def _durations(make: Maker, seeds: int) -> None:
    """A job without batches is rejected with a message, or runs without a batch."""
    agents, apps = make(), Applications()
    agents.begin(_CLUSTER)
    spec = JobSpec("a", 0, 2, duration_s=60)
    try:
        app = apps.for_job(spec.request, spec.truth)
        agent = agents.agent(spec.request, facts_of(app, spec.shape))
    except InputError:
        return
    batch = agent.choose(site_of(_CLUSTER, _PLACES[0]), 0)
    expect(batch.local_bsz == 0, f"a job that has no batch size gets one of {batch.local_bsz}")


def _runs(make: Maker, seeds: int) -> None:
    recorders = [_ran(make, seed) for seed in range(seeds)]
    for seed, recorder in enumerate(recorders):
        expect(len(recorder.jobs) == _JOBS, f"{len(recorder.jobs)} of {_JOBS} jobs finished (seed {seed})")
    expect(recorders[0].jobs == _ran(make, 0).jobs, "the same seed gives other completion times")


def _no_global_randomness(make: Maker, seeds: int) -> None:
    expect(same_global_randomness(lambda: _ran(make, 0)), "it draws from a global random generator")


def _ran(make: Maker, seed: int) -> MemoryRecorder:
    recorder = MemoryRecorder()
    jobs = random_jobs(np.random.default_rng(seed), _JOBS, most_gpus=4)
    apps = Applications(two_type_application())
    simulate(_CLUSTER, jobs, apps, _Shares(), EngineOptions(), seed, recorder, agents=make(), check_invariants=True)
    return recorder


#: The checks by name, in the order in which they run.
CHECKS: dict[str, Callable[[Maker, int], None]] = {
    "declaration": _declaration,
    "members of an agent": _members,
    "batches within the application's limits": _within_limits,
    "not stale, same batch": _not_stale_means_the_same,
    "same measurements, same batches": _deterministic,
    "names are labels": _names_are_labels,
    "jobs without batches": _durations,
    "every job finishes, same seed, same run": _runs,
    "no global random generator": _no_global_randomness,
}
