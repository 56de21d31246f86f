"""Predicts how long a large model trains on a number of GPUs, with which plan, and the cost of straddling domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simsched.errors import input_error, nearest
from simsched.model import Allocation, Cluster, Site
from simsched.model.placement import Tier, consolidated_shape
from simsched.model.plans import Hardware, ModelShape, Plan, PlanSpace, PlanTable, legal, memory, plans, step_times
from simsched.model.topology import site_of, tightest_site

_GIB = 2.0**30
#: The parts of a step, in the order in which they are shown.
PARTS = ("compute", "tensor", "context", "pipeline", "data", "optimiser")


@dataclass(frozen=True)
class PlanAnswer:
    """A plan with the seconds of its step, in total and by part, and its GiB of GPU memory by part."""

    plan: Plan
    step_s: float
    parts_s: dict[str, float]
    memory_gib: dict[str, float]


@dataclass(frozen=True)
class Question:
    """A model with a global batch (sequences) on a number of GPUs of some hardware."""

    shape: ModelShape
    hardware: Hardware
    gpus: int
    global_batch: int

    def fastest(self, tiers: Sequence[Tier], count: int, space: PlanSpace | None = None) -> list[PlanAnswer]:
        """Return the fastest plans on more than half of the GPUs, best first."""
        table, _ = plans(self.shape, self.hardware, self.gpus, self.global_batch, space, self.gpus // 2 + 1)
        return self._answers(table, tiers)[:count]

    def of_plan(self, plan: Plan, tiers: Sequence[Tier]) -> PlanAnswer:
        """Return the answer for one plan; raises `InputError` with the reason if the plan cannot run."""
        reason = legal(self.shape, self.hardware, plan, self.gpus, self.global_batch)
        if reason is not None:
            raise input_error(f"plan '{plan}'", reason, "leave --plan out to see which plans can run")
        return self.timed(plan, tiers)

    def timed(self, plan: Plan, tiers: Sequence[Tier]) -> PlanAnswer:
        """Return the answer for a plan that is known to run."""
        return self._answers(PlanTable.of([plan]), tiers)[0]

    def mfu(self, step_s: float) -> float:
        """Return a step's fraction of the peak, without recomputation: 6 N FLOP and 12 L h s per token."""
        shape = self.shape
        token = 6 * shape.parameters + 12 * shape.layers * shape.hidden * shape.sequence
        return token * self.global_batch * shape.sequence / (step_s * self.gpus * self.hardware.peak_flops)

    def _answers(self, table: PlanTable, tiers: Sequence[Tier]) -> list[PlanAnswer]:
        parts = step_times(self.shape, self.hardware, table, self.global_batch, tiers)
        taken = memory(self.shape, self.hardware, table, self.global_batch)
        seconds = np.asarray(parts.total)
        return [
            PlanAnswer(
                table.plan(at),
                float(seconds[at]),
                {name: float(getattr(parts, name)[at]) for name in PARTS},
                {name: float(column[at]) / _GIB for name, column in taken._asdict().items()},
            )
            for at in np.argsort(seconds, kind="stable")[:100].tolist()
        ]


def closest_plan(question: Question) -> str:
    """Explain why nothing fits: the least memory of any plan of divisible ranks against that of a GPU."""
    large = Hardware(**{**vars(question.hardware), "memory_bytes": 1e18, "buffers": 0.0})
    for at_least in (question.gpus, question.gpus // 2 + 1):
        table, taken = plans(question.shape, large, question.gpus, question.global_batch, at_least=at_least)
        if len(table.tensor):
            at = int(np.argmin(taken.total))
            needed = float(taken.total[at]) + question.hardware.buffers * question.hardware.memory_bytes
            missing = (needed - question.hardware.memory_bytes) / _GIB
            return (
                f"the smallest plan, {table.plan(at)}, needs {needed / _GIB:.1f} GiB a GPU, {missing:.1f} GiB too many"
            )
    batch = f"a global batch of {question.global_batch}"
    return f"no t x p x d x c divides {question.shape.layers} layers, {question.shape.kv_heads} heads and {batch}"


def tight_site(question: Question, cluster: Cluster | None) -> Site:
    """Return the tightest site in an empty cluster, or on full nodes of the hardware; `InputError` without room."""
    kind = question.hardware.gpu_type
    if cluster is None:
        shape = consolidated_shape(question.gpus, question.hardware.node_gpus)
        return Site(shape, kind, tiers=question.hardware.tiers(shape))
    if cluster.gpus_by_type.get(kind, 0) < question.gpus:
        held = cluster.gpus_by_type.get(kind, 0)
        raise input_error("cluster", f"has {held} GPUs of type '{kind}', not {question.gpus}", "ask for fewer")
    return _with_tiers(tightest_site(cluster, question.gpus, kind), question.hardware)


def straddling_site(question: Question, cluster: Cluster, level: str) -> Site:
    """Return a site with half of the GPUs in one domain of a level and half in another.

    Raises `InputError` if there is no such level, or no two domains have room.
    """
    names = [one.name for one in cluster.levels]
    if level not in names:
        raise input_error("--across", f"the cluster has no level '{level}' above its nodes", nearest(level, names))
    halves: list[Allocation] = []
    for domain in cluster.levels[names.index(level)].domains:
        left, held = question.gpus // 2, []
        for node in domain:
            here = cluster.nodes[node]
            if left and here.gpu_type == question.hardware.gpu_type:
                held.append((node, min(here.gpus, left)))
                left -= held[-1][1]
        if not left and held:
            halves.append(tuple(held))
    if len(halves) < 2 or question.gpus % 2:
        half = f"{question.gpus / 2:g} GPUs of type '{question.hardware.gpu_type}'"
        raise input_error("--across", f"no two domains of '{level}' have {half} each", "give another number of GPUs")
    return _with_tiers(site_of(cluster, halves[0] + halves[1]), question.hardware)


def _with_tiers(site: Site, hardware: Hardware) -> Site:
    return site if site.tiers else site._replace(tiers=hardware.tiers(site.shape))
