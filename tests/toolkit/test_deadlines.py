"""Deadlines that are just met and just missed, plans that pay for restarts, and GPUs that go where they save most."""

import math

import numpy as np
import pytest

from simsched.toolkit.deadlines import (
    DeadlineJob,
    done_by,
    in_time,
    keep_promises,
    marginal_return,
    plan_all as planned,
    plan_beside,
    satisfactory_share as found,
    scale_up,
    share_out,
)


def satisfactory_share(one: DeadlineJob, free: list[int]) -> tuple[int, ...] | None:
    plan = found(one, free)
    return None if plan is None else tuple(plan.tolist())


def plan_all(jobs: list[DeadlineJob], gpus: int) -> dict[str, np.ndarray]:
    plans = planned(jobs, gpus)
    assert plans is not None
    return plans


def admits(admitted: list[DeadlineJob], new: DeadlineJob, gpus: int) -> bool:
    return planned([*admitted, new], gpus) is not None


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
    beside = plan_beside(plan_all([first], 4), job("b", 8, 4), 4)
    assert beside is not None
    assert beside.tolist() == [0, 0, 4, 4]


def test_left_over_gpus_go_to_the_greatest_marginal_return():
    linear, sub = job("linear", 8, 8), job("sub", 8, 8, exponent=0.5)
    plans = plan_all([linear, sub], 4)
    assert [plan.tolist() for plan in plans.values()] == [[1] * 8] * 2
    # One more GPU saves `linear` a whole GPU-slot, `sub` only sqrt(2) - 1 of one.
    assert marginal_return(linear, 1, plans["linear"][1:]) == 1
    assert math.isclose(marginal_return(sub, 1, plans["sub"][1:]), math.sqrt(2) - 1)
    assert scale_up([linear, sub], plans, 4) == {"linear": 2, "sub": 2}
    assert scale_up([linear, sub], plans, 3) == {"linear": 2, "sub": 1}
    assert scale_up([linear, sub], plans, 5) == {"linear": 4, "sub": 1}


def test_left_over_gpus_may_go_to_the_least_marginal_return():
    linear, sub, idle = job("linear", 8, 8), job("sub", 8, 8, exponent=0.5), job("idle", 8, 8, exponent=0.0)
    plans = plan_all([linear, sub], 4)
    # `sub` saves less than `linear` with every GPU more, so it grows first; two more do not fit after one.
    assert scale_up([linear, sub], plans, 3, least_return=True) == {"linear": 1, "sub": 2}
    assert scale_up([linear, sub], plans, 5, least_return=True) == {"linear": 1, "sub": 4}
    # `idle` is no faster on more GPUs: they save nothing, and it is the first to get them.
    plans = plan_all([linear, idle], 4)
    assert scale_up([linear, idle], plans, 4) == {"linear": 2, "idle": 1}
    assert scale_up([linear, idle], plans, 4, least_return=True) == {"linear": 2, "idle": 2}
    assert scale_up([linear, idle], plans, 3, least_return=True) == {"linear": 1, "idle": 2}


def test_nobody_grows_beyond_use():
    only = job("a", 2, 2, max_gpus=2)
    plans = plan_all([only], 8)
    assert plans["a"].tolist() == [1, 1]
    assert scale_up([only], plans, 8) == {"a": 2}
    assert marginal_return(only, 2, plans["a"][1:]) is None


def running(name: str, work: float, held: int, restart_slots: float, slots: int = 50) -> DeadlineJob:
    return DeadlineJob(name, work, slots, 8, float, held, restart_slots)


def test_a_job_that_runs_keeps_its_gpus_and_grows_only_where_a_restart_pays():
    plans = {name: np.array([0, *[1] * 49]) for name in "ab"}
    free = [running("a", 20, 4, 0.0), running("b", 40, 1, 0.0)]
    costly = [running("a", 20, 4, 1.0), running("b", 40, 1, 1.0)]
    # Where restarts are free all is dealt out anew; where they cost a slot, a keeps its four.
    assert sum(scale_up(free, plans, 8).values()) == 8
    assert scale_up(costly, plans, 8)["a"] == 4
    # 4 slots on one GPU become 2 + 1 on two, which pays, and 1.5 slots become 0.75 + 1, which does not.
    assert scale_up([running("a", 4, 1, 1.0)], {"a": np.array([1] * 6)}, 2) == {"a": 2}
    assert scale_up([running("a", 1.5, 1, 1.0)], {"a": np.array([1] * 6)}, 2) == {"a": 1}
    # Back on one GPU, with two restarts, it would be a slot late.
    assert scale_up([running("a", 4, 1, 1.0)], {"a": np.array([1] * 5)}, 2) == {"a": 1}
    assert scale_up([running("a", 1.5, 1, 0.0)], {"a": np.array([1, 1, 0, 0])}, 2) == {"a": 2}


def test_a_plan_pays_for_every_restart():
    # From 2 GPUs to 1: 1.5 + 1; to nothing and back: 1.5; staying: 2 + 2.
    one = running("a", 4, 2, 0.5, slots=2)
    assert done_by(one, [1, 1]) == 0.5 + 1
    assert done_by(one, [0, 2]) == 1
    assert done_by(one, [2, 2]) == 4
    assert done_by(one.moved(), [2, 2]) == 3
    assert done_by(one, []) == 0
    assert in_time(one, [2, 2])
    assert not in_time(one.moved(), [2, 2])
    assert not in_time(one, [1, 1, 8]), "the third slot is after the deadline"


@pytest.mark.parametrize(("held", "work", "met"), [(1, 5, True), (1, 5.01, False), (0, 4.5, True), (0, 4.51, False)])
def test_a_deadline_just_met_and_just_missed_with_a_restart(held: int, work: float, met: bool):
    # One GPU for five slots, of which a job that does not run yet loses half of one.
    one = DeadlineJob("a", work, 5, 1, float, held, 0.5)
    assert (satisfactory_share(one, [1] * 5) is not None) == met
    assert admits([], one, 1) == met


def test_time_is_spared_for_a_move():
    one = DeadlineJob("a", 4.0, 5, 1, float, 0, 0.5, spare_restarts=1)
    assert satisfactory_share(one, [1] * 5) == (1,) * 5
    assert satisfactory_share(DeadlineJob("a", 4.1, 5, 1, float, 0, 0.5, spare_restarts=1), [1] * 5) is None
    # At two iterations a slot, the nine of five slots are a tenth too few for 8.1 and the one of half a slot.
    assert satisfactory_share(rated({1: 2}, 8.0, 0, 0.5, spare_restarts=1, max_gpus=1), [1] * 5) == (1,) * 5
    assert satisfactory_share(rated({1: 2}, 8.1, 0, 0.5, spare_restarts=1, max_gpus=1), [1] * 5) is None


def test_plans_that_cannot_be_made_anew_go_on():
    # Made anew, the plan of a takes a GPU as late as it can, in slot 1, where b needs both, restarts being dear.
    a, b = DeadlineJob("a", 0.5, 2, 2, float, 0, 0.5), DeadlineJob("b", 3, 3, 2, float, 0, 0.5)
    assert planned([a, b], 2) is None
    plans = {"a": np.array([1, 0]), "b": np.array([0, 2, 2])}
    kept, found = keep_promises([a, b], plans, 2)
    assert kept == [a, b]
    assert {name: plan.tolist() for name, plan in found.items()} == {"a": [1, 0], "b": [0, 2, 2]}


def test_the_later_deadline_is_given_up_when_gpus_are_lost():
    a, b = DeadlineJob("a", 4, 2, 2, float), DeadlineJob("b", 4, 4, 2, float)
    plans = plan_all([a, b], 2)
    kept, found = keep_promises([a, b], plans, 2)
    assert kept == [a, b]
    kept, found = keep_promises([a, b], plans, 1)
    assert kept == [b]
    assert found["b"].tolist() == [1, 1, 1, 1]


def test_jobs_without_a_promise_get_one_gpu_each_then_what_they_hold_then_more():
    a, b, c = (running(name, 100, held, 1.0) for name, held in (("a", 0), ("b", 4), ("c", 0)))
    assert share_out([a, b, c], 2) == {"a": 1, "b": 1, "c": 0}
    assert share_out([a, b, c], 6) == {"a": 1, "b": 4, "c": 1}
    assert share_out([a, b, c], 7) == {"a": 2, "b": 4, "c": 1}
    no_faster = job("a", 100, 50, exponent=0.0)
    assert share_out([no_faster, job("b", 100, 50, max_gpus=2)], 8) == {"a": 1, "b": 2}


def rated(rates: dict[int, float], work: float, held: int, restart_slots: float = 0.0, **other: int) -> DeadlineJob:
    known = {"slots": 5, "max_gpus": 8, **other}
    return DeadlineJob(
        "a", work, rate=lambda gpus: rates.get(gpus, 0.0), held=held, restart_slots=restart_slots, **known
    )


@pytest.mark.parametrize(
    ("work", "slots", "free", "plan"),
    [
        (1, 0, [4] * 5, None), (1, -1, [4] * 5, None), (0.5, 0, [4], None), (0.5, 3, [], None),
        (0, 0, [4] * 2, (0, 0)), (0, 2, [0, 0], (0, 0)), (0, 2, [4, 4], (0, 0)), (0, 3, [], ()),
    ],
)  # fmt: skip
def test_a_job_without_slots_or_without_work(work: float, slots: int, free: list[int], plan: tuple[int, ...] | None):
    assert satisfactory_share(job("a", work, slots), free) == plan
    assert in_time(job("a", work, slots), free[:0]) == (work == 0)
    assert in_time(job("a", work, slots), [4] * 5) == (work <= 4 * max(slots, 0))


@pytest.mark.parametrize(
    ("rates", "work", "later", "value"),
    [
        # Of 4 left two are done at rate 1, and 2 at 1.5 take 4/3 slots of two GPUs; of 3.5 the last 1.5 takes one.
        ({1: 1, 2: 1.5}, 5, [1, 1, 2, 2], 2 / 3),
        ({1: 1, 2: 2}, 7, [0, 1, 1, 0, 2, 2], 1),
        # Of 6 left one slot does 1, two do 3, and one of four GPUs 2; of 5.5 the last needs 3/4 of a slot of four.
        ({1: 1, 2: 1.5, 4: 2}, 7, [1, 2, 2, 4, 4], 1),
        ({1: 1, 2: 2}, 100, [1], 0), ({1: 1, 2: 2}, 2, [], 0), ({1: 1, 2: 1}, 2, [1], 0),
    ],
)  # fmt: skip
def test_the_marginal_return_by_hand(rates: dict[int, float], work: float, later: list[int], value: float):
    one = rated(rates, work, held=1)
    assert marginal_return(one, 1, np.array(later, dtype=int)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("rates", "work", "grows"),
    [
        ({1: 1, 2: 2}, 2.1, True), ({1: 1, 2: 2}, 2, False),  # a slot of work and one of restart instead of two
        ({1: 0.5, 2: 1}, 4, True), ({1: 0.5, 2: 1}, 1, False), ({2: 1}, 4, True), ({1: 1}, 0.5, False),
    ],
)  # fmt: skip
def test_a_restart_must_pay(rates: dict[int, float], work: float, *, grows: bool):
    one = rated(rates, work, held=1, restart_slots=1.0, slots=50)
    assert (marginal_return(one, 1, np.full(49, 2)) is not None) == grows
    it_restarts_anyway = rated(rates, work, 0, 1.0, slots=50)
    assert (marginal_return(it_restarts_anyway, 1, np.full(49, 2)) is not None) == (2 in rates)


@pytest.mark.parametrize(
    ("work", "slots", "plan", "stands"),
    [
        (42, 3, [2, 0, 0], [2, 0, 0]),  # short by a twentieth of a slot at 40 iterations
        (42.1, 3, [2, 0, 0], [1, 1, 1]),
        (1, 0, [2], None), (1, 0, None, None), (40, 3, None, [0, 1, 1]), (20, 3, [3, 0, 0], [0, 0, 1]),
    ],
)  # fmt: skip
def test_a_plan_beside_one_that_cannot_be_kept_stands_or_is_made_anew(
    work: float, slots: int, plan: list[int] | None, stands: list[int] | None
):
    one, lost = DeadlineJob("a", work, slots, 2, lambda gpus: 20.0 * gpus), job("lost", 1000, 3)
    kept, found = keep_promises([one, lost], {} if plan is None else {"a": np.array(plan)}, 2)
    assert [each.id for each in kept] == ([] if stands is None else ["a"])
    assert {name: each.tolist() for name, each in found.items()} == ({} if stands is None else {"a": stands})


def test_all_are_planned_anew_without_spare_time_before_old_plans_stand():
    # Five slots of which the restart takes half of one do 4.5 iterations: too few with time for another restart.
    a, b = DeadlineJob("a", 4.3, 5, 1, float, 0, 0.5, 1), DeadlineJob("b", 1, 5, 1, float, 0, 0.5)
    kept, found = keep_promises([a, b], {"a": np.ones(5, dtype=int), "b": np.array([1, 1, 0, 0, 0])}, 2)
    assert kept == [a, b]
    assert found["b"].tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("held", "restart_slots", "max_gpus", "gpus", "count"),
    [
        (4, 1.0, 8, 4, 4), (4, 1.0, 4, 4, 4), (4, 1.0, 2, 4, 1), (4, 1.0, 8, 3, 1), (4, 0.0, 8, 4, 1),
        (2, 1.0, 8, 2, 2), (2, 0.0, 8, 2, 1), (1, 1.0, 8, 8, 1),
    ],
)  # fmt: skip
def test_extra_gpus_are_kept_for_a_restart_while_there_is_room(
    held: int, restart_slots: float, max_gpus: int, gpus: int, count: int
):
    one = DeadlineJob("a", 3, 50, max_gpus, lambda gpus: float(gpus > 0), held, restart_slots)
    assert scale_up([one], {"a": np.ones(8, dtype=int)}, gpus) == {"a": count}
    assert share_out([one], gpus) == {"a": min(count if held <= max_gpus else max_gpus, gpus)}


def test_extra_gpus_are_kept_only_if_the_rest_of_the_plan_is_in_time():
    # One slot on two GPUs, then a restart of half a slot and one more slot: 2.5 iterations.
    one = DeadlineJob("a", 2.5, 3, 8, lambda gpus: float(gpus > 0), 2, 0.5)
    late = DeadlineJob("a", 2.6, 3, 8, lambda gpus: float(gpus > 0), 2, 0.5)
    assert [scale_up([each], {"a": np.ones(3, dtype=int)}, 2) for each in (one, late)] == [{"a": 2}, {"a": 1}]
    assert scale_up([one], {"a": np.ones(0, dtype=int)}, 0) == {"a": 0}
    assert scale_up([rated({1: 1, 4: 4}, 9, 0)], {"a": np.array([1, 4, 4])}, 1) == {"a": 1}


@pytest.mark.parametrize(("held", "rates", "count"), [(1, {1: 1, 2: 2}, 2), (2, {1: 1, 2: 2, 4: 4}, 4)])
def test_jobs_without_a_promise_double_where_they_end_sooner(held: int, rates: dict[int, float], count: int):
    assert share_out([rated(rates, 100, held, 1.0)], 4) == {"a": count}
    assert share_out([rated(rates, 1, held, 1.0)], 4) == {"a": held}
