"""Gavel's workloads (OSDI'20): job types, seeded generator, and trace files, also those of Shockwave (NSDI'23).

The generator draws as Gavel's does, from Python's Mersenne streams: jobs from `random.Random(seed + 2)`, arrivals from
`random.Random(seed + 3)` and deadlines from `random.Random(seed + 6)`. A trace file has one job per line,
tab-separated, without a header; Shockwave's has two more columns: the rule by which a job changes its batch size, and
the duration that its generator drew. The table of rates is in `simsched.applications`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from simsched.errors import InputError, Problem, input_error
from simsched.model import JobSpec
from simsched.reading import read_text
from simsched.workload.readers.format import Head
from simsched.workload.trace import MOST_SECONDS

_BATCH_SIZES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}

#: The 26 job types in the order of Gavel's job table; the generator's draws depend on this order.
TEMPLATES = (
    *(f"{model} (batch size {size})" for model, sizes in _BATCH_SIZES.items() for size in sizes),
    "A3C",
    "CycleGAN",
)

#: The 19 job types that may use several GPUs.
DISTRIBUTED = frozenset(
    name for name in TEMPLATES if name.split(" ")[0] in ("ResNet-18", "ResNet-50", "Transformer", "LM")
)

#: A job type and its number of GPUs.
Kind = tuple[str, int]
_TEMPLATE = re.compile(r"(?P<model>\S+?)(?: \(batch size (?P<batch>\d+)\))?")


def split_template(template: str) -> tuple[str, int]:
    """Return model and batch size of a job type such as `LM (batch size 10)`; batch size 0 if it names none.

    Raises `ValueError` if the text is not a job type.
    """
    match = _TEMPLATE.fullmatch(template)
    if match is None:
        raise ValueError(f"'{template}' is not a job type such as 'LM (batch size 10)'")
    return match["model"], int(match["batch"] or 0)


@dataclass(frozen=True)
class GavelJob:
    """One job: `total_steps` mini-batches of the job type `template` on `num_gpus` GPUs.

    `duration_s` is the nominal running time that the steps were computed from.
    `slo` is the deadline as a multiple of `duration_s`, or None.
    """

    id: int
    template: str
    num_gpus: int
    total_steps: float
    arrival_s: float = 0.0
    duration_s: float = 0.0
    weight: float = 1.0
    slo: float | None = None


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


_GAVEL = (
    "job type", "command", "directory", "steps flag", "needs data", "total steps", "GPUs", "weight", "SLO", "arrival",
)  # fmt: skip
_SHOCKWAVE = (*_GAVEL[:7], "batch rule", "weight", "SLO", "duration", "arrival")
#: Numeric columns with the minimum of each.
_NUMBERS = {"total steps": 1, "GPUs": 1, "weight": 0, "SLO": -MOST_SECONDS, "duration": 0, "arrival": 0}
_BATCH_RULES = ("static", "accordion", "gns")


def is_gavel_trace(head: Head) -> bool:
    """Return whether the first line is that of a Gavel trace."""
    cells = head.line.split("\t")
    try:
        return len(cells) == len(_GAVEL) and bool(split_template(cells[0]))
    except ValueError:
        return False


def is_shockwave_trace(head: Head) -> bool:
    """Return whether the first line is that of a Shockwave trace."""
    cells = head.line.split("\t")
    return len(cells) == len(_SHOCKWAVE) and cells[7] in _BATCH_RULES


def read_gavel_jobs(path: Path) -> list[JobSpec]:
    """Read a Gavel trace in order of submission; jobs are named by their position in the file, counted from 0.

    Raises `InputError` with every problem by line, and if the file is missing or empty.
    """
    return _read_lines(path, _GAVEL)


def read_shockwave_jobs(path: Path) -> list[JobSpec]:
    """Read a Shockwave trace as `read_gavel_jobs` does; the SLO is a deadline in seconds, none if negative."""
    return _read_lines(path, _SHOCKWAVE)


def _read_lines(path: Path, columns: Sequence[str]) -> list[JobSpec]:
    jobs: list[JobSpec] = []
    problems: list[Problem] = []
    remedy = f"a line has {len(columns)} tab-separated columns: {', '.join(columns)}"
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        if text.strip():
            try:
                jobs.append(_job_of(str(len(jobs)), text.split("\t"), columns))
            except ValueError as error:
                problems.append(Problem(str(path), str(error), remedy, line))
    if problems:
        raise InputError(*problems)
    if not jobs:
        raise input_error(path, "the trace is empty", "give a trace with at least one job")
    return sorted(jobs, key=lambda job: job.submit_time_s)


def _job_of(name: str, cells: Sequence[str], columns: Sequence[str]) -> JobSpec:
    if len(cells) != len(columns):
        raise ValueError(f"the line has {len(cells)} columns, not {len(columns)}")
    cell = dict(zip(columns, cells, strict=True))
    rule = cell.get("batch rule", "")
    if rule and rule not in _BATCH_RULES:
        raise ValueError(f"'{rule}' is not a batch rule; known: {', '.join(_BATCH_RULES)}")
    model, batch = split_template(cell["job type"])
    value = {column: _number(column, cell[column]) for column in columns if column in _NUMBERS}
    steps = value["total steps"]
    has_deadline = "duration" in cell and value["SLO"] >= 0  # Gavel's SLO is a multiple of a duration that it omits
    return JobSpec(
        name,
        value["arrival"],
        int(value["GPUs"]),
        model,
        batch,
        value.get("duration", 0.0),
        deadline_s=value["SLO"] if has_deadline else None,
        batch_rule=rule,
        weight=value["weight"],
        total_steps=int(steps) if steps.is_integer() else steps,
    )


def _number(column: str, text: str) -> float:
    least = _NUMBERS[column]
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} '{text:.40}' is not a number") from None
    if not least <= value <= MOST_SECONDS or (column == "GPUs" and value % 1):
        kind = "a whole number" if column == "GPUs" else "a number"
        raise ValueError(f"{column} is {text:.40}, not {kind} from {least:g} to {MOST_SECONDS:g}")
    return value
