"""The contract at its edges: time slices, triggers, reasons, and what a policy is without some physics."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simsched.errors import InputError
from simsched.policy import Becomes, JobView, Policy, Quantum, Reasons, Triggers, Why
from simsched.policy.signals import EARLIER_RUNS, GOODPUT, STEPS, known_by


def test_slices_begin_at_multiples_of_the_quantum():
    quantum = Quantum("gandiva", 10.0)
    assert [quantum.end_s(now_s) for now_s in (0, 9.5, 10, 25)] == [10, 10, 20, 30]

    def over(now_s):
        return quantum.over(SimpleNamespace(now_s=now_s, restart_delay_s=9.0))

    assert [over(now_s) for now_s in (0, 9, 10, 19, 45, 49)] == [False, False, True, False, True, False]


@pytest.mark.parametrize("delay_s", [10.0, 11.0])
def test_a_slice_is_longer_than_a_restart(delay_s):
    quantum = Quantum("gandiva", 10.0)
    quantum.check(9.9)
    with pytest.raises(InputError, match=rf"policy 'gandiva': a quantum of 10.0 s .* which is {delay_s}"):
        quantum.check(delay_s)
    with pytest.raises(InputError, match="no longer than a restart"):
        quantum.over(SimpleNamespace(now_s=0, restart_delay_s=delay_s))


def test_a_slice_has_a_second_at_least():
    assert Quantum("a", 1).end_s(0) == 1
    with pytest.raises(ValueError, match=r"quantum_s must be at least 1, not 0.9"):
        Quantum("a", 0.9)


@pytest.mark.parametrize(
    "wrong", [{}, {"completion": True}, {"interval_s": 0.0}, {"interval_s": -1.0, "arrival": True}]
)
def test_triggers_that_would_never_call_are_refused(wrong):
    with pytest.raises(ValueError, match=r"interval_s must be above 0|would never be called"):
        Triggers(**wrong)
    assert Triggers(0.5).interval_s == 0.5
    assert Triggers.on_events() == Triggers(None, arrival=True, completion=True, node_change=True)
    assert not Triggers.on_events().quiet


def test_reasons_rank_from_one_and_are_forgotten():
    reasons = Reasons()
    reasons.order({"b": 3.0, "a": (1.0, 2.0)})
    reasons.wait("a", Why.ANOTHER_FIRST, "b")
    assert reasons.places == {"b": (1, 3.0), "a": (2, (1.0, 2.0))}
    assert reasons.waits == {"a": (Why.ANOTHER_FIRST, "b")}
    reasons.clear()
    assert (reasons.places, reasons.waits) == ({}, {})


@pytest.mark.parametrize(
    ("same_as", "params", "off"),
    [("", {"packing": False}, True), ("", {"packing": True}, False), ("", {}, False),
     ("fifo", {"packing": False}, False), ("", {"packing": False, "pairs": 2}, True),
     ("", {"packing": False, "pairs": 1}, False)],
)  # fmt: skip
def test_physics_are_switched_off_by_the_parameters_that_go_without(same_as, params, off):
    policy = SimpleNamespace(packing=False, pairs=2)
    assert Becomes("goes without", same_as, params).switched_off(policy) is off


@pytest.mark.parametrize(("starts", "restarts"), [(0, 0), (1, 0), (2, 1), (5, 4)])
def test_the_first_start_is_no_restart(starts, restarts):
    view = SimpleNamespace(_state=SimpleNamespace(starts=starts))
    assert JobView.restarts.fget(view) == restarts


def test_a_policy_tells_how_a_real_scheduler_would_come_by_what_it_reads():
    class Told(Policy):
        name = "told"
        needs = frozenset({STEPS, GOODPUT, EARLIER_RUNS})

        @property
        def signals(self):
            return self.traits.needs - {EARLIER_RUNS}

    assert list(known_by(Told().signals).items()) == [("goodput", "learnt"), ("steps", "oracle")]
    assert [one.oracle for one in (GOODPUT, STEPS)] == [False, True]
