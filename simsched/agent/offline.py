"""What an operator knows who has profiled an application before anybody submits it.

A job that starts from this has been told the true step times of many configurations, not what some job has measured: it
is what the Pollux paper seeds its models with (OSDI'21, section 5.3.2), and a policy that uses it says so in
`informed_by`.
"""

from __future__ import annotations

from simsched.agent.fit import fit
from simsched.agent.fixed_agent import batch_for_target
from simsched.agent.goodput_agent import Prior
from simsched.errors import input_error
from simsched.model.application import Application, BatchLimits, StepTime
from simsched.model.placement import Shape

#: Placements that are profiled: within one node, on two, and on whole nodes, up to 64 GPUs.
_WHOLE_NODES = (2, 4, 8, 16)
_BATCHES = 6


def offline_prior(application: Application, gpus_per_node: int = 4) -> Prior | None:
    """Fit an application's true step times on a grid of placements and batches; None where it has no batch size.

    The placements are those of nodes with `gpus_per_node` GPUs, of the one GPU type that the application knows; those
    that it does not know are left out. The gradient statistics are those at the begin of training. Raises `InputError`
    where it knows several types.
    """
    limits = application.limits
    if limits is None:
        return None
    gpu_type = _only_type(application)
    profile: dict[tuple[int, int, int], StepTime] = {}
    for shape in _shapes(gpus_per_node):
        if sum(shape) * limits.min_local_bsz > limits.max_batch_size:
            continue
        for local_bsz in _batches(limits):
            try:
                step = application.step_time(shape, local_bsz, gpu_type)
            except ValueError:  # measured applications know some placements and batches only
                continue
            profile[len(shape), sum(shape), local_bsz] = step
    batch = batch_for_target(limits, application.fixed_batch_size or limits.init_batch_size, 1)
    gradient = application.run((1,), batch, 0, gpu_type).gradient
    if gradient is None or not profile:
        return None
    most = max(gpus for _, gpus, _ in profile)
    return Prior(fit(profile).params, gradient, profile, most)


def _only_type(application: Application) -> str:
    types = application.gpu_types
    if types is None:
        return ""
    if len(types) > 1:
        message = f"'{application.name}' knows several GPU types ({', '.join(types)}), and offline profiles are of one"
        raise input_error("prior: offline", message, "name applications of one GPU type, or let the pool learn")
    return types[0]


def _shapes(gpus_per_node: int) -> list[Shape]:
    within = [1 << power for power in range(gpus_per_node.bit_length()) if 1 << power < gpus_per_node]
    return [*((gpus,) for gpus in (*within, gpus_per_node)), (1, 1), *((gpus_per_node,) * n for n in _WHOLE_NODES)]


def _batches(limits: BatchLimits) -> list[int]:
    """Space per-GPU batches geometrically between the limits, both included."""
    ratio = limits.max_local_bsz / limits.min_local_bsz
    return sorted({round(limits.min_local_bsz * ratio ** (i / (_BATCHES - 1))) for i in range(_BATCHES)})
