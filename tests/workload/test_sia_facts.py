"""The facts of Sia's evaluation and the draw of its mixes."""

from collections import Counter

import numpy as np
import pytest

from simsched.workload.recipes.sia import draw, sia_facts

TYPES = {"t4", "rtx", "a100"}


def test_every_application_knows_three_gpu_types():
    facts = sia_facts()
    assert sorted(facts.applications) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    for application in facts.applications.values():
        assert set(application.speed) == set(application.largest) == TYPES
        assert application.speed["t4"] == 1.0
        assert 15 <= application.restart_delay_s <= 250


def test_clusters_are_those_of_the_paper():
    gpus = {
        name: {gpu_type: nodes * per_node for gpu_type, (nodes, per_node) in groups.items()}
        for name, groups in sia_facts().clusters.items()
    }
    assert gpus == {"homogeneous": {"t4": 64}, "heterogeneous": {"t4": 24, "rtx": 24, "a100": 16}}


@pytest.mark.parametrize("name", ["philly", "helios", "newtrace"])
def test_a_draw_follows_its_mix(name):
    mix = sia_facts().mixes[name]
    jobs = draw(mix, np.random.default_rng(1), load=10.0)
    assert jobs == draw(mix, np.random.default_rng(1), load=10.0)
    assert len(jobs) == 10 * mix.jobs
    times = [job.submit_time_s for job in jobs]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < mix.hours * 3600
    if mix.hourly:
        assert len(mix.hourly) == mix.hours
        by_hour = np.bincount([int(time // 3600) for time in times], minlength=8)
        due = len(jobs) * np.array(mix.hourly) / sum(mix.hourly)
        assert (np.abs(by_hour - due) < 5 * due**0.5).all()
    drawn, total = Counter(job.application for job in jobs), sum(mix.counts.values())
    for application, count in mix.counts.items():
        share = count / total
        # Five standard deviations of a binomial share.
        assert abs(drawn[application] / len(jobs) - share) < 5 * (share * (1 - share) / len(jobs)) ** 0.5
