"""Simulations of an experiment's cells for a caller who makes the decisions, or shown step by step as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simsched.api.checking import ExperimentSource, prepare
from simsched.api.running import override_texts
from simsched.engine import Recorder, Simulation, Terms
from simsched.errors import input_error
from simsched.experiment import Task
from simsched.experiment.physics import applications_of, settings_of
from simsched.model.placement import describe
from simsched.policy import JobView, Policy, View
from simsched.words import clock, counted


def task_of(
    experiment: ExperimentSource, changes: Mapping[str, Any] | None, seed: int, labels: Sequence[str] = ()
) -> Task:
    """Return the task of an experiment's first cell for a seed, or of the first of the given policies.

    See `run` for the experiment and `changes`.

    Raises `InputError` for invalid input, and for jobs that depend on more than the seed.
    """
    grid = prepare(experiment, override_texts({**(changes or {}), "seeds": [seed]}), labels=labels)
    if any(cell.point for cell in grid.cells):
        name = grid.experiment.spec.name
        raise input_error(
            name, "it sweeps values or job lists, so a seed does not determine the jobs", "fix one of them"
        )
    task = grid.wanted[0].task
    if task.tuning is not None or task.cuts is not None:
        raise input_error(grid.experiment.spec.name, "tuning and shards cannot be driven", "leave them out")
    return task


def drive_task(task: Task, policy: Policy | Terms, recorder: Recorder | None = None) -> Simulation:
    """Return a simulation of a cell that stops at every decision; `policy`, as in `drive`, replaces the cell's.

    `recorder` receives its records, by default in memory.
    """
    return Simulation(
        task.cluster,
        task.jobs,
        applications_of(task),
        task.engine,
        task.seed,
        policy,
        recorder=recorder,
        **settings_of(task),
        processes=[one.make() for one in task.processes],
    )


#: How many nodes and waiting jobs are listed; the rest is counted.
_MOST_LISTED = 16


@dataclass(frozen=True)
class Step:
    """One decision: its second, the jobs that got new or other GPUs, those that lost all, and a description as text."""

    time_s: float
    placed: tuple[str, ...]
    stopped: tuple[str, ...]
    text: str


def steps(task: Task) -> Iterator[Step]:
    """Run a cell under its policy and yield a step after each decision; passes on exceptions of policy and engine."""
    policy = task.policy.make()
    simulation = drive_task(task, policy)
    while (view := simulation.advance()) is not None:
        before = {job.id: job.allocation for job in view.jobs.values()}
        arrived, finished = [job.id for job in view.arrived], list(view.finished)
        simulation.act(policy.decide(view, simulation.rng))
        changed = [job for job in view.jobs.values() if job.allocation != before[job.id]]
        placed = [f"{job.id} on {describe(job.allocation)}" for job in changed if job.running]
        stopped = tuple(job.id for job in changed if not job.running)
        news = {"arrived": arrived, "finished": finished, "placed": placed, "stopped": stopped}
        happened = [f"  {what}: {_listed(names)}" for what, names in news.items() if names]
        text = "\n".join([f"{clock(view.now_s)}  {_state(view)}", *happened, *_nodes(view), *_queue(view)])
        yield Step(view.now_s, tuple(job.id for job in changed if job.running), stopped, text)


def _state(view: View) -> str:
    running = sum(job.running for job in view.jobs.values())
    free = counted(sum(view.free), "GPU")
    return f"{counted(len(view.jobs), 'job')}, {running} running, {free} free"


def _nodes(view: View) -> list[str]:
    """List for each node which jobs hold how many of its GPUs."""
    held: dict[int, list[str]] = {node.index: [] for node in view.nodes}
    for job in view.jobs.values():
        for node, gpus in job.allocation:
            held[node].append(f"{job.id} {gpus}")
    busy = [(node, names) for node, names in held.items() if names]
    lines = [
        f"  node {node}: {', '.join(names)}" + (f", {view.free[node]} free" if view.free[node] else "")
        for node, names in busy[:_MOST_LISTED]
    ]
    rest = len(busy) - len(lines)
    return [*lines, f"  and {counted(rest, 'node')} with jobs"] if rest else lines


def _queue(view: View) -> list[str]:
    waiting = [job for job in view.jobs.values() if not job.running]
    return [f"  waiting: {_listed([_waits(job) for job in waiting])}"] if waiting else []


def _waits(job: JobView) -> str:
    return f"{job.id} ({counted(job.num_gpus, 'GPU')}, {clock(job.age_s - job.held_s)})"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_LISTED
    return ", ".join([*names[:_MOST_LISTED], *([f"and {rest} more"] if rest > 0 else [])])
