"""Agents that change the batch by a rule, and applications known by a table, on cases worked by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.agent import registry
from simsched.agent.agent import Measurement
from simsched.agent.rule_agent import (
    NOTHING_MEASURED,
    Accordion,
    AdaBatch,
    AdaBatchAgents,
    BatchState,
    CabsAgents,
    NoiseAgents,
    NoiseSchedule,
    configured_agent,
)
from simsched.applications.rate_table import shockwave_regimes
from simsched.engine.options import EngineOptions
from simsched.engine.providers import TrueSteps
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.application import ApplicationFacts, BatchChoice, GradientStats, StepTime, facts_of
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest, JobSpec
from simsched.model.placement import Site
from simsched.model.regimes import BatchRegimes, CriticalEpochs, profile
from simsched.model.tabulated import Setting, TabulatedJob, TabulatedModel
from simsched.policy.signals import STEPS
from simsched.testing.builders import Applications, run, toy_application

ONE = Site((1,), "v100")
TWO = Site((2,), "v100")
#: 100 examples, 10 steps an epoch at batch 10; it doubles at epoch 2; epochs 0 and 1 are critical.
REGIMES = BatchRegimes(100, 10, 40, {(10, 1): (2,)}, CriticalEpochs(((0, 2),)))
RATES = {Setting(10, 1): 2.0, Setting(20, 1): 1.5, Setting(40, 1): 1.0, Setting(10, 2): 3.0}
MODEL = TabulatedModel("toy-table", {"v100": RATES, "k80": {Setting(10, 2): 1.0}}, REGIMES)


def request(**other):
    return JobRequest("a", 0, other.pop("gpus", 1), "toy-table", other.pop("batch", 10), **other)


class Table:
    def for_job(self, request, truth):
        asked = Setting(request.batch_size, request.num_gpus)
        return TabulatedJob(MODEL, asked, truth.total_steps, request.batch_rule)


def ended(rule, steps=45):
    job = JobSpec("a", 0, 1, "toy-table", 10, batch_rule=rule, total_steps=steps)
    options = EngineOptions(restart_delay_s=0, tick_s=0)
    return run(Fifo(), [job], cluster=Cluster.uniform(1, 1, "v100"), applications=Table(), options=options)


def test_a_table_tells_rates_types_and_epochs():
    job = TabulatedJob(MODEL, Setting(10, 2), 25)
    assert (job.gpu_types, job.epochs, job.batch_sizes) == (("k80", "v100"), 1, (10,))
    assert [job.epoch_end(epoch) for epoch in range(job.epochs)] == [25]
    assert job.run(TWO, BatchChoice(0, 0), 0).rate == 3.0
    assert job.step_time(TWO, 10).step_s == pytest.approx(1 / 3)
    assert job.profile_s("k80") == (10.0, 10.0, 10.0)  # whole epochs of 100 examples, as Shockwave profiles
    with pytest.raises(ValueError, match="no rate of toy-table at batch size 10 on 1 GPUs of k80"):
        job.run(Site((1,), "k80"), BatchChoice(10, 0), 0)
    with pytest.raises(ValueError, match="10 on 1, 10 on 2, 20 on 1, 40 on 1"):
        TabulatedJob(MODEL, Setting(10, 4), 25)
    with pytest.raises(ValueError, match="at least 1"):
        TabulatedJob(MODEL, Setting(10, 1), 0)


def test_a_job_without_a_rule_takes_steps_over_rate():
    assert ended("").jobs[0].jct_s == 22.5


def test_a_gradient_noise_schedule_doubles_an_epoch_ahead():
    """Epoch 0 at 2 steps/s of batch 10; from epoch 1 on 1.5 steps/s of batch 20, which is 3 steps/s of batch 10."""
    records = ended("gns")
    assert records.jobs[0].jct_s == pytest.approx(10 / 2 + 35 / 3)
    assert [(one.epoch, one.batch_size) for one in records.allocations][:3] == [(0, 10), (1, 20), (2, 20)]


def test_accordion_trains_what_is_not_critical_with_the_largest_batch():
    records = ended("accordion")
    assert records.jobs[0].jct_s == pytest.approx(20 / 2 + 25 / 4)
    assert [one.batch_size for one in records.allocations] == [10, 10, 40, 40, 40]


def test_steps_are_a_signal():
    class Looks(Fifo):
        traits = replace(Fifo.traits, needs=Fifo.traits.needs | {STEPS})
        seen = ()

        def decide(self, view, rng):
            steps = view.jobs["a"][STEPS]
            Looks.seen = (steps.total, steps.done, steps.rate("v100"), steps.rate("v100", 40), steps.profile)
            return super().decide(view, rng)

    job = JobSpec("a", 0, 1, "toy-table", 10, batch_rule="gns", total_steps=45)
    run(Looks(), [job], cluster=Cluster.uniform(1, 1, "v100"), applications=Table())
    assert Looks.seen == (45, 0.0, 2.0, 1.0, (10, 10, 20, 20, 20))


def test_a_view_tells_of_steps_what_the_table_says():
    told = TrueSteps(SimpleNamespace(live_progress=7.0), TabulatedJob(MODEL, Setting(10, 2), 25))
    assert (told.done, told.total, told.regimes, told.profile) == (7.0, 25, REGIMES, (10, 10, 10))
    assert told.profile_s("k80") == (10.0, 10.0, 10.0)
    assert [told.rate("k80"), told.rate("v100"), told.rate("v100", 20, 1)] == [1.0, 3.0, 1.5]


def test_adabatch_doubles_on_its_schedule_within_the_limits():
    agent = AdaBatchAgents(epochs=2).agent(request(batch=64), facts_of(toy_application()))
    assert [agent.choose(ONE, epoch).total(1) for epoch in range(7)] == [64, 64, 128, 128, 256, 256, 256]


def test_kungfu_follows_the_noise_that_is_measured():
    """Variance 3 and squared norm 1 at the initial batch of 16 are a noise scale of 48 examples."""
    agent = NoiseAgents().agent(request(batch=16), facts_of(toy_application()))
    assert agent.choose(ONE, 0).total(1) == 16
    agent.observe(Measurement(ONE, 16, StepTime(1.0, 0.0), GradientStats(1.0, 3.0)))
    assert agent.choose(ONE, 0).total(1) == 16  # once an epoch
    assert agent.choose(ONE, 1).total(1) == 48


def test_cabs_takes_loss_and_learning_rate_as_given():
    agent = CabsAgents(learning_rate=0.5, loss=0.25).agent(request(batch=16), facts_of(toy_application()))
    agent.observe(Measurement(ONE, 16, StepTime(1.0, 0.0), GradientStats(1.0, 2.0)))
    assert agent.choose(ONE, 1).total(1) == 64


def test_a_batch_that_the_table_lacks_is_not_taken():
    agent = configured_agent(request(gpus=2, batch_rule="accordion"), facts_of(TabulatedJob(MODEL, Setting(10, 2), 25)))
    assert agent.choose(TWO, 2) == BatchChoice(10, 0)


def test_rules_without_regimes_or_batches_are_refused():
    with pytest.raises(InputError, match="no batch regimes of 'toy' are published"):
        configured_agent(request(batch_rule="gns"), facts_of(toy_application()))
    with pytest.raises(InputError, match="is not a batch rule"):
        configured_agent(request(batch_rule="twice"), facts_of(TabulatedJob(MODEL, Setting(10, 1), 25)))
    assert {"accordion", "adabatch", "cabs", "gradient-noise", "kungfu-noise"} <= set(registry.names())
    for name in ("adabatch", "accordion"):
        fixed = JobRequest("b", 0, 1)
        with pytest.raises(InputError, match="fixed-duration"):
            registry.load(name)().agent(fixed, ApplicationFacts("fixed-duration"))


def test_every_agent_runs_on_an_application_without_published_regimes():
    jobs = [JobSpec("a", 0, 2, "toy", 32), JobSpec("b", 0, 1, "toy", 16)]
    largest = {}
    for name in ("accordion", "adabatch", "cabs", "gradient-noise", "kungfu-noise"):
        records, known = MemoryRecorder(), Applications(toy_application(epochs=30))
        agents = registry.load(name)()
        simulate(Cluster.uniform(1, 4), jobs, known, Fifo(), EngineOptions(), 1, records, agents=agents)
        assert {record.job_id for record in records.jobs} == {"a", "b"}
        largest[name] = max(interval.batch_size for interval in records.allocations if interval.job_id == "a")
    # The noise scale is 16 everywhere, and a gradient whose norm stays is not critical after ten epochs.
    assert largest == {"accordion": 256, "adabatch": 64, "cabs": 32, "gradient-noise": 32, "kungfu-noise": 32}


TOY = BatchRegimes(100, 10, 80, {(10, 1): (2, 4, 5)}, CriticalEpochs(((0, 2),), in_profile=((6, 7),)))


def state(batch=10, epoch=0, **other):
    values = {"initial": 10, "gpus": 1, "smallest": 10, "largest": 80} | other
    return BatchState(batch=batch, epoch=epoch, **values)


def test_accordion_goes_up_after_critical_epochs_and_back_down():
    rule = Accordion(TOY)
    assert rule(state(10, 1), NOTHING_MEASURED) == 10
    assert rule(state(10, 2), NOTHING_MEASURED) == 80
    assert rule(state(80, 1), NOTHING_MEASURED) == 10
    assert rule(state(40, 3), NOTHING_MEASURED) == 40
    assert rule(state(20, 1, initial=40, smallest=20), NOTHING_MEASURED) == 20


def test_a_noise_schedule_looks_one_epoch_ahead():
    rule = NoiseSchedule(TOY)
    assert [rule(state(10, epoch), NOTHING_MEASURED) for epoch in range(4)] == [10, 20, 20, 20]
    assert rule(state(20, 3), NOTHING_MEASURED) == 40
    assert rule(state(80, 9), NOTHING_MEASURED) == 80


def test_adabatch_doubles_every_twenty_epochs():
    rule = AdaBatch()
    assert [rule(state(10, epoch), NOTHING_MEASURED) for epoch in (0, 19, 20, 40, 60, 80)] == [10, 10, 20, 40, 80, 80]


def test_the_shipped_regimes():
    regimes = shockwave_regimes()
    assert sorted(regimes) == ["LM", "Recommendation", "ResNet-18", "ResNet-50", "Transformer"]
    image = regimes["ResNet-18"]
    assert [image.doubled(16, 1, e) for e in (30, 31, 41, 51, 71)] == [16, 32, 64, 128, 256]
    assert [image.is_critical(256, e) for e in (19, 20, 155)] == [True, False, True]
    assert [image.is_critical(32, e) for e in (9, 10, 255)] == [True, False, True]
    assert [regimes["ResNet-50"].is_critical(64, e) for e in (9, 10, 30)] == [True, False, True]
    assert [regimes["Recommendation"].is_critical(2048, e) for e in (39, 40)] == [True, False]
    assert regimes["Transformer"].is_critical(16, 10**6)
    assert profile(regimes["Transformer"], "accordion", 16, 1, 6250) == (16,) * 10
    for model, entry in regimes.items():
        for batch, _gpus in entry.doublings:
            assert entry.smallest <= batch < entry.largest, model
            assert math.log2(entry.largest / entry.smallest).is_integer()
