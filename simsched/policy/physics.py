"""Physics on which a policy counts, and what the policy becomes in an experiment without it.

Each is defined here and detected in `simsched.experiment.checks`. A policy lists the physics on which it counts in
`wants`; tables and manifests of results report what it becomes without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple


class Physics(NamedTuple):
    """A feature of jobs, cluster or engine that an experiment may lack: its name, and how a table reports the lack."""

    name: str
    missing: str


SHARED_GPUS = Physics("shared_gpus", "no two jobs may hold one GPU (engine.sharing)")
GPU_PARTS = Physics("gpu_parts", "no job wants, or gets, a part of a GPU (engine.sharing.model: shares)")
STAGES = Physics("stages", "the stages of no job's iterations are known")
BUSY_GPUS = Physics("busy_gpus", "how busy they keep a GPU is known of no jobs")
GUARANTEED_JOBS = Physics("guaranteed_jobs", "no job is guaranteed (workload.guaranteed_share)")
OPPORTUNISTIC_JOBS = Physics("opportunistic_jobs", "every job is guaranteed (workload.guaranteed_share)")
DEADLINES = Physics("deadlines", "no job has a deadline (workload.deadline_factor)")
TIME_LIMITS = Physics("time_limits", "no job has a time limit (workload.estimates)")
GPU_TYPES = Physics("gpu_types", "all GPUs are of one type")
QUOTAS = Physics("quotas", "no tenant has GPUs of its own (tenants)")
JOBS_OF_TENANTS = Physics("jobs_of_tenants", "the jobs are not of several tenants")
JOBS_OF_USERS = Physics("jobs_of_users", "the jobs are not of several users")
GROUPS = Physics("groups", "no jobs belong together")
BATCH_RULES = Physics("batch_rules", "no job changes its batch by a rule")
TENSORS = Physics("tensors", "the tensors of no job's model are known")


@dataclass(frozen=True)
class Becomes:
    """What a policy becomes without some physics, in words that continue its name ("serves ... in order of arrival").

    If that equals another policy to every digit, `same_as` names that policy and `params` are its parameters; with
    `params` alone it is the same policy with these, and a policy that already has them counts on nothing. Tests check
    both claims.
    """

    words: str
    same_as: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    def switched_off(self, policy: object) -> bool:
        """Return whether the parameters of a policy request this anyway."""
        own = bool(self.params) and not self.same_as
        return own and all(getattr(policy, name) == value for name, value in self.params.items())


#: The physics on which a policy counts, with what it becomes without.
Wants = Mapping[Physics, Becomes]

#: What policies become that pack jobs only with `packing` on.
UNPACKED = Becomes("shares no GPU, as with packing: false", params=MappingProxyType({"packing": False}))
