"""The example of a search for policies: candidates load and run, and a seed gives the same mutations again."""

import random

import simsched as sim
from examples.discover.search import Candidate
from simsched.policy import registry


def test_a_mutated_candidate_is_written_as_a_policy_that_runs(tmp_path):
    chance, again = random.Random(3), random.Random(3)
    one = other = Candidate((("gpus", 1.0),))
    for _ in range(20):
        one, other = one.mutated(chance), other.mutated(again)
    assert one == other
    jobs = [{"num_gpus": 1 + i % 4, "duration_s": 60 * (i % 5 + 1)} for i in range(12)]
    found = sim.simulate(jobs=jobs, policy=registry.load(one.written(tmp_path))(), cluster=(1, 4))
    assert len(found.jobs) == len(jobs)
