"""The independent replay of Muri's simulator against every digit that its authors printed.

The figures are in the published `simulator/draw_fig9-13.py` (Apache-2.0), which rounds them to ten significant digits.
"""

import gzip
import json

import pytest

from tests.validation.oracles.muri_replay import (
    Muri,
    figures,
    read_jobs,
    recorded,
    replay_antman,
    replay_muri,
    replay_shortest,
    replay_tiresias,
)

REPLAYS = {
    "SRTF": lambda jobs: replay_shortest(jobs, lambda job: job.remaining * job.iteration_s),
    "SRSF": lambda jobs: replay_shortest(jobs, lambda job: job.remaining * job.iteration_s * job.gpus),
    "Tiresias_L": replay_tiresias,
    "antman": replay_antman,
}


@pytest.fixture(scope="module")
def data(shared):
    return shared / "muri"


@pytest.fixture(scope="module")
def published(data):
    return json.loads((data / "expected.json").read_text())["results"]


def run(data, trace, replay):
    jobs = read_jobs(data / f"{trace}.csv")
    replay(jobs)
    return figures(jobs)


def printed(number: float) -> float:
    """Round as the published figures are rounded, where they carry no more digits."""
    return float(f"{number:.10g}")


def assert_equal(found, expected):
    for name, number in expected.items():
        value = getattr(found, name)
        assert round(value, 6) == number or printed(value) == number, name


@pytest.mark.parametrize("policy", REPLAYS)
def test_baselines_equal_every_printed_digit(data, published, policy):
    assert_equal(run(data, "trace3", REPLAYS[policy]), published[policy]["trace3"])


def matchings(data, name):
    with gzip.open(data / f"trace3-{name}-matchings.json.gz") as stream:
        return recorded(json.load(stream)["matchings"])


def test_muri_l_with_recorded_matchings_equals_the_printed_mean_and_makespan(data, published):
    muri = Muri(least_attained=True, matcher=matchings(data, "L-autopack"), split_slow=True)
    expected = dict(published["Muri_L"]["trace3"])
    del expected["p99_jct_s"]  # printed from a version that does not split slow groups
    assert_equal(run(data, "trace3", lambda jobs: replay_muri(jobs, muri)), expected)


def test_muri_l_without_matching_equals_the_printed_mean_and_makespan(data):
    muri = Muri(least_attained=True, matcher=None)
    found = run(data, "trace1", lambda jobs: replay_muri(jobs, muri))
    assert_equal(found, {"avg_jct_s": 1192784.955, "makespan_s": 19653377.905142})
