"""Agents at their edges: rules of batches, offline grids, pools, and models lent from type to type."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from simsched.agent import pool as pools
from simsched.agent.agent import Measurement
from simsched.agent.fit import Fit, Fits
from simsched.agent.goodput_agent import Goodput, GoodputAgent, Prior, _batches, _shapes, offline_prior
from simsched.agent.pool import HistoryPool, history_of_job
from simsched.agent.rule_agent import (
    AdaBatch,
    BatchMetrics,
    BatchState,
    MeasuredAccordion,
    NoiseAverage,
    RuleAgent,
    averaged,
    cabs,
    configured_agent,
    noise_doubling,
    noise_rule,
)
from simsched.model.application import ApplicationFacts, BatchLimits, GradientStats, StepTime
from simsched.model.job import JobRequest
from simsched.model.placement import Site
from simsched.model.regimes import BatchRegimes
from simsched.model.throughput import ThroughputParams
from simsched.testing.builders import toy_application

STATE = BatchState(initial=10, batch=10, epoch=0, gpus=1, smallest=8, largest=40)


@pytest.mark.parametrize(("batch", "clipped"), [(7.9, 8), (8.5, 8), (9.5, 10), (10.6, 11), (39.4, 39), (99.0, 40)])
def test_a_batch_is_rounded_half_to_even_into_its_bounds(batch, clipped):
    assert STATE.clip(batch) == clipped


def test_rules_keep_the_batch_where_a_figure_is_not_measured():
    told = BatchMetrics(noise_scale=20.0, gradient_variance=100.0, loss=0.5, learning_rate=0.1)
    assert cabs(STATE, told) == 20  # 0.1 x 100 / 0.5
    state = STATE._replace(batch=13)
    for name in ("gradient_variance", "loss", "learning_rate"):
        assert cabs(state, told._replace(**{name: None})) == 13
    assert [cabs(state, told._replace(loss=loss)) for loss in (0.0, -1.0, 1e-9)] == [13, 13, 40]
    assert [noise_rule(state, BatchMetrics(noise)) for noise in (None, 5.0, 30.0)] == [13, 8, 30]
    assert [noise_doubling(state, BatchMetrics(noise)) for noise in (None, 25.9, 26.0, 1e9)] == [13, 13, 26, 26]
    assert noise_doubling(state._replace(batch=26), BatchMetrics(1e9)) == 40


def test_averages_weigh_the_newest_by_six_tenths_and_the_first_stands_for_itself():
    before, newest = NoiseAverage(10.0, 1.0), NoiseAverage(20.0, 6.0)
    assert averaged(None, newest) == newest
    assert averaged(before, newest) == pytest.approx((16.0, 4.0))
    assert averaged(before, newest, 0.25) == pytest.approx((12.5, 2.25))
    assert [NoiseAverage(3.0, norm).noise_scale for norm in (2.0, 0.0, -1.0)] == [1.5, np.inf, np.inf]


def test_adabatch_by_its_own_numbers():
    rule = AdaBatch(epochs=3, factor=3)
    assert [rule(STATE._replace(epoch=epoch), BatchMetrics()) for epoch in (2, 3, 5, 6)] == [10, 30, 30, 40]


def test_measured_accordion_compares_norms_every_ten_epochs():
    rule = MeasuredAccordion()
    # Norms 4, (ignored), 2: changed by just half of 4; then 1.25, by less; nothing measured; 1.875, by just half.
    steps = ((0, 16.0), (5, 0.0), (10, 4.0), (20, 1.25**2), (25, 99.0), (30, None), (40, 1.875**2))
    found = [rule(STATE._replace(epoch=epoch), BatchMetrics(gradient_sqr=norm)) for epoch, norm in steps]
    assert found == [10, 10, 10, 40, 40, 40, 10]


LIMITS = BatchLimits(16, 256, 8, 32)
FACTS = ApplicationFacts("toy", limits=LIMITS)


def request(gpus=1, batch=0, rule=""):
    return JobRequest("a", 0, gpus, "toy", batch, batch_rule=rule)


def site(gpus, nodes=1, gpu_type="t4", crossed=0):
    return Site((gpus // nodes,) * nodes, gpu_type, crossed)


def test_a_rule_is_asked_once_an_epoch_and_its_batch_is_at_least_what_the_gpus_hold():
    asked = []

    def doubling(state, metrics):
        asked.append((state.epoch, state.gpus, state.batch, state.smallest, state.largest, metrics.loss))
        return 2 * state.batch

    agent = RuleAgent(request(2), FACTS, doubling)
    found = [agent.choose(site(gpus), epoch).total(gpus) for gpus, epoch in ((2, 0), (2, 0), (8, 0), (2, 1), (1, 2))]
    assert found == [32, 32, 64, 64, 128]  # eight GPUs hold eight examples each at least
    assert asked == [(0, 2, 16, 16, 256, None), (1, 2, 32, 16, 256, None), (2, 1, 64, 16, 256, None)]
    fixed = RuleAgent(request(2), replace(FACTS, fixed_batch_size=24), doubling)
    assert [fixed.choose(site(2), epoch).total(2) for epoch in (0, 1)] == [24, 24]
    assert len(asked) == 3
    assert RuleAgent(request(2, batch=40), FACTS, lambda state, metrics: state.batch).choose(site(2), 0).total(2) == 40


def test_a_rule_that_names_no_critical_epochs_keeps_the_batch_and_static_is_no_rule():
    regimes = BatchRegimes(100, 10, 40, {(10, 1): (2,)})
    facts = ApplicationFacts("table", batch_sizes=(10, 20, 40), regimes=regimes)
    agent = configured_agent(request(batch=20, rule="accordion"), facts)
    assert [agent.choose(site(1), epoch).local_bsz for epoch in (0, 5)] == [20, 20]
    for rule in ("", "static"):
        assert configured_agent(request(2, batch=32, rule=rule), FACTS).choose(site(2), 3).total(2) == 32


@pytest.mark.parametrize(
    ("gpus_per_node", "within"),
    [(1, [(1,)]), (2, [(1,), (2,)]), (4, [(1,), (2,), (4,)]), (6, [(1,), (2,), (4,), (6,)])],
)
def test_offline_profiles_cover_a_node_two_nodes_and_whole_nodes(gpus_per_node, within):
    whole = [(gpus_per_node,) * nodes for nodes in (2, 4, 8, 16)]
    assert _shapes(gpus_per_node) == [*within, (1, 1), *whole]


def test_offline_batches_are_spaced_geometrically_and_stop_where_the_total_would_be_too_large(monkeypatch):
    monkeypatch.setattr(sys.modules["simsched.agent.goodput_agent"], "fit", no_fit)
    assert _batches(BatchLimits(128, 4096, 32, 1024)) == [32, 64, 128, 256, 512, 1024]
    assert _batches(BatchLimits(1, 8, 1, 2)) == [1, 2]
    app = toy_application()  # at least 8 on a GPU, at most 256 in all
    assert app.limits == BatchLimits(16, 256, 8, 64)
    assert {gpus for _, gpus, _ in offline_prior(app, "t4", 2).profile} == {1, 2, 4, 8, 16, 32}
    assert {gpus for _, gpus, _ in offline_prior(app, "t4", 3).profile} == {1, 2, 3, 6, 12, 24}


PARAMS = ThroughputParams(0.05, 0.002, 0.2, 0.01, 0.04, 0.004, 1.6)
EVEN = GradientStats(1.0, 2.0)


def no_fit(profile):
    """Return the same parameters for whatever was measured."""
    return Fit(PARAMS, 0.0)


class NoFits(Fits):
    """Fits nothing: the parameters are those given, and what was to be fitted is kept."""

    def __init__(self, params=PARAMS):
        super().__init__()
        self.params, self.asked = params, []

    def fit(self, profile, *, start=None):
        self.asked.append((dict(profile), start))
        return Fit(self.params, 0.0)


def measured(gpus, step_s, local_bsz=16, *, gradient=EVEN, epoch=0, **where):
    return Measurement(site(gpus, **where), local_bsz, StepTime(step_s, 0.0), gradient, epoch)


def test_an_agent_refits_what_is_new_beside_what_its_prior_knows():
    known = {(1, 1, 16): StepTime(0.5, 0.0)}
    fits = NoFits()
    agent = GoodputAgent(LIMITS, fits=fits, priors={"t4": Prior(PARAMS, EVEN, known, 1)})
    version = agent.goodput.version
    agent.observe(measured(1, 0.5))
    assert (fits.asked, agent.stale, agent.goodput.version) == ([], True, version + 1)  # confirmed to the digit
    agent.observe(measured(1, 0.5))
    assert agent.goodput.version == version + 1
    agent.observe(measured(2, 0.4))
    assert fits.asked == [({**known, (1, 2, 16): StepTime(0.4, 0.0)}, None)]
    bare = NoFits()
    GoodputAgent(LIMITS, fits=bare, priors={"t4": Prior(PARAMS, EVEN)}).observe(measured(1, 0.5))
    assert bare.asked == [(known, PARAMS)]
    agent.start_from({"v100": Prior(PARAMS, EVEN)})
    assert set(agent.goodput.types) == {"t4"}  # it keeps to what it has measured


def test_the_statistics_of_an_epoch_are_the_last_ones_and_a_change_of_them_changes_the_model():
    agent = GoodputAgent(LIMITS, fits=NoFits())
    for epoch, norm in ((0, 1.0), (0, 2.0), (1, 3.0)):
        agent.observe(measured(1, 0.5, gradient=GradientStats(norm, 2.0), epoch=epoch))
    assert agent.noise == {0: GradientStats(2.0, 2.0), 1: GradientStats(3.0, 2.0)}
    assert agent.goodput.version == 3
    assert agent.goodput.on("t4").model.gradient == GradientStats(3.0, 2.0)
    assert {kind: dict(profile) for kind, profile in agent.profiles.items()} == {"t4": {(1, 1, 16): StepTime(0.5, 0.0)}}


def test_a_type_of_single_gpus_borrows_from_the_one_with_the_most():
    def learnt(bootstrap, *more):
        agent = GoodputAgent(LIMITS, fits=NoFits(), bootstrap=bootstrap)
        for one in (*more, measured(1, 3 * step_s), measured(1, 5 * other_s, 32)):
            agent.observe(one)
        return agent.goodput.on("t4")

    step_s, other_s = (float(PARAMS.step_time_s(1, 1, size)) for size in (16, 32))
    lenders = measured(2, 1.0, gpu_type="a100"), measured(4, 1.0, gpu_type="v100"), measured(1, 1.0, gpu_type="k80")
    found = learnt(True, *lenders)
    # At its single-GPU speed of 3 and 5 times the lender's, 4 on the mean.
    assert found.max_profiled_gpus == 4
    assert float(found.model.params.step_time_s(1, 1, 16)) == pytest.approx(4 * step_s)
    assert learnt(False, *lenders).max_profiled_gpus == 1
    assert (learnt(True).max_profiled_gpus, learnt(True).model.params) == (1, PARAMS)
    assert learnt(True, lenders[2], measured(2, 1.0)).max_profiled_gpus == 2  # it has run on two itself


class TwoLevels(NoFits):
    """Finds that crossing racks is a hundred times as slow as crossing nodes."""

    across = replace(PARAMS, alpha_n=100 * PARAMS.alpha_n)

    def fit_across(self, profile, within):
        self.asked.append((dict(profile), within))
        return self.across


def test_an_agent_takes_crossing_racks_for_crossing_nodes_until_it_has_measured_it():
    fits = TwoLevels()
    agent, other = (GoodputAgent(LIMITS, fits=one) for one in (fits, NoFits(TwoLevels.across)))
    one_rack, racks = site(8, nodes=2), site(8, nodes=2, crossed=1)
    for each in (agent, other):
        each.observe(measured(1, 0.5))
        each.observe(measured(8, 0.5, nodes=2))
    assert agent.beyond == {}
    assert agent.choose(racks, 0) == agent.choose(one_rack, 0) != other.choose(one_rack, 0)
    asked = len(fits.asked)
    agent.observe(measured(8, 0.9, nodes=2, crossed=1))
    assert fits.asked[asked:] == [({(2, 8, 16): StepTime(0.9, 0.0)}, PARAMS)]
    assert agent.beyond == {"t4": TwoLevels.across}
    assert agent.choose(racks, 0) == other.choose(one_rack, 0) != agent.choose(one_rack, 0)
    agent.observe(measured(8, 0.7, nodes=2, crossed=1))  # a configuration is fitted once
    assert len(fits.asked) == asked + 1


@pytest.mark.parametrize("noise", [-0.1, 1.0, 2.0])
def test_noise_is_a_share_below_one(noise):
    with pytest.raises(ValueError, match="from 0 to below 1"):
        Goodput(noise=noise)
    assert Goodput(noise=0.0).noise == 0.0


# --- pools ---------------------------------------------------------------------------------------------------------


def pool_on(gpu_type="t4", limits=LIMITS):
    pool = HistoryPool(params={("a", gpu_type): PARAMS})
    pool.add("a", history_of_job(limits, {gpu_type: {(1, 1, 16): StepTime(0.5, 0.1)}}, {0: EVEN}))
    return pool


@pytest.mark.parametrize(
    ("init", "pace", "similar"),
    [(16, 1.0, True), (8, 1.0, True), (32, 1.0, True), (7, 1.0, False), (33, 1.0, False), (16, 1.99, True),
     (16, 2.01, False), (16, 0.501, True), (16, 0.499, False)],
)  # fmt: skip
def test_applications_are_similar_within_a_factor_of_two(monkeypatch, init, pace, similar):
    monkeypatch.setattr(pools, "fit", no_fit)
    step_s = pace * float(PARAMS.step_time_s(1, 1, 16))
    found = pool_on().similar(replace(LIMITS, init_batch_size=init), measured(1, step_s))
    assert (found is not None) is similar
    if found is not None:
        assert found.profile == {(1, 1, 16): StepTime(pytest.approx(0.4 * pace + 0.1), 0.1)}
    assert pool_on("v100").similar(LIMITS, measured(1, step_s)) is None


def test_what_is_learnt_anew_is_fitted_anew_only_where_times_have_changed(monkeypatch):
    fitted = []
    monkeypatch.setattr(pools, "fit", lambda profile: fitted.append(profile) or no_fit(profile))
    pool = pool_on()
    same = history_of_job(LIMITS, {"t4": {(1, 1, 16): StepTime(0.5, 0.1)}}, {1: EVEN})
    pool.add("a", same)
    assert (pool.params("a", "t4"), pool.jobs, fitted) == (PARAMS, 2, [])
    pool.add("a", history_of_job(LIMITS, {"t4": {(1, 1, 16): StepTime(0.8, 0.1)}}, {1: EVEN}))
    assert pool.params("a", "t4") == pool.params("a", "t4") == PARAMS
    assert fitted == [pool["a"].step_times("t4")]
    assert pool["a"].step_times("t4")[1, 1, 16].step_s == pytest.approx(0.6)
    assert history_of_job(LIMITS, {}, {0: EVEN}) is None
    assert history_of_job(LIMITS, {"t4": {(1, 1, 16): StepTime(0.8, 0.1)}}, {}) is None
