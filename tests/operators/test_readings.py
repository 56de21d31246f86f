"""The gate on logs of clusters with other rules: the rule is named, or the jobs that differ most."""

from __future__ import annotations

from pathlib import Path

import pytest

from simsched.cli.operator_options import LogOptions, make_plan
from simsched.operators import Calibration, calibrate
from tests.operators.clusters import Cluster, Rules, draw, write_log

pytestmark = pytest.mark.usefixtures("in_this_process", "few_days")
#: What is said of the cluster and so not fitted: all but what reservations count, who holds them, and who waits.
SAID = (
    "backfill.kind=easy", "backfill.interval_s=1", "backfill.from_pass=false", "backfill.whole_nodes=false",
    "placement=fragments",
)  # fmt: skip


@pytest.fixture
def few_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a day be evidence, and leave invariants to the replays of others."""
    monkeypatch.delenv("SIMSCHED_CHECK_INVARIANTS", raising=False)
    monkeypatch.setattr("simsched.operators.gate.LEAST_DAYS", 1)


def calibrated(folder: Path, rules: Rules, load: float = 0.85, *, hopeful: float = 0.0) -> Calibration:
    """Replay four days of a cluster under EASY backfill, whose reservations are said to hold nodes."""
    cluster = Cluster(6, 6, rules)
    log, described = write_log(folder, cluster, cluster.run(draw(cluster, 7, 4, load, hopeful=hopeful)))
    settings = tuple(f"policy.{one}" for one in SAID)
    return calibrate(make_plan(log, LogOptions(cluster=described, settings=settings, out=folder)))


def test_a_cluster_that_follows_the_rules_needs_no_reading(tmp_path: Path) -> None:
    found = calibrated(tmp_path, Rules())
    assert found.verdict.is_open
    assert found.verdict.rows[0].waited_skill == pytest.approx(1, abs=0.01)
    assert not any("fitted" in line for line in found.said)


@pytest.mark.parametrize(
    ("rules", "hopeful", "named"),
    [
        (Rules(counts="gpus"), 0, "reservations count the GPUs of a type, not nodes (policy.backfill.counts=gpus)"),
        (Rules(holders="cluster"), 0, "only the first waiting job of the cluster holds a reservation"),
        (Rules(linger=True), 2, "jobs that were cancelled before they started waited, and held reservations"),
    ],
    ids=["counts", "holders", "cancelled"],
)
def test_the_rule_that_differs_is_named_and_opens_the_gate(
    rules: Rules, hopeful: float, named: str, tmp_path: Path
) -> None:
    found = calibrated(tmp_path, rules, 0.7 if hopeful else 0.85, hopeful=hopeful)
    assert found.verdict.is_open
    (said,) = [line for line in found.said if "fitted" in line]
    assert named in said
    assert said.endswith("skill 1.00 on the second half")
    assert found.odd == ()


def test_a_rule_that_no_reading_knows_leaves_the_three_jobs_that_differ_most(tmp_path: Path) -> None:
    found = calibrated(tmp_path, Rules(favours=True))
    assert not found.verdict.is_open
    off_s = (found.jobs["simulated_s"] - found.jobs["recorded_s"]).abs()
    worst = found.jobs.loc[off_s.idxmax()]
    assert len(found.odd) == 3
    assert found.odd[0].startswith(f"job {worst['job_id']} (")
    assert f"on the cluster it waited {worst['recorded_s'] / 3600:.2f} h and ran from 2024-03-" in found.odd[0]
    assert f"in the replay it waited {worst['simulated_s'] / 3600:.2f} h" in found.odd[0]
