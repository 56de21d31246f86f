"""Forged bounds against the check: nothing that claims more than the optimum found by enumeration passes."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from simsched.bounds import Speeds, lower_bound, problem_of, relaxed_jobs
from tests.campaigns import played
from tests.operators.test_bounds import cell_of, claim_of, least_flow, least_makespan, rigid

#: A place in a bound: the keys and indices on the way.
Place = tuple[str | int, ...]
#: What is claimed and its least value over all schedules.
Truth = dict[str, float]


def instance(number: int) -> tuple[dict[str, Any], dict[str, Any], Truth]:
    """A claim, its cell, and the optimum: of fixed widths by enumeration, of two elastic jobs by hand."""
    rng = np.random.default_rng([7, number])
    if number % 4 == 3:  # 120 units of work each, 1 / 1.2 a tick on 1 / 2 GPUs: beside each other, one on each
        jobs = relaxed_jobs([0, 0], [120.0, 120.0], [Speeds(((1, 1.0), (2, 1.2)))] * 2, 2)
        return claim_of(jobs, lower_bound(jobs)), cell_of(jobs), {"flow_sum": 240, "makespan": 120}
    gpus = int(rng.integers(1, 4))
    rows = [(int(rng.integers(0, 4)), int(rng.integers(1, gpus + 1)), int(rng.integers(1, 4))) for _ in range(4)]
    jobs = rigid(rows, gpus)
    least = {"flow_sum": least_flow(rows, gpus), "makespan": least_makespan(rows, gpus)}
    waited = least["flow_sum"] - sum(seconds for *_, seconds in rows)
    return claim_of(jobs, lower_bound(jobs)), cell_of(jobs), least | {"waited": waited}


def leaves(value: object, place: Place = ()) -> Iterator[Place]:
    """Every place in a bound, parts before wholes."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        yield from leaves(held, (*place, key))
    if place:
        yield place


def of(claim: Any, place: Place) -> Any:
    for key in place:
        claim = claim[key]
    return claim


def scaled(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [scaled(one, factor) for one in value]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return type(value)(value * factor) + (value == 0) if number else [value]


#: What is done to a value, given a random other one of the bound.
FORGERIES: dict[str, Callable[[Any, Any, random.Random], Any]] = {
    "sign": lambda value, other, chance: scaled(value, -1),
    "zero": lambda value, other, chance: scaled(value, 0) if isinstance(value, list) else 0,
    "scale": lambda value, other, chance: scaled(value, chance.choice([1.001, 2, 10, 1e6, 0.5])),
    "one more": lambda value, other, chance: value + 1 if isinstance(value, int | float) else value * 2 or [1],
    "swap": lambda value, other, chance: copy.deepcopy(other),
    "empty": lambda value, other, chance: type(value)(),
    "NaN": lambda value, other, chance: float("nan"),
    "infinite": lambda value, other, chance: float("inf"),
    "true": lambda value, other, chance: True,
    "none": lambda value, other, chance: None,
}


def forge(claim: dict[str, Any], chance: random.Random) -> list[tuple[str, Place]]:
    """Change one to four places of a bound, most often among them what it claims; returns what was done where."""
    done = []
    for _ in range(chance.choice([1, 1, 2, 3, 4])):
        places = list(leaves(claim))
        claims = [place for place in places if place[-1] in ("mean_jct_s", "makespan_s", "mean_wait_s", "jobs")]
        place = chance.choice([chance.choice(places), chance.choice(claims or places)])
        what = chance.choice(["drop", *FORGERIES])
        holder = of(claim, place[:-1])
        if what == "drop":
            del holder[place[-1]]
        else:
            try:
                value, other = holder[place[-1]], of(claim, chance.choice(places))
                holder[place[-1]] = FORGERIES[what](value, other, chance)
            except (TypeError, ValueError, OverflowError):
                holder[place[-1]] = "x"
        done.append((what, place))
    return done


def excess(claim: dict[str, Any], cell: dict[str, Any], truth: Truth) -> list[str]:
    """What a bound claims beyond the optimum."""
    most = {
        "mean_jct_s": truth["flow_sum"] / cell["count"],
        "makespan_s": truth["makespan"],
        "mean_wait_s": truth["waited"] / cell["count"] if "waited" in truth else None,
    }
    found = [name for name, value in most.items() if claim[name] is not None and not claim[name] <= (value or 0)]
    return found + [name for name in ("flow_sum", "makespan") if not claim["certificate"][name] <= truth[name]]


TRIES = 2_000


@pytest.mark.parametrize("number", played(range(40), range(0, 40, 5)))
def test_no_forged_bound_claims_more_than_the_truth(number: int) -> None:
    claim, cell, truth = instance(number)
    assert problem_of(claim, cell) == ""
    assert not excess(claim, cell, truth)
    chance, refused = random.Random(number), 0
    for _ in range(TRIES // 40):
        forged = copy.deepcopy(claim)
        done = forge(forged, chance)
        problem = problem_of(forged, cell)
        refused += problem != ""
        if not problem:
            assert not excess(forged, cell, truth), done
    assert refused > TRIES // 40 // 2


@pytest.mark.parametrize("number", [0, 3])
def test_each_place_of_a_bound_is_forged_alone(number: int) -> None:
    claim, cell, truth = instance(number)
    for place in leaves(claim):
        for what, change in FORGERIES.items():
            forged = copy.deepcopy(claim)
            holder = of(forged, place[:-1])
            try:
                holder[place[-1]] = change(holder[place[-1]], claim["jobs"], random.Random(1))
            except (TypeError, ValueError, OverflowError):
                continue
            if not problem_of(forged, cell):
                assert not excess(forged, cell, truth), (what, place)


@pytest.mark.parametrize("key", ["release", "work", "rates", "costs", "units", "whole", "count", "served_s"])
def test_a_bound_of_other_jobs_or_another_cluster_is_refused(key: str) -> None:
    claim, cell, _ = instance(0)
    other = copy.deepcopy(cell)
    if isinstance(other[key], list):
        del other[key][0]
    else:
        other[key] = not other[key]
    assert "other jobs, another cluster or other physics" in problem_of(claim, other)


def test_prices_that_some_job_would_pay_for_ever_prove_nothing() -> None:
    jobs = rigid([(0, 1, 5), (0, 2, 5), (1, 3, 7)], 4)
    claim, cell = claim_of(jobs, lower_bound(jobs)), cell_of(jobs)
    assert problem_of(claim, cell) == ""
    claim["certificate"]["prices"][-1] = 1 << 40
    assert "the last one 0" in problem_of(claim, cell)
    claim = claim_of(jobs, lower_bound(jobs))
    claim["certificate"]["own"] = [[1 << 40] * len(claim["certificate"]["starts"])] * 3
    assert "for ever" in problem_of(claim, cell)


def test_jobs_of_several_speeds_cannot_be_packed() -> None:
    claim, cell, _ = instance(3)
    assert problem_of(claim, cell) == ""
    for change in ({"own": [[0], [0]]}, {"packed": True}):
        forged = claim | {"certificate": claim["certificate"] | change}
        assert "no fixed width" in problem_of(forged, cell)
