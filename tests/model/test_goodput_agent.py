"""The agent that adapts the batch size."""

from dataclasses import replace

import pytest

from simsched.agent.agent import Measurement
from simsched.agent.goodput_agent import GoodputAgent, Prior, goodput_agent
from simsched.errors import InputError
from simsched.model.application import BatchChoice, BatchLimits, GradientStats, StepTime, facts_of
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.model.tabulated import FixedDuration
from simsched.model.throughput import ThroughputParams

LIMITS = BatchLimits(128, 4096, 32, 1024)
EARLY, LATE = GradientStats(1.0, 0.5), GradientStats(1.0, 500.0)


def seen(nodes=1, gpus=1, local_bsz=128, step=0.1, sync=0.001, gradient=EARLY):
    return Measurement(on(nodes, gpus), local_bsz, StepTime(step, sync), gradient)


def on(nodes, gpus, gpu_type="t4"):
    """Name a place of `gpus` GPUs on `nodes` nodes."""
    return Site((*(1,) * (nodes - 1), gpus - nodes + 1), gpu_type)


def test_before_any_measurement_it_starts_at_the_initial_batch():
    agent = GoodputAgent(LIMITS)
    assert agent.choose(on(1, 1), 0) == BatchChoice(128, 0)
    assert agent.choose(on(2, 8), 0) == BatchChoice(32, 0)  # 8 GPUs need at least 8 x 32 examples
    assert not agent.stale
    assert agent.goodput == ({}, 0)
    assert agent.goodput.on("t4") == (0, None)


def test_after_a_measurement_it_maximises_goodput():
    agent = GoodputAgent(LIMITS)
    agent.observe(seen())
    model = agent.goodput.on("t4").model
    best = model.optimise(1, 2)
    assert agent.choose(on(1, 2), 0) == BatchChoice(int(best.local_bsz), int(best.accum_steps))


def test_the_batch_grows_with_the_noise():
    agent = GoodputAgent(LIMITS)
    agent.observe(seen(gradient=EARLY))
    early = agent.choose(on(1, 4), 0).total(4)
    agent.observe(seen(gradient=LATE))
    assert agent.choose(on(1, 4), 0).total(4) > early


def test_it_is_stale_from_a_change_until_it_chooses():
    agent = GoodputAgent(LIMITS)
    agent.observe(seen())
    assert agent.stale
    agent.choose(on(1, 1), 0)
    assert not agent.stale
    agent.observe(seen())  # the same again
    assert not agent.stale
    agent.observe(seen(gradient=LATE))
    assert agent.stale


def test_the_version_counts_changes_of_the_model():
    agent = GoodputAgent(LIMITS)
    versions = []
    for measurement in (seen(), seen(), seen(gradient=LATE), seen(gpus=2, local_bsz=64, gradient=LATE)):
        agent.observe(measurement)
        versions.append(agent.goodput.version)
    assert versions == [1, 1, 2, 3]


def test_only_unseen_configurations_are_fitted():
    agent = GoodputAgent(LIMITS)
    agent.observe(seen())
    first = agent.goodput.on("t4").model.params
    agent.observe(seen(step=9.9, gradient=LATE))  # the same configuration: its first time stays
    assert agent.goodput.on("t4").model.params == first
    agent.observe(seen(local_bsz=256, step=0.2))
    assert agent.goodput.on("t4").model.params != first


def test_it_remembers_the_most_gpus_it_ran_on():
    agent = GoodputAgent(LIMITS)
    for gpus in (1, 4, 2):
        agent.observe(seen(gpus=gpus, local_bsz=128 // gpus))
    assert agent.goodput.on("t4").max_profiled_gpus == 4


def test_an_earlier_report_does_not_change():
    agent = GoodputAgent(LIMITS)
    agent.observe(seen())
    before = agent.goodput
    agent.observe(seen(gpus=2, local_bsz=64))
    assert before.version == 1
    assert before.on("t4").max_profiled_gpus == 1


def test_the_choice_never_exceeds_the_largest_batch():
    agent = GoodputAgent(BatchLimits(10, 100, 1, 100))
    agent.observe(seen(local_bsz=10, gradient=GradientStats(1e-9, 1.0)))
    for gpus in range(1, 60):
        assert agent.choose(on(2, gpus), 0).total(gpus) <= 100


def test_a_fixed_batch_is_kept_and_never_stale():
    agent = GoodputAgent(BatchLimits(256, 32768, 32, 32768), fixed_batch_size=32768)
    assert agent.choose(on(1, 1), 0) == BatchChoice(16384, 1)
    agent.observe(seen(local_bsz=16384))
    assert not agent.stale
    assert agent.choose(on(1, 1), 0) == BatchChoice(16384, 1)
    assert agent.goodput.on("t4").model is not None


def test_a_prior_serves_until_the_first_measurement():
    prior = Prior(ThroughputParams(0.02, 0.0006, 0.02, 0.01, 0.004, 0.001, 1.2), LATE)
    agent = GoodputAgent(LIMITS, priors={"t4": prior})
    assert agent.goodput.on("t4").model.params == prior.params
    assert agent.choose(on(1, 4), 0).total(4) > 128
    agent.observe(seen())
    assert agent.goodput.on("t4").model.params != prior.params


def test_jobs_without_batches_are_refused():
    with pytest.raises(InputError, match="trace jobs carry only durations"):
        goodput_agent(JobSpec("a", 0, 1).request, facts_of(FixedDuration(60)))


def test_what_crosses_racks_has_a_pair_of_parameters_of_its_own():
    true = ThroughputParams(0.02, 0.001, 0.05, 0.002, 0.01, 0.001, 1.5)
    across = replace(true, alpha_n=0.4, beta_n=0.02)

    def measured(params, nodes, gpus, bsz, crossed):
        step, grad = float(params.step_time_s(nodes, gpus, bsz)), float(params.grad_time_s(bsz))
        return Measurement(on(nodes, gpus)._replace(levels_crossed=crossed), bsz, StepTime(step, step - grad), EARLY)

    agent, plain = GoodputAgent(LIMITS), GoodputAgent(LIMITS)
    for nodes, gpus in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8)):
        for bsz in (64, 128, 256):
            agent.observe(measured(true, nodes, gpus, bsz, 0))
            plain.observe(measured(true, nodes, gpus, bsz, 0))
    assert agent.beyond == {}
    before = agent.choose(on(2, 8), 0)
    for gpus in (4, 8, 16):
        agent.observe(measured(across, 2, gpus, 128, 1))
    found = agent.beyond["t4"]
    times = [float(found.step_time_s(2, gpus, 128)) for gpus in (4, 8, 16)]
    assert times == pytest.approx([float(across.step_time_s(2, gpus, 128)) for gpus in (4, 8, 16)], rel=0.03)
    # What is known of nodes of one rack is as before, and slow links ask for larger batches.
    assert agent.goodput.on("t4").model.params == plain.goodput.on("t4").model.params
    assert agent.choose(on(2, 8), 0) == before
    assert agent.choose(on(2, 8)._replace(levels_crossed=1), 0).total(8) > before.total(8)


def test_a_job_that_has_only_crossed_racks_takes_that_for_crossing_nodes():
    agent = GoodputAgent(LIMITS)
    agent.observe(seen(2, 8)._replace(site=on(2, 8)._replace(levels_crossed=1)))
    assert agent.goodput.on("t4").model is not None
    assert agent.beyond.keys() == {"t4"}
