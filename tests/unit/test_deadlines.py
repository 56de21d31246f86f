"""Deadlines that are just met and just missed, and GPUs that go where they save most."""

import math

from simsched.policy.deadlines import (
    DeadlineJob,
    admits,
    later_gpu_slots,
    marginal_return,
    plan_all,
    satisfactory_share,
    scale_up,
)


def job(name: str, work: float, slots: int, max_gpus: int = 8, exponent: float = 1.0) -> DeadlineJob:
    return DeadlineJob(name, work, slots, max_gpus, lambda gpus: float(gpus**exponent) if gpus else 0.0)


def test_a_deadline_just_met_and_just_missed():
    # 4 GPUs for 5 slots do 20 iterations, and no more.
    assert satisfactory_share(job("a", 20, 5), [4] * 5) == (4,) * 5
    assert satisfactory_share(job("a", 20.01, 5), [4] * 5) is None
    assert satisfactory_share(job("a", 20, 4), [4] * 5) is None


def test_the_smallest_share_is_taken_as_late_as_possible():
    assert satisfactory_share(job("a", 5, 5), [8] * 5) == (1,) * 5
    assert satisfactory_share(job("a", 6, 5), [8] * 5) == (0, 0, 2, 2, 2)
    assert satisfactory_share(job("a", 6, 5), [8, 8, 1, 1, 3]) == (0, 2, 1, 1, 2)


def test_scaling_that_is_not_linear_needs_more():
    # On n GPUs the rate is sqrt(n): 9 iterations in 4 slots need 2.25 a slot, hence 8 GPUs, and 4 do exactly 8.
    assert satisfactory_share(job("a", 8, 4, exponent=0.5), [8] * 4) == (4,) * 4
    assert satisfactory_share(job("a", 9, 4, exponent=0.5), [8] * 4) == (8,) * 4
    assert satisfactory_share(job("a", 12, 4, exponent=0.5), [8] * 4) is None


def test_who_makes_another_late_is_not_admitted():
    first = job("a", 8, 2, max_gpus=4)
    assert admits([first], job("b", 8, 4), 4)
    assert not admits([first], job("b", 8.5, 4), 4)
    assert not admits([job("b", 8, 4)], job("urgent", 8.5, 2), 4)
    assert plan_all([], 4) == {}


def test_left_over_gpus_go_to_the_greatest_marginal_return():
    linear, sub = job("linear", 8, 8), job("sub", 8, 8, exponent=0.5)
    plans = plan_all([linear, sub], 4)
    assert plans == {"linear": (1,) * 8, "sub": (1,) * 8}
    # One more GPU saves `linear` a whole GPU-slot, `sub` only sqrt(2) - 1 of one.
    assert marginal_return(linear, 1, plans["linear"]) == 1
    assert math.isclose(marginal_return(sub, 1, plans["sub"]), math.sqrt(2) - 1)
    assert scale_up([linear, sub], plans, 4) == {"linear": 2, "sub": 2}
    assert scale_up([linear, sub], plans, 3) == {"linear": 2, "sub": 1}
    assert scale_up([linear, sub], plans, 5) == {"linear": 4, "sub": 1}


def test_nobody_grows_beyond_use():
    only = job("a", 2, 2, max_gpus=2)
    plans = plan_all([only], 8)
    assert plans == {"a": (1, 1)}
    assert scale_up([only], plans, 8) == {"a": 2}
    assert later_gpu_slots(only, 2, plans["a"]) == 0


def test_a_job_that_runs_keeps_its_gpus_and_grows_only_where_a_restart_pays():
    def running(name, work, held, restart_slots):
        return DeadlineJob(name, work, 50, 8, float, held, restart_slots)

    plans = dict.fromkeys("ab", (0, *(1,) * 49))
    free = [running("a", 20, 4, 0.0), running("b", 40, 1, 0.0)]
    costly = [running("a", 20, 4, 1.0), running("b", 40, 1, 1.0)]
    # Where restarts are free all is dealt out anew; where they cost a slot, a keeps its four.
    assert sum(scale_up(free, plans, 8).values()) == 8
    assert scale_up(costly, plans, 8)["a"] == 4
    # 4 slots on one GPU become 2 + 1 on two, which pays, and 1.5 slots become 0.75 + 1, which does not.
    assert scale_up([running("a", 4, 1, 1.0)], {"a": (1, 1, 1, 1)}, 2) == {"a": 2}
    assert scale_up([running("a", 1.5, 1, 1.0)], {"a": (1, 1, 0, 0)}, 2) == {"a": 1}
    assert scale_up([running("a", 1.5, 1, 0.0)], {"a": (1, 1, 0, 0)}, 2) == {"a": 2}
