"""A plain simulator of Gavel's rounds in float seconds: the pieces of the project and a loop, nothing else.

Run as a program, it prints what a continuous trace gives, e.g.
`python -m tests.validation.gavel_replay RATES.json fifo-perf 0.4 0`: mean JCT in hours of jobs 4000 to 4999. A fifth
argument is the number of jobs that come at once before the others. Of the best solutions of max-min fairness
`max-min-perf` takes that of the second criterion, `interior-perf` one in their middle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from simsched.policy.rounds import RoundOptions, Rounds, Unit
from simsched.programs.classes import classify
from simsched.programs.max_min import makespan, max_min
from simsched.programs.problem import Floats, ShareProblem
from simsched.programs.solver import maximise, on_top, scale_rows, with_column
from simsched.workload.gavel import GavelJob, GavelMix, GavelRates, generate_jobs, read_rates

TYPES = ("k80", "p100", "v100")
FAST_FIRST = ("v100", "p100", "k80")
MAX_FAILURES = 5


@dataclass
class Live:
    """A job in the system."""

    job: GavelJob
    rates: tuple[float, ...]
    left: float
    failures: int = 0
    #: Time and steps at the last call of a policy that keeps its own books.
    notes: dict[str, float] = field(default_factory=dict)


#: Live jobs by number and the time -> shares by unit.
Policy = Callable[[Mapping[str, Live], float], Mapping[Unit, Sequence[float]]]


@dataclass(frozen=True)
class Outcome:
    """Completion times in seconds by job (None: given up after five failures) and the end of the run."""

    jct_s: dict[int, float | None]
    makespan_s: float


class Replay:
    """One run; `policy` gives shares, `order` the GPU types from the first to be filled, per round."""

    def __init__(
        self,
        jobs: Iterator[GavelJob],
        rates: GavelRates,
        gpus: Mapping[str, int],
        policy: Policy,
        order: Callable[[], Sequence[str]],
        options: RoundOptions,
    ) -> None:
        self.arrivals, self.rates, self.gpus, self.policy, self.order = jobs, rates, gpus, policy, order
        self.rounds = Rounds(TYPES, options)
        self.live: dict[str, Live] = {}
        self.jct_s: dict[int, float | None] = {}
        self.now_s = self.previous_end_s = 0.0
        self.tasks: list[tuple[float, Unit, str, list[float]]] = []

    def run(self, done: Callable[[Mapping[int, float | None]], bool]) -> Outcome:
        coming = next(self.arrivals, None)
        while not done(self.jct_s) and (coming or self.live):
            if self.tasks:
                start_s, self.previous_end_s = self.previous_end_s, max(task[0] for task in self.tasks)
                self.now_s = self.previous_end_s
                for task in sorted(self.tasks, key=lambda task: (-task[0], [int(job) for job in task[1]])):
                    self.credit(task, task[0] - start_s)
            elif coming:
                # Nothing runs: jobs that came too soon after a reset wait for the next arrival, as in the original.
                self.now_s = max(self.now_s, coming.arrival_s)
            while coming and coming.arrival_s <= self.now_s:
                self.admit(coming)
                coming = next(self.arrivals, None)
            if self.live and self.rounds.due(self.now_s):
                shares = self.policy(self.live, self.now_s)
                sizes = {unit: self.live[unit[0]].job.num_gpus for unit in shares}
                self.rounds.reset(self.now_s, shares, sizes)
            self.start()
            if self.live and not self.tasks and not coming:
                raise AssertionError("nothing runs although jobs are there")
        return Outcome(self.jct_s, self.now_s)

    def admit(self, job: GavelJob) -> None:
        rates = tuple(self.rates.row((job.template, job.num_gpus), TYPES).tolist())
        self.live[str(job.id)] = Live(job, rates, job.total_steps)
        self.rounds.add((str(job.id),), job.num_gpus)

    def credit(self, task: tuple[float, Unit, str, list[float]], seconds: float) -> None:
        finish_s, unit, gpu_type, steps = task
        gpus = self.live[unit[0]].job.num_gpus
        credits_ = [0.0 if count < gpus and gpus > 1 else count for count in steps]
        failed = all(count <= 0 for count in credits_)
        if not failed:
            self.rounds.receive(unit, gpu_type, seconds)
        for name, count in zip(unit, credits_, strict=True):
            live = self.live[name]
            live.failures = live.failures + 1 if failed else 0
            live.left -= 0 if failed else count
            if live.left <= 0 or live.failures >= MAX_FAILURES:
                given_up = live.failures >= MAX_FAILURES
                self.jct_s[live.job.id] = None if given_up else finish_s - live.job.arrival_s
                del self.live[name]
                self.rounds.remove(name)

    def start(self) -> None:
        self.tasks = []
        length_s = self.rounds.options.round_s
        for grant in self.rounds.choose(self.gpus, self.order()):
            if not grant.runs:
                continue
            steps, finish_s = [], self.now_s
            for name, rate in zip(grant.unit, self.unit_rates(grant.unit, grant.gpu_type), strict=True):
                count = min(int(rate * length_s), self.live[name].left)
                steps.append(count)
                finish_s = max(finish_s, self.now_s + count / rate if rate > 0 else self.now_s)
            self.tasks.append((finish_s, grant.unit, grant.gpu_type, steps))

    def unit_rates(self, unit: Unit, gpu_type: str) -> Sequence[float]:
        if len(unit) == 1:
            return (self.live[unit[0]].rates[TYPES.index(gpu_type)],)
        kinds = [(self.live[name].job.template, self.live[name].job.num_gpus) for name in unit]
        return self.rates.beside[gpu_type].get((kinds[0], kinds[1]), (0.0, 0.0))


class Fifo:
    """First come, first served, on the fastest type that has room (`aware`), or on one that may be overbooked.

    Without knowledge a job that some type has room for goes to the alphabetically last type that is not exactly full.
    """

    def __init__(self, gpus: Mapping[str, int], *, aware: bool) -> None:
        self.gpus, self.aware, self.kept = gpus, aware, {}

    def __call__(self, live: Mapping[str, Live], now_s: float) -> Mapping[Unit, Sequence[float]]:
        kept = {} if self.aware else {name: column for name, column in self.kept.items() if name in live}
        free = [self.gpus[gpu_type] for gpu_type in TYPES]
        for name, column in kept.items():
            free[column] -= live[name].job.num_gpus
        for name, one in live.items():
            if name in kept:
                continue
            fits = [column for column in range(3) if free[column] >= one.job.num_gpus]
            if not fits:
                break
            open_types = fits if self.aware else [column for column in range(3) if free[column] != 0]
            column = max(open_types, key=lambda column: (one.rates[column] if self.aware else 0, column))
            kept[name] = column
            free[column] -= one.job.num_gpus
        self.kept = kept
        return {(name,): [float(kept.get(name) == column) for column in range(3)] for name in live}


class Program:
    """Shares from a program, by all live jobs in the order of their arrival."""

    def __init__(self, gpus: Mapping[str, int], name: str) -> None:
        self.num_gpus, self.name = np.array([gpus[gpu_type] for gpu_type in TYPES]), name

    def __call__(self, live: Mapping[str, Live], now_s: float) -> Mapping[Unit, Sequence[float]]:
        rates = np.array([one.rates for one in live.values()])
        problem = ShareProblem(rates, np.array([one.job.num_gpus for one in live.values()]), self.num_gpus)
        if self.name == "makespan":
            shares = makespan(problem, np.array([one.left for one in live.values()]))
        elif self.name == "interior-perf":
            shares = interior(problem)
        else:
            shares = max_min(problem if self.name == "max-min-perf" else problem.agnostic())
        return {(name,): row for name, row in zip(live, shares.tolist(), strict=True)}


def interior(problem: ShareProblem) -> Floats:
    """Return shares in the middle of those that are best for `max_min`, as the solver of the original ends there."""
    classes = classify(problem, np.arange(problem.num_jobs, dtype=np.float64))
    rows, bound = classes.capacity
    due = classes.of(problem.proportional_rate() / problem.scale_factor)
    need = with_column(scale_rows(classes.rates, -1.0 / due), np.ones(len(due)))
    every = on_top(with_column(rows, np.zeros(rows.shape[0])), need)
    objective = np.zeros(every.shape[1])
    objective[-1] = 1.0
    best = maximise(objective, every, np.concatenate([bound, np.zeros(len(due))]), "interior")
    assert best is not None
    return classes.spread(best.x[:-1])


def shuffled(seed: int) -> Callable[[], Sequence[str]]:
    rng = Random(seed + 5)

    def order() -> Sequence[str]:
        types = list(FAST_FIRST)
        rng.shuffle(types)
        return types

    return order


def static(
    rates: GavelRates, seed: int, policy: Policy, order: Callable[[], Sequence[str]], **options: bool
) -> Outcome:
    jobs = islice(generate_jobs(GavelMix(), rates.alone["v100"], seed), 100)
    rounds = RoundOptions(unallocated_takes_room=True, **options)
    return Replay(jobs, rates, dict.fromkeys(TYPES, 36), policy, order, rounds).run(lambda _: False)


def continuous(
    rates: GavelRates,
    seed: int,
    jobs_per_hour: float,
    policy: Policy,
    order: Callable[[], Sequence[str]],
    at_once: int = 0,
    **options: bool,
) -> Outcome:
    mix = GavelMix(jobs_per_hour=jobs_per_hour, multi_gpu=False, at_once=at_once)
    rounds = RoundOptions(unallocated_takes_room=True, **options)
    jobs = generate_jobs(mix, rates.alone["v100"], seed)
    window = range(4000, 5000)
    replay = Replay(jobs, rates, dict.fromkeys(TYPES, 36), policy, order, rounds)
    return replay.run(lambda jct_s: len(jct_s) >= 5000 and all(job in jct_s for job in window))


def mean_h(outcome: Outcome, window: range) -> float:
    return (
        float(np.mean([jct_s for job, jct_s in sorted(outcome.jct_s.items()) if job in window and jct_s is not None]))
        / 3600
    )


def main(path: str, name: str, jobs_per_hour: str, seed: str, at_once: str = "0") -> None:
    rates, gpus = read_rates(Path(path)), dict.fromkeys(TYPES, 36)
    policy = Fifo(gpus, aware=name == "fifo-perf") if name.startswith("fifo") else Program(gpus, name)
    order = (lambda: FAST_FIRST) if name.endswith("perf") else shuffled(int(seed))
    idle = name.startswith("fifo")
    outcome = continuous(rates, int(seed), float(jobs_per_hour), policy, order, int(at_once), idle_without_share=idle)
    sys.stdout.write(f"{mean_h(outcome, range(4000, 5000)):.7f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
