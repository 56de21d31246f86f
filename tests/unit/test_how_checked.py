"""What a league says of how its policies were checked is there to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from simsched.experiment import how_checked
from simsched.policy import registry

ROOT = Path(__file__).resolve().parents[2]


def test_every_policy_that_ships_was_checked_somehow() -> None:
    assert [one.policy for one in how_checked() if not one.how] == []


@pytest.mark.parametrize("one", how_checked(), ids=lambda one: one.policy)
def test_the_evidence_is_there_and_speaks_of_the_policy(one) -> None:
    plain = one.policy.removeprefix("gavel-")
    words = (one.policy, plain, plain.replace("-", "_"), registry.load(one.policy).__name__)
    for kind, place in one.how:
        text = (ROOT / place).read_text(encoding="utf-8")
        assert any(word in text for word in words), f"{place}, the {kind} of {one.policy}, does not name it"


def test_differences_come_from_the_policies_own_modules() -> None:
    said = {one.policy: one.differs for one in how_checked()}
    assert said["qssf"].startswith("Deviations: the paper estimates by a gradient-boosted tree")
    assert said["gandiva"].startswith("Deviations: only jobs that have run alone are tried")
    assert said["fifo"] == ""
