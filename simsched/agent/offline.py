"""What an operator knows of an application from profiling it before its submission.

A job that starts from this knows the true step times of many configurations instead of other jobs' measurements: this
is how the Pollux paper seeds its models (OSDI'21, section 5.3.2), and a policy that uses it declares the signal
`offline_profiles`.
"""

from __future__ import annotations

from simsched.agent.fit import Configuration, fit
from simsched.agent.goodput_agent import Prior
from simsched.model import Application, BatchLimits, Cluster, Site
from simsched.model.application import StepTime
from simsched.model.batch import batch_for_target
from simsched.model.placement import Shape

#: Profiled placements: within one node, on two nodes, and on whole nodes, up to 16 nodes.
_WHOLE_NODES = (2, 4, 8, 16)
_BATCHES = 6


def offline_priors(application: Application, cluster: Cluster) -> dict[str, Prior]:
    """Profile an application on every GPU type of a cluster on which it can run; {} if it has no batch size."""
    found = {
        gpu_type: offline_prior(application, gpu_type, cluster.gpus_per_node(gpu_type))
        for gpu_type in cluster.gpu_types
        if application.gpu_types is None or gpu_type in application.gpu_types
    }
    return {gpu_type: prior for gpu_type, prior in found.items() if prior is not None}


def offline_prior(application: Application, gpu_type: str, gpus_per_node: int) -> Prior | None:
    """Fit an application's true step times on a grid of placements and batches; None if it has no batch size.

    The placements are those of nodes with `gpus_per_node` GPUs of type `gpu_type`; those that the application does not
    know are left out. The gradient statistics are those at the start of training.
    """
    limits = application.limits
    if limits is None:
        return None
    profile: dict[Configuration, StepTime] = {}
    for shape in _shapes(gpus_per_node):
        if sum(shape) * limits.min_local_bsz > limits.max_batch_size:
            continue
        for local_bsz in _batches(limits):
            try:
                step = application.step_time(Site(shape, gpu_type), local_bsz)
            except ValueError:  # measured applications know only some placements and batches
                continue
            profile[len(shape), sum(shape), local_bsz] = step
    batch = batch_for_target(limits, application.fixed_batch_size or limits.init_batch_size, 1)
    gradient = application.run(Site((1,), gpu_type), batch, 0).gradient
    if gradient is None or not profile:
        return None
    most = max(gpus for _, gpus, _ in profile)
    return Prior(fit(profile).params, gradient, profile, most)


def _shapes(gpus_per_node: int) -> list[Shape]:
    within = [1 << power for power in range(gpus_per_node.bit_length()) if 1 << power < gpus_per_node]
    return [*((gpus,) for gpus in (*within, gpus_per_node)), (1, 1), *((gpus_per_node,) * n for n in _WHOLE_NODES)]


def _batches(limits: BatchLimits) -> list[int]:
    """Space per-GPU batches geometrically between the limits, both inclusive."""
    ratio = limits.max_local_bsz / limits.min_local_bsz
    return sorted({round(limits.min_local_bsz * ratio ** (i / (_BATCHES - 1))) for i in range(_BATCHES)})
