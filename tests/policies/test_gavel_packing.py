"""Gavel's packed policies and its ideal on small clusters, by hand and against brute force."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from simsched_policies.rounds.gavel.baselines import GandivaPacking, GavelFifo
from simsched_policies.rounds.gavel.programs import Makespan, MaxMin

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.colocation.pairs import Kind, PairTable
from simsched.model.job import JobSpec
from simsched.model.tabulated import Setting, TabulatedJob, TabulatedModel
from simsched.testing.builders import FakeJob, fake_job_view
from simsched.toolkit.programs.objectives import max_min
from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.rounds.policy import with_pairs
from tests.validation.oracles.objectives import fair_value

#: Steps per second of three applications on two types.
RATES = {"A": (4.0, 1.0), "B": (3.0, 2.0), "C": (2.0, 2.0)}
TYPES = ("fast", "slow")
LM, NET, DEEP = Kind("A", 10), Kind("B", 10), Kind("C", 10)
#: A and B hardly disturb each other on the fast type, the others do; C fits beside nobody on the slow type.
PAIRS = PairTable(
    {
        ("fast", LM, LM): (0.5, 0.5), ("fast", LM, NET): (0.9, 0.8), ("fast", LM, DEEP): (0.6, 0.7),
        ("fast", NET, NET): (0.55, 0.55), ("fast", NET, DEEP): (0.4, 0.5), ("fast", DEEP, DEEP): (0.6, 0.6),
        ("slow", LM, LM): (0.5, 0.5), ("slow", LM, NET): (0.7, 0.6), ("slow", NET, NET): (0.5, 0.5),
    }
)  # fmt: skip


class Table:
    """The applications of `RATES`, on one GPU or two."""

    def for_job(self, request, truth):
        alone = RATES[request.application]
        rates = {
            kind: {Setting(10, gpus): gpus * rate for gpus in (1, 2)} for kind, rate in zip(TYPES, alone, strict=True)
        }
        return TabulatedJob(
            TabulatedModel(request.application, rates), Setting(10, request.num_gpus), truth.total_steps
        )


class Speeds:
    """The signal: speeds of pairs of jobs whose ids begin with their application."""

    def beside(self, one, other, gpu_type):
        kinds = sorted((Kind(one[0], 10), Kind(other[0], 10)))
        speeds = PAIRS.pairs.get((gpu_type, *kinds), (0.0, 0.0))
        return speeds if one[0] <= other[0] else speeds[::-1]


def job(name, steps, at=0.0, gpus=1):
    return JobSpec(name, at, gpus, name[0], 10, total_steps=steps)


def views(*names, gpus=1):
    cluster = Cluster.of(NodeGroup(1, 1, "fast"), NodeGroup(1, 1, "slow"))
    specs = [job(name, 1e4, gpus=gpus) for name in names]
    return [fake_job_view(FakeJob(one, Table().for_job(one, one.truth), None, cluster), ()) for one in specs]


def simulated(policy, jobs, cluster=None, most=2, model=PAIRS):
    records = MemoryRecorder()
    cluster = cluster or Cluster.of(NodeGroup(1, 1, "fast"), NodeGroup(1, 1, "slow"))
    options = EngineOptions(restart_delay_s=0, tick_s=0, max_jobs_per_gpu=most)
    simulate(cluster, jobs, Table(), policy, options, 1, records, colocation=model, check_invariants=True)
    return records


def ends(records):
    return {one.job_id: one.end_time_s for one in records.jobs}


def problem(*names, num_gpus=(1, 1)):
    rates = np.array([RATES[name[0]] for name in names])
    alone = ShareProblem(rates, np.ones(len(names), int), np.array(num_gpus))
    return with_pairs(alone, views(*names), Speeds(), TYPES)


def optimum(instance):
    """Return the largest level of max-min fairness with one variable for each job, pair and type, written out."""
    jobs, types = instance.throughput.shape
    units = [(job,) for job in range(jobs)] + [tuple(pair) for pair in instance.pairs.jobs]
    place = {(unit, kind): number for number, (unit, kind) in enumerate(product(units, range(types)))}
    level = len(place)
    rows, bound = [], []
    fair = instance.throughput @ (instance.num_gpus / instance.num_gpus.sum())
    for one in range(jobs):
        time, rate = np.zeros(level + 1), np.zeros(level + 1)
        for number, unit in enumerate(units):
            for kind in range(types):
                if one in unit:
                    alone = number < jobs
                    got = (
                        instance.throughput[one, kind]
                        if alone
                        else (instance.pairs.throughput[number - jobs, unit.index(one), kind])
                    )
                    time[place[unit, kind]] = 1
                    rate[place[unit, kind]] = -got / fair[one]
        rate[level] = 1
        rows += [time, rate]
        bound += [1, 0]
    for kind in range(types):
        row = np.zeros(level + 1)
        for unit in units:
            row[place[unit, kind]] = 1
        rows.append(row)
        bound.append(instance.num_gpus[kind])
    goal = np.zeros(level + 1)
    goal[level] = -1
    return -linprog(goal, A_ub=np.array(rows), b_ub=bound).fun


@pytest.mark.parametrize("names", [("A1", "B1"), ("A1", "A2", "B1", "C1"), ("A1", "B1", "B2", "B3", "C1", "C2")])
def test_packed_max_min_reaches_the_optimum_of_the_program_written_out(names):
    instance = problem(*names)
    shares = max_min(instance)
    assert fair_value(instance, shares) == pytest.approx(optimum(instance), rel=1e-6)
    used = shares.sum(axis=0)
    assert (used <= instance.num_gpus + 1e-6).all()
    alone = ShareProblem(instance.throughput, instance.scale_factor, instance.num_gpus)
    assert fair_value(instance, shares) > 1.01 * fair_value(alone, max_min(alone))


def test_pairs_are_of_jobs_of_one_gpu_that_fit_together_on_some_type():
    found = problem("A1", "B1", "C1")
    rates = {
        tuple(pair): rate.T.tolist()
        for pair, rate in zip(found.pairs.jobs.tolist(), found.pairs.throughput, strict=True)
    }
    assert rates == {
        (0, 1): [pytest.approx([3.6, 2.4]), pytest.approx([0.7, 1.2])],
        (0, 2): [pytest.approx([2.4, 1.4]), [0.0, 0.0]],
        (1, 2): [pytest.approx([1.2, 1.0]), [0.0, 0.0]],
    }
    alone = ShareProblem(np.ones((2, 2)), np.array([2, 2]), np.array([4, 4]))
    assert not len(with_pairs(alone, views("A1", "B1", gpus=2), Speeds(), TYPES).pairs.jobs)


ONE = Cluster.uniform(1, 1, "fast")


def test_packed_jobs_run_together_where_it_pays():
    # Together A makes 0.9 of its speed and B 0.8. Both make 9/11 where they are together 10/11 of the time and B is
    # alone for the rest. So B ends after 2400 / (3 x 9/11) s, and A does what it has left at 4 steps a second.
    records = simulated(MaxMin(packed=True, round_s=20, min_reset_s=0), [job("A", 3600), job("B", 2400)], ONE)
    assert ends(records) == pytest.approx({"A": 1077.8, "B": 977.8}, rel=0.01)
    apart = simulated(MaxMin(round_s=100, min_reset_s=0), [job("A", 3600), job("B", 2400)], ONE)
    assert max(ends(apart).values()) == pytest.approx(1700.0)
    assert any(row.neighbours for row in records.allocations)
    assert not any(row.neighbours for row in apart.allocations)


def test_packed_jobs_run_apart_where_it_does_not_pay():
    # Two of B lose nothing by turns and gain a tenth beside each other; B and C lose a tenth.
    records = simulated(MaxMin(packed=True, round_s=100, min_reset_s=0), [job("B", 3000), job("C", 2000)], ONE)
    assert max(ends(records).values()) == pytest.approx(2000.0)
    assert not any(row.neighbours for row in records.allocations)


def test_packed_makespan_is_the_least_of_the_choices():
    # Beside each other all the time, and then whoever is left alone: A needs 1,000 s, B has 600 of 3,000 steps left.
    records = simulated(Makespan(packed=True, round_s=10, min_reset_s=0), [job("A", 3600), job("B", 3000)], ONE)
    assert max(ends(records).values()) == pytest.approx(1200.0, abs=20.0)


def test_packed_jobs_run_alone_where_gpus_are_not_shared():
    policy = MaxMin(packed=True, round_s=100, min_reset_s=0)
    records = simulated(policy, [job("A", 3600), job("B", 2400)], ONE, most=1, model=None)
    assert max(ends(records).values()) == pytest.approx(1700.0)


def test_packed_fifo_puts_the_next_jobs_beside_the_best_partner():
    jobs = [job("C1", 4000), job("A1", 8000), job("B1", 4000), job("C2", 400)]
    policy = GavelFifo(speeds="true", packed=True, round_s=100, min_reset_s=0)
    records = simulated(policy, jobs, Cluster.uniform(2, 1, "fast"))
    first = {row.job_id: (row.start_s, row.neighbours) for row in reversed(records.allocations)}
    # B gains 1.7 beside A and .9 beside C; then C2 would gain 1.2 beside C1, which is not enough.
    assert first["B1"] == (0.0, "A1")
    assert first["C2"][0] > 0
    lenient = GavelFifo(speeds="true", packed=True, packing_threshold=1.1, round_s=100, min_reset_s=0)
    records = simulated(lenient, jobs, Cluster.uniform(2, 1, "fast"))
    assert {row.job_id: row.neighbours for row in reversed(records.allocations)}["C2"] == "C1"


def test_random_packing_shares_only_when_there_are_too_many():
    few = simulated(GandivaPacking(), [job("A1", 4000), job("B1", 4000)])
    assert not any(row.neighbours for row in few.allocations)
    many = simulated(GandivaPacking(), [job(f"{kind}{n}", 4000) for kind in "AB" for n in range(3)])
    assert any(row.neighbours for row in many.allocations)


def test_what_packing_needs():
    with pytest.raises(InputError, match="speeds is 'fitted'"):
        MaxMin(packed=True, speeds="fitted")
    with pytest.raises(InputError, match="ideal"):
        MaxMin(packed=True, ideal=True)


def test_the_ideal_grants_fractions_exactly():
    # Half of the GPU each: A makes 2 steps a second until 2,000 s, when B, at 1.5, has 1,000 left of 4,000 steps.
    records = simulated(MaxMin(ideal=True), [job("A", 4000), job("B", 4000)], ONE, most=4, model=None)
    assert ends(records) == pytest.approx({"A": 2000.0, "B": 2000.0 + 1000 / 3})
    rounds = simulated(MaxMin(min_reset_s=0, round_s=360), [job("A", 4000), job("B", 4000)], ONE, most=1, model=None)
    assert ends(rounds)["A"] != pytest.approx(2000.0, abs=1.0)


def test_the_ideal_needs_room_for_all_jobs_at_once():
    with pytest.raises(InputError, match="max_jobs"):
        simulated(MaxMin(ideal=True), [job(f"A{n}", 400) for n in range(5)], ONE, most=4, model=None)
