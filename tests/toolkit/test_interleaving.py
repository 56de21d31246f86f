"""Stages that interleave, against plain loops over slots and gaps written from their description alone."""

from random import Random
from typing import NamedTuple

import pytest

from simsched.errors import InputError
from simsched.model.colocation.stages import GapFilling, StageInterleaving, gap_turns, group_s, pipeline_s
from tests.validation.oracles import muri_antman, muri_groups


class Job(NamedTuple):
    stages_s: tuple[float, float, float]
    iteration_s: float = 10.0
    guaranteed: bool = False
    application: str = "lm"


def drawn(rng, least):
    """Draw three stages: small whole numbers, whose sums tie, or any."""
    return tuple(rng.choice([rng.randint(least, 4), rng.uniform(least, 4)]) for _ in range(3))


@pytest.mark.parametrize("seed", range(10))
def test_an_iteration_of_a_group_is_that_of_its_slots(seed):
    rng = Random(seed)
    for _ in range(20):
        group = tuple(drawn(rng, 0) for _ in range(rng.randint(1, 4)))
        assert pipeline_s(group) == muri_groups.pipeline_s(group + (None,) * (4 - len(group)))
        if len(group) > 1:
            assert group_s(group) == muri_groups.interleaved_s(group)


def test_a_pipeline_that_does_not_settle_is_measured_over_its_last_four_slots():
    # The slots end at 0, 0, 8, 12, 16, 20, 24, 29, 32: rounds of 16, 20, 16, 17 and 16 s.
    assert pipeline_s([(8, 4, 1), (9, 0, 0), (8, 0, 1), (8, 3, 3)]) == 16
    # At 0, 0.7, 3.5, 5.5, 7.5, 9.5, 11, 13.5, 15.1: rounds of 7.5, 8.8, 7.5, 8 and 7.6 s.
    assert pipeline_s([(3.5, 0, 1.1), (4, 1.6, 0.6), (4, 0.7, 0), (4, 1, 2)]) == pytest.approx(7.6)


def test_a_group_has_the_overhead_of_its_number_and_a_job_alone_none():
    four = [Job((1.0, 1.0, 1.0), 3.0)] * 4
    assert StageInterleaving(overhead={4: 2.0}).speeds(four, "v100") == (3 / 8,) * 4
    assert StageInterleaving(overhead={2: 2.0}).speeds(four, "v100") == (3 / 4,) * 4
    assert StageInterleaving().speeds([Job((1.0, 1.0, 1.0), 5.0)], "v100") == (1.0,), "whatever else an iteration takes"
    assert StageInterleaving().speeds([], "v100") == ()


@pytest.mark.parametrize("seed", range(10))
def test_turns_in_gaps_are_those_of_the_loops(seed):
    rng = Random(seed)
    for _ in range(30):
        own, other = Job(drawn(rng, 0)), Job(drawn(rng, 1), 1.0)
        assert gap_turns(own.stages_s, other.stages_s) == muri_antman.beside_guaranteed_s(own, other)


@pytest.mark.parametrize("seed", range(10))
def test_a_job_in_gaps_is_as_slow_as_its_slowest_neighbour_makes_it(seed):
    rng = Random(seed)
    jobs = [
        Job(drawn(rng, 1), rng.uniform(1, 20), guaranteed=at == 0 and seed % 3 > 0) for at in range(rng.randint(1, 3))
    ]
    expected = []
    for job in jobs:
        others = [other for other in jobs if other is not job]
        times_s = [
            muri_antman.beside_guaranteed_s(job, one) if one.guaranteed else 2 * job.iteration_s for one in others
        ]
        expected.append(1.0 if job.guaranteed else job.iteration_s / max([job.iteration_s, *times_s]))
    assert GapFilling().speeds(rng.sample(jobs, 1), "v100") == (1.0,)
    assert GapFilling().speeds(jobs, "v100") == tuple(expected)


@pytest.mark.parametrize("resource", range(3))
def test_a_job_needs_a_gap_of_what_it_uses_and_of_nothing_else(resource):
    busy = tuple(0.5 * (one == resource) for one in range(3))
    host, same = Job(busy, 0.5, guaranteed=True), Job(busy, 0.5)
    with pytest.raises(InputError, match="leaves 'lm' no gap at all"):
        GapFilling().speeds([host, same], "v100")
    others = Job(tuple(0.5 - one for one in busy), 1.0)
    assert GapFilling().speeds([host, others], "v100")[0] == 1.0
    other = tuple(0.25 * (one == (resource + 1) % 3) for one in range(3))
    assert GapFilling().speeds([Job(other, 0.25, guaranteed=True), same], "v100") == (1.0, 1.0)
