"""How fast a large model can be on so many GPUs, whatever its plan and wherever its GPUs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simsched.model import Cluster, Site
from simsched.model.plans import EVERYTHING, Plan, PlannedJob, PlannedModel, TabledModel, best_plan


def planned_speeds(
    app: PlannedJob, asked: Plan | None, ranges: Sequence[tuple[int, int]], cluster: Cluster
) -> Mapping[tuple[str, int], float]:
    """Bound a model's steps a second by GPU type and the least of each of some `ranges` of numbers of GPUs.

    The step is that of the fastest of all plans on at most so many GPUs, and of that `asked` for, with all GPUs in
    one node: a tier of the network only adds to what its collectives take, and what messages gain by a slower stage
    is no more than the stage loses. Measured plans count as measured, others as the analytic ones scaled by the least
    ratio of a measured to an analytic step, as no nearest row scales by less.
    """
    model = app.plans
    analytic = model.model if isinstance(model, TabledModel) else model
    rows = model.rows if isinstance(model, TabledModel) else {}
    found: dict[tuple[str, int], float] = {}
    for kind in sorted(set(cluster.gpu_types) & set(model.gpu_types)):
        scale = min((seconds / analytic.modelled(plan, Site(shape, kind), app.global_batch).total
                     for (plan, shape), seconds in rows.items()), default=1.0) if analytic else 1.0  # fmt: skip
        for least, most in ranges:
            steps = [seconds for (_, shape), seconds in rows.items() if sum(shape) <= most]
            if analytic is not None:
                steps += [scale * seconds for seconds in _analytic(analytic, kind, most, app.global_batch, asked)]
            if steps:
                found[kind, least] = 1 / min(steps)
    return found


def _analytic(model: PlannedModel, kind: str, gpus: int, batch: int, asked: Plan | None) -> list[float]:
    """Return the seconds of a step in one node of the fastest plan on at most so many GPUs, and of that asked for."""
    hardware = model.on(kind)
    fastest = best_plan(model.shape, hardware, gpus, batch, (), EVERYTHING, at_least=1)
    within = [plan for plan in (asked,) if plan is not None and model.refusal(plan, kind, gpus, batch) is None]
    one_node = [model.modelled(plan, Site((plan.gpus,), kind), batch) for plan in within]
    return [float(parts.total) for parts in (*one_node, *(() if fastest is None else (fastest.parts,)))]
