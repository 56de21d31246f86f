"""The conformance kit for processes, which run beside the cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from simsched.engine import EngineOptions, MemoryRecorder, Simulation
from simsched.model import ApplicationSource, Cluster, JobSpec
from simsched.plugins import parameters
from simsched.policy import Policy, registry
from simsched.testing.builders import Applications
from simsched.testing.check_policy import Failure, expect, failures_of, same_global_randomness

_JOBS = 40
_DAY_S = 86_400
_MOST_DECISIONS = 10_000


def check_process(
    process: Callable[..., Any], *, seeds: int = 3, applications: ApplicationSource | None = None
) -> list[Failure]:
    """Run the whole kit on a process and return the failures, empty if it conforms.

    It runs with its default parameters under first-come-first-served on 16 nodes of 4 GPUs, beside `job-0` to `job-39`,
    which ask for up to 16 GPUs and two hours on one day. `seeds` is the number of such workloads; `applications` are
    those of the jobs that it submits.
    """

    def make(seed: int) -> Simulation:
        args = Cluster.uniform(16, 4), _jobs(seed), applications or Applications(), EngineOptions(), seed
        return Simulation(*args, registry.load("fifo")(), processes=[process], check_invariants=True)

    def declaration() -> None:
        expect(bool(process.__doc__), "it has no docstring that describes it")
        required = [one.name for one in parameters(cast("type[Any]", process)) if one.required]
        expect(not required, f"it has parameters without defaults: {', '.join(required)}")

    def ends() -> None:
        for seed in range(seeds):
            _records(make(seed))

    def is_deterministic() -> None:
        runs: list[object] = []
        same = same_global_randomness(lambda: runs.extend(_records(make(0)) for _ in range(2)))
        expect(same, "it draws from a global random generator instead of site.rng")
        expect(runs[0] == runs[1], "the same seed gives another run")

    def forks() -> None:
        if not inspect.isgeneratorfunction(process):  # which cannot be copied
            alone, simulation = make(0), make(0)
            _decide(simulation, _decide(alone) // 2)
            twin = simulation.fork()
            same = _records(twin) == _records(simulation) == _records(alone)
            expect(same, "a fork of the simulation goes on in another way")

    checks = {"declaration": declaration, "every run ends": ends, "same seed, same run": is_deterministic}
    return failures_of(process, {**checks, "a fork goes on alike": forks})


def _jobs(seed: int) -> list[JobSpec]:
    rng = np.random.default_rng(seed)
    drawn = zip(
        np.sort(rng.integers(0, _DAY_S, _JOBS)).tolist(),
        rng.integers(1, 17, _JOBS).tolist(),
        rng.integers(600, 7200, _JOBS).tolist(),
        strict=True,
    )
    return [JobSpec(f"job-{i}", at_s, gpus, duration_s=long_s) for i, (at_s, gpus, long_s) in enumerate(drawn)]


def _decide(simulation: Simulation, most: int = _MOST_DECISIONS) -> int:
    """Make up to `most` decisions and return how many the run took."""
    for number in range(most):
        view = simulation.advance()
        if view is None:
            return number
        simulation.act(cast("Policy", simulation.agents).decide(view, simulation.rng))
    return most


def _records(simulation: Simulation) -> tuple[object, ...]:
    _decide(simulation)
    after = f"after {_MOST_DECISIONS} decisions: {simulation!r}"
    expect(simulation.complete, f"jobs never finish, or new ones come without end; {after}")
    kept = cast("MemoryRecorder", simulation.recorder)
    return kept.jobs, kept.allocations, kept.decisions, kept.outages
