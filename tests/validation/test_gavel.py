"""Gavel (OSDI'20): generator, programs and rounds against figures of its simulator and its notebooks.

The table of rates and the recordings are not part of the project; without them these tests are skipped. Figures are
those of Gavel's simulator as it stands today, with HiGHS in the place of its solver.
"""

import json
import random
import runpy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from simsched_policies.rounds.gavel.programs import Makespan

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster, NodeGroup
from simsched.toolkit.programs.objectives import max_min, total_throughput
from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.programs.water_filling import Entities, water_filling
from simsched.workload.gavel import TEMPLATES, read_shockwave_jobs
from simsched.workload.source import WorkloadOptions, make_workload
from tests.validation.oracles import gavel_replay as oracle
from tests.validation.oracles.gavel_replay import FAST_FIRST
from tests.validation.oracles.objectives import fair_value


@pytest.fixture(scope="module")
def alone(shared):
    return oracle.read_rates(shared / "gavel" / "simulation_throughputs.json")


# Static trace of 100 jobs on 36 GPUs of each type, in hours. The makespan does not hang on the solver, the mean
# completion time does (with two solvers 19.57 and 19.82, 21.83 and 22.24, 21.87 and 21.73).
@pytest.mark.parametrize(
    ("seed", "makespan_h", "jct_h"), [(0, 165.8250, 19.823), (1, 155.8881, 22.238), (2, 165.5926, 21.730)]
)
def test_static_makespan(alone, seed, makespan_h, jct_h):
    played = oracle.static(alone, seed, "makespan")
    assert played.makespan_s / 3600 == pytest.approx(makespan_h, abs=1e-4)
    assert oracle.mean_h(played, range(100)) == pytest.approx(jct_h, rel=0.02)


# What decides is that a type may be overbooked: 177.99 h of seed 1 would be 1,561.9 h if jobs only went where they fit.
# Seed 0 ends with a job alone on a K80, seven rounds earlier than in the original (660.819 h), for a reason unknown.
@pytest.mark.parametrize(("seed", "makespan_h", "error"), [(0, 660.819, 1.1e-3), (1, 177.987, 3e-6)])
def test_static_makespan_of_the_agnostic_fifo(alone, seed, makespan_h, error):
    played = oracle.static(alone, seed, "fifo")
    assert played.makespan_s / 3600 == pytest.approx(makespan_h, rel=error)


def test_agnostic_fifo_through_the_engine(shared, artifact):
    policy = artifact["ArtifactFifo"](seed=1)
    assert engine_run(shared, policy, 1) == pytest.approx(177.987, abs=1e-3)


@pytest.fixture(scope="module")
def artifact():
    path = Path(__file__).parent / "replays" / "gavel.py"
    return runpy.run_path(str(path))


def engine_run(shared, policy, seed, **options):
    """Run one of Gavel's workloads on 36 GPUs of each type through the engine."""
    table = ApplicationCatalogue.load(shared / "gavel" / "simulation_throughputs.json")
    jobs = make_workload(WorkloadOptions(recipe="gavel", **options), seed, tabulated=table.tabulated)
    cluster = Cluster.of(*(NodeGroup(36, 1, gpu_type) for gpu_type in FAST_FIRST))
    records = MemoryRecorder()
    simulate(cluster, jobs, table, policy, EngineOptions(restart_delay_s=0, tick_s=0), seed, records)
    return max(job.end_time_s for job in records.jobs) / 3600


def test_static_makespan_through_the_engine(shared, artifact):
    policy = artifact["ArtifactMakespan"](seed=0)
    assert engine_run(shared, policy, 0) == pytest.approx(165.8250, abs=1e-3)


def test_whole_rounds_and_fractions_of_steps_change_the_makespan_by_little(shared):
    # 165.798 h: rounds last their time, and steps are not cut to whole ones.
    assert engine_run(shared, Makespan(), 0) == pytest.approx(165.8250, rel=5e-3)


@pytest.mark.parametrize(("policy", "count"), [("max_min_fairness", 28), ("max_sum_throughput_perf", 27)])
def test_recorded_programs_have_the_same_objective(shared, policy, count):
    jobs = {job.id: job for job in read_shockwave_jobs(shared / "shockwave" / "120-jobs.trace")}
    recorded = json.loads((shared / "shockwave" / f"{policy}.json").read_text())["allocations"]
    assert len(recorded) == count
    for one in recorded:
        names = list(one["x"])
        throughput = np.array([[one["throughput"][name]] for name in names])
        scale = np.array([jobs[name].num_gpus for name in names])
        problem = ShareProblem(throughput, scale, np.array([32]))
        theirs = np.array([[one["x"][name]] for name in names])
        if policy == "max_min_fairness":
            problem = problem.agnostic()
            ours, published = fair_value(problem, max_min(problem)), fair_value(problem, theirs)
        else:
            ours, published = problem.rates(total_throughput(problem)).sum(), problem.rates(theirs).sum()
        assert ours == pytest.approx(published, rel=1e-6)


def hierarchy(alone, notebook, jobs):
    """The instance of Figure 11 with the first so many jobs: three entities of six jobs, weights 1, 2 and 3."""
    rng = random.Random(0)
    if notebook in ("13", "15"):
        table = [[rng.random() for _ in range(3)] for _ in range(18)]
    else:
        table = [alone[rng.choice(TEMPLATES), 1] for _ in range(18)]
    fair = notebook in ("13", "14")
    weights = np.array([job % 2 + 1.0 if fair else 1.0 for job in range(jobs)])
    problem = ShareProblem(np.array(table[:jobs]), np.ones(jobs, int), np.array([3, 3, 3]), weights)
    entities = Entities(np.arange(jobs) // 6, np.array([1.0, 2.0, 3.0]), ["fairness" if fair else "fifo"] * 3)
    return problem, entities


def normalised(problem, entities):
    return problem.rates(water_filling(problem, entities)) / problem.proportional_rate()


# In 98 of the notebooks' other 115 vectors somebody could be raised without lowering anybody. The other 17 are of
# queues with seven jobs or more.
AGREE = [
    *[(notebook, "perf", jobs) for notebook, sizes in (("13", [1]), ("14", [1, 17, 18])) for jobs in sizes],
    *[(notebook, "agnostic", jobs) for notebook in ("13", "14") for jobs in (1, 18)],
    *[("15", "perf", jobs) for jobs in (1, 2, 3)],
    *[(notebook, mode, jobs) for notebook, mode in (("15", "agnostic"), ("16", "perf"), ("16", "agnostic"))
      for jobs in range(1, 7)],
]  # fmt: skip


@pytest.mark.parametrize("notebook", ["13", "14", "15", "16"])
def test_published_hierarchical_shares(shared, alone, notebook):
    published = json.loads((shared / "gavel" / "hierarchical-fig11.json").read_text())[notebook]
    for _, mode, jobs in (case for case in AGREE if case[0] == notebook):
        problem, entities = hierarchy(alone, notebook, jobs)
        if mode == "agnostic":
            problem = problem.agnostic()
        assert normalised(problem, entities) == pytest.approx(published[mode][jobs - 1], abs=6e-4)


def exact_rates(problem, shares):
    """Normalised rates of shares in exact fractions, which also checks that they are feasible."""
    types = range(len(problem.num_gpus))
    room = [Fraction(int(gpus)) for gpus in problem.num_gpus]
    assert all(share >= 0 for row in shares for share in row)
    assert all(sum(row) <= 1 for row in shares)
    assert all(sum(row[k] for row in shares) <= room[k] for k in types)
    rates = [[Fraction(rate) for rate in row] for row in problem.throughput.tolist()]
    usual = [sum(row[k] * room[k] for k in types) / sum(room) for row in rates]
    return [sum(row[k] * mine[k] for k in types) / most for row, mine, most in zip(rates, shares, usual, strict=True)]


# Five printed vectors of random rates that an exact water filling was thought to reach cannot be: with these shares
# somebody has more, by more than rounding hides, and nobody less. Fractions leave no tolerance.
@pytest.mark.parametrize("jobs", [4, 5, 6])
def test_a_published_queue_leaves_jobs_on_their_slower_types(shared, jobs):
    published = json.loads((shared / "gavel" / "hierarchical-fig11.json").read_text())["15"]["perf"][jobs - 1]
    problem, _ = hierarchy(None, "15", jobs)
    best = problem.throughput.argmax(axis=1)  # of the first six jobs 2, 3 and 1 are fastest on the three types
    got = exact_rates(problem, [[Fraction(int(kind == column)) for column in range(3)] for kind in best])
    assert all(mine > Fraction(theirs) - Fraction(1, 2000) for mine, theirs in zip(got, published, strict=True))
    assert got[3] > Fraction(published[3]) + Fraction(48, 100)


@pytest.mark.parametrize("jobs", [17, 18])
def test_all_jobs_of_a_published_vector_can_have_more(shared, jobs):
    published = json.loads((shared / "gavel" / "hierarchical-fig11.json").read_text())["13"]["perf"][jobs - 1]
    problem, entities = hierarchy(None, "13", jobs)
    shares = water_filling(problem, entities) * (1 - 1e-6)  # so that rounded shares fit
    got = exact_rates(problem, [[Fraction(share) for share in row] for row in shares.tolist()])
    assert all(mine > Fraction(theirs) + Fraction(1, 2000) for mine, theirs in zip(got, published, strict=True))


@pytest.mark.parametrize("mode", ["perf", "agnostic"])
@pytest.mark.parametrize("notebook", ["13", "14", "15", "16"])
def test_invariants_of_hierarchical_shares(alone, notebook, mode):
    for jobs in (2, 8, 13, 18):
        problem, entities = hierarchy(alone, notebook, jobs)
        if mode == "agnostic":
            problem = problem.agnostic()
        got = normalised(problem, entities)
        check_nobody_can_be_raised(problem, got)
        if jobs == 18 and notebook in ("13", "14"):
            # With all of them short of GPUs, entities get 1 : 2 : 3 and jobs inside an entity follow their weights.
            due = problem.weights * entities.weights[entities.member]
            assert got / due == pytest.approx([got[0]] * 18, rel=1e-5)
        if notebook in ("15", "16"):
            check_queues(problem, entities, got)


def check_nobody_can_be_raised(problem, got):
    """Nobody can be raised without lowering somebody else."""
    throughput = problem.throughput / problem.proportional_rate()[:, None]
    relative = ShareProblem(throughput, problem.scale_factor, problem.num_gpus)
    better = relative.rates(total_throughput(relative, least_rate=got * (1 - 1e-7)))
    assert better.sum() <= got.sum() + 1e-3


def check_queues(problem, entities, got):
    """In a queue nobody gets anything while somebody before it could still rise."""
    alone = problem.throughput.max(axis=1) / problem.proportional_rate()
    for member in range(entities.member.max() + 1):
        queue = np.flatnonzero(entities.member == member)
        served = np.flatnonzero(got[queue] > 1e-6)
        assert list(served) == list(range(len(served)))
        assert (got[queue] <= alone[queue] + 1e-6).all()
