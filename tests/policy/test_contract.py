"""What policy, agent and engine owe each other: thresholds, errors, batches, sites, and one agent a job."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

import simsched as sim
from simsched.agent.agent import Agent, Measurement
from simsched.agent.fixed_agent import fixed_agent
from simsched.agent.pool import pool_text, read_pool
from simsched.engine.errors import EngineError, InfeasibleDecisionError
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.experiment.grid import Grid, make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.model.application import ApplicationFacts, BatchChoice, facts_of
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobRequest, JobSpec
from simsched.model.placement import Site
from simsched.policy import Decision, Decline, Policy, Stop, Traits, Triggers, View, Why
from simsched.policy.signals import REMAINING_WORK
from simsched.testing.builders import (
    Applications,
    FakeJob,
    fake_job_view,
    run,
    toy_application,
    two_type_application,
)

FREE = EngineOptions(restart_delay_s=0)


@dataclass
class Watches(Fifo):
    """Starts its jobs and watches them, when it is asked at 60 s, for a threshold."""

    threshold_gpu_s: int = 1

    @property
    def triggers(self) -> Triggers:
        return Triggers(interval_s=30)

    def decide(self, view: View, rng) -> Decision:
        watch = dict.fromkeys(view.jobs, self.threshold_gpu_s) if view.now_s == 60 else {}
        waiting = {job.id: ((0, job.num_gpus),) for job in view.jobs.values() if not job.running}
        return Decision.change(waiting, watch=watch)


@pytest.mark.parametrize("threshold_gpu_s", [89, 90])
def test_a_threshold_that_has_been_reached_already_is_refused_with_job_and_numbers(threshold_gpu_s: int) -> None:
    job = JobSpec("a", 0, 3, duration_s=200)  # 3 GPUs from 30 s on: 90 GPU-s at 60 s
    with pytest.raises(InfeasibleDecisionError) as caught:
        run(Watches(threshold_gpu_s=threshold_gpu_s), [job], options=FREE)
    said = f"job 'a' is watched for {threshold_gpu_s} GPU-s, but has attained 90 already"
    assert "at t=60 s" in str(caught.value)
    assert said in str(caught.value)


def test_a_threshold_just_ahead_is_accepted() -> None:
    assert (
        run(Watches(threshold_gpu_s=91), [JobSpec("a", 0, 3, duration_s=200)], options=FREE).jobs[0].end_time_s == 230
    )


def test_a_declined_job_holds_what_is_said_with_it_and_keeps_the_mark() -> None:
    class Declines(Policy):
        """Declines the first job, which runs, and at the arrival of the second one stops it by declining it again."""

        name: ClassVar[str] = "declines"

        def decide(self, view: View, rng: np.random.Generator) -> Decision:
            if "b" in view.jobs:
                return Decision({"b": ((0, 4),), "a": Decline()})
            return Decision({"a": Decline(((0, 4),))})

    jobs = [JobSpec("a", 0, 4, duration_s=100), JobSpec("b", 30, 4, duration_s=10)]
    found = run(Declines(), jobs, cluster=Cluster.uniform(1, 4), options=EngineOptions(restart_delay_s=0))
    assert [(job.job_id, job.end_time_s, job.declined) for job in found.jobs] == [("b", 40, False), ("a", 110, True)]


def test_what_a_change_says_of_a_job_goes_before_its_stop() -> None:
    change = Decision.change({"a": ((0, 1),), "b": Stop()}, stop=["c", "a"])
    assert dict(change.jobs) == {"c": (), "a": ((0, 1),), "b": Stop()}
    assert (change.rest, change.allocations) == ("stays", {"a": ((0, 1),)})


def test_an_error_of_a_policy_surfaces_as_itself_whatever_it_says() -> None:
    class Waits(Fifo):
        def decide(self, view: View, rng) -> Decision:
            message = "no GPUs until noon"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match=r"^no GPUs until noon$") as caught:
        run(Waits(), [JobSpec("a", 0, 1, duration_s=10)])
    assert type(caught.value) is RuntimeError


# --- sites -----------------------------------------------------------------------------------------------------------

GROUPS = (NodeGroup(1, 2, "v100"), NodeGroup(2, 4, "t4"), NodeGroup(1, 4, "v100"))


def waiting_job(cluster: Cluster) -> FakeJob:
    app = two_type_application()
    spec = JobSpec("a", 0, 2, application="toy", batch_size=32)
    return FakeJob(spec, app, fixed_agent(spec.request, facts_of(app)), cluster)


def seconds_left(job: FakeJob) -> float:
    return fake_job_view(job, {REMAINING_WORK})[REMAINING_WORK].seconds


def seconds_of_a_run(gpu_type: str) -> float:
    """Add up the epochs of a job of 2 GPUs and a batch of 32 on one node."""
    app = two_type_application()
    ends = [0.0, *(app.epoch_end(epoch) for epoch in range(app.epochs))]
    rates = [app.run(Site((2,), gpu_type), BatchChoice(16, 0), epoch).rate for epoch in range(app.epochs)]
    return sum((ends[epoch + 1] - ends[epoch]) / rate for epoch, rate in enumerate(rates))


@pytest.mark.parametrize("groups", list(permutations(GROUPS)))
def test_the_seconds_left_do_not_depend_on_the_order_of_nodes(groups: Sequence[NodeGroup]) -> None:
    job = waiting_job(Cluster.of(*groups))
    assert seconds_left(job) == pytest.approx(seconds_of_a_run("v100"))  # waiting: the fastest that it could run on
    for gpu_type in ("t4", "v100"):
        node = next(node.index for node in job.cluster.nodes if node.gpu_type == gpu_type)
        job.allocation = ((node, 2),)
        assert seconds_left(job) == pytest.approx(seconds_of_a_run(gpu_type))
    assert seconds_of_a_run("v100") == pytest.approx(seconds_of_a_run("t4") / 2)


# --- agents ----------------------------------------------------------------------------------------------------------


@dataclass
class ScriptedAgent:
    """Chooses one batch after the other, and is stale after every measurement."""

    batches: Sequence[BatchChoice]
    stale: bool = False
    goodput: None = None
    epochs: list[int] = field(default_factory=list)

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        self.stale = False
        self.epochs.append(epoch)
        return self.batches[min(len(self.epochs), len(self.batches)) - 1]

    def observe(self, measurement: Measurement) -> None:
        self.stale = True


@dataclass
class HandsOut(Policy):
    """Gives the first node to every job, every 10 s, with an agent made beforehand."""

    name: ClassVar[str] = "hands-out"

    made: Agent

    @property
    def triggers(self) -> Triggers:
        return Triggers(interval_s=10)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        return self.made

    def decide(self, view: View, rng) -> Decision:
        return Decision({job.id: ((0, job.num_gpus),) for job in view.jobs.values()})


TOY = JobSpec("a", 0, 1, application="toy", batch_size=16)


@pytest.mark.parametrize("batches", [[BatchChoice(65, 0)], [BatchChoice(16, 0), BatchChoice(65, 0)]])
def test_a_batch_is_checked_at_the_first_tuning_and_at_every_later_one(batches: list[BatchChoice]) -> None:
    agent = ScriptedAgent(batches)
    with pytest.raises(EngineError, match="a batch of 65 per GPU lies outside 8 to 64"):
        run(HandsOut(agent), [TOY])
    assert len(agent.epochs) == len(batches)


def test_an_agent_is_told_the_epoch() -> None:
    agent = ScriptedAgent([BatchChoice(16, 0)])
    run(HandsOut(agent), [TOY], applications=Applications(toy_application(epochs=3)))
    assert sorted(set(agent.epochs)) == [0, 1, 2]


# --- in an experiment ------------------------------------------------------------------------------------------------

COUNTING = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from simsched_policies.queues.by_key import Fifo


@dataclass
class Counting(Fifo):
    """Notes for which jobs it is asked for an agent."""

    name: ClassVar[str] = "counting"

    log: str = ""

    def agent(self, request, facts):
        with Path(self.log).open("a") as file:
            file.write(request.id + " ")
        return super().agent(request, facts)
'''
WORKLOAD = "name,time,application,num_replicas,batch_size\na-0,5,ncf,1,32768\nb-1,9,ncf,1,32768\n"
Maker = Callable[[str], Grid]


@pytest.fixture
def grid_of(tmp_path: Path) -> Maker:
    (tmp_path / "jobs.csv").write_text(WORKLOAD)
    (tmp_path / "counting.py").write_text(COUNTING)

    def maker(policy: str) -> Grid:
        head = "name: tiny\ncluster: {nodes: 2, gpus_per_node: 4}\nworkload: {path: jobs.csv}\npolicies:\n"
        (tmp_path / "e.yaml").write_text(head + textwrap.indent(policy, "  "))
        return make_grid(read_experiment(tmp_path / "e.yaml"))

    return maker


def manifest_of(grid: Grid, out: Path) -> dict:
    run_grid(grid, out)
    (path,) = (out / "tiny" / "cells").glob("*/manifest.json")
    return json.loads(path.read_text())


def test_a_policy_is_asked_for_one_agent_a_job_in_a_whole_cell(grid_of: Maker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    grid = grid_of(f"- {{name: 'counting.py:Counting', params: {{log: {log}}}}}")
    assert log.read_text() == "a-0 "  # a policy of its own was tried on one job of each application
    log.unlink()
    manifest = manifest_of(grid, tmp_path / "out")
    assert log.read_text() == "a-0 b-1 "
    assert manifest["agents"] == {"ncf": "FixedBatchAgent"}


def test_an_experiment_chooses_an_agent(grid_of: Maker, tmp_path: Path) -> None:
    own, other = grid_of("- {name: tiresias}"), grid_of("- {name: tiresias, agent: {name: goodput}}")
    assert own.tasks[0].key != other.tasks[0].key
    assert manifest_of(own, tmp_path / "own")["agents"] == {"ncf": "FixedBatchAgent"}
    assert manifest_of(other, tmp_path / "other")["agents"] == {"ncf": "GoodputAgent"}


@pytest.mark.parametrize(
    ("agent", "line", "said", "remedy"),
    [
        ("{name: goodputt}", 6, "policies.tiresias.agent.name: 'goodputt': there is no such agent", "goodput"),
        (
            "{name: goodput, params: {eagerness: 3}}",
            6,
            "the agent 'goodput' has no such parameter",
            "known: bootstrap, noise",
        ),
        ("{params: {}}", 6, "agent.name", ""),
        ("{name: goodput, parms: {}}", 6, "agent.parms: there is no such key", "params"),
    ],
)
def test_a_bad_choice_of_an_agent_is_one_error_with_its_line(
    grid_of: Maker, agent: str, line: int, said: str, remedy: str
) -> None:
    with pytest.raises(InputError) as caught:
        grid_of(f"- name: tiresias\n  agent: {agent}\n")
    (problem,) = caught.value.problems
    assert problem.where.endswith("e.yaml")
    assert problem.line == line
    assert said in problem.message
    assert remedy in problem.remedy


def test_the_shipped_pool_is_as_the_project_writes_it() -> None:
    path = Path(__file__).resolve().parents[2] / "experiments" / "pollux" / "history-pool.json"
    pool = read_pool(path)
    assert pool_text(pool) == path.read_text(encoding="utf-8")
    assert {"bert", "cifar10", "imagenet"} <= set(pool.applications)
    assert {kind for name in pool.applications for kind in pool[name].profiles} == {"t4"}


@pytest.mark.parametrize(("every_s", "triggers"), [(90, Triggers(interval_s=90)), (None, Triggers.on_events())])
def test_a_trait_names_the_parameter_that_holds_the_interval(every_s, triggers) -> None:
    class Every(Policy):
        name = "every"
        traits = Traits(interval="every_s")

        def __init__(self, every_s: float | None) -> None:
            self.every_s = every_s

    assert Every(every_s).triggers == triggers


KEYS = ["time_s", "job_id", "gpus", "rank", "score", "why"]


def reasons(policy, rows, *, cluster=(1, 4), **params):
    """Run jobs, given as submission, GPUs and seconds, named a, b, c; return what was kept of each decision."""
    jobs = [
        {"id": name, "submit_time_s": submit, "num_gpus": gpus, "duration_s": seconds}
        for name, (submit, gpus, seconds) in zip("abcdefgh", rows, strict=False)
    ]
    made = sim.simulate(jobs=jobs, policy=policy, cluster=cluster, restart_delay_s=0, reasons=True, **params)
    return made.reasons


def at(found, time_s):
    return [tuple(row) for row in found.loc[found["time_s"] == time_s, KEYS[1:]].itertuples(index=False)]


def test_first_in_first_out_says_who_blocks_whom():
    """a leaves one GPU; b is short of three, and c, for which there is room, stands behind b."""
    found = reasons("fifo", [(0, 3, 100), (10, 4, 50), (20, 1, 50)])
    assert at(found, 0) == [("a", 3, 1, "", "")]
    assert at(found, 20) == [
        ("a", 3, 1, "", ""), ("b", 0, 2, "", "no room"), ("c", 0, 3, "", "another comes first"),
    ]  # fmt: skip
    assert found.loc[found["time_s"] == 20, "detail"].tolist() == ["", "1 GPU free", "b waits before it"]
    assert at(found, 150) == [("c", 1, 1, "", "")]


def test_shortest_first_ranks_by_the_seconds_left():
    found = reasons("srtf", [(0, 4, 100), (10, 4, 50), (20, 4, 200)])
    assert at(found, 10) == [("a", 0, 2, "90", "no room"), ("b", 4, 1, "50", "")]
    assert at(found, 20)[0] == ("a", 0, 2, "90", "no room")
    assert at(found, 20)[2] == ("c", 0, 3, "200", "no room")


def test_a_placer_that_waits_for_one_node_is_named():
    from simsched_policies.queues.by_key import Fifo

    found = reasons(Fifo(placement="consolidated"), [(0, 3, 600), (0, 3, 900), (10, 2, 50)], cluster=(2, 4))
    assert at(found, 10)[2] == ("c", 0, 3, "", "not on one node")
    assert found.loc[found["time_s"] == 10, "detail"].tolist()[2] == "GPUs are free, and none as 'consolidated' wants"


def test_a_reservation_is_named():
    """b waits for four GPUs until a ends; c would fit beside a, and runs past that end."""
    found = reasons("slurm-backfill", [(0, 3, 100), (10, 4, 50), (20, 1, 5000)])
    assert at(found, 20)[1:] == [("b", 0, 1, "0 0", "no room"), ("c", 0, 2, "0 0", "reserved for another")]


def test_a_queue_beyond_its_share_is_named():
    from simsched_policies.production.yarn_cs import YarnCs

    jobs = [{"id": name, "num_gpus": 2, "duration_s": 60, "tenant": "t"} for name in "ab"]
    policy = YarnCs(capacities={"t": 0.5, "u": 0.5}, elastic=False)
    found = sim.simulate(jobs=jobs, policy=policy, cluster=(1, 4), restart_delay_s=0, reasons=True).reasons
    assert at(found, 0)[1][4] == Why.OVER_QUOTA


def test_nothing_is_kept_unless_asked_for():
    jobs = [{"num_gpus": 4, "duration_s": 60}] * 2
    assert sim.simulate(jobs=jobs, policy="fifo", cluster=(1, 4)).reasons.empty


@pytest.mark.parametrize("policy", ["gavel-max-min", "las", "muri-l", "themis", "isolated", "kueue", "kai", "volcano"])
def test_policies_rank_the_jobs_that_wait(policy):
    found = reasons(policy, [(0, 4, 600), (1, 4, 600), (2, 4, 600)])
    waiting = found[found["gpus"] == 0]
    assert len(waiting)
    assert (waiting["rank"] > 0).mean() > 0.5, waiting
    assert waiting["why"].ne("").all()
