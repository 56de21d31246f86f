"""Shockwave's plan over future rounds: in how many rounds, and in which, each job runs (Zheng et al., NSDI'23).

Which rounds a job gets changes neither its utility nor the makespan: the integer program counts rounds, one variable
per job. The published one has a binary for each job and round, and a second program orders the rounds; here `arrange`
does. The log utility is concave, hence its pieces need no binaries either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import exp, log, ordered_sum

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: No weight exceeds this: the solver resolves sums to about ten digits.
MOST_WEIGHT = 1e4
#: Costs are scaled to this: the solver's absolute gap (1e-6) is negligible next to the relative one.
LARGEST_COST = 1e4


def remaining_of(epoch_s: Sequence[float], done: float) -> float:
    """Return the seconds left after `done` epochs given a forecast of the seconds of every epoch."""
    whole = int(done)
    if whole >= len(epoch_s):
        return 0.0
    return float(ordered_sum(epoch_s[whole:])) - (done - whole) * epoch_s[whole]


def epochs_within(epoch_s: Sequence[float], done: float, seconds: float) -> float:
    """Return how many epochs after `done` a training completes in `seconds`, at most those left."""
    place, left = done, seconds
    for whole in range(int(done), len(epoch_s)):
        needed = (whole + 1 - place) * epoch_s[whole]
        if needed > left:
            return place + left / epoch_s[whole] - done
        place, left = whole + 1.0, left - needed
    return place - done


@dataclass(frozen=True)
class PlanOptions:
    """The constants of a plan, with the artifact's values for 32 GPUs.

    `makespan_weight` is k, per second of the longest remaining time; `fairness_power` is lambda; `hurry_power` replaces
    it if less than a round remains; `momentum` averages estimates of the fair completion time; `bases` are the shares
    of progress at which the log utility bends, `floor` stands in for zero progress. The solver stops at `relative_gap`
    or `node_limit`, never by the clock, so plans do not depend on the machine. `early` says which jobs get their rounds
    first in the window, `spare` which jobs without a round get spare GPUs.
    """

    rounds: int = 20
    round_s: float = 120.0
    makespan_weight: float = 1e-3
    fairness_power: float = 12.0
    hurry_power: float = 100.0
    most_unfair: float = 1.0
    momentum: float = 0.9
    replan_rounds: int = 8
    bases: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    floor: float = 1e-6
    relative_gap: float = 1e-3
    node_limit: int = 2000
    early: Literal["unfair", "short"] = "unfair"
    spare: Literal["long", "short", "nobody"] = "long"


DEFAULTS = PlanOptions()


@dataclass(frozen=True)
class PlanJobs:
    """The jobs of a plan, as arrays of shape (n,).

    `progress` is the share of epochs done (below 1, or the job has no utility left and may starve), `gain` what one
    round adds to it, `remaining_s` the predicted seconds of training left, `age_s` the seconds since submission,
    `fair_s` the completion time under a uniform share.
    """

    gpus: Integers
    progress: Floats
    gain: Floats
    remaining_s: Floats
    age_s: Floats
    fair_s: Floats

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.gpus)


@dataclass(frozen=True)
class Plan:
    """A plan: the `rounds` of each job (n,), whether it keeps fairness, and the estimated ratios (n,).

    `optimal` is false if the solver stopped at its limit of nodes.
    """

    rounds: Integers
    fair: bool
    ratios: Floats
    optimal: bool


def uniform_share(jobs: int, num_gpus: int) -> float:
    """Return the share of time that each of `jobs` jobs would get on `num_gpus` GPUs."""
    return min(1.0, num_gpus / jobs) if jobs else 1.0


def averaged_fair_s(before_s: float | None, alone_s: float, share: float, momentum: float) -> float:
    """Return the running average of the completion time under a uniform share, in seconds since submission."""
    now_s = alone_s / share
    return now_s if before_s is None else momentum * before_s + (1 - momentum) * now_s


def estimated_ratios(jobs: PlanJobs, num_gpus: int) -> Floats:
    """Estimate finish-time fairness if each job continued with a uniform share: shape (n,); above 1 is unfair."""
    ratios: Floats = (jobs.age_s + jobs.remaining_s / uniform_share(len(jobs), num_gpus)) / jobs.fair_s
    return ratios


def fairness_weights(jobs: PlanJobs, ratios: Floats, options: PlanOptions = DEFAULTS) -> Floats:
    """Return the weights of utilities: a power of the estimated ratio if it exceeds 1, at most 10,000; else 1."""
    power = np.where(jobs.remaining_s < options.round_s, options.hurry_power, options.fairness_power)
    logs = power * log(np.maximum(ratios, 1.0))
    weights: Floats = exp(np.minimum(logs, log(MOST_WEIGHT)))
    return weights


def fewest_rounds(jobs: PlanJobs, num_gpus: int, options: PlanOptions = DEFAULTS) -> Integers:
    """Return the rounds each job needs in the window to stay within `most_unfair` times its fair completion.

    After the coming round, unplanned time counts as a uniform share. A result above the window's rounds means that the
    job cannot stay within it.
    """
    spare_s = options.most_unfair * jobs.fair_s - jobs.age_s - options.round_s
    needed_s = jobs.remaining_s - spare_s * uniform_share(len(jobs), num_gpus)
    return np.maximum(np.ceil(needed_s / options.round_s - 1e-9), 0).astype(np.int64)


def plan(jobs: PlanJobs, num_gpus: int, options: PlanOptions = DEFAULTS) -> Plan:
    """Plan the next rounds of all jobs on `num_gpus` GPUs.

    Maximises the mean log utility of progress less the weighted longest remaining time. Every job stays within its fair
    completion time or, if that is impossible, unfairly treated jobs weigh more. Jobs larger than the cluster get no
    round. The first of identical jobs gets the most.
    """
    ratios = estimated_ratios(jobs, num_gpus)
    if not len(jobs):
        return Plan(np.zeros(0, np.int64), True, ratios, True)
    most = np.minimum(np.ceil(jobs.remaining_s / options.round_s), options.rounds).astype(np.int64)
    most[jobs.gpus > num_gpus] = 0
    least = fewest_rounds(jobs, num_gpus, options)
    fair = bool(np.all(least <= most)) and int((jobs.gpus * least).sum()) <= num_gpus * options.rounds
    weights = np.ones(len(jobs)) if fair else fairness_weights(jobs, ratios, options)
    least = least if fair else np.zeros_like(least)
    rounds, optimal = _solve(jobs, weights, (least, most), num_gpus, options)
    return Plan(rounds, fair, ratios, optimal)


def _solve(
    jobs: PlanJobs, weights: Floats, bounds: tuple[Integers, Integers], num_gpus: int, options: PlanOptions
) -> tuple[Integers, bool]:
    """Solve for each job's rounds, its progress on each piece of the utility, and the longest remaining time."""
    from scipy.optimize import Bounds, milp  # slow to load

    n = len(jobs)
    slopes, widths = _pieces(jobs, options)
    cost = np.concatenate(
        [np.zeros(n), (-weights[:, None] * slopes / (n * options.rounds)).ravel(), [options.makespan_weight]]
    )
    least, most = bounds
    solution = milp(
        cost * (LARGEST_COST / np.abs(cost).max()),
        integrality=np.concatenate([np.ones(n), np.zeros(widths.size + 1)]),
        bounds=Bounds(
            np.concatenate([least, np.zeros(widths.size + 1)]), np.concatenate([most, widths.ravel(), [np.inf]])
        ),
        constraints=_constraints(jobs, len(slopes), num_gpus, options),
        options={"mip_rel_gap": options.relative_gap, "node_limit": options.node_limit},
    )
    if solution.x is None:
        raise RuntimeError(f"the solver found no plan for {n} jobs: {solution.message}")
    return _first_come(np.rint(solution.x[:n]).astype(np.int64), jobs), solution.status == 0


def _first_come(rounds: Integers, jobs: PlanJobs) -> Integers:
    """Swap rounds among identical jobs until the first of them has the most."""
    kinds = np.column_stack([jobs.gpus, jobs.progress, jobs.gain, jobs.remaining_s, jobs.age_s, jobs.fair_s])
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    settled = rounds.copy()
    order = np.argsort(kind, kind="stable")
    settled[order] = rounds[np.lexsort((-rounds, kind))]
    return settled


def _constraints(jobs: PlanJobs, pieces: int, num_gpus: int, options: PlanOptions) -> LinearConstraint:
    """Return the constraints: the room of the window, what remains of each job, and the progress of its rounds."""
    from scipy.optimize import LinearConstraint  # slow to load
    from scipy.sparse import coo_array  # slow to load

    n, each = len(jobs), np.arange(len(jobs))
    columns = n + n * pieces + 1
    rows = np.concatenate([np.zeros(n, np.int64), 1 + each, 1 + each, 1 + n + each, 1 + n + np.repeat(each, pieces)])
    cells = np.concatenate([each, each, np.full(n, columns - 1), each, n + np.arange(n * pieces)])
    values = np.concatenate([jobs.gpus, np.full(n, options.round_s), np.ones(n), -jobs.gain, np.ones(n * pieces)])
    lower = np.concatenate([[-np.inf], jobs.remaining_s, np.full(n, -np.inf)])
    upper = np.concatenate([[num_gpus * options.rounds], np.full(n, np.inf), np.zeros(n)])
    return LinearConstraint(coo_array((values, (rows, cells)), shape=(1 + 2 * n, columns)).tocsr(), lower, upper)


def _pieces(jobs: PlanJobs, options: PlanOptions) -> tuple[Floats, Floats]:
    """Return the slope of each piece, and how much of it lies ahead of each job: shapes (pieces,) and (n, pieces)."""
    bases = np.array(options.bases)
    slopes = np.diff(log(np.maximum(bases, options.floor))) / np.diff(bases)
    from_here = np.maximum(jobs.progress[:, None], bases[None, :-1])
    widths: Floats = np.maximum(bases[None, 1:] - from_here, 0.0)
    return slopes, widths


def arrange(planned: Plan, jobs: PlanJobs, num_gpus: int, options: PlanOptions = DEFAULTS) -> Flags:
    """Put planned rounds in order: shape (rounds, n).

    Jobs at risk of missing their rounds come first, then those treated worst (by estimated ratio) or, if
    `options.early` says so, those with the least remaining time, then by order. The program only counts rounds, and
    wide jobs may not fit in every round: rounds that do not fit are dropped.
    """
    left, rounds = planned.rounds.copy(), options.rounds
    chosen = np.zeros((rounds, len(jobs)), dtype=bool)
    first = -planned.ratios if options.early == "unfair" else jobs.remaining_s
    ranked = np.argsort(first, kind="stable")
    for turn in range(rounds):
        must = left[ranked] >= rounds - turn
        order = np.concatenate([ranked[must], ranked[~must]])
        chosen[turn] = fill(order[left[order] > 0], jobs.gpus, num_gpus, len(jobs))
        left -= chosen[turn]
    return chosen


def fill(order: Sequence[int] | Integers, gpus: Integers, free: int, jobs: int) -> Flags:
    """Choose jobs in `order` as long as they fit on `free` GPUs: shape (jobs,)."""
    chosen = np.zeros(jobs, dtype=bool)
    for job in order:
        if gpus[job] <= free:
            chosen[job] = True
            free -= int(gpus[job])
    return chosen


def backfilled(chosen: Flags, jobs: PlanJobs, num_gpus: int, options: PlanOptions = DEFAULTS) -> Flags:
    """Add to a round's jobs the jobs that still fit, the longest remaining time first or as `options.spare` says."""
    if options.spare == "nobody":
        return chosen
    order = np.argsort(-jobs.remaining_s if options.spare == "long" else jobs.remaining_s, kind="stable")
    free = num_gpus - int(jobs.gpus[chosen].sum())
    return chosen | fill(order[~chosen[order]], jobs.gpus, free, len(jobs))
