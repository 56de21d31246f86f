"""The workload of the Pollux evaluation: jobs sampled from a trace's busiest hours and turned into applications.

The class of a job's GPU-time decides what it trains. With the Philly jobs that passed, in the order of the published
file, this gives the published workloads row for row, because it draws from the same generators in the same order
(Pollux, OSDI'21, section 5.1 and artifact).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from simsched.errors import input_error
from simsched.model.job import JobSpec
from simsched.workload.trace import Trace

Configurations = Mapping[str, Sequence[tuple[int, int]]]

HOUR_S = 3600
#: Jobs shorter than this or of at least this GPU-time are left out.
MIN_DURATION_S = 60
MAX_GPU_TIME_S = 1000 * HOUR_S
#: The large jobs of a realistic workload ask for the GPUs of a trace job of their class that ran no longer than this.
REALISTIC_MAX_S = 24 * HOUR_S

#: Classes by GPU-time: name, upper bound in GPU-seconds, and the applications that stand for it.
SIZE_CLASSES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("S", 1 * HOUR_S, ("cifar10", "ncf")),
    ("M", 10 * HOUR_S, ("deepspeech2", "bert")),
    ("L", 100 * HOUR_S, ("yolov3",)),
    ("XL", MAX_GPU_TIME_S, ("imagenet",)),
)
APPLICATIONS = tuple(name for _, _, names in SIZE_CLASSES for name in names)


@dataclass(frozen=True)
class Recipe:
    """How to draw a workload: `jobs` at `load` 1, out of `window_h` hours of any day from `start_hour` on.

    `configs` says what the jobs ask for: `tuned` GPUs and batch sizes, or `realistic` ones, the GPUs of the trace's job
    with the initial batch size on each.
    """

    jobs: int = 160
    load: float = 1.0
    start_hour: int = 2
    window_h: int = 8
    configs: str = "tuned"

    @property
    def count(self) -> int:
        """Count the jobs to draw: more of them in the same hours make the load."""
        return round(self.jobs * self.load)


def eligible(trace: Trace, recipe: Recipe) -> pd.DataFrame:
    """Give the jobs that the recipe draws from, in the order of the source.

    The columns are those of the trace, and `time_s`, the seconds since the window opened on the job's own day.
    """
    table = trace.table.assign(
        gpu_time_s=trace.gpu_time_s,
        time_s=(trace.second_of_day() - recipe.start_hour * HOUR_S) % (24 * HOUR_S),
    ).sort_values("row", kind="stable")
    keep = (table["duration_s"] >= MIN_DURATION_S) & (table["gpu_time_s"] < MAX_GPU_TIME_S)
    return table[keep & (table["time_s"] < recipe.window_h * HOUR_S)]


def draw_workload(
    trace: Trace,
    recipe: Recipe,
    seed: int,
    configurations: Configurations,
    initial_batch_sizes: Mapping[str, int],
) -> list[JobSpec]:
    """Draw a workload from a trace; the published workload k is that of seed k.

    `configurations` lists the (GPUs, batch size) of a tuned job and `initial_batch_sizes` the batch of one GPU, both
    by application. Submissions count from the opening of the window. Raises `InputError` where the window holds too few
    jobs or an application of `APPLICATIONS` is missing.
    """
    _check_applications(configurations, initial_batch_sizes)
    table = eligible(trace, recipe)
    if len(table) < recipe.count:
        hours = f"{recipe.start_hour}:00 and {(recipe.start_hour + recipe.window_h - 1) % 24}:59"
        message = f"{recipe.count} jobs were asked for, and only {len(table)} came between {hours}"
        raise input_error(
            trace.name, message, "ask for fewer jobs or a lower load, widen the window, or take a longer trace"
        )
    draw = _Draw(table, seed, configurations)
    sample = table.sample(n=recipe.count, random_state=draw.sample_seed)
    jobs = [draw.job(row, recipe.configs, initial_batch_sizes) for row in sample.to_dict("records")]
    jobs.sort(key=lambda job: job["submit_time_s"])
    return [JobSpec(id=f"{job['application']}-{i}", **job) for i, job in enumerate(jobs)]


class _Draw:
    """The three generators of the published recipe; the order of the draws is part of it."""

    def __init__(self, table: pd.DataFrame, seed: int, configurations: Configurations) -> None:
        self._main = random.Random(seed)
        self._second = random.Random(seed + 3)
        self._third = random.Random(seed + 4)
        self._configurations = configurations
        self._gpus = _gpus_by_class(table)
        self.sample_seed = self._main.randint(0, 2**32) % 2**32

    def job(self, row: Mapping[Any, Any], configs: str, initial_batch_sizes: Mapping[str, int]) -> dict[str, Any]:
        """Turn one sampled row into a job's fields."""
        application, asked = self._application(row)
        gpus, batch = self._main.choice(self._configurations[application])
        # The main generator has drawn for deepspeech2 already when the second one turns the job into bert.
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

    def _application(self, row: Mapping[Any, Any]) -> tuple[str, int]:
        """Choose the application of a row's class and the GPUs that a realistic job asks for.

        The third generator is drawn from even for tuned workloads, which do not use what it says.
        """
        asked = int(row["num_gpus"])
        name, applications = next((n, apps) for n, bound, apps in SIZE_CLASSES if row["gpu_time_s"] < bound)
        if name == "S":
            return self._main.choice(applications), asked
        if name in self._gpus:
            asked = self._third.choice(self._gpus[name] or [asked])
        return applications[0], asked


def _gpus_by_class(table: pd.DataFrame) -> dict[str, list[int]]:
    """List, in the order of the source, the GPUs of the jobs of class L and XL that ran for a day at most."""
    short = table[table["duration_s"] <= REALISTIC_MAX_S]
    bounds = {name: bound for name, bound, _ in SIZE_CLASSES}
    return {
        name: short["num_gpus"][(short["gpu_time_s"] >= low) & (short["gpu_time_s"] < bounds[name])].tolist()
        for name, low in (("L", bounds["M"]), ("XL", bounds["L"]))
    }


def size_class_of(gpu_time_s: Any) -> Any:
    """Name the size class (S, M, L, XL or XXL) of each GPU-time in seconds."""
    bounds = [bound for _, bound, _ in SIZE_CLASSES]
    names = np.array([*(name for name, _, _ in SIZE_CLASSES), "XXL"])
    return names[np.searchsorted(bounds, gpu_time_s, side="right")]


def _check_applications(configurations: Configurations, initial_batch_sizes: Mapping[str, int]) -> None:
    missing = [name for name in APPLICATIONS if not configurations.get(name) or name not in initial_batch_sizes]
    if missing:
        remedy = f"load all of {', '.join(APPLICATIONS)}, or use recipe: replay"
        raise input_error("workload.recipe", f"the recipe 'pollux' needs the application '{missing[0]}'", remedy)
