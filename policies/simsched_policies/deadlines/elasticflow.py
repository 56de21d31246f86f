"""ElasticFlow: jobs get the fewest GPUs that meet their deadlines, and spare GPUs go where they save most.

Idea: Gu et al., ElasticFlow, ASPLOS'23, section 4. Time is cut into slots. A job is admitted if it and all jobs
admitted earlier can meet their deadlines, each on its minimum satisfactory share; GPUs left over in this slot double
the share of the job with the greatest marginal return, the GPU-time saved per extra GPU. Jobs without a deadline first
get one of the leftover GPUs each; they, and then the jobs that were not admitted, use the remainder.

Published defaults: slots of 60 s, sizes that are powers of two, placement of a job on as few nodes as possible, by
migrating others. Deviations: a job that is not admitted is not dropped but runs as best effort: every job finishes and
late ones are counted; the remaining time on any number of GPUs, at the batch size submitted, is an oracle (the paper
profiles it beforehand). Because scaling costs a restart here, plans account for each, with `spare_restarts` in reserve;
jobs keep their GPUs while there is room; they grow, or move for others, only if they then end sooner and in time; and
if not all can be replanned, the old plans stand: admitted jobs meet their deadlines unless GPUs are lost. Plans look at
most `horizon_slots` slots ahead. With several GPU types it runs on each separately. A job that trains by plans runs the
best plan on any number of GPUs, and never gets fewer than some plan fits.

The simulator published with the paper differs in two ways, both available: spare GPUs go to the job whose GPU time they
increase most (`spare_to: most-growth`), and the jobs that arrive in one slot are admitted or declined together
(`admit_together`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import Allocation, ApplicationFacts, JobRequest, gpus_of
from simsched.policy import REMAINING_WORK, Becomes, Decision, Decline, JobView, Policy, Traits, View
from simsched.policy.physics import DEADLINES
from simsched.toolkit import TypePool, available_gpus, place_consolidated, type_pools, usable_gpus
from simsched.toolkit.deadlines import (
    Counts,
    DeadlineJob,
    in_time,
    keep_promises,
    plan_all,
    plan_beside,
    scale_up,
    share_out,
    sizes,
)
from simsched.toolkit.elastic import required_limits


@dataclass
class ElasticFlow(Policy):
    """Admits jobs whose deadlines can be met, and scales them slot by slot."""

    name: ClassVar[str] = "elasticflow"
    traits: ClassVar[Traits] = Traits(
        interval="slot_s",
        needs={REMAINING_WORK},
        wants={DEADLINES: Becomes("admits no job: all are best effort and get the GPUs that save most time")},
        rigid=False,
    )

    slot_s: int = 60
    horizon_slots: int = 10_080
    spare_restarts: int = 1
    rounding_s: float = 0.5
    spare_to: Literal["most-saved", "most-growth"] = "most-saved"
    admit_together: bool = False
    _promised: dict[str, bool] = field(default_factory=dict, init=False, repr=False)
    _plans: dict[str, Counts] = field(default_factory=dict, init=False, repr=False)
    _planned_s: float = field(default=0.0, init=False, repr=False)
    _types: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _ratios: dict[str, tuple[int, dict[int, float]]] = field(default_factory=dict, init=False, repr=False)
    _ranges: dict[tuple[str, int, str, int], tuple[int, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.slot_s < 1 or self.horizon_slots < 1 or self.spare_restarts < 0 or self.rounding_s < 0:
            raise ValueError("slot_s and horizon_slots must be at least 1, spare_restarts and rounding_s at least 0")

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch size submitted, with the best plan if any; refuse jobs described only by a duration."""
        if facts.plans is None:
            required_limits(self.name, "step times", request, facts)
        return fixed_agent(request._replace(plan=None), facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Plan within each GPU type, then place the jobs whose number of GPUs changes."""
        for job_id in view.finished:
            for known in (self._promised, self._plans, self._types, self._ratios):
                known.pop(job_id, None)
        elapsed = max(round((view.now_s - self._planned_s) / self.slot_s), 0)
        self._plans = {job_id: plan[elapsed:] for job_id, plan in self._plans.items()}
        self._planned_s = view.now_s
        allocations: dict[str, Allocation] = {}
        before = set(self._promised)
        for pool in type_pools(view, home=self._types):
            allocations |= self._serve(pool)
        declined = [job_id for job_id, promised in self._promised.items() if not promised and job_id not in before]
        return Decision(allocations | {job_id: Decline(allocations.get(job_id, ())) for job_id in declined})

    def _serve(self, pool: TypePool) -> dict[str, Allocation]:
        gpus = available_gpus(pool.view)
        if not gpus:
            return {}
        hopeful = [job for job in pool.jobs.values() if _has_deadline(job) and self._promised.get(job.id, True)]
        planned = self._plan([self._job(job, pool, gpus) for job in hopeful], gpus)
        self._types |= dict.fromkeys((one.id for one in planned), pool.gpu_type)
        names = {one.id for one in planned}
        rest = sorted((job for job in pool.jobs.values() if job.id not in names), key=_has_deadline)
        others = [self._job(job, pool, gpus) for job in rest]
        without = sum(one.least for one, job in zip(others, rest, strict=True) if not _has_deadline(job))
        now = sum(int(self._plans[one.id][0]) for one in planned if len(self._plans[one.id]))
        spare = gpus - min(without, max(gpus - now, 0))
        counts = scale_up(planned, self._plans, spare, least_return=self.spare_to == "most-growth")
        counts |= share_out(others, gpus - sum(counts.values()))
        known = {one.id: one for one in planned}

        def may_move(job_id: str) -> bool:
            return in_time(known[job_id].moved(), [counts[job_id], *self._plans[job_id][1:]])

        return place_consolidated(counts, pool.view, names, may_move)

    def _plan(self, jobs: list[DeadlineJob], gpus: int) -> list[DeadlineJob]:
        """Plan the admitted jobs and admit new ones; return the planned ones.

        An admitted job that can no longer meet its deadline, because nodes have failed, becomes best effort.
        """
        old = [one for one in jobs if one.id in self._promised]
        new = [one for one in jobs if one.id not in self._promised]
        kept, plans = keep_promises(old, self._plans, gpus)
        for group in [new] if self.admit_together and new else [[one] for one in new]:
            found = plan_all([*kept, *group], gpus)
            if found is None:
                found = _planned_beside(plans, group, gpus)
            self._promised |= dict.fromkeys((one.id for one in group), found is not None)
            if found is not None:
                plans = found
                kept += group
        self._promised |= {one.id: one.id in plans for one in old}
        self._plans |= plans
        return kept

    def _job(self, job: JobView, pool: TypePool, gpus: int) -> DeadlineJob:
        """Return a job as the plans see it, its work in seconds on the fewest GPUs that it runs on."""
        least, most = self._usable(job, pool, gpus)
        left_s = (job.request.deadline_s or 0.0) - job.age_s
        own_s = job.facts.restart_delay_s if job.starts else job.facts.start_delay_s
        restart_s = pool.view.restart_delay_s if own_s is None else own_s
        return DeadlineJob(
            job.id,
            job[REMAINING_WORK].seconds_on(pool.gpu_type, least) if least <= gpus else 1.0,
            min(max(int(left_s // self.slot_s), 0), self.horizon_slots),
            most,
            partial(self._rate, job, pool, least),
            gpus_of(job.allocation),
            restart_s / self.slot_s,
            self.spare_restarts,
            least,
        )

    def _usable(self, job: JobView, pool: TypePool, gpus: int) -> tuple[int, int]:
        """Return the fewest and the most of `gpus` GPUs that a job runs on; powers of two if it trains by plans.

        If no plan fits, the fewest exceed `gpus`.
        """
        if job.limits is not None:  # `agent` refuses jobs with neither batch sizes nor plans
            return 1, usable_gpus(job, gpus)
        what = job.facts.name, job.request.batch_size, pool.gpu_type, usable_gpus(job, gpus)
        if what not in self._ranges:
            able = [size for size in sizes(what[-1]) if _runs_on(job, pool, size)] or [2 * gpus]
            self._ranges[what] = able[0], able[-1]
        return self._ranges[what]

    def _rate(self, job: JobView, pool: TypePool, least: int, gpus: int) -> float:
        """Return the work of a slot on some GPUs, in seconds on the `least`.

        The ratio of the remaining times on the two is computed once per epoch. Each epoch counts as `rounding_s`
        longer, because a clock of whole seconds may round it up by that much.
        """
        if gpus < least:
            return 0.0
        remaining = job[REMAINING_WORK]
        epoch, ratios = self._ratios.get(job.id, (-1, {}))
        if epoch != remaining.epoch:
            self._ratios[job.id] = remaining.epoch, (ratios := {})
        if gpus not in ratios:
            rounding_s = self.rounding_s * (remaining.epochs - remaining.epoch)
            needed_s = remaining.seconds_on(pool.gpu_type, gpus) + rounding_s
            ratios[gpus] = remaining.seconds_on(pool.gpu_type, least) / needed_s if needed_s > 0 else 1.0
        return self.slot_s * ratios[gpus]


def _planned_beside(plans: dict[str, Counts], jobs: list[DeadlineJob], gpus: int) -> dict[str, Counts] | None:
    """Plan jobs on the GPUs that plans leave free, earliest deadline first; None if one cannot meet its deadline."""
    found = dict(plans)
    for job in sorted(jobs, key=lambda job: (job.slots, job.id)):
        own = plan_beside(found, job, gpus)
        if own is None:
            return None
        found[job.id] = own
    return found


def _runs_on(job: JobView, pool: TypePool, gpus: int) -> bool:
    try:
        job[REMAINING_WORK].seconds_on(pool.gpu_type, gpus)
    except ValueError:
        return False
    return True


def _has_deadline(job: JobView) -> bool:
    return job.request.deadline_s is not None
