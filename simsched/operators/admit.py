"""Whether a cluster would admit a workload now, with what, at whose cost; and when its waiting workloads start."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simsched.artifacts import REASONS_FILE, ReasonRow
from simsched.engine import EngineOptions, MemoryRecorder, Simulation
from simsched.errors import InputError, input_error
from simsched.manifests import (
    HOSTNAME,
    Account,
    NodeFacts,
    Object,
    Workload,
    changes_of_pods,
    in_service,
    raise_any,
    read_nodes,
    read_workloads,
)
from simsched.model import Amount, Cluster, JobRequest, JobSpec, NodeGroup, NodeShape
from simsched.model.job import JobTruth
from simsched.model.tabulated import FixedDuration
from simsched.operators.dump import Dump, Durations, Likeness, Standing, likeness
from simsched.policy import POLICIES, Policy

#: The forecast interval: nine of ten starts are after its start, nine of ten before its end.
LOW, HIGH = 10, 90
#: How far ahead future workloads are drawn, at most and as a share of the time that the objects cover.
_AHEAD_S, _SHARE = 2 * 86400, 0.5
#: The version of the fields of `Admitted` in JSON.
SCHEMA = "simsched/admit/v1"


class When(NamedTuple):
    """When a waiting workload starts, in seconds from now: the median and the 80 % interval; inf: in no draw."""

    workload: str
    user: str
    queue: str
    gpus: int
    waited_s: float
    median_s: float
    low_s: float
    high_s: float


class Victim(NamedTuple):
    """A workload that would be preempted: the namespace and queue that own it, its GPUs, and why in Kueue's words."""

    workload: str
    user: str
    queue: str
    gpus: int
    why: str


@dataclass(frozen=True)
class Admitted:
    """What happens to a workload if it is submitted now.

    `flavours` maps `flavour:resource` to amounts, `nodes` nodes to GPUs, and `domains` the labels of topologies to the
    domains that hold them. `reason` is why it waits, in Kueue's words, and `when` the forecast of its start.
    """

    workload: str
    queue: str
    gpus: int
    admitted: bool
    reason: str
    flavours: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    victims: tuple[Victim, ...] = ()
    when: When | None = None


@dataclass(frozen=True)
class Moment:
    """A dump with new workloads, to go on from there; `later` are workloads that may come, with their seconds."""

    dump: Dump
    standing: tuple[Standing, ...]
    new: tuple[str, ...]
    later: Mapping[str, tuple[float, Likeness]]
    nodes: tuple[NodeFacts, ...]
    policy: Callable[[], Policy]

    @cached_property
    def cluster(self) -> Cluster:
        """The nodes with GPUs, all of one type, as sets of pods of one workload may get several flavours."""
        return Cluster.of(*(NodeGroup(1, node.gpus, "gpu") for node in self.nodes))

    def begin(self, seconds: Mapping[str, float], comes_s: Mapping[str, float]) -> tuple[Simulation, Policy]:
        """Return the simulation of what stands, and of what comes, with these durations (of the rest of runs)."""
        gpus = self.cluster.total_gpus  # the engine refuses jobs that need more
        standing = [one for one in self.standing if one.like.gpus <= gpus]
        jobs = [_job(one, round(comes_s.get(one.workload.id, 0)), seconds) for one in standing]
        coming = [(name, round(at)) for name, at in comes_s.items() if name in self.later]
        jobs += [JobSpec(name, at, self.later[name][1].gpus, duration_s=seconds[name]) for name, at in coming]
        jobs.sort(key=lambda one: one.submit_time_s)
        policy = self.policy()
        options = EngineOptions(restart_delay_s=0, kill_at_time_limit=True)
        simulation = Simulation(self.cluster, jobs, _Seconds(), options, 1, policy, recorder=MemoryRecorder())
        policy.begin(self.cluster)
        return simulation, policy


class _Seconds:
    """Finds the physics of workloads, which all have a duration; the shipped applications are not loaded for them."""

    def for_job(self, request: JobRequest, truth: JobTruth) -> FixedDuration:
        """Return the duration of a workload."""
        return FixedDuration(truth.duration_s, request.num_gpus)


def _job(one: Standing, at_s: float, seconds: Mapping[str, float]) -> JobSpec:
    name, limit_s = one.workload.id, one.workload.limit_s
    left_s = None if limit_s is None else max(limit_s - max(one.ran_s, 0.0), 1.0)
    shape = None if one.like.gpus else NodeShape(1, Amount(0))
    return JobSpec(name, at_s, one.like.gpus, duration_s=seconds[name], time_limit_s=left_s, shape=shape)


def moment_of(dump: Dump, *, new: Sequence[Object] = (), allow: Collection[str] = (), future: bool = False) -> Moment:
    """Prepare a dump to go on from its moment, with `new` objects submitted then.

    With `future`, workloads come later as they came before. `allow` names fields that are not modelled. Raises
    `InputError` with every problem.
    """
    there = {one.key for one in dump.objects}
    for one in new:
        if one.key in there:
            raise InputError(one.problem(("metadata", "name"), "is in the cluster already", "give it another name"))
    account = Account()
    fresh = read_workloads([_created(one, dump.now_s) for one in new], account)
    if new and not fresh:
        raise input_error(new[0].where, "holds no workload", "give a Job, JobSet, PyTorchJob, MPIJob, RayJob or Pod")
    queues = {(one.namespace, one.name) for one in dump.objects if one.kind == "LocalQueue"}
    ordered = sorted(dump.standing, key=lambda one: (one.ran_s < 0, one.workload.created_s or 0.0))
    standing = (*ordered, *(Standing(one, likeness(one, queues), -1.0, one.duration_s) for one in fresh))
    copies, later = _later(dump) if future else ([], {})
    objects = [*dump.objects, *(one.owner for one in fresh), *(one.owner for one in copies)]
    nodes = in_service(read_nodes(objects, account))
    account.judge(changes_of_pods, allow)
    raise_any(account.problems)
    if not nodes:
        raise input_error(dump.path, "holds no node with GPUs", "add kubectl get nodes -o yaml")
    workloads = [*(one.workload for one in standing), *copies]
    maker: Any = POLICIES.load("kueue")
    policy = maker.resuming(str(dump.path), objects, allow, workloads)
    return Moment(dump, standing, tuple(one.id for one in fresh), later, tuple(nodes), policy)


def _created(one: Object, at_s: float, name: str = "") -> Object:
    stamp = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {**one.part("metadata"), "creationTimestamp": stamp, "name": name or one.name}
    return replace(one, name=metadata["name"], data={**one.data, "metadata": metadata})


def _later(dump: Dump) -> tuple[list[Workload], dict[str, tuple[float, Likeness]]]:
    """Return copies of past workloads that come after the moment as they did before it, and when."""
    first = min((at for at, _, _ in dump.came), default=dump.now_s)
    span_s = min(2 * _AHEAD_S, dump.now_s - first)
    copies, when = list[Workload](), dict[str, tuple[float, Likeness]]()
    for number, (at, one, like) in enumerate(dump.came):
        comes_s = at - (dump.now_s - span_s)
        if comes_s <= 0 or not like.queue:
            continue
        owner = _created(one.owner, dump.now_s + comes_s, f"{one.owner.name}-later-{number}")
        copies.append(replace(one, id=f"{one.id}-later-{number}", owner=owner, created_s=dump.now_s + comes_s))
        when[copies[-1].id] = (comes_s, like)
    return copies, when


def decide(moment: Moment) -> list[Admitted]:
    """Run the cycles of admission of a moment until one changes nothing, and say what happens to its new workloads.

    Waiting workloads that the scheduler has tried in vain are not tried again, as nothing has changed for them.
    Raises `InputError` for an empty cluster.
    """
    awake = replace(moment, standing=tuple(one for one in moment.standing if not one.parked))
    simulation, policy = awake.begin(dict.fromkeys([one.workload.id for one in awake.standing], 1.0), {})
    view = simulation.advance()
    if view is None:
        raise input_error(moment.dump.path, "holds no workload", "give one that waits or runs")
    simulation.act(policy.decide(view, simulation.rng))
    rows = [ReasonRow(*row) for row in csv.reader(policy.artifacts()[REASONS_FILE].splitlines())][1:]
    likes = {one.workload.id: one.like for one in moment.standing}
    return [_said(moment, name, view.jobs.get(name), rows, likes) for name in moment.new]


def _said(moment: Moment, name: str, job: Any, rows: Sequence[ReasonRow], likes: Mapping[str, Likeness]) -> Admitted:
    last = next((row for row in reversed(rows) if row.job_id == name and row.event != "Lost"), None)
    like = likes[name]
    if job is None or not job.running:
        reason = last.message if last is not None else "its queue has not come to it"
        if like.gpus > moment.cluster.total_gpus:
            reason = f"it asks for {like.gpus} GPUs, and the nodes have {moment.cluster.total_gpus}"
        reason = f"can never run: {reason}" if job is None else reason
        return Admitted(name, like.queue, like.gpus, False, reason)
    takes = dict(word.rsplit("=", 1) for word in last.takes.split()) if last is not None else {}
    held = {moment.nodes[node].name: gpus for node, gpus in job.allocation if gpus}
    labels = [moment.nodes[node].labels for node, gpus in job.allocation if gpus]
    levels = [key for key in _levels(moment.dump.objects) if any(key in one for one in labels)]
    domains = {key: tuple(sorted({one[key] for one in labels if key in one})) for key in levels}
    victims = tuple(
        Victim(row.job_id, likes[row.job_id].user, row.queue, likes[row.job_id].gpus, row.message.partition(": ")[2])
        for row in rows
        if row.event == "Preempted" and f"({name})" in row.message
    )
    return Admitted(name, like.queue, like.gpus, True, "", takes, held, domains, victims)


def _levels(objects: Sequence[Object]) -> list[str]:
    """Return the labels of topologies, without that of hosts."""
    found: dict[str, None] = {}
    for one in objects:
        levels = one.part("spec").get("levels") if one.kind == "Topology" else None
        for level in levels if isinstance(levels, list) else ():
            if isinstance(level, dict) and level.get("nodeLabel") != HOSTNAME:
                found[str(level.get("nodeLabel"))] = None
    return list(found)


def forecast_moment(
    moment: Moment,
    durations: Durations,
    *,
    draws: int = 20,
    seed: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[When]:
    """Forecast when the waiting workloads of a moment start, from replays with durations drawn from similar jobs.

    Raises `InputError` if nothing tells how long a workload runs.
    """
    waiting = [one for one in moment.standing if one.ran_s < 0 and one.like.queue]
    rng, waits = np.random.default_rng(seed), {one.workload.id: list[float]() for one in waiting}
    for number in range(draws if waiting else 0):
        if progress is not None:
            progress(f"draw {number + 1} of {draws}")
        for name, at in _starts(moment, durations.again(rng), rng).items():
            if name in waits:
                waits[name].append(at)
    return [_when(moment, one, waits[one.workload.id], draws) for one in waiting]


def _starts(moment: Moment, durations: Durations, rng: np.random.Generator) -> dict[str, float]:
    """Draw durations and what comes, and return when workloads start first."""
    seconds = {}
    for one in moment.standing:
        ran_s = max(one.ran_s, 0.0)
        whole = durations.draw(one.like, ran_s, rng) if one.known_s is None else one.known_s
        if whole is None:
            remedy = "give --durations FILE (a trace or log of similar jobs) or --duration DISTRIBUTION"
            message = f"no job has ended that tells how long {one.workload.id} runs"
            raise input_error(moment.dump.path, message, remedy)
        seconds[one.workload.id] = max(whole - ran_s, 1.0)
    span_s = max((at for at, _ in moment.later.values()), default=0.0)
    back_s = float(rng.uniform(0, span_s * (1 - _SHARE)))
    comes = {name: at - back_s for name, (at, _) in moment.later.items() if back_s < at <= back_s + span_s * _SHARE}
    comes = {name: at for name, at in comes.items() if moment.later[name][1].gpus <= moment.cluster.total_gpus}
    seconds |= {name: durations.draw(moment.later[name][1], 0.0, rng) or 1.0 for name in comes}
    simulation, policy = moment.begin(seconds, comes)
    waiting = {one.workload.id for one in moment.standing if one.ran_s < 0}
    starts: dict[str, float] = {}
    while waiting and (view := simulation.advance()) is not None:
        simulation.act(policy.decide(view, simulation.rng))
        begun = [name for name in waiting if name not in view.jobs or view.jobs[name].running]
        starts |= {name: view.now_s for name in begun if name in view.jobs}
        waiting.difference_update(begun)
    return starts


def _when(moment: Moment, one: Standing, waits: Sequence[float], draws: int) -> When:
    # With few draws, these ranks contain eight of ten further draws, unlike interpolated ones.
    drawn = np.sort([*waits, *[np.inf] * (draws - len(waits))])
    ranks = [min(max(round(share / 100 * (draws + 1)) - 1, 0), draws - 1) for share in (50, LOW, HIGH)]
    created = one.workload.created_s
    waited = 0.0 if created is None else max(moment.dump.now_s - created, 0.0)
    like, times = one.like, [float(drawn[rank]) for rank in ranks]
    return When(one.workload.id, like.user, like.queue, like.gpus, waited, *times)
