"""A decision may end jobs: running ones, waiting ones and the last of a run."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import pytest

from simsched.engine.options import EngineOptions
from simsched.model.job import JobSpec
from simsched.policy import CANCEL, Decision, Policy, View
from simsched.testing.builders import run

JOBS = [JobSpec(name, at, 8, duration_s=100) for name, at in (("a", 0), ("b", 5), ("c", 10))]


class Impatient(Policy):
    """Runs the last that came; the others are cancelled for it."""

    name: ClassVar[str] = "impatient"

    def __init__(self, rest: Literal["stops", "stays"] = "stays") -> None:
        self.rest = rest

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if not view.arrived:
            return Decision({job.id: job.allocation for job in view.jobs.values()})
        new = view.arrived[-1].id
        return Decision({**dict.fromkeys(view.jobs, CANCEL), new: ((0, 4), (1, 4))}, self.rest)


@pytest.mark.parametrize("rest", ["stays", "stops"])
def test_cancelled_jobs_make_room_at_once(rest) -> None:
    found = run(Impatient(rest), JOBS, options=EngineOptions(restart_delay_s=0))
    ended = {one.job_id: (one.end_time_s, one.held_s, one.status) for one in found.jobs}
    assert ended == {"a": (5, 5, "Cancelled"), "b": (10, 5, "Cancelled"), "c": (110, 100, "")}
    assert {one.running_jobs for one in found.decisions} == {1}


def test_a_run_ends_when_its_last_job_is_cancelled() -> None:
    class Never(Impatient):
        def decide(self, view: View, rng: np.random.Generator) -> Decision:
            return Decision.change(dict.fromkeys(view.jobs, CANCEL))

    found = run(Never(), JOBS)
    assert [(one.job_id, one.end_time_s, one.held_s) for one in found.jobs] == [("a", 0, 0), ("b", 5, 0), ("c", 10, 0)]
