"""Gavel's policies on small clusters, by hand."""

import json

import numpy as np
import pytest
from simsched_policies.rounds.gavel.baselines import GavelFifo
from simsched_policies.rounds.gavel.programs import FinishTimeFairness, Hierarchical, MaxMin, MaxThroughput, MinCost

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.policy import registry
from simsched.policy.signals import MEASURED_SPEEDS, REMAINING_WORK, TRUE_RATES
from simsched.testing.builders import fresh_view, run
from simsched.workload.source import WorkloadOptions, make_workload

TABLE = {
    "fast": {
        "('LM (batch size 10)', 1)": {"null": 4.0},
        "('A3C', 1)": {"null": 3.0},
        "('LM (batch size 10)', 2)": {"null": 6.0},
    },
    "slow": {
        "('LM (batch size 10)', 1)": {"null": 1.0},
        "('A3C', 1)": {"null": 2.0},
        "('LM (batch size 10)', 2)": {"null": 0.0},
    },
}
CLUSTER = Cluster.of(NodeGroup(1, 1, "fast"), NodeGroup(1, 1, "slow"))
FREE = EngineOptions(restart_delay_s=0, tick_s=0)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("rates") / "rates.json"
    path.write_text(json.dumps(TABLE))
    return ApplicationCatalogue.load(path)


def lm(name, steps, at=0.0, **more):
    return JobSpec(name, at, 1, "LM", 10, total_steps=steps, **more)


def a3c(name, steps, at=0.0, **more):
    return JobSpec(name, at, 1, "A3C", 0, total_steps=steps, **more)


def simulated(policy, jobs, table, cluster=CLUSTER):
    return run(policy, jobs, cluster=cluster, applications=table, options=FREE)


def ends(records):
    return {job.job_id: job.end_time_s for job in records.jobs}


def shares_of(policy, jobs, table, cluster=CLUSTER):
    """Return what the policy computes when all jobs have just come."""
    kept = {}

    class Kept(type(policy)):
        def shares(self, snapshot):
            kept.update(super().shares(snapshot))
            return kept

    policy.__class__ = Kept
    view, _ = fresh_view(policy, jobs, cluster, table)
    policy.decide(view, np.random.default_rng(0))
    return {unit[0]: row for unit, row in kept.items()}


def test_max_min_makes_normalised_rates_alike(table):
    # Proportional rates are 2.5 for both, and so are both jobs' rates where each has half of either GPU, the best.
    shares = shares_of(MaxMin(), [lm("a", 1e4), a3c("b", 1e4)], table)
    rate = {"a": np.dot(shares["a"], [4, 1]), "b": np.dot(shares["b"], [3, 2])}
    assert rate == pytest.approx({"a": 2.5, "b": 2.5})
    alone = shares_of(MaxMin(), [lm("a", 1e4), lm("b", 1e4), lm("c", 1e4)], table)
    assert sum(np.dot(row, [4, 1]) for row in alone.values()) == pytest.approx(5)


def test_agnostic_max_min_splits_time_alike(table):
    shares = shares_of(MaxMin(speeds="none"), [lm(name, 1e4) for name in "abcd"], table)
    assert {name: round(sum(row), 6) for name, row in shares.items()} == dict.fromkeys("abcd", 0.5)


def test_rounds_carry_shares_out(table):
    one = Cluster.uniform(1, 1, "fast")
    records = simulated(MaxMin(round_s=100, min_reset_s=0), [lm("a", 4000), lm("b", 4000)], table, one)
    # They take turns of 100 s; each needs 1,000 s.
    assert ends(records) == {"a": 1900.0, "b": 2000.0}
    assert sum(job.restarts for job in records.jobs) == 18


def test_however_many_rounds_pass_until_shares_are_computed_is_borne(table):
    # Shares are computed at 10 s for `a`, which ends at 110; `b` waits for those of 3,850 s, 1,870 rounds later.
    one = Cluster.uniform(1, 1, "fast")
    jobs = [lm("a", 400, at=10.0), lm("b", 400, at=20.0)]
    assert ends(simulated(MaxMin(round_s=2, min_reset_s=3840), jobs, table, one)) == {"a": 110.0, "b": 3950.0}


def test_fifo_aware_and_agnostic(table):
    jobs = [a3c("a", 6000), lm("b", 4000), lm("c", 400, at=10.0)]
    agnostic = shares_of(GavelFifo(), jobs[:2], table)
    assert agnostic == {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    found = ends(simulated(GavelFifo(speeds="true", min_reset_s=0), jobs, table))
    # A3C is first and takes the fast GPU, 2,000 s; LM has the slow one for five rounds and more, then moves.
    assert found["a"] == 2000.0
    assert 2000.0 < found["b"] < 4000.0


def test_jobs_never_run_where_they_have_no_rate(table):
    wide = Cluster.of(NodeGroup(1, 2, "fast"), NodeGroup(1, 2, "slow"))
    jobs = [JobSpec(name, 0.0, 2, "LM", 10, total_steps=3000) for name in "abc"]
    for name in registry.names():
        if name.startswith("gavel-"):
            records = simulated(registry.load(name)(), jobs, table, wide)
            assert {one.placement for one in records.allocations} == {"0:2"}, name


def test_hierarchical_shares_follow_tenants_weights(table):
    jobs = [lm(f"{tenant}{number}", 1e4, tenant=tenant) for tenant in "xy" for number in range(3)]
    shares = shares_of(Hierarchical(weights={"x": 2.0}), jobs, table)
    rate = {name: float(np.dot(row, [4, 1])) for name, row in shares.items()}
    assert sum(rate[f"x{n}"] for n in range(3)) == pytest.approx(2 * sum(rate[f"y{n}"] for n in range(3)), rel=1e-6)
    fifo = shares_of(Hierarchical(rule="fifo"), jobs, table)
    assert [name for name, row in fifo.items() if sum(row) > 1e-6] == ["x0", "y0"]


def test_cost_and_deadlines(table):
    prices = {"fast": 10.0, "slow": 1.0}
    jobs = [lm("a", 3600.0), lm("b", 3600.0, deadline_s=1000.0)]
    assert shares_of(MaxThroughput(), jobs, table)["a"][0] + shares_of(MaxThroughput(), jobs, table)["b"][0] == 1.0
    due = shares_of(MinCost(prices_per_h=prices, slos=True), jobs, table)["b"]
    assert np.dot(due, [4, 1]) >= 3.6 - 1e-6


@pytest.mark.parametrize(
    ("speeds", "signal"), [("true", TRUE_RATES), ("measured", MEASURED_SPEEDS), ("fitted", MEASURED_SPEEDS)]
)
def test_signals_follow_speeds(speeds, signal):
    assert MaxMin(speeds=speeds).signals == {signal}
    assert FinishTimeFairness(speeds=speeds).signals == {signal, REMAINING_WORK}
    assert MaxMin(speeds="none").signals == frozenset()


def test_wrong_parameters():
    for make in (
        lambda: MaxMin(round_s=0),
        lambda: Hierarchical(weights={"x": 0.0}),
        lambda: MinCost(prices_per_h={"fast": 0.0}),
        lambda: registry.load("gavel-pop")(parts=0),
        lambda: registry.load("gavel-allox")(alpha=2.0),
    ):
        with pytest.raises(InputError):
            make()


def rates_of_all_kinds():
    rows = {}
    for template, sizes in json.loads(json.dumps(_kinds())):
        for size in sizes:
            rows[f"('{template}', {size})"] = {"null": 10.0 * size}
    return {"v100": rows, "p100": rows}


def _kinds():
    from simsched.workload.gavel import DISTRIBUTED, TEMPLATES

    return [(name, [1, 2, 4, 8] if name in DISTRIBUTED else [1]) for name in TEMPLATES]


def test_the_recipe_draws_jobs(tmp_path):
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(rates_of_all_kinds()))
    tabulated = ApplicationCatalogue.load(path).tabulated
    options = WorkloadOptions(recipe="gavel", jobs=40, jobs_per_hour=6.0, slos=True, priorities=True, tenants=3)
    jobs = make_workload(options, 1, tabulated=tabulated)
    assert [job.id for job in jobs[:2]] == ["0", "1"]
    assert jobs[0].submit_time_s == 0
    assert jobs == make_workload(options, 1, tabulated=tabulated) != make_workload(options, 2, tabulated=tabulated)
    assert {job.tenant for job in jobs} == {"0", "1", "2"}
    assert {job.weight for job in jobs} == {1.0, 5.0}
    for job in jobs:
        assert job.total_steps == pytest.approx(job.duration_s * 10 * job.num_gpus)
        assert job.deadline_s / job.duration_s == pytest.approx(1.2) or job.deadline_s >= 2 * job.duration_s - 1e-6
    alone = make_workload(WorkloadOptions(recipe="gavel", multi_gpu=False), 1, tabulated=tabulated)
    assert len(alone) == 100
    assert {(job.num_gpus, job.submit_time_s) for job in alone} == {(1, 0.0)}
    with pytest.raises(InputError, match="table of rates"):
        make_workload(WorkloadOptions(recipe="gavel"), 1)


def test_gavels_traces_are_lists_of_jobs(tmp_path):
    path = tmp_path / "static.trace"
    path.write_text("LM (batch size 10)\tc\td\t-n\t0\t1000\t2\t1\t-1\t0\nA3C\tc\td\t-n\t0\t50.5\t1\t5.0\t-1\t12.5\n")
    first, second = make_workload(WorkloadOptions(source=str(path)), 1)
    assert (first.application, first.batch_size, first.num_gpus, first.total_steps) == ("LM", 10, 2, 1000)
    assert (second.application, second.submit_time_s, second.weight, second.total_steps) == ("A3C", 12.5, 5.0, 50.5)
