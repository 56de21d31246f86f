"""Policies made for equal GPUs run on clusters with two types, and use both."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from simsched.model.cluster import Cluster, NodeGroup
from simsched.policy import Policy, registry
from simsched.testing.builders import Applications, random_jobs, run, two_type_application

README = Path(__file__).resolve().parents[2] / "policies" / "README.md"
CLUSTER = Cluster.of(NodeGroup(1, 2, "v100"), NodeGroup(2, 4, "t4"), NodeGroup(1, 2, "v100"))


def policy_of(name: str, folder: Path) -> type[Policy]:
    if name != "README":
        return registry.load(name)
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (folder / "shortest_first.py").write_text(code[1], encoding="utf-8")
    return registry.load("shortest_first.py:ShortestFirst", folder=folder)


@pytest.mark.parametrize("name", ["pollux", "optimus", "pollux-autoscale", "or-elastic", "isolated", "fifo", "README"])
def test_all_jobs_finish_and_both_types_are_used_but_never_mixed(name: str, tmp_path: Path) -> None:
    jobs = random_jobs(np.random.default_rng(5), 12, most_gpus=4)
    records = run(policy_of(name, tmp_path)(), jobs, cluster=CLUSTER, applications=Applications(two_type_application()))
    assert {job.job_id for job in records.jobs} == {job.id for job in jobs}
    types = []
    for interval in records.allocations:
        nodes = [int(pair.partition(":")[0]) for pair in interval.placement.split()]
        types.append({CLUSTER.nodes[node].gpu_type for node in nodes})
    assert all(len(found) == 1 for found in types)
    assert set.union(*types) == {"t4", "v100"}
