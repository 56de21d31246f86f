"""When a job's service reaches a threshold, by hand: one job on a clock of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simsched.engine.clock import Clock, Phase
from simsched.engine.lifecycles import Watches


def reached(steps, *, tick_s=1, until_s=1000):
    """Return the seconds at which the threshold is reached, given what happens to a job at some seconds.

    A number is a threshold that is set, ("gets", n) gives GPUs to the job, "stops" takes them and "ends" completes it.
    """
    clock, found = Clock(tick_s), []
    watches = Watches(clock, lambda job: found.append(clock.now_s))
    job = SimpleNamespace(request=SimpleNamespace(id="a"), allocation=(), gpus=0, attained_gpu=0.0, since=0.0)

    def settle():
        job.attained_gpu += job.gpus * (clock.now - job.since)
        job.since = clock.now

    def happen(what):
        settle()
        if isinstance(what, int | float):
            watches.watch(job, what)
        elif isinstance(what, tuple):
            job.gpus, job.allocation = what[1], ((0, what[1]),)
            watches.placed(job)
        else:
            job.gpus, job.allocation = 0, ()
            watches.released(job)
            if what == "ends":
                watches.completed(job)

    for second, what in steps:
        clock.at(clock.ticks(second), Phase.PROGRESS, lambda due, what=what: happen(what))
    clock.at(clock.ticks(until_s), Phase.PROGRESS, lambda due: setattr(clock, "stopped", True))
    clock.advance()
    return found


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([(0, 12), (5, ("gets", 2))], [11]),
        ([(5, ("gets", 2)), (7, 12)], [11]),  # 4 GPU-s by then
        ([(0, 12), (5, ("gets", 2)), (8, "stops"), (20, ("gets", 3))], [22]),
        ([(0, 12), (5, ("gets", 5))], [8]),  # the first whole second at which it has them
        ([(0, 12), (5, ("gets", 2)), (6, 4)], [7]),  # another threshold in its place
        ([(0, 12), (5, ("gets", 2)), (6, 40)], [25]),
        ([(0, 12), (5, ("gets", 2)), (12, "stops"), (20, ("gets", 2))], [11]),  # once
        ([(0, 12), (5, ("gets", 2)), (12, 20), (13, "stops"), (20, ("gets", 2))], [11, 22]),
        ([(0, 12), (5, ("gets", 2)), (8, "ends"), (20, ("gets", 2))], []),
        ([(0, 12), (5, ("gets", 0))], []),  # a job that takes cores alone attains none
        ([(5, ("gets", 2))], []),
    ],
)
def test_a_threshold_is_reached_when_that_much_service_is_attained(steps, seconds):
    assert reached(steps) == seconds


@pytest.mark.parametrize(("tick_s", "second"), [(1, 8), (0.5, 7.5), (0, 5 + 12 / 5)])
def test_a_threshold_is_reached_at_the_next_tick_or_just_then(tick_s, second):
    assert reached([(0, 12), (5, ("gets", 5))], tick_s=tick_s) == [second]
