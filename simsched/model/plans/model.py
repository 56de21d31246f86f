"""What is known of a large model: its shape, and the step times of its plans on the measured GPU types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simsched.model.placement import Site, Tier
from simsched.model.plans.hardware import Hardware, PlanSpace
from simsched.model.plans.memory_parts import MemoryParts, allowed, legal, memory
from simsched.model.plans.plan import RECOMPUTATIONS, Floats, ModelShape, Plan, PlanTable
from simsched.model.plans.step_parts import StepParts, step_time, step_times


class Ranked(NamedTuple):
    """A plan and the seconds of its step, by part."""

    plan: Plan
    parts: StepParts


def plans(
    shape: ModelShape,
    hardware: Hardware,
    gpus: int,
    global_batch: int,
    space: PlanSpace | None = None,
    at_least: int | None = None,
) -> tuple[PlanTable, MemoryParts]:
    """Return all plans that `gpus` GPUs can run at a global batch (sequences), and the memory that they take.

    They take all GPUs, or at least `at_least`. Without a `space`, they are of the measured kinds. Sequence parallelism
    is on if the software uses it.
    """
    space = space or hardware.space
    ends = _divisors(shape.layers + 2) if hardware.ends_count else []
    stages = sorted({*_divisors(shape.layers), *ends})
    rows = _grid(
        [ranks for ranks in _divisors(shape.kv_heads) if ranks <= min(space.most_tensor, gpus)],
        [ranks for ranks in stages if ranks <= gpus],
        [ranks for ranks in _divisors(global_batch) if ranks <= gpus],
        [ranks for ranks in _divisors(shape.sequence) if ranks <= min(space.most_context, gpus)],
    )
    taken_gpus = rows.prod(axis=0)
    rows = rows[:, (taken_gpus <= gpus) & (taken_gpus >= (gpus if at_least is None else at_least))]
    ones, none = np.ones(rows.shape[1]), np.zeros(rows.shape[1])
    parallel = (rows[0] > 1) * float(hardware.sequence_parallel)
    table = PlanTable(rows[0], rows[1], rows[2], rows[3], ones, ones, none, parallel, none, none)
    table = table.where(allowed(shape, hardware, table, global_batch))
    for column, values in (
        ("micro_batch", _divisors(global_batch)),
        ("interleave", [count for count in stages if count <= space.most_interleave]),
        ("zero", space.zero),
        ("offload", space.offload),
        ("recomputation", [RECOMPUTATIONS.index(one) for one in space.recomputation]),
    ):
        table = _crossed(table, column, values)
        table = table.where(allowed(shape, hardware, table, global_batch))
    taken = memory(shape, hardware, table, global_batch)
    fits = taken.total <= hardware.memory_bytes
    return table.where(fits), MemoryParts(*(part[fits] for part in taken))


def best_plan(
    shape: ModelShape,
    hardware: Hardware,
    gpus: int,
    global_batch: int,
    tiers: Sequence[Tier] = (),
    space: PlanSpace | None = None,
    at_least: int | None = None,
) -> Ranked | None:
    """Return the fastest plan on `gpus` GPUs, or on at least `at_least`; ties go to the first; None if none can run."""
    table, _ = plans(shape, hardware, gpus, global_batch, space, at_least)
    if not len(table.tensor):
        return None
    seconds = step_times(shape, hardware, table, global_batch, tiers).total
    plan = table.plan(int(np.argmin(seconds)))
    return Ranked(plan, step_time(shape, hardware, plan, global_batch, tiers))


def _divisors(number: int) -> list[int]:
    return [count for count in range(1, int(number) + 1) if number % count == 0]


def _grid(*axes: Sequence[int]) -> Floats:
    return np.array([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], dtype=np.float64)


def _crossed(table: PlanTable, column: str, values: Sequence[int]) -> PlanTable:
    """Return each row with each of the values in `column`."""
    count = len(table.tensor)
    rows = table.where(np.repeat(np.arange(count), len(values)))
    return rows._replace(**{column: np.tile(np.asarray(values, dtype=np.float64), count)})


CHECKPOINT_BYTES = 13  # per parameter (Nemotron-4 15B and 340B: 204 GB and 4.4 TB)


@dataclass(frozen=True)
class PlannedModel:
    """A model that trains with plans at a global batch (sequences), on GPU types with known step times.

    `storage_bandwidth` is the rate at which a job writes and reads checkpoints, bytes/s; `beyond` says by GPU type how
    the shape lies outside the steps to which its hardware is fitted. Answers are cached.
    """

    name: str
    shape: ModelShape
    hardware: Mapping[str, Hardware] = field(hash=False)
    global_batch: int
    storage_bandwidth: float
    beyond: Mapping[str, str] = field(default_factory=dict, compare=False)
    _best: dict[tuple[Site, int], Ranked | None] = field(default_factory=dict, repr=False, compare=False)
    _parts: dict[tuple[Plan, Site, int], StepParts] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """List the GPU types on which its speed is known, sorted."""
        return tuple(sorted(self.hardware))

    def node_gpus(self, gpu_type: str) -> int:
        """Return the GPUs per measured node; raises `ValueError` for an unknown type."""
        return self.on(gpu_type).node_gpus

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Return the size of a checkpoint."""
        return CHECKPOINT_BYTES * self.shape.parameters

    @property
    def replan_s(self) -> float:
        """Return the seconds of a change of plan or placement, which writes and reads a checkpoint."""
        return 2 * self.checkpoint_bytes / self.storage_bandwidth

    def on(self, gpu_type: str) -> Hardware:
        """Return the hardware of a GPU type; raises `ValueError` for an unknown type."""
        if gpu_type not in self.hardware:
            raise ValueError(
                f"how fast {self.name} trains on '{gpu_type}' is not known, only on {sorted(self.hardware)}"
            )
        return self.hardware[gpu_type]

    def best(self, site: Site, global_batch: int = 0) -> Ranked:
        """Return the fastest plan on a site, which need not take all its GPUs.

        Raises `ValueError` if no plan fits.
        """
        batch = global_batch or self.global_batch
        if (site, batch) not in self._best:
            hardware, tiers = self.on(site.gpu_type), self._tiers(site)
            tried = (
                best_plan(self.shape, hardware, site.gpus, batch, tiers, at_least=most)
                for most in (site.gpus // 2 + 1, 1)
            )
            self._best[site, batch] = next((one for one in tried if one is not None), None)
        found = self._best[site, batch]
        if found is None:
            raise ValueError(f"no plan of {self.name} fits {site.gpus} GPUs of {site.gpu_type} at a batch of {batch}")
        return found

    def refusal(self, plan: Plan, gpu_type: str, gpus: int, global_batch: int = 0) -> str | None:
        """Return why a plan cannot run on `gpus` GPUs of a type, None if it can; it may leave some of them idle."""
        if plan.gpus > gpus:
            return f"it takes {plan.gpus} GPUs, not {gpus}"
        return legal(self.shape, self.on(gpu_type), plan, plan.gpus, global_batch or self.global_batch)

    def parts(self, plan: Plan, site: Site, global_batch: int = 0) -> StepParts:
        """Return the seconds of a step by part; raises `ValueError` with the reason if the plan cannot run there."""
        batch = global_batch or self.global_batch
        found = self._parts.get((plan, site, batch))
        if found is None:
            reason = legal(self.shape, self.on(site.gpu_type), plan, min(plan.gpus, site.gpus), batch)
            if reason is not None:
                raise ValueError(f"plan '{plan}' of {self.name} cannot run: {reason}")
            found = self._parts[plan, site, batch] = self.modelled(plan, site, batch)
        return found

    def modelled(self, plan: Plan, site: Site, global_batch: int = 0) -> StepParts:
        """Return the seconds of a step by part, for a plan that is known to run."""
        batch = global_batch or self.global_batch
        return step_time(self.shape, self.on(site.gpu_type), plan, batch, self._tiers(site))

    def _tiers(self, site: Site) -> tuple[Tier, ...]:
        return site.tiers or self.on(site.gpu_type).tiers(site.shape)
