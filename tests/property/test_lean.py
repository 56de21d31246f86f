"""Jobs that know only GPUs and seconds leave the same bytes whether or not they begin where they are placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from simsched_policies.production.slurm.options import Backfill, Limits

from simsched.engine import EngineOptions, features_of, simulate
from simsched.model import Cluster, JobSpec, NodeGroup
from simsched.policy import registry
from simsched.results import TableWriter
from simsched.testing import Applications

CLUSTER = Cluster.of(NodeGroup(2, 4), NodeGroup(3, 2))
TIRESIAS = {"queue_thresholds_gpu_s": [40, 200], "interval_s": None, "placement": "fragments"}
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("fifo", {}),
    ("fifo", {"backfill": True}),
    ("sjf", {}),
    ("srtf", {}),
    ("las", {"quantum_s": 20}),
    ("tiresias", TIRESIAS),
    ("tiresias", {"queue_thresholds_gpu_s": [60], "interval_s": 15}),
    ("slurm-backfill", {}),
    ("slurm-backfill", {"backfill": Backfill(kind="conservative", interval_s=10)}),
    ("slurm-backfill", {"limits": Limits(max_time_h=0.02)}),
    ("yarn-cs", {}),
    ("qssf", {}),
]
#: Halves and tenths end before and after the tick to which they are rounded, and some within the tick they begin in.
SECONDS = st.sampled_from([0.2, 0.5, 1, 2.5, 3.7, 10, 10.5, 59.9, 60, 200])
JOBS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 6), SECONDS, st.sampled_from([None, 1, 30, 100])),
    min_size=1,
    max_size=25,
)


def tables(folder: Path, jobs: list[JobSpec], options: EngineOptions, policy: str, params: Any, lean: bool) -> Any:
    """Return the bytes of the tables of a run."""
    with TableWriter(folder, features=features_of(CLUSTER, jobs, options), keep_short=True) as writer:
        chosen = registry.load(policy)(**params)
        simulate(CLUSTER, jobs, Applications(), chosen, options, 1, writer, check_invariants=True, lean=lean)
    return writer.contents


@pytest.mark.parametrize(("policy", "params"), POLICIES, ids=lambda value: value if isinstance(value, str) else "")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=JOBS, delay_s=st.sampled_from([0, 0.4, 7]), tick_s=st.sampled_from([1, 0.25, 0]), kill=st.booleans())
def test_the_lean_way_leaves_the_same_bytes(
    tmp_path: Path, policy: str, params: Any, rows: Any, delay_s: float, tick_s: float, kill: bool
) -> None:
    jobs, now = [], 0
    for number, (gap, gpus, duration_s, limit_s) in enumerate(rows):
        now += gap
        jobs.append(JobSpec(f"j{number}", now, gpus, duration_s=max(duration_s, tick_s), time_limit_s=limit_s))
    options = EngineOptions(restart_delay_s=delay_s, tick_s=tick_s, kill_at_time_limit=kill)
    lean, full = (tables(tmp_path, jobs, options, policy, params, way) for way in (True, False))
    assert lean == full
    assert set(lean) == {"jobs.parquet", "allocations.parquet", "rounds.parquet"}
