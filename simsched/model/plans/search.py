"""All plans for a number of GPUs, and the fastest of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsched.model.placement import Tier
from simsched.model.plans.hardware import Hardware, PlanSpace
from simsched.model.plans.legality import allowed
from simsched.model.plans.memory_parts import MemoryParts, memory
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
