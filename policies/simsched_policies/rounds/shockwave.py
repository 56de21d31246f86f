"""Shockwave: plans rounds ahead, using a forecast of how each job's batch, and so its speed, will change.

Idea: jobs whose batch changes by a rule finish sooner than their current speed suggests; a policy that ignores this is
unfair to them and to others (Zheng et al., NSDI'23). Over a window of rounds a plan maximises the mean log utility of
progress less the weighted longest remaining time, with every job within its fair completion time; if that is
impossible, unfairly treated jobs weigh more (sections 4 and 5). The plan is renewed when jobs arrive, end or change
their batch, and every few rounds; GPUs that it leaves idle go to the longest jobs (program:
`simsched.toolkit.programs.shockwave`).

Deviations: the forecast is the profile of the job's batch rule, in place of the paper's posterior over regimes; jobs
without regimes are forecast by their true remaining time. The plan counts rounds instead of choosing them, and weights
are bounded. Defaults are those of the artifact for 32 GPUs. GPUs of several types are planned as if equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.policy import REMAINING_WORK, Becomes, Decision, JobView, Policy, Traits, View
from simsched.policy.physics import BATCH_RULES
from simsched.policy.signals import STEPS
from simsched.toolkit import available_gpus, gpu_types, run_in_order
from simsched.toolkit.programs.shockwave import (
    Flags,
    PlanJobs,
    PlanOptions,
    arrange,
    averaged_fair_s,
    backfilled,
    epochs_within,
    plan,
    remaining_of,
    uniform_share,
)

#: What a job that outlives its forecast still gains: once the batch has changed it must still run to finish.
_LEAST = 1e-3


@dataclass(frozen=True)
class Outlook:
    """A job in a round: the forecast seconds of its epochs, its finished epochs, and its batch.

    `left_s` replaces the forecast once its epochs are done.
    """

    id: str
    num_gpus: int
    epoch_s: Sequence[float]
    done: float
    age_s: float
    left_s: float
    batch: Hashable = None


class Planner:
    """Chooses the jobs of each round; replans when jobs or batches change, or every `replan_rounds`."""

    def __init__(self, options: PlanOptions) -> None:
        self._options = options
        self._fair_s: dict[str, float] = {}
        self._known: object = None
        self._jobs: PlanJobs | None = None
        self._rounds: list[Flags] = []
        self._used = 0

    def choose(self, jobs: Sequence[Outlook], num_gpus: int) -> list[str]:
        """Return the ids of the jobs that run in the next round, in the given order."""
        if not jobs or num_gpus < 1:
            return []
        known = [(job.id, job.batch) for job in jobs], num_gpus
        if known != self._known or self._used >= self._options.replan_rounds or not self._rounds:
            self._jobs = self._described(jobs, num_gpus)
            made = plan(self._jobs, num_gpus, self._options)
            self._rounds = list(arrange(made, self._jobs, num_gpus, self._options))
            self._known, self._used = known, 0
        self._used += 1
        assert self._jobs is not None
        chosen = backfilled(self._rounds.pop(0), self._jobs, num_gpus, self._options)
        return [job.id for job, runs in zip(jobs, chosen, strict=True) if runs]

    def _described(self, jobs: Sequence[Outlook], num_gpus: int) -> PlanJobs:
        share = uniform_share(len(jobs), num_gpus)
        progress, gain, remaining, age, fair = np.array([self._row(job, share) for job in jobs]).T
        return PlanJobs(np.array([job.num_gpus for job in jobs]), progress, gain, remaining, age, fair)

    def _row(self, job: Outlook, share: float) -> tuple[float, float, float, float, float]:
        options, epochs = self._options, len(job.epoch_s)
        done = min(job.done, float(epochs))
        remaining_s = max(remaining_of(job.epoch_s, done) or job.left_s, 1.0)
        reach_s = min(options.rounds * options.round_s, remaining_s)
        ahead = epochs_within(job.epoch_s, done, reach_s)
        gain = max(ahead / epochs / (reach_s / options.round_s), _LEAST)
        fair_s = averaged_fair_s(self._fair_s.get(job.id), ordered_sum(job.epoch_s), share, options.momentum)
        self._fair_s[job.id] = fair_s
        return min(done / epochs, 1 - _LEAST), gain, remaining_s, job.age_s, fair_s


@dataclass
class Shockwave(Policy):
    """Plans `rounds` rounds of `round_s` seconds ahead; `makespan_weight` is the paper's k, `fairness_power` lambda.

    `most_unfair` bounds the estimated finish-time fairness where possible. A plan serves for `replan_rounds`.
    """

    name: ClassVar[str] = "shockwave"
    traits: ClassVar[Traits] = Traits(
        interval="round_s",
        needs={REMAINING_WORK, STEPS},
        wants={BATCH_RULES: Becomes("foresees batches that stay as they are")},
    )

    rounds: int = 20
    round_s: int = 120
    makespan_weight: float = 1e-3
    fairness_power: float = 12.0
    most_unfair: float = 1.0
    replan_rounds: int = 8
    _planner: Planner = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse a window without rounds."""
        if min(self.rounds, self.round_s, self.replan_rounds) < 1:
            raise ValueError("rounds, round_s and replan_rounds must be at least 1")
        options = PlanOptions(
            rounds=self.rounds,
            round_s=self.round_s,
            makespan_weight=self.makespan_weight,
            fairness_power=self.fairness_power,
            most_unfair=self.most_unfair,
            replan_rounds=self.replan_rounds,
        )
        self._planner = Planner(options)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Run the next round of the plan."""
        chosen = self._planner.choose([_outlook(job, view) for job in view.jobs.values()], available_gpus(view))
        return Decision(run_in_order([view.jobs[job_id] for job_id in chosen], view))


def _outlook(job: JobView, view: View) -> Outlook:
    """Forecast a job by the profile of its batch rule, or by its true remaining time as one long epoch."""
    steps, gpu_type = job[STEPS], _type_of(job, view)
    if steps is None:
        left_s = job[REMAINING_WORK].seconds_on(gpu_type)
        whole_s = job.held_s + left_s
        return Outlook(job.id, job.num_gpus, (whole_s,), job.held_s / whole_s, job.age_s, left_s)
    epoch_s = steps.profile_s(gpu_type)
    of_epoch = steps.total if steps.regimes is None else steps.regimes.steps_per_epoch(job.request.batch_size)
    left_s = (steps.total - steps.done) / steps.rate(gpu_type)
    return Outlook(job.id, job.num_gpus, epoch_s, steps.done / of_epoch, job.age_s, left_s)


def _type_of(job: JobView, view: View) -> str:
    """Return the GPU type that a job holds, or the first that it can run on."""
    if job.running:
        return view.nodes[job.allocation[0][0]].gpu_type
    types = gpu_types(view.nodes)
    return next((kind for kind in types if job.facts.runs_on(kind)), types[0])
