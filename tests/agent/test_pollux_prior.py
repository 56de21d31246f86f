"""What Pollux's agents start from: nothing, an offline profile, or a pool; and what a run leaves behind."""

import json

import numpy as np
import pytest
from simsched_policies.adaptive.pollux import Pollux

from simsched.agent.agent import Measurement
from simsched.agent.goodput_agent import goodput_agent, offline_prior, offline_priors
from simsched.agent.pool import HistoryPool, history_of_job, pool_of, pool_text, read_pool
from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.cell import write_artifacts
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.model.application import GradientStats, facts_of
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.model.tabulated import FixedDuration
from simsched.policy import Policy
from simsched.policy.signals import EARLIER_RUNS, FINISHED_JOBS, GOODPUT, OFFLINE_PROFILES
from simsched.testing.builders import Applications, fresh_view, random_jobs, run, toy_application, two_type_application
from simsched.testing.check_policy import check_policy

CLUSTER = Cluster.uniform(2, 4)


def toy_jobs(*submit_times):
    return [JobSpec(f"job-{i}", time, 1, application="toy", batch_size=16) for i, time in enumerate(submit_times)]


def toy_history(gpus=(1, 2, 4)):
    app = toy_application()
    steps = {(1, n, 16): app.step_time(Site((n,), "t4"), 16) for n in gpus}
    return history_of_job(app.limits, {"t4": steps}, {0: GradientStats(1.0, 1.0)})


def pool_file(path, **histories):
    pool = HistoryPool()
    for name, history in (histories or {"toy": toy_history()}).items():
        pool.add(name, history)
    path.write_text(pool_text(pool))
    return str(path)


def first_gpus(records, job_id):
    return next(interval.gpus for interval in records.allocations if interval.job_id == job_id)


class AsPublished(Pollux):
    """Makes agents as they are without any notion of priors."""

    def agent(self, request, facts):
        return goodput_agent(request, facts)


def test_without_prior_agents_start_from_nothing_as_published():
    jobs = random_jobs(np.random.default_rng(3), 15, most_gpus=4)
    for prior in ("none", "pool"):
        found, published = run(Pollux(prior=prior), jobs), run(AsPublished(), jobs)
        same = (found.jobs, found.allocations) == (published.jobs, published.allocations)
        assert same == (prior == "none")


def test_a_second_job_of_an_application_skips_the_doubling():
    jobs = toy_jobs(0, 4000)
    plain, pooled = run(Pollux(), jobs), run(Pollux(prior="pool"), jobs)
    assert plain.jobs[0].end_time_s < 4000  # else there was nothing to learn from
    assert [first_gpus(plain, job.id) for job in jobs] == [1, 1]
    assert first_gpus(pooled, "job-0") == 1
    assert first_gpus(pooled, "job-1") > 1
    assert pooled.jobs[1].jct_s < plain.jobs[1].jct_s
    assert pooled.jobs[1].restarts < plain.jobs[1].restarts


def test_jobs_submitted_before_the_first_has_finished_learn_nothing():
    pooled = run(Pollux(prior="pool"), toy_jobs(0, 0))
    assert [first_gpus(pooled, f"job-{i}") for i in (0, 1)] == [1, 1]


def test_a_pool_of_an_earlier_run_serves_the_first_job(tmp_path):
    path = pool_file(tmp_path / "pool.json")
    assert first_gpus(run(Pollux(prior="pool", pool_path=path), toy_jobs(0)), "job-0") > 1


def test_the_limit_of_twice_the_own_gpus_can_be_kept(tmp_path):
    path = pool_file(tmp_path / "pool.json")
    for params in ({"prior": "pool", "pool_path": path}, {"prior": "offline"}):
        assert first_gpus(run(Pollux(**params), toy_jobs(0)), "job-0") > 1
        assert first_gpus(run(Pollux(**params, skip_doubling=False), toy_jobs(0)), "job-0") == 1


def test_an_unknown_application_borrows_once_it_has_run_on_one_gpu(tmp_path):
    path = pool_file(tmp_path / "pool.json", other=toy_history())
    policy, app = Pollux(prior="pool", pool_path=path), toy_application()
    agent = policy.agent(toy_jobs(0)[0].request, facts_of(app))
    assert agent.goodput.on("t4").max_profiled_gpus == 0
    alone = Site((1,), "t4")
    agent.observe(Measurement(alone, 16, app.step_time(alone, 16), GradientStats(1.0, 1.0)))
    assert agent.goodput.on("t4").max_profiled_gpus == 4


def test_offline_agents_know_the_true_step_times():
    app = toy_application()
    prior = offline_prior(app, "t4", 4)
    assert prior.profile[1, 4, 8] == app.step_time(Site((4,), "t4"), 8)
    assert prior.profile[2, 8, 64] == app.step_time(Site((4, 4), "t4"), 64)
    assert prior.max_profiled_gpus == 32  # 64 GPUs would need a total batch beyond the largest
    assert prior.gradient == (1.0, 1.0)
    assert offline_prior(FixedDuration(60), "t4", 4) is None


def test_offline_profiles_are_of_every_gpu_type_of_the_cluster_and_on_its_nodes():
    app = two_type_application()
    priors = offline_priors(app, Cluster.of(NodeGroup(2, 8, "v100"), NodeGroup(1, 2, "t4"), NodeGroup(1, 4, "a100")))
    assert list(priors) == ["t4", "v100"]  # nobody knows its speed on an a100
    for gpu_type, gpus_per_node in (("v100", 8), ("t4", 2)):
        profile = priors[gpu_type].profile
        assert {gpus for nodes, gpus, _ in profile if nodes == 1} == {n for n in (1, 2, 4, 8) if n <= gpus_per_node}
        assert (2, 2 * gpus_per_node, 8) in profile
        shape = (gpus_per_node,) * 2
        assert profile[2, 2 * gpus_per_node, 8] == app.step_time(Site(shape, gpu_type), 8)
    assert priors["t4"].params != priors["v100"].params


@pytest.mark.parametrize("prior", ["pool", "offline"])
def test_the_same_seed_gives_the_same_run_and_the_same_pool(prior):
    jobs = random_jobs(np.random.default_rng(1), 20, most_gpus=4)
    first, second = Pollux(prior=prior), Pollux(prior=prior)
    one, other = run(first, jobs), run(second, jobs)
    assert (one.jobs, one.allocations, one.decisions) == (other.jobs, other.allocations, other.decisions)
    assert first.artifacts() == second.artifacts()


@pytest.mark.parametrize("prior", ["pool", "offline"])
def test_it_conforms(prior):
    assert check_policy(lambda: Pollux(prior=prior), seeds=1) == []


def test_a_run_leaves_a_pool_of_all_its_jobs():
    policy = Pollux(prior="pool")
    records = run(policy, toy_jobs(0, 0, 4000))
    pool = pool_of(json.loads(policy.artifacts()["pool.json"]), "x")
    assert pool.jobs == 3  # the last of them finished after the last decision
    assert pool["toy"].max_profiled_gpus("t4") == max(interval.gpus for interval in records.allocations)
    assert sorted(pool["toy"].noise) == [0, 1, 2, 3]
    assert records.decisions[0].diagnostics["pool_jobs"] == 0
    assert records.decisions[-1].diagnostics["pool_jobs"] == 2


def test_without_a_pool_nothing_is_left():
    for prior in ("none", "offline"):
        policy = Pollux(prior=prior)
        records = run(policy, toy_jobs(0))
        assert policy.artifacts() == {}
        assert "pool_jobs" not in records.decisions[0].diagnostics


def test_a_policy_says_what_it_was_told(tmp_path):
    path = pool_file(tmp_path / "pool.json")
    assert Pollux().signals == {GOODPUT}
    assert Pollux(prior="offline").signals == {GOODPUT, OFFLINE_PROFILES}
    assert Pollux(prior="pool").signals == {GOODPUT, FINISHED_JOBS}
    assert Pollux(prior="pool", pool_path=path).signals == {GOODPUT, FINISHED_JOBS, EARLIER_RUNS}


def test_a_pool_file_without_a_pool_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pool_path is of no use with 'prior: offline'"):
        Pollux(prior="offline", pool_path=pool_file(tmp_path / "pool.json"))


def test_jobs_that_know_only_durations_are_refused_as_ever():
    with pytest.raises(InputError, match="only durations"):
        fresh_view(Pollux(prior="pool"), [JobSpec("a", 0, 1, duration_s=9)], CLUSTER, Applications())


# --- in an experiment ----------------------------------------------------------------------------------------------

EXPERIMENT = """\
name: tiny
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv}
policies:
  - {name: pollux, params: {prior: pool, pool_path: known.json}}
"""
WORKLOAD = "name,time,application,num_replicas,batch_size\na-0,5,ncf,1,32768\nb-1,9,ncf,1,32768\n"


@pytest.fixture
def experiment(tmp_path):
    (tmp_path / "jobs.csv").write_text(WORKLOAD)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    pool_file(tmp_path / "known.json")

    def grid(*overrides):
        return make_grid(read_experiment(tmp_path / "e.yaml", overrides))

    return grid


def test_a_pool_is_an_artifact_of_its_cell_and_the_manifest_says_what_was_known(experiment, tmp_path):
    grid = experiment()
    run_grid(grid, tmp_path / "out")
    cell = tmp_path / "out" / "tiny" / "cells" / grid.tasks[0].key
    pool = read_pool(cell / "pool.json")
    assert {name: pool[name].jobs for name in pool.applications} == {"ncf": 2, "toy": 1}
    manifest = json.loads((cell / "manifest.json").read_text())
    assert manifest["policy_needs"] == ["earlier_runs", "finished_jobs", "goodput"]
    assert "policy_informed_by" not in manifest
    assert len(manifest["policy_files"]["pool_path"]) == 64


def test_the_content_of_a_pool_file_determines_the_cell_and_its_place_does_not(experiment, tmp_path):
    before = experiment().tasks[0].key
    (tmp_path / "moved.json").write_text((tmp_path / "known.json").read_text())
    moved = f"policies.pollux.params.pool_path={tmp_path / 'moved.json'}"
    assert experiment(moved).tasks[0].key == before
    pool_file(tmp_path / "known.json", toy=toy_history((1, 2)))
    assert experiment().tasks[0].key != before
    assert experiment(moved).tasks[0].key == before


def test_a_bad_pool_file_is_reported_at_its_line_of_the_experiment(experiment, tmp_path):
    (tmp_path / "known.json").write_text("{\n  oops")
    with pytest.raises(InputError) as caught:
        experiment()
    (problem,) = caught.value.problems
    assert problem.where.endswith("e.yaml")
    assert problem.line == 5
    assert "policies.pollux.params.pool_path" in problem.message
    assert "known.json:2: is not JSON" in problem.message


class _Leaves(Policy):
    name = "leaves"

    def __init__(self, name):
        self._name = name

    def decide(self, view, rng):
        raise NotImplementedError

    def artifacts(self):
        return {self._name: "text\n"}


def test_artifacts_cannot_take_the_place_of_results(tmp_path):
    write_artifacts(_Leaves("notes.txt"), tmp_path)
    assert (tmp_path / "notes.txt").read_bytes() == b"text\n"
    for name in ("jobs.parquet", "manifest.json", "summary.json", "../x", ".hidden", ""):
        with pytest.raises(ValueError, match="cannot be called"):
            write_artifacts(_Leaves(name), tmp_path)
