"""Gavel's generator of jobs, draw for draw.

Python's Mersenne streams are required: jobs come from `random.Random(seed + 2)`, arrivals from
`random.Random(seed + 3)` and deadlines from `random.Random(seed + 6)`, as in its simulator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from simsched.errors import input_error
from simsched.workload.gavel.job import DISTRIBUTED, TEMPLATES, GavelJob, Kind

#: Offsets added to an experiment's seed, one for each stream.
JOB_STREAM, ARRIVAL_STREAM, TYPE_ORDER_STREAM, SLO_STREAM = 2, 3, 5, 6
SLO_FACTORS = (1.2, 2.0, 10.0)
#: Durations in days of the cost workload of section 7.3 (from memory of the paper).
COST_DAYS = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class GavelMix:
    """Which jobs to draw; `jobs_per_hour` of 0 submits all at once (a static trace).

    `multi_gpu` draws 1, 2, 4 or 8 GPUs with probabilities .7, .1, .15 and .05; otherwise all jobs have 1. `priorities`
    gives a fifth of the jobs weight 5. `slos` gives each job a deadline of 1.2, 2 or 10 times its duration. `fixed_s`
    replaces the drawn duration. `at_once` jobs come at time 0 before the others, to start in steady state. `cost` draws
    the jobs of the section on cost: ResNet-50 and A3C with equal probability, on one GPU, for 0.5, 1, 2, 4 or 8 days.
    """

    jobs_per_hour: float = 0.0
    multi_gpu: bool = True
    priorities: bool = False
    slos: bool = False
    fixed_s: float | None = None
    at_once: int = 0
    cost: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` for a negative rate, count or duration."""
        for name in ("jobs_per_hour", "at_once", "fixed_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise input_error("workload", f"{name} is {value}", "give a number of at least 0")


def generate_jobs(mix: GavelMix, rates: Mapping[Kind, float], seed: int) -> Iterator[GavelJob]:
    """Yield an endless stream of jobs in order of arrival (Gavel, OSDI'20, section 7.1 and its simulator).

    `rates` holds steps per second on the reference GPU (V100) by job type and number of GPUs; it turns durations into
    steps. The same mix, rates and seed give the same jobs. Raises `InputError` if a drawn kind has no rate.
    """
    jobs, arrivals, slos = Random(seed + JOB_STREAM), Random(seed + ARRIVAL_STREAM), Random(seed + SLO_STREAM)
    arrival_s = 0.0
    number = 0
    while True:
        if number > mix.at_once and number > 0 and mix.jobs_per_hour > 0:
            arrival_s += -math.log(1.0 - arrivals.random()) * (3600.0 / mix.jobs_per_hour)
        yield _job(number, arrival_s, mix, rates, jobs, slos)
        number += 1


def _job(
    number: int, arrival_s: float, mix: GavelMix, rates: Mapping[Kind, float], rng: Random, slos: Random
) -> GavelJob:
    if mix.cost:
        return _cost_job(number, arrival_s, mix, rates, rng, slos)
    gpus = _gpus(rng.random())
    if not mix.multi_gpu:
        gpus = 1
    duration_s = _duration_s(rng) if mix.fixed_s is None else mix.fixed_s
    template = rng.choice(TEMPLATES)
    while gpus > 1 and template not in DISTRIBUTED:
        template = rng.choice(TEMPLATES)
    rate = _rate(rates, template, gpus)
    weight = 5.0 if mix.priorities and rng.random() <= 0.2 else 1.0
    slo = _slo(slos.random()) if mix.slos else None
    return GavelJob(number, template, gpus, duration_s * rate, arrival_s, duration_s, weight, slo)


def _cost_job(
    number: int, arrival_s: float, mix: GavelMix, rates: Mapping[Kind, float], rng: Random, slos: Random
) -> GavelJob:
    """Draw a job of the workload that compares cost policies; the order of the draws is ours."""
    duration_s = rng.choice(COST_DAYS) * 86400.0 if mix.fixed_s is None else mix.fixed_s
    resnet = [template for template in TEMPLATES if template.startswith("ResNet-50")]
    template = rng.choice(resnet) if rng.random() < 0.5 else "A3C"
    slo = _slo(slos.random()) if mix.slos else None
    steps = duration_s * _rate(rates, template, 1)
    return GavelJob(number, template, 1, steps, arrival_s, duration_s, 1.0, slo)


def _rate(rates: Mapping[Kind, float], template: str, gpus: int) -> float:
    rate = rates.get((template, gpus), 0.0)
    if rate <= 0:
        message = f"there is no rate for {template} on {gpus} GPUs"
        raise input_error("applications.path", message, "give Gavel's table, which has all 83 kinds")
    return rate


def _gpus(draw: float) -> int:
    if draw < 0.7:
        return 1
    if draw <= 0.8:
        return 2
    return 4 if draw <= 0.95 else 8


def _duration_s(rng: Random) -> float:
    low, high = (3, 4) if rng.random() >= 0.8 else (1.5, 3)
    return float(60 * (10 ** rng.uniform(low, high)))


def _slo(draw: float) -> float:
    return SLO_FACTORS[min(int(draw * 3), 2)]
