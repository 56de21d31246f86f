"""Jobs known by a table, their tensors or their stages, and what shapes say; each rule at its edge, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simsched.agent.fixed_agent import fixed_agent
from simsched.api.checking import check
from simsched.errors import InputError
from simsched.experiment.cuts import cuts_of
from simsched.model import NodeShape
from simsched.model.application import BatchChoice, MemoryNeed, facts_of
from simsched.model.cluster import Cluster
from simsched.model.colocation.stages import gap_turns, group_s, pipeline_s
from simsched.model.job import JobRequest, JobSpec, Speedup
from simsched.model.placement import Amount, Site
from simsched.model.tabulated import Setting, TabulatedJob, TabulatedModel
from simsched.model.tensors import TensorModel, TensorModelJob
from simsched.model.topology import site_of
from simsched.policy import JobView
from simsched.testing.builders import toy_application

#: Two seconds a step at 8 examples on one V100, a quarter at 16 on two; an A100 knows the first setting alone.
TABLE = TabulatedModel("m", {
    "v100": {Setting(8, 1): 0.5, Setting(16, 1): 0.25, Setting(16, 2): 4.0}, "a100": {Setting(8, 1): 1.0},
})  # fmt: skip


def test_a_job_of_a_table_knows_its_rows_and_no_others():
    job = TabulatedJob(TABLE, Setting(8, 1), 100)
    assert (job.gpu_types, job.batch_sizes, job.epochs, job.total_steps) == (("a100", "v100"), (8,), 1, 100)
    assert TabulatedJob(TABLE, Setting(16, 1), 100).batch_sizes == (8, 16)
    assert TabulatedJob(TABLE, Setting(8, 1), 1).epoch_end(0) == 1
    v100 = Site((1,), "v100")
    # Twice the batch at half the rate makes the progress of the batch asked for, and as many examples a second.
    assert [job.run(v100, BatchChoice(batch, 0), 0)[:3] for batch in (0, 8, 16)] == [(0.5, 1, 4)] * 3
    assert job.step_time(v100, 0) == (2.0, 0.0)
    assert job.step_time(v100, 16) == (4.0, 0.0)
    assert (job.epoch_end(0), job.iterations(8, 0), job.iterations(16, 0), job.iterations(0, 0)) == (100, 100, 50, 100)
    assert (job.rate("v100"), job.rate("v100", 16, 2), job.rate("a100", 16), job.rate("t4")) == (0.5, 4.0, 0.0, 0.0)
    assert (job.profile, job.profile_s("v100"), job.profile_s("a100")) == ((8,), (200,), (100,))


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: TabulatedJob(TABLE, Setting(8, 2), 100),
         r"no rate of m at batch size 8 on 2 GPUs is known \(batch size on GPUs: 16 on 1, 16 on 2, 8 on 1\)"),
        (lambda: TabulatedJob(TABLE, Setting(8, 1), 0.5), "a job of m needs its number of steps, at least 1"),
        (lambda: TabulatedJob(TABLE, Setting(8, 1), 9).run(Site((2,), "v100"), BatchChoice(0, 0), 0),
         "no rate of m at batch size 8 on 2 GPUs of v100 is known"),
        (lambda: TabulatedJob(TABLE, Setting(8, 1), 9).step_time(Site((1,), "a100"), 16),
         "no rate of m at batch size 16 on 1 GPUs is known"),
        (lambda: TensorModelJob(VGG, 0), "a job of vgg needs a duration above 0 seconds, not 0"),
        (lambda: TensorModelJob(VGG, 9).step_time(Site((1,), "v100"), 0), "their step time is unknown"),
    ],
)  # fmt: skip
def test_what_a_job_does_not_know_is_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        refused()


#: Half as slow again where every GPU is on a node of its own.
VGG = TensorModel("vgg", 500.0, 400.0, 10.25, 20.5, 0.5)


@pytest.mark.parametrize(
    ("shape", "factor"), [((4,), 1), ((2, 2), 1 + 0.5 / 3), ((1,) * 4, 1.5), ((4, 4), 1), ((4, 3, 1), 1 + 0.5 / 6)]
)
def test_a_model_of_large_tensors_slows_down_with_the_nodes_beyond_those_needed(shape, factor):
    assert VGG.slow_down(shape) == pytest.approx(factor)
    assert TensorModelJob(VGG, 60).run(Site(shape, "v100"), BatchChoice(0, 0), 0).rate == pytest.approx(1 / factor)


def test_a_job_of_tensors_speeds_up_as_declared_and_pays_checkpoint_and_resumption():
    job = TensorModelJob(VGG, 60, 2, Speedup(0.5))
    assert (job.tensor_skew, job.restart_delay_s, job.start_delay_s) == (0.8, 31, 0)
    assert (job.epoch_end(0), job.iterations(8, 0), job.other_counts, job.only_gpus) == (60, 60, True, None)
    assert job.run(Site((4, 4), "v100"), BatchChoice(0, 0), 0)[:3] == (2.0, 1.0, 0.0)  # the root of eight over two
    rigid = TensorModelJob(VGG, 60, 2)
    assert (rigid.other_counts, rigid.only_gpus) == (False, 2)
    assert TensorModelJob(VGG, 60).other_counts


@pytest.mark.parametrize(("gpus", "speed"), [(1, 1.5), (2, 3.0), (3, 3.5), (4, 4.0), (6, 4.5), (8, 5.0), (16, 5.0)])
def test_a_table_of_speed_is_read_with_straight_lines(gpus, speed):
    assert Speedup.of([(2, 3.0), (4, 4.0), (8, 5.0)]).speed(gpus) == speed


def test_a_speed_up_is_linear_an_exponent_or_a_table_and_nothing_else():
    assert (Speedup.of("linear").speed(6), Speedup.of(0.5).speed(9), Speedup.of(1).speed(3)) == (6, 3, 3)
    for wrong in (0, 1.01, [(2, 1.0), (2, 2.0)], [(0, 1.0)], [(1, 0.0)], [(2, 1.0), (1, 2.0)]):
        with pytest.raises(ValueError, match="speed-up"):
            Speedup.of(wrong)


def test_the_slots_of_a_pipeline_by_hand():
    # The slots of (1, 2, 3) and (2, 1, 1) end at 1, 1, 3, 6 and then 7: six seconds from the first slot to the fifth.
    assert pipeline_s([(1, 2, 3), (2, 1, 1)]) == 6
    assert pipeline_s([(0.01, 0.02, 0.03), (0.02, 0.01, 0.01)]) == pytest.approx(0.06), "whatever the unit"
    assert pipeline_s([(10, 1, 1)]) == 12
    # One loads (4) while the other computes and synchronises (3), and the reverse (1 beside 2): six.
    assert group_s([(4, 1, 1), (1, 2, 1)]) == min(
        6, pipeline_s([(4, 1, 1), (1, 2, 1)]), pipeline_s([(1, 2, 1), (4, 1, 1)])
    )


@pytest.mark.parametrize(
    ("own", "other", "turns"),
    [
        # The other leaves the disk 5 s, the GPU 4 s and the network 3 s of a turn: (data, GPU, network) = (1, 2, 3).
        ((0, 0, 0), (1, 2, 3), 0),
        ((5, 0, 0), (1, 2, 3), 1),
        ((6, 0, 0), (1, 2, 3), 2),
        ((5, 4, 3), (1, 2, 3), 3),
        ((6, 4, 0), (1, 2, 3), 3),  # of the second turn's gap 3 s are left for the GPU
        ((0, 6, 3), (2, 2, 3), 2),  # of the second turn's gap 3 s are left for the network
        ((0, 0, 4), (1, 2, 3), 1),
        ((0, 8, 0), (1, 2, 3), 2),
        ((0, 9, 0), (1, 2, 3), 3),
        ((0, 0, 5), (1, 2, 3), 2),
    ],
)
def test_turns_in_the_gaps_of_another(own, other, turns):
    assert gap_turns(own, other) == turns


@pytest.mark.parametrize(
    ("shape", "binds"),
    [
        (NodeShape(0, Amount(4)), False),
        (NodeShape(0, Amount(4), ("a100",)), False),
        (NodeShape(1, Amount(4)), True),
        (NodeShape(0, Amount(1, gpu_milli=500)), True),
        (NodeShape(0, Amount(4, cpu_milli=1)), True),
        (NodeShape(0, Amount(4, memory_mib=1)), True),
        (NodeShape(0, Amount(4), within=0), True),
        (NodeShape(0, Amount(4), exclusive=True), True),
    ],
)
def test_a_shape_binds_that_says_more_than_gpus_of_types(shape, binds):
    assert shape.binds is binds


def test_a_shape_says_what_it_wants_and_what_goes_with_its_gpus():
    shape = NodeShape(2, Amount(4, cpu_milli=2500, memory_mib=10), ("a100", "v100"), exclusive=True)
    assert shape.said == "4 GPUs, 2.5 cores, 10 MiB on each of 2 nodes of type a100 or v100, to itself"
    assert NodeShape(0, Amount(1)).said == "1 GPU"
    assert [shape.beside(gpus) for gpus in (0, 1, 3, 4)] == [(0, 0), (625, 3), (1875, 8), (2500, 10)]
    assert NodeShape(1, Amount(0, cpu_milli=7, memory_mib=5)).beside(3) == (7, 5)


@pytest.mark.parametrize(
    ("shape", "gpus", "like"),
    [
        (NodeShape(0, Amount(4)), (1, 3), True),
        (NodeShape(0, Amount(4)), (4, 1), False),
        (NodeShape(2, Amount(2)), (2, 2), True),
        (NodeShape(2, Amount(2)), (4,), True),
        (NodeShape(2, Amount(2)), (3, 1), False),
        (NodeShape(2, Amount(2)), (2,), False),
        (NodeShape(2, Amount(0, cpu_milli=1)), (0, 0), True),
        (NodeShape(2, Amount(0, cpu_milli=1)), (0,), False),
        (NodeShape(1, Amount(0, cpu_milli=1)), (1,), False),
    ],
)
def test_nodes_are_like_a_shape(shape, gpus, like):
    assert shape.is_like(gpus) is like


@pytest.mark.parametrize(
    ("gpus", "batch", "need_mb"), [(2, 16, 100 + 8 * 3.0), (4, 2, 100 + 3.0), (1, 1, 103.0), (2, 5, 106.0)]
)
def test_a_job_needs_memory_for_its_part_of_the_batch_at_least_one_example(gpus, batch, need_mb):
    facts, request = SimpleNamespace(memory=MemoryNeed(100.0, 3.0)), SimpleNamespace(batch_size=batch)
    needed = JobView.memory_mb.fget
    assert needed(SimpleNamespace(facts=facts, request=request, num_gpus=gpus)) == need_mb
    assert needed(SimpleNamespace(facts=SimpleNamespace(memory=None), request=request, num_gpus=gpus)) == 0


HEADER = "name,time,application,num_replicas,batch_size\n"


def refusal(tmp_path, policy, jobs, **cluster):
    (tmp_path / "jobs.csv").write_text(HEADER + jobs)
    document = {
        "name": "found", "cluster": {"nodes": 1, "gpus_per_node": 4, **cluster}, "policies": [policy],
        "workload": {"path": str(tmp_path / "jobs.csv"), "recipe": "as-is"},
    }  # fmt: skip
    with pytest.raises(InputError) as refused:
        check(document)
    return str(refused.value)


def test_a_prior_needs_the_policys_own_agents(tmp_path):
    policy = {"name": "pollux", "params": {"prior": "offline"}, "agent": {"name": "goodput", "params": {}}}
    assert "only with its own agents" in refusal(tmp_path, policy, "a,0,ncf,1,32768\n")


def test_rubick_refuses_wide_jobs_without_plans(tmp_path):
    assert "it asks for 8 GPUs of at most 4" in refusal(tmp_path, {"name": "rubick"}, "a,0,imagenet,8,1600\n")


def test_more_parts_than_jobs_are_as_many_as_jobs():
    jobs = [JobSpec(str(i), 10 * i, 1, duration_s=100) for i in range(3)]
    assert len(cuts_of(jobs, 8, None).shards) == 3


def test_a_job_without_a_batch_size_gets_one_that_its_gpus_hold():
    facts = facts_of(toy_application(), None)
    gpus = facts.limits.init_batch_size // facts.limits.min_local_bsz * 2
    agent = fixed_agent(JobRequest("a", 0, gpus, "toy"), facts)
    site = site_of(Cluster.uniform(1, gpus), ((0, gpus),))
    assert agent.choose(site, 0).local_bsz == facts.limits.min_local_bsz
