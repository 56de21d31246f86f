"""Physics that policies count on: what an experiment lacks is found, said, and does what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.experiment.checks import OFFERED, Conditions, lacking
from simsched.experiment.results_name import find_experiment, shipped_experiments
from simsched.experiment.validation import read_experiment
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.colocation.contract import ConstantSharing
from simsched.model.job import JobSpec, StageProfile
from simsched.policy import Policy, physics, registry
from simsched.policy.physics import Becomes, Physics
from simsched.testing.builders import Applications

#: Parameters with which policies count on something that their defaults leave alone.
ASKING: Mapping[str, Mapping[str, Any]] = {
    "gavel-fifo": {"packed": True, "speeds": "true"},
    "gavel-max-min": {"packed": True},
    "gavel-min-cost": {"slos": True},
    "tiresias": {"placement": "skew"},
}
CLUSTER = Cluster.uniform(2, 4)


def made(name: str, **params: Any) -> Policy:
    return registry.load(name)(**params)


def wanting() -> list[tuple[str, Physics, Becomes]]:
    """List every claim of every registered policy, as its parameters in `ASKING` or its defaults have it."""
    return [
        (name, wanted, becomes)
        for name in registry.names()
        for wanted, becomes in made(name, **ASKING.get(name, {})).counts_on.items()
    ]


CLAIMS = [
    pytest.param(name, wanted, becomes, id=f"{name}-{wanted.name}")
    for name, wanted, becomes in wanting()
    if becomes.same_as or becomes.params
]


def bare_jobs(seed: int, count: int = 30) -> list[JobSpec]:
    """Draw jobs that nothing but their size and length tells apart."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([200, 700, 3000], count).tolist()
    return [JobSpec(f"j{n}", 40 * n, int(rng.choice([1, 1, 2, 4])), duration_s=s) for n, s in enumerate(lengths)]


def ends(policy: Policy, jobs: list[JobSpec], most: int) -> dict[str, float]:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=10, max_jobs_per_gpu=most)
    simulate(CLUSTER, jobs, Applications(), policy, options, 1, recorder, colocation=ConstantSharing(0.7))
    return {record.job_id: record.end_time_s for record in recorder.jobs}


def test_every_physics_is_looked_for() -> None:
    declared = {value for value in vars(physics).values() if isinstance(value, Physics)}
    assert set(OFFERED) == declared
    assert {wanted for _, wanted, _ in wanting()} == declared, "every one is wanted by some policy"


@pytest.mark.parametrize(("name", "wanted", "becomes"), CLAIMS)
def test_a_policy_without_its_physics_is_what_it_says(name: str, wanted: Physics, becomes: Becomes) -> None:
    most = 1 if wanted == physics.SHARED_GPUS else 2
    params = dict(ASKING.get(name, {}))
    other = (becomes.same_as, becomes.params) if becomes.same_as else (name, {**params, **becomes.params})
    for seed in range(3):
        jobs = bare_jobs(seed)
        assert ends(made(name, **params), jobs, most) == ends(made(other[0], **other[1]), jobs, most)


def test_with_its_physics_it_is_not() -> None:
    jobs = bare_jobs(0)
    guaranteed = [replace(job, guaranteed=n % 2 == 0) for n, job in enumerate(jobs)]
    assert ends(made("antman"), guaranteed, 2) != ends(made("fifo", backfill=True), guaranteed, 2)
    assert ends(made("gandiva"), jobs, 2) != ends(made("gandiva", packing=False), jobs, 2)


def met(policy: Policy, jobs: list[JobSpec], **engine: Any) -> set[str]:
    return set(lacking(policy, Conditions(CLUSTER, EngineOptions(**engine), jobs, Applications(), {})))


def test_what_is_lacking_follows_from_jobs_engine_and_parameters() -> None:
    jobs = bare_jobs(0, 4)
    assert met(made("antman"), jobs) == {"shared_gpus", "guaranteed_jobs"}
    assert met(made("antman", packing=False), jobs, max_jobs_per_gpu=2) == {"guaranteed_jobs"}
    some = [replace(jobs[0], guaranteed=True), *jobs[1:]]
    assert met(made("antman"), some, max_jobs_per_gpu=2) == set()
    every = [replace(job, guaranteed=True) for job in jobs]
    assert met(made("antman"), every, max_jobs_per_gpu=2) == {"opportunistic_jobs"}
    assert met(made("edf"), jobs) == {"deadlines"}
    assert met(made("edf"), [replace(jobs[0], deadline_s=50), *jobs[1:]]) == set()
    profiled = [replace(jobs[0], profile=StageProfile(1.0, (0.1, 0.5, 0.4))), *jobs[1:]]
    assert met(made("muri-l"), profiled, max_jobs_per_gpu=4) == set()
    assert met(made("muri-l"), jobs, max_jobs_per_gpu=4) == {"stages"}
    assert met(made("muri-l", most_jobs=1), jobs) == set()
    assert met(made("fractional"), [replace(jobs[0], gpu_share=0.5)], max_jobs_per_gpu=2) == {"gpu_parts"}
    assert met(made("fractional"), [replace(jobs[0], gpu_share=0.5)], max_jobs_per_gpu=2, gpu_shares=True) == set()


def test_types_tenants_and_quotas_are_looked_for() -> None:
    jobs = [replace(job, tenant=f"t{n % 2}", user=f"u{n % 3}") for n, job in enumerate(bare_jobs(0, 4))]
    types = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "a100"))
    for cluster, missing in ((types, set()), (CLUSTER, {"gpu_types"})):
        policy = made("gavel-min-jct")
        assert set(lacking(policy, Conditions(cluster, EngineOptions(), jobs, Applications(), {}))) == missing
    assert met(made("gavel-max-min", speeds="none"), jobs) == set()
    assert met(made("volcano"), jobs) == {"quotas"}
    own = Conditions(CLUSTER, EngineOptions(), jobs, Applications(), {"tenants": {"t0": {"gpus": 4}}})
    assert lacking(made("volcano"), own) == {}
    assert met(made("qssf"), jobs) == set()
    assert met(made("yarn-cs"), jobs) == {"quotas"}
    assert met(made("yarn-cs", capacities={"t0": 0.5}), jobs) == set()


#: All that ship, but for those that need a recording to be read at all.
READABLE = [name for name in shipped_experiments() if not name.startswith("validation/")]


@pytest.mark.parametrize("name", READABLE)
def test_conditions_of_one_policy_alone_stand_in_its_label(name: str) -> None:
    spec = read_experiment(find_experiment(name)).spec
    for policy in spec.policies:
        for key, value in spec.own_conditions(policy).items():
            message = f"{name}: {policy.shown_as} alone has {key}={value}: say it in the label, or set it for everybody"
            assert policy.label is not None, message
            assert str(value) in policy.label, message
