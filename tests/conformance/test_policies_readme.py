"""The policy in policies/README.md works as it stands in the text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.fitted import FittedApplication
from simsched.model.job import JobSpec
from simsched.policy import Policy, registry, signals
from simsched.testing import check_policy
from simsched.testing.builders import Applications, random_jobs, run, two_type_application

README = Path(__file__).resolve().parents[2] / "policies" / "README.md"


def test_the_policy_of_the_readme_conforms_and_is_short(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (tmp_path / "shortest_first.py").write_text(code[1], encoding="utf-8")
    policy = registry.load("shortest_first.py:ShortestFirst", folder=tmp_path)
    assert check_policy(policy) == []
    assert len([line for line in code[1].splitlines() if line.strip()]) <= 22


def test_the_readme_lists_every_signal_as_it_is_known() -> None:
    rows = re.findall(r"^ *\| (`[A-Z_]+`.*?) \| .* \| (\w+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: known for names, known in rows for name in re.findall(r"`([A-Z_]+)`", names)}
    kinds = (signals.JobSignal, signals.ViewSignal, signals.FileSignal)
    assert listed == {name: str(one.known) for name, one in vars(signals).items() if isinstance(one, kinds)}


def test_it_beats_first_in_first_out_on_mean_jct(tmp_path: Path) -> None:
    import numpy as np

    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (tmp_path / "shortest_first.py").write_text(code[1], encoding="utf-8")
    shortest = registry.load("shortest_first.py:ShortestFirst", folder=tmp_path)
    jobs = random_jobs(np.random.default_rng(3), 60, most_gpus=4, application="fixed-duration")
    means = [np.mean([job.jct_s for job in run(policy(), jobs).jobs]) for policy in (shortest, registry.load("fifo"))]
    assert means[0] < means[1]


def test_the_elastic_policy_of_the_readme_conforms_and_needs_a_speedup(tmp_path: Path) -> None:
    from dataclasses import replace

    import pytest

    from simsched.applications.catalogue import catalogue
    from simsched.engine.errors import InfeasibleDecisionError
    from simsched.model.job import JobSpec, Speedup

    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "equal_shares.py").write_text(code, encoding="utf-8")
    policy = registry.load("equal_shares.py:EqualShares", folder=tmp_path)
    assert check_policy(policy, seeds=1) == []
    job = JobSpec("a", 0, 2, duration_s=100)
    with pytest.raises(InfeasibleDecisionError, match="job 'a' asked for 2 GPUs and is given 4"):
        run(policy(), [job], applications=catalogue())
    (found,) = run(policy(), [replace(job, speedup=Speedup())], applications=catalogue()).jobs
    assert found.jct_s == 30 + 50  # the restart delay, and half of the time on twice the GPUs


def test_the_sharing_policy_of_the_readme_conforms_and_pairs_jobs_only_where_gpus_may_be_shared(tmp_path: Path) -> None:
    from simsched.applications.catalogue import catalogue
    from simsched.engine.options import EngineOptions
    from simsched.model.cluster import Cluster
    from simsched.model.job import JobSpec

    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[2]
    (tmp_path / "pairs.py").write_text(code, encoding="utf-8")
    policy = registry.load("pairs.py:Pairs", folder=tmp_path)
    assert check_policy(policy, seeds=1) == []
    jobs = [JobSpec(name, 0, 2, duration_s=100) for name in "abc"]
    starts = {}
    for most in (1, 2):
        options = EngineOptions(restart_delay_s=0, max_jobs_per_gpu=most)
        done = run(policy(), jobs, cluster=Cluster.uniform(1, 2), options=options, applications=catalogue()).jobs
        starts[most] = {job.job_id: (job.start_time_s, job.end_time_s) for job in done}
    assert starts[1] == {"a": (0, 100), "b": (100, 200), "c": (200, 300)}
    assert starts[2] == {"a": (0, 200), "b": (0, 200), "c": (200, 300)}  # two at half speed, then one alone


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


def held_types(name: str, *, faster: str) -> dict[str, list[str]]:
    """Return the GPU types on which each of some jobs runs in turn that all fit, where one type is twice as fast."""
    app = two_type_application()
    slow, fast = app.step_models["t4"], app.step_models["v100"]
    speeds = {kind: fast if kind == faster else slow for kind in ("t4", "v100")}
    applications = Applications(FittedApplication(app.name, app.limits, app.training, speeds))
    jobs = [JobSpec(f"job-{gpus}", 0, gpus, application="toy", batch_size=32) for gpus in (1, 2)]
    cluster = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "v100"))
    try:
        records = run(registry.load(name)(), jobs, cluster=cluster, applications=applications)
    except InputError as error:
        pytest.skip(f"{name} cannot run such jobs: {error}")
    found: dict[str, list[str]] = {job.id: [] for job in jobs}
    for interval in records.allocations:
        kind = cluster.nodes[int(interval.placement.partition(":")[0])].gpu_type
        if found[interval.job_id][-1:] != [kind]:
            found[interval.job_id].append(kind)
    return found


@pytest.mark.parametrize("name", [name for name in registry.names() if not registry.load(name).traits.type_aware])
def test_to_a_policy_that_is_not_aware_of_types_each_is_a_pool_whatever_its_speed(name: str) -> None:
    one, other = held_types(name, faster="v100"), held_types(name, faster="t4")
    assert {job: kinds[0] for job, kinds in one.items()} == {job: kinds[0] for job, kinds in other.items()}


@pytest.mark.parametrize("name", ["sia"])
def test_policies_that_are_aware_of_types_prefer_the_faster(name: str) -> None:
    assert registry.load(name).traits.type_aware
    assert held_types(name, faster="v100") != held_types(name, faster="t4")


def test_those_that_weigh_types_say_so() -> None:
    blind = {"gavel-isolated", "gavel-proportional", "gavel-gandiva-fair"}
    aware = {name for name in registry.names() if registry.load(name).traits.type_aware}
    assert aware == {"sia", "rubick", *(name for name in registry.names() if name.startswith("gavel-"))} - blind
