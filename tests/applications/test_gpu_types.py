"""GPU types: their catalogue, jobs whose speed depends on them, and what one type tells about another."""

import pytest
import yaml

from simsched.agent.agent import Measurement
from simsched.agent.goodput_agent import GoodputAgent
from simsched.applications.file_format import read_document, template
from simsched.applications.gpu_types import DurationByType, gpu_types, read_gpu_types, with_speeds
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.experiment.cluster import ClusterSpec, GroupSpec
from simsched.experiment.grid import make_grid
from simsched.experiment.validation import read_experiment
from simsched.model.application import BatchLimits, GradientStats, StepTime
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.model.throughput import ThroughputParams
from simsched.policy import registry
from simsched.testing.builders import Applications, run

TWO = Cluster.of(NodeGroup(1, 1, "v100"), NodeGroup(1, 1, "k80"))


def test_the_catalogue_gives_clusters_their_memory():
    groups = [GroupSpec(nodes=1, gpus_per_node=1, gpu_type=kind) for kind in ("v100", "own")]
    cluster = ClusterSpec(groups=tuple(groups)).build()
    assert dict(cluster.memory_mb) == {"v100": 16384}
    assert gpu_types()["k80"].speed["ResNet-50"] == 0.15


def test_prices_are_those_that_gavel_used_and_no_others():
    prices = {name: kind.price_per_h for name, kind in gpu_types().items() if kind.price_per_h is not None}
    assert prices == {"v100": 0.74, "p100": 0.43, "k80": 0.135}


def test_a_wrong_catalogue_is_refused(tmp_path):
    path = tmp_path / "types.yaml"
    path.write_text("format: simsched-gpu-types/1\ntypes:\n  x: {memory_mb: 0}\n", encoding="utf-8")
    with pytest.raises(InputError, match="memory_mb"):
        read_gpu_types(path)


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "srtf"])
def test_jobs_of_fixed_duration_take_longer_on_slower_types(policy):
    jobs = [JobSpec("a", 0, 1, duration_s=300), JobSpec("b", 0, 1, duration_s=300)]
    source = with_speeds(Applications(), {"v100": 1, "k80": 0.3}, TWO)
    done = run(
        registry.load(policy)(), jobs, cluster=TWO, applications=source, options=EngineOptions(restart_delay_s=0)
    )
    assert sorted(job.held_s for job in done.jobs) == [300, 1000]


def test_types_without_a_speed_are_refused():
    with pytest.raises(InputError, match="no speed for the GPU type 'k80'"):
        with_speeds(Applications(), {"v100": 1}, TWO)
    with pytest.raises(ValueError, match="'t4' is not known"):
        DurationByType(5, {"v100": 1}).run(Site((1,), "t4"), None, 0)


def test_an_experiment_replays_with_speeds_by_type(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_time,num_gpus,duration\n0,1,300\n", encoding="utf-8")
    path = tmp_path / "e.yaml"
    data = {
        "name": "e", "cluster": {"nodes": 1, "gpu_type": "k80"}, "policies": [{"name": "fifo"}],
        "workload": {"path": str(trace), "recipe": "as-is", "gpu_speed": {"k80": 0.5}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    (task,) = make_grid(read_experiment(path)).tasks
    assert task.gpu_speed == {"k80": 0.5}
    assert task.about["gpu_speed"] == {"k80": 0.5}
    data["workload"]["gpu_speed"] = {"v100": 1.0}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(InputError, match="gpu_speed"):
        make_grid(read_experiment(path))


def test_an_application_file_may_tell_memory_and_stages(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(template("a").replace("# memory", "memory").replace("# stages_s", "stages_s"), encoding="utf-8")
    app = read_document(path).application()
    assert app.memory.total_mb(100) == 2500
    assert app.stages_s == (0.1, 0.05, 0.2, 0.1)


def test_policies_that_place_jobs_over_all_types_say_so():
    aware = {name for name in registry.names() if registry.load(name).traits.type_aware}
    equal = {"gavel-gandiva-fair", "gavel-isolated", "gavel-proportional"}  # deal out time whatever the speed
    assert aware >= {"sia", *(name for name in registry.names() if name.startswith("gavel-"))} - equal
    assert not aware & equal


def test_a_profile_of_one_type_serves_another_by_the_ratio_of_single_gpu_speeds():
    truth = ThroughputParams(0.02, 0.001, 0.1, 0.01, 0.05, 0.005, 1.5)
    slow = truth.scaled(3)
    assert float(slow.step_time_s(2, 8, 64)) == pytest.approx(3 * float(truth.step_time_s(2, 8, 64)), rel=1e-6)
    limits, gradient = BatchLimits(64, 4096, 16, 256), GradientStats(1.0, 100.0)
    reports = {}
    for bootstrap in (False, True):
        agent = GoodputAgent(limits, bootstrap=bootstrap)
        for shape in ((1,), (4, 4)):
            for bsz in (64, 128):
                step = float(truth.step_time_s(len(shape), sum(shape), bsz))
                agent.observe(Measurement(Site(shape, "v100"), bsz, StepTime(step, step / 4), gradient))
        step = float(slow.step_time_s(1, 1, 64))
        agent.observe(Measurement(Site((1,), "k80"), 64, StepTime(step, 0.0), gradient))
        reports[bootstrap] = agent.goodput.on("k80")
    assert (reports[False].max_profiled_gpus, reports[True].max_profiled_gpus) == (1, 8)
    fitted = agent.goodput.on("v100").model.params
    borrowed = reports[True].model.params
    ratio = step / float(fitted.step_time_s(1, 1, 64))
    assert float(borrowed.step_time_s(2, 8, 64)) == pytest.approx(ratio * float(fitted.step_time_s(2, 8, 64)), rel=1e-6)
