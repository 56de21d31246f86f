"""The workload of the Pollux evaluation: jobs sampled from a trace's busiest hours and turned into applications.

A job's class of GPU-time determines its application. With the Philly jobs that passed, in the order of the published
file, the recipe reproduces the published workloads row for row, because it draws from the same generators in the same
order (Pollux, OSDI'21, section 5.1 and artifact).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error, nearest
from simsched.keys import key
from simsched.model import JobSpec
from simsched.workload.recipes.recipe import (
    HOUR_S,
    MAX_GPU_TIME_S,
    SIZE_CLASSES,
    Configurations,
    Ingredients,
    jobs_key,
    load_key,
    size_class_of,
    trace_of,
)
from simsched.workload.stratify import stratified_sample
from simsched.workload.trace import OPTIONAL, Trace

#: Jobs shorter than this are left out, as are those outside all classes of GPU-time.
MIN_DURATION_S = 60
#: Large jobs of a realistic workload request the GPUs of a trace job of their class that ran for at most this time.
REALISTIC_MAX_S = 24 * HOUR_S
#: The columns of a trace that the recipe reads.
_READ = ("row", "num_gpus", "duration_s", "tenant", "user", "status", "attempts")

APPLICATIONS = tuple(name for _, _, names in SIZE_CLASSES for name in names)


#: The default number of jobs at load 1, that of the published workloads.
PUBLISHED_JOBS = 160
_DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class PolluxRecipe:
    """Sample jobs as Pollux did: `jobs` at `load` 1, out of `window_h` hours of any day from `start_hour` on.

    `configs` selects the requests of jobs: `tuned` GPUs and batch sizes, or `realistic` ones, i.e. the GPUs of the
    trace's job with the initial batch size on each. With several `windows`, each day is sampled separately in its
    hours. Jobs of applications in `without` are drawn too and then left out.
    """

    needs_trace: ClassVar[bool] = True
    unread: ClassVar[Collection[str]] = tuple(name for name in OPTIONAL if name not in (*_READ, "gpu_share"))

    jobs: int | None = jobs_key()
    load: float = load_key()
    configs: Literal["tuned", "realistic"] = key(
        "tuned", "GPUs and batch sizes of sampled jobs: well chosen, or as in the trace"
    )
    start_hour: int = key(2, "hour of the day at which sampling begins", ge=0, le=23)
    window_h: int = key(8, "hours of the day from which jobs are sampled", ge=1, le=24)
    stratify: bool = key(
        False, "draw the numbers of jobs of each class evenly over the seeds, so that fewer seeds give the same means"
    )
    without: tuple[str, ...] = key((), "applications to leave out of the sample")
    windows: int = key(1, "number of successive days, each sampled separately in its hours", ge=1, le=366)

    @property
    def count(self) -> int:
        """The jobs to draw for one window; the load scales their number in the same hours."""
        return round((PUBLISHED_JOBS if self.jobs is None else self.jobs) * self.load)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the samples of successive days, with consecutive job numbers.

        Raises `InputError` if the window holds too few jobs, or an application is missing or unknown.
        """
        trace = trace_of(ingredients)
        for name in self.without:
            if name not in APPLICATIONS:
                raise input_error("workload.without", f"no job trains '{name}'", nearest(name, APPLICATIONS))
        known = ingredients.configurations, ingredients.initial_batch_sizes
        days = [draw_workload(trace, self, _seed_of_day(ingredients.seed, day), *known) for day in range(self.windows)]
        jobs = [(day, job) for day, sample in enumerate(days) for job in sample if job.application not in self.without]
        return [
            replace(job, id=f"{job.application}-{i}", submit_time_s=job.submit_time_s + day * _DAY_S)
            for i, (day, job) in enumerate(jobs)
        ]

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return each application at each tuned configuration, or as realistic jobs of 1 GPU and of the most GPUs."""
        initial = ingredients.initial_batch_sizes
        _check_applications(ingredients.configurations, initial)
        asked = {
            name: ingredients.configurations[name]
            if self.configs == "tuned"
            else [(gpus, gpus * initial[name]) for gpus in sorted({1, most_gpus})]
            for name in APPLICATIONS
        }
        return [
            JobSpec(f"{name}-of-{gpus}-gpus-{batch}", 0, gpus, name, batch)
            for name, choices in asked.items()
            for gpus, batch in choices
        ]


def _seed_of_day(seed: int, day: int) -> int:
    """Return the seed of a day's sample; the first day has that of a single window."""
    return seed if day == 0 else int(np.random.SeedSequence([seed, day, *b"windows"]).generate_state(1)[0])


#: Columns by name, each an array with one value per job.
Columns = Mapping[str, npt.NDArray[Any]]


def eligible(trace: Trace, recipe: PolluxRecipe) -> Columns:
    """Return the candidates of the recipe in the order of the source.

    The columns are those of the trace that the recipe reads, the job's GPU-seconds `gpu_time_s`, and `time_s`, the
    seconds since the window opened on the job's own day.
    """
    gpu_time_s = trace.gpu_time_s
    time_s = (trace.second_of_day() - recipe.start_hour * HOUR_S) % (24 * HOUR_S)
    keep = (trace.column("duration_s") >= MIN_DURATION_S) & (gpu_time_s < MAX_GPU_TIME_S)
    places = np.flatnonzero(keep & (time_s < recipe.window_h * HOUR_S))
    places = places[np.argsort(trace.column("row")[places], kind="stable")]
    found = {name: trace.column(name)[places] for name in _READ}
    return found | {"gpu_time_s": gpu_time_s[places], "time_s": time_s[places]}


def draw_workload(
    trace: Trace,
    recipe: PolluxRecipe,
    seed: int,
    configurations: Configurations,
    initial_batch_sizes: Mapping[str, int],
) -> list[JobSpec]:
    """Draw a workload from a trace; seed k gives the published workload k.

    By application, `configurations` lists the (GPUs, batch size) of tuned jobs and `initial_batch_sizes` has the batch
    of one GPU. Submissions count from the opening of the window. Raises `InputError` if the window holds too few jobs
    or an application of `APPLICATIONS` is missing.
    """
    _check_applications(configurations, initial_batch_sizes)
    table = eligible(trace, recipe)
    found = len(table["row"])
    if found < recipe.count:
        hours = f"{recipe.start_hour}:00 and {(recipe.start_hour + recipe.window_h - 1) % 24}:59"
        message = f"{recipe.count} jobs were requested, but only {found} came between {hours}"
        raise input_error(
            trace.name, message, "ask for fewer jobs or a lower load, widen the window, or take a longer trace"
        )
    draw = _Draw(table, seed, configurations)
    if recipe.stratify:
        classes = size_class_of(table["gpu_time_s"])
        places = stratified_sample(classes, recipe.count, seed, draw.sample_seed)
    else:  # as `DataFrame.sample` draws, which the published workloads used
        places = np.random.RandomState(draw.sample_seed).choice(found, size=recipe.count, replace=False)
    values = zip(*(column[places].tolist() for column in table.values()), strict=True)
    jobs = [draw.job(dict(zip(table, row, strict=True)), recipe.configs, initial_batch_sizes) for row in values]
    jobs.sort(key=lambda job: job["submit_time_s"])
    return [JobSpec(id=f"{job['application']}-{i}", **job) for i, job in enumerate(jobs)]


class _Draw:
    """The three random generators of the published recipe; the order of draws is part of it."""

    def __init__(self, table: Columns, seed: int, configurations: Configurations) -> None:
        self._main = random.Random(seed)
        self._second = random.Random(seed + 3)
        self._third = random.Random(seed + 4)
        self._configurations = configurations
        self._gpus = _gpus_by_class(table)
        self.sample_seed = self._main.randint(0, 2**32) % 2**32

    def job(self, row: Mapping[str, Any], configs: str, initial_batch_sizes: Mapping[str, int]) -> dict[str, Any]:
        """Convert one sampled row to the fields of a job."""
        application, asked = self._application(row)
        gpus, batch = self._main.choice(self._configurations[application])
        # The main generator has already drawn for deepspeech2 when the second one turns the job into bert.
        if application == "deepspeech2" and self._second.randint(0, 1) == 1:
            application = "bert"
            gpus, batch = self._second.choice(self._configurations[application])
        if configs == "realistic":
            gpus, batch = asked, asked * initial_batch_sizes[application]
        return {
            "application": application,
            "submit_time_s": int(row["time_s"]),
            "num_gpus": gpus,
            "batch_size": batch,
            "duration_s": round(row["duration_s"]),
            "tenant": row["tenant"],
            "user": row["user"],
            "status": row["status"],
            "attempts": int(row["attempts"]),
        }

    def _application(self, row: Mapping[str, Any]) -> tuple[str, int]:
        """Choose the application of a row's class and the GPUs that a realistic job requests.

        Tuned workloads draw from the third generator too, but ignore the result.
        """
        asked = int(row["num_gpus"])
        name, applications = next((n, apps) for n, bound, apps in SIZE_CLASSES if row["gpu_time_s"] < bound)
        if name == "S":
            return self._main.choice(applications), asked
        if name in self._gpus:
            asked = self._third.choice(self._gpus[name] or [asked])
        return applications[0], asked


def _gpus_by_class(table: Columns) -> dict[str, list[int]]:
    """List the GPUs of the jobs of class L and XL that ran for at most a day, in the order of the source."""
    short, gpu_time_s = table["duration_s"] <= REALISTIC_MAX_S, table["gpu_time_s"]
    bounds = {name: bound for name, bound, _ in SIZE_CLASSES}
    return {
        name: table["num_gpus"][short & (gpu_time_s >= low) & (gpu_time_s < bounds[name])].tolist()
        for name, low in (("L", bounds["M"]), ("XL", bounds["L"]))
    }


def _check_applications(configurations: Configurations, initial_batch_sizes: Mapping[str, int]) -> None:
    missing = [name for name in APPLICATIONS if not configurations.get(name) or name not in initial_batch_sizes]
    if missing:
        remedy = f"load all of {', '.join(APPLICATIONS)}, or use recipe: replay"
        raise input_error("workload.recipe", f"the recipe 'pollux' needs the application '{missing[0]}'", remedy)
