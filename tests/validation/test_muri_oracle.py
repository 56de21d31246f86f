"""The oracle of Muri's simulator against every digit that its authors printed.

The figures are in the published `simulator/draw_fig9-13.py` (Apache-2.0), which rounds them to ten significant digits.
"""

import gzip
import json

import pytest

from tests.campaigns import played
from tests.validation.muri_cases import REPLAYS
from tests.validation.oracles.muri import figures, read_jobs
from tests.validation.oracles.muri_groups import Muri, recorded, replay_muri

PRINTED_AS = {"SRTF": "SRTF", "SRSF": "SRSF", "Tiresias-L": "Tiresias_L", "AntMan": "antman"}
BASELINES = [(label, trace) for label in PRINTED_AS for trace in ("trace1", "trace3")]
#: Trace 1 is long: by default only those play it that are quick.
SLOW = [("Tiresias-L", "trace1"), ("AntMan", "trace1")]
UNMATCHED = [("trace1", 1192784.955, 19653377.905142), ("trace3", 96016.95407, 8174135.28)]


@pytest.fixture(scope="module")
def data(shared):
    return shared / "muri"


@pytest.fixture(scope="module")
def published(data):
    return json.loads((data / "expected.json").read_text())["results"]


def figures_of(data, trace, replay):
    jobs = read_jobs(data / f"{trace}.csv")
    replay(jobs)
    return figures(jobs)


def assert_printed(found, expected):
    for name, number in expected.items():
        assert round(found[name], 6) == number or float(f"{found[name]:.10g}") == number, name


@pytest.mark.parametrize(("label", "trace"), played(BASELINES, [case for case in BASELINES if case not in SLOW]))
def test_baselines_equal_every_printed_digit(data, published, label, trace):
    assert_printed(figures_of(data, trace, REPLAYS[label]), published[PRINTED_AS[label]][trace])


def matchings(data, name):
    with gzip.open(data / f"trace3-{name}-matchings.json.gz") as stream:
        return json.load(stream)["matchings"]


def test_muri_s_with_recorded_matchings_equals_every_printed_digit(data, published):
    muri = Muri(least_attained=False, matcher=recorded(matchings(data, "S-noautopack")))
    found = figures_of(data, "trace3", lambda jobs: replay_muri(jobs, muri))
    assert_printed(found, published["Muri_S"]["trace3"])
    with pytest.raises(StopIteration):  # and the oracle asked as often as the artifact did
        muri.matcher([])


def test_muri_l_with_recorded_matchings_equals_the_printed_mean_and_makespan(data, published):
    muri = Muri(least_attained=True, matcher=recorded(matchings(data, "L-autopack")), split_slow=True)
    expected = dict(published["Muri_L"]["trace3"])
    del expected["p99_jct_s"]  # printed from a version that does not split slow groups
    assert_printed(figures_of(data, "trace3", lambda jobs: replay_muri(jobs, muri)), expected)


@pytest.mark.parametrize(("trace", "mean_s", "makespan_s"), played(UNMATCHED, UNMATCHED[1:]))
def test_muri_l_without_matching_equals_the_printed_mean_and_makespan(data, trace, mean_s, makespan_s):
    found = figures_of(data, trace, REPLAYS["Muri-L-no-matching"])
    assert_printed(found, {"avg_jct_s": mean_s, "makespan_s": makespan_s})
