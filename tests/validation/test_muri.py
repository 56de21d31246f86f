"""Muri's replay from outside, held against the oracle on random traces, and against its artifact's printed figures."""

import random
from pathlib import Path

import pytest

import simsched as sim
from tests.campaigns import played
from tests.validation import muri_cases as cases

SMALL = Path(__file__).parents[1] / "data" / "muri-small.csv"
#: The policies in which nothing is matched, so that no two choices are equally good.
UNMATCHED = ("SRTF", "SRSF", "Tiresias-L", "AntMan", "Muri-L-no-matching")


def assert_ends_agree(trace, out, labels):
    found = cases.ends_by_simsched(trace, out, labels)
    for label in labels:
        assert found[label] == cases.ends_by_oracle(trace, label), label


@pytest.mark.parametrize("seed", played(range(4), [0]))
def test_every_job_of_a_random_trace_ends_when_the_oracle_says(tmp_path, seed):
    trace = tmp_path / "trace.csv"
    cases.write_trace(random.Random(seed), trace, jobs=40)
    assert_ends_agree(trace, tmp_path / "out", UNMATCHED)


@pytest.mark.parametrize("seed", [1])
def test_with_one_best_matching_every_job_ends_when_the_oracle_says(tmp_path, seed):
    trace = tmp_path / "trace.csv"
    cases.write_trace(random.Random(seed), trace, jobs=40, alike=False)
    assert_ends_agree(trace, tmp_path / "out", ("Muri-S", "Muri-L"))


@pytest.mark.parametrize("least_attained", [False, True])
def test_recorded_matchings_are_played_back(tmp_path, least_attained):
    trace = tmp_path / "trace.csv"
    cases.write_trace(random.Random(8), trace, jobs=40)
    expected, found, matchings = cases.ends_with_recorded_matchings(
        random.Random(1), trace, tmp_path, least_attained=least_attained
    )
    assert len(matchings) > 10
    assert found == expected


def test_the_small_trace_ends_when_the_oracle_says(tmp_path):
    assert_ends_agree(SMALL, tmp_path, tuple(cases.REPLAYS))


def test_the_charge_at_every_event_is_a_switch(tmp_path):
    changes = {"workload.path": str(SMALL), "report.reference": "SRTF"}
    charged = sim.run("validation/muri", changes, out=tmp_path / "charged", policies=["SRTF"], in_process=True)
    changes["policies.SRTF.params.charge_every_event"] = False
    spared = sim.run("validation/muri", changes, out=tmp_path / "spared", policies=["SRTF"], in_process=True)
    assert spared.jobs()["jct_s"].mean() < charged.jobs()["jct_s"].mean()


def test_trace_3_ends_when_the_oracle_says(shared, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SIMSCHED_CHECK_INVARIANTS", raising=False)  # those are checked on the small traces
        assert_ends_agree(shared / "muri" / "trace3.csv", tmp_path, ("SRTF", "Tiresias-L"))
