"""Forecasts of `what-if` against the truth: 90 % intervals hold it nine times of ten, where the replay is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from simsched.cli.operator_options import LogOptions, make_plan
from simsched.operators import ReplayPlan, what_if
from tests.campaigns import campaign
from tests.operators.clusters import Cluster, Rules, draw, write_log

#: Rules that differ from those of the replay, which the settings keep from being fitted.
RULES = (Rules(counts="gpus"), Rules(holders="nobody"), Rules(favours=True))
SETTINGS = tuple(f"policy.backfill.{one}" for one in ("kind=easy", "counts=nodes", "holders=partition"))
LOADS, SEEDS = (0.65, 0.75, 0.85, 0.95), (11, 12)
CLUSTER = Cluster(12, 6)
#: What is changed, as on the cluster itself: growth and shrinkage.
CHANGES = {"cluster.a100.nodes=+3": replace(CLUSTER, big=15), "cluster.a100.nodes=-2": replace(CLUSTER, big=10)}


def plan_of(folder: Path, rules: Rules, load: float, seed: int) -> ReplayPlan:
    """Plan to replay ten days of a cluster."""
    cluster = replace(CLUSTER, rules=rules)
    log, described = write_log(folder, cluster, cluster.run(draw(cluster, seed, 10, load)))
    return make_plan(log, LogOptions(cluster=described, settings=SETTINGS, out=folder))


@campaign
@pytest.mark.usefixtures("in_this_process")
def test_ninety_percent_intervals_hold_the_true_waits(tmp_path: Path, record_property: Any) -> None:
    held = []
    for number, (rules, load, seed) in enumerate(product(RULES, LOADS, SEEDS)):
        plan = plan_of(tmp_path / f"{number}", rules, load, seed)
        for change, cluster in CHANGES.items():
            answer = what_if(plan, [change], by=("queue",), trust_anyway=True)
            jobs = draw(CLUSTER, seed, 10, load)
            waits = {f"{1000 + one.id}": one.start_s - one.submit_s for one in replace(cluster, rules=rules).run(jobs)}
            truth_s = answer.calibration.jobs["job_id"].map(waits).mean()
            (forecast,) = [one.forecast for one in answer.effects if one.before.group == "all"]
            assert forecast is not None
            held.append(forecast.low_s <= truth_s <= forecast.high_s)
    record_property("outcome", f"{sum(held)} of {len(held)} held")
    assert 0.85 * len(held) <= sum(held) <= 0.95 * len(held)
