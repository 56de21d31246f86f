"""The policy in policies/README.md works as it stands in the text."""

from __future__ import annotations

import re
from pathlib import Path

from simsched.policy import registry, signals
from simsched.testing import check_policy
from simsched.testing.builders import random_jobs, run

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
