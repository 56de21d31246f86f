"""What a job's agent tells a scheduler of its goodput."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from simsched.errors import Problem
from simsched.model import GoodputModel


class TypeReport(NamedTuple):
    """What is known of a job on one GPU type.

    `max_profiled_gpus` is the largest number of GPUs on which its speed is known, because it has run there or from what
    it started with (0: none yet); `model` predicts its goodput (None before anything is known).
    """

    max_profiled_gpus: int
    model: GoodputModel | None


_UNKNOWN = TypeReport(0, None)


class GoodputReport(NamedTuple):
    """What is known of a job, by GPU type.

    `version` changes whenever a model does, so that what was computed from it can be kept until then.
    """

    types: Mapping[str, TypeReport] = MappingProxyType({})
    version: int = 0

    def on(self, gpu_type: str) -> TypeReport:
        """Return what is known on a GPU type."""
        return self.types.get(gpu_type, _UNKNOWN)


def no_goodput(job_id: str) -> Problem:
    """Say that a policy reads what the agent of a job does not know."""
    message = f"the agent of job '{job_id}' fits no goodput model, which the policy reads"
    return Problem("agent", message, "choose an agent that fits one, such as 'goodput'")
