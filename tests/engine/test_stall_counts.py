"""When a run is given up, and which free GPUs nobody can use: counts at their bounds, and against every choice."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from simsched.engine.errors import StalledError, StuckError
from simsched.engine.records import _Units
from simsched.engine.stalls import StallDetector


def job(name, **recovery):
    return SimpleNamespace(
        request=SimpleNamespace(id=name), live_progress=5.0, limit_from=0.0,
        recovery=SimpleNamespace(**recovery) if recovery else None,
    )  # fmt: skip


def detector(*jobs, most_idle=3, pause_s=0.0):
    clock, cluster = SimpleNamespace(now_s=0.0), SimpleNamespace(job_starts=0, node_starts=0, failures=0)
    active = {one.request.id: one for one in jobs}
    return StallDetector("p", clock, cluster, active, most_idle, pause_s), clock, cluster


def test_a_run_is_looked_at_after_ten_thousand_happenings_and_a_hundred_for_each_job():
    one = job("a")
    stalls, clock, cluster = detector(one, job("b"))
    cluster.job_starts, cluster.node_starts, clock.now_s = 10_000, 201, 7.0
    stalls.look(2, 0)  # the first look
    for more in (10_200, 1):
        cluster.job_starts += more - 1
        cluster.failures += 1
        stalls.look(2, 0)
        cluster.job_starts += 1
        if more > 1:
            stalls.look(2, 0)  # 10,200 since
    with pytest.raises(StalledError, match=r"since t=7.0 s jobs were started or nodes asked for 10201 times and nodes "
                                           r"failed 2 times, but none of 2 jobs has progressed.*: a, b"):  # fmt: skip
        stalls.look(2, 0)
    stalls.look(3, 0)  # another job has come
    cluster.job_starts += 10_201
    one.live_progress = 5.5
    stalls.look(3, 0)
    cluster.job_starts += 10_201
    with pytest.raises(StalledError, match="asked for 10201 times, but none"):
        stalls.look(3, 0)


@pytest.mark.parametrize(
    ("changes", "beyond"),
    [
        ({}, False),
        ({"live_progress": 6.0}, True),
        ({"live_progress": 4.0}, False),
        ({"live_progress": 6.0, "lost": 1.0}, False),  # thrown back since, with nothing more saved
        ({"live_progress": 4.0, "lost": 1.0, "saved": 2.5}, True),
        ({"live_progress": 6.0, "limit_from": 3.0}, False),
    ],
)
def test_a_job_thrown_back_is_beyond_with_more_saved_and_any_other_with_more_done(changes, beyond):
    one = job("a", saved=2.0, lost=0.0)
    stalls, _, cluster = detector(one)
    cluster.job_starts = 20_000
    stalls.look(1, 0)
    for name, value in changes.items():
        setattr(one.recovery if name in ("saved", "lost") else one, name, value)
    cluster.job_starts = 40_000
    if beyond:
        stalls.look(1, 0)
    else:
        with pytest.raises(StalledError, match="asked for 20000 times"):
            stalls.look(1, 0)


@pytest.mark.parametrize(
    ("names", "told"), [("a", "a"), ("abcde", "a, b, c, d, e"), ("abcdefg", "a, b, c, d, e and 2 more")]
)
def test_idle_rounds_are_counted_to_the_limit_and_through_the_pause(names, told):
    stalls, clock, _ = detector(*map(job, names), most_idle=3, pause_s=10.0)
    for second in (5.0, 6.0, 7.0, 14.9):
        clock.now_s = second
        stalls.idle()
    clock.now_s = 15.0
    with pytest.raises(StuckError) as caught:
        stalls.idle()
    assert str(caught.value).endswith(f"but {len(names)} jobs wait: {told}")
    stalls, _, _ = detector(job("a"), most_idle=2)
    stalls.idle()
    with pytest.raises(StuckError):
        stalls.idle()


def test_free_gpus_are_stranded_where_no_choice_of_as_few_units_as_a_job_needs_serves_it():
    rng = np.random.default_rng(8)
    for _ in range(300):
        sizes = rng.integers(1, 5, rng.integers(1, 5)).tolist()
        free = [int(rng.integers(0, size + 1)) for size in sizes]
        wanted = set(rng.integers(1, sum(sizes) + 3, rng.integers(0, 3)).tolist())
        useful = set()
        for gpus in wanted:
            fewest = next((k for k in range(1, len(sizes) + 1) if sum(sorted(sizes)[-k:]) >= gpus), 0)
            for chosen in combinations(range(len(sizes)), fewest) if fewest else ():
                if sum(free[unit] for unit in chosen) >= gpus:
                    useful |= set(chosen)
        units = _Units([(node,) for node in range(len(sizes))], sizes)
        expected = sum(gpus for unit, gpus in enumerate(free) if unit not in useful)
        assert units.stranded(free, wanted) == expected, (sizes, free, wanted)
