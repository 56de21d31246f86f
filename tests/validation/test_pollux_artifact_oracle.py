"""The oracle of Pollux's artifact against its description and published runs, and the engine against the oracle."""

import csv
import random

import pytest

from tests.validation import pollux_cases as cases
from tests.validation.oracles import pollux_artifact as oracle


@pytest.fixture(scope="module")
def data(shared):
    return shared / "pollux-osdi21"


@pytest.mark.parametrize(
    ("name", "placement", "size", "step_s", "sync_s"),
    [
        ("cifar10", (1,), 1024, 0.7020925283432007, 0.0005468864023685456),
        ("cifar10", (4, 2), 342, 0.2687774138630561, 0.02007606602389857),
        ("cifar10", (2, 4), 342, 0.2687774138630561, 0.02007606602389857),
        ("deepspeech2", (3, 1, 4), 40, 1.3995712250471115, 0.26972420215606685),
        ("imagenet", (4,) * 6, 134, 0.7453321422139805, 0.05992654426892598),
        ("imagenet", (4,) * 12, 134, 0.7875689635674159, 0.10884508740107222),
        ("imagenet", (4, 4, 4, 4, 3, 3, 2), 134, 0.7507138098279635, 0.07941898830731708),
        ("deepspeech2", (4, 2, 1, 1, 1), 54, 1.822450642375385, 0.2516624132010115),
        ("cifar10", (4, 3, 3, 3, 3), 256, 0.22946795368194584, 0.022130909154891965),
        ("bert", (4, 4, 4, 3, 1), 12, 1.8457580208778386, 0.9535587539672852),
        ("ncf", (1,), 16384, 0.014968737878396702, 0.00033913164137045604),
    ],
)
def test_step_times_are_those_of_the_description(data, name, placement, size, step_s, sync_s):
    found = oracle.measured_in(data / "traces" / name).step(placement, size)
    assert found == pytest.approx((step_s, sync_s), rel=1e-13)


def test_training_curves_are_those_of_the_description(data):
    cifar10 = oracle.measured_in(data / "traces" / "cifar10")
    found = [cifar10.measured(column, 2052, 0) for column in ("grad_sqr", "grad_var", "iteration")]
    assert found == pytest.approx([10.740173318740533, 5.498315492126224, 111.98828125], rel=1e-13)
    assert cifar10.boundaries[1] == pytest.approx(390.7143859664223, rel=1e-13)


@pytest.mark.parametrize(
    ("name", "target", "gpus", "expected"),
    [
        ("cifar10", 2048, 6, (342, 0)), ("cifar10", 4096, 12, (341, 0)), ("cifar10", 4096, 1, (1024, 3)),
        ("cifar10", 128, 1, (128, 0)), ("bert", 384, 8, (12, 3)), ("bert", 384, 1, (12, 31)),
        ("deepspeech2", 320, 1, (80, 3)), ("deepspeech2", 640, 12, (53, 0)), ("imagenet", 3200, 24, (134, 0)),
        ("imagenet", 6400, 1, (200, 31)), ("ncf", 32768, 1, (16384, 1)), ("yolov3", 64, 4, (8, 1)),
        ("yolov3", 64, 2, (8, 3)),
    ],
)  # fmt: skip
def test_batches_are_split_as_described(data, name, target, gpus, expected):
    assert oracle.measured_in(data / "traces" / name).split(target, gpus) == expected


def test_optimus_believes_the_step_times_of_the_description(data):
    cifar10 = oracle.measured_in(data / "traces" / "cifar10")
    found = [oracle.Optimus.step_s(cifar10, 2048, gpus) for gpus in (1, 2, 4, 6, 12)]
    expected = [1.4036381702840328, 0.8379724740982055, 0.3944566186269125, 0.2687774138630561, 0.18951932529233542]
    assert found == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("policy", cases.POLICIES)
@pytest.mark.parametrize("workload", ["workload-1", "workload-2", "workload-3", "workload-4"])
def test_every_published_completion_time_comes_out(data, policy, workload):
    with (data / "published" / f"{policy}.csv").open(newline="") as stream:
        published = {row["job"]: float(row["jct_s"]) for row in csv.DictReader(stream) if row["workload"] == workload}
    jobs = oracle.read_jobs(data / "workloads" / f"{workload}.csv", data / "traces")
    assert len(published) == 160
    assert oracle.replay(jobs, cases.POLICIES[policy]()) == published


@pytest.mark.parametrize("policy", cases.POLICIES)
@pytest.mark.parametrize("seed", [1, 2, 3, 6, 9])
def test_random_workloads_complete_as_by_the_oracle(data, tmp_path, policy, seed):
    assert cases.Case.drawn(random.Random(seed), data / "traces", tmp_path).differs(policy) == []
