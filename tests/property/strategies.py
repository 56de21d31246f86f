"""Hypothesis strategies for clusters and workloads."""

from __future__ import annotations

from hypothesis import strategies as st

from simsched.model import FIXED_DURATION, Cluster, JobSpec, NodeGroup

_BATCHES = (32, 64, 128, 256)


def clusters() -> st.SearchStrategy[Cluster]:
    """Draw small clusters of one or two kinds of nodes with at least 4 GPUs in total."""
    group = st.builds(NodeGroup, nodes=st.integers(1, 3), gpus_per_node=st.integers(1, 4))
    drawn = st.lists(group, min_size=1, max_size=2)
    return drawn.map(lambda groups: Cluster.of(NodeGroup(1, 4), *groups))


@st.composite
def workloads(draw: st.DrawFn, *, application: str = FIXED_DURATION, most_jobs: int = 12) -> list[JobSpec]:
    """Draw jobs of up to 4 GPUs that arrive in bursts, sorted by submit time."""
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 29, 30, 59, 60, 61, 400]), min_size=1, max_size=most_jobs))
    jobs, now_s = [], 0
    for i, gap in enumerate(gaps):
        now_s += gap
        gpus, duration_s = draw(st.integers(1, 4)), draw(st.integers(1, 500))
        batch = draw(st.sampled_from(_BATCHES)) if application != FIXED_DURATION else 0
        jobs.append(JobSpec(f"job-{i}", now_s, gpus, application, batch, duration_s))
    return jobs
