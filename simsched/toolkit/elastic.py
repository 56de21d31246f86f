"""Building blocks of policies that choose how many GPUs a job gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from simsched.errors import input_error
from simsched.model import Allocation, ApplicationFacts, BatchLimits, Capacity, JobRequest, gpus_of
from simsched.policy import JobView, Reasons, View, Why
from simsched.toolkit.placers import MOST_FREE


def fixed_batch(job: JobView) -> int:
    """Return the fixed total batch size of a job, in examples; 0 if it has none."""
    limits = job.limits
    own = 0 if limits is None else limits.init_batch_size
    return job.request.batch_size or job.fixed_batch_size or own


def usable_gpus(job: JobView, gpus: int) -> int:
    """Return how many of `gpus` GPUs a job can use at its fixed batch size, at least 1."""
    limits = job.limits
    most = gpus if limits is None else max(fixed_batch(job) // limits.min_local_bsz, 1)
    return min(gpus, most, job.max_gpus or gpus)


def required_limits(policy: str, needed: str, request: JobRequest, facts: ApplicationFacts) -> BatchLimits:
    """Return the batch limits of a job; raises `InputError`, which names what is `needed`, if it has none."""
    if facts.limits is None:
        has = "carries only a duration" if facts.plans is None else "trains by plans at a fixed batch"
        raise input_error(
            f"job '{request.id}'",
            f"policy '{policy}' needs applications with {needed}, but this job {has}",
            "use 'recipe: pollux' in the workload, or another policy",
        )
    return facts.limits


def refuse_without_losses(policy: str, request: JobRequest, facts: ApplicationFacts) -> None:
    """Raise `InputError` for a job that reports no losses, or that has no batch size."""
    if facts.reports_loss and facts.limits is not None:
        return
    message = f"policy '{policy}' predicts losses, but application '{request.application}' has no loss curve"
    raise input_error(
        f"job '{request.id}'", message, "give its file a 'training.loss', or take 'recipe: pollux' in the workload"
    )


def refuse_unknown_counts(policy: str, request: JobRequest, facts: ApplicationFacts) -> None:
    """Raise `InputError` for a job whose speed on other numbers of GPUs is unknown."""
    if facts.other_counts:
        return
    message = f"policy '{policy}' gives jobs other numbers of GPUs than they ask for, where its duration is not known"
    raise input_error(f"job '{request.id}'", message, "declare workload.speedup, or use a rigid policy")


def share_evenly(counts: Sequence[int], most: Sequence[int], gpus: int) -> list[int]:
    """Hand out `gpus` GPUs one by one to the job with the fewest, ties by order; no job gets more than its `most`."""
    shared = list(counts)
    for _ in range(gpus):
        open_to = [i for i, count in enumerate(shared) if count < most[i]]
        if not open_to:
            break
        shared[min(open_to, key=shared.__getitem__)] += 1
    return shared


def place_counts(counts: Mapping[str, int], view: View) -> dict[str, Allocation]:
    """Keep every allocation of the size in `counts`; place the other jobs, smallest first, on the freest nodes.

    A job without room gets nothing.
    """
    held = {job_id: view.jobs[job_id].allocation for job_id in counts}
    allocations = {job_id: one for job_id, one in held.items() if one and gpus_of(one) == counts[job_id]}
    if view.reasons is not None:
        tell_counts(counts, view.reasons)
    free = Capacity.idle(view, allocations.values())
    moving = [job_id for job_id in counts if counts[job_id] and job_id not in allocations]
    for job_id in sorted(moving, key=counts.__getitem__):
        picked = free.place(MOST_FREE, counts[job_id])
        if picked is not None:
            allocations[job_id] = picked
    return allocations


def tell_allocations(jobs: Iterable[str], allocations: Mapping[str, Allocation], reasons: Reasons) -> None:
    """Do the same as `tell_counts` for allocations."""
    tell_counts({job_id: gpus_of(allocations.get(job_id, ())) for job_id in jobs}, reasons)


def tell_counts(counts: Mapping[str, int], reasons: Reasons) -> None:
    """Report that jobs without a GPU wait because others gain more from one; those with more GPUs rank first."""
    reasons.order({job_id: counts[job_id] for job_id in sorted(counts, key=lambda one: -counts[one])})
    for job_id in (job_id for job_id, gpus in counts.items() if not gpus):
        reasons.wait(job_id, Why.ANOTHER_FIRST, "it is to have no GPU now")
