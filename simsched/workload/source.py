"""Where a workload comes from: one entry that turns a user's options into a list of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from simsched.errors import InputError, Problem, input_error, nearest
from simsched.model.job import JobSpec
from simsched.paths import data_folder
from simsched.workload.generator import GeneratorOptions, generate_from_seed
from simsched.workload.readers import head_of, read_trace
from simsched.workload.readers.workload_csv import is_workload, read_workload, workload_files
from simsched.workload.recipes.pollux import Configurations, Recipe, draw_workload
from simsched.workload.recipes.replay import Replay, replay_trace, specs_of
from simsched.workload.recipes.tiresias import example_jobs, testbed_jobs
from simsched.workload.summary import describe, trace_statistics
from simsched.workload.trace import Trace
from simsched.workload.write import write_trace_csv, write_workload_csv

__all__ = [
    "GENERATED", "RECIPES", "SHIPPED", "WorkloadOptions", "describe", "load_trace", "make_workload",
    "trace_statistics", "write_trace_csv", "write_workload_csv",
]  # fmt: skip

#: The source that names the week in `traces/`, and the one that generates a new trace for every seed.
SHIPPED = "philly-synthetic"
GENERATED = "philly-generated"
RECIPES = ("pollux", "replay", "as-is", "tiresias-testbed", "tiresias-example")
_DAY_S = 86_400
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class WorkloadOptions:
    """What a user says about his workload.

    `source` is `philly-synthetic` (the shipped week), `philly-generated` (made anew, of `days`, `scale`, `statuses`),
    or the path of a trace or of a workload CSV; `format` names the trace's format if it is not to be told by content.

    `recipe`: `pollux` samples `jobs` x `load` jobs (160 unless given) of the `window_h` hours from `start_hour` on and
    makes applications of them, `tuned` or `realistic` by `configs`, on each of `windows` days in a row; `replay` runs
    every job for as long as the trace says, see `Replay` for `from_s`, `until_s`, `max_gpus`, `sample`, `assign`, with
    `load` as the factor on the rate of arrivals; `as-is` takes the rows as they stand; `tiresias-testbed` draws the 480
    jobs of Tiresias's testbed, and `tiresias-example` gives the three of its worked example, both without a trace.
    `models: tiresias` lets the jobs of a replay be models of Tiresias's Table 6. None means `as-is` for a workload CSV
    and `pollux` for a trace. `jobs` bounds how many jobs a replay or a list gives (None: all). `seed` None means the
    seed of the run.
    """

    source: str = SHIPPED
    format: str = "auto"
    recipe: str | None = None
    jobs: int | None = None
    load: float = 1.0
    configs: str = "tuned"
    start_hour: int = 2
    window_h: int = 8
    windows: int = 1
    from_s: int = 0
    until_s: int | None = None
    max_gpus: int | None = None
    sample: int | None = None
    assign: bool = False
    models: str | None = None
    days: int = 7
    scale: float = 1.0
    statuses: str = "pass"
    seed: int | None = None


def make_workload(
    options: WorkloadOptions,
    seed: int,
    configurations: Configurations | None = None,
    initial_batch_sizes: Mapping[str, int] = _NONE,
) -> list[JobSpec]:
    """Make the job list that the options describe, in order of submission.

    `configurations` (GPUs and batch sizes of tuned jobs) and `initial_batch_sizes` are by application, see
    `simsched.applications.tuned_requests`; only the recipe `pollux` and `assign` need them. The same options and seed
    give the same list. Raises `InputError` for wrong options, files that cannot be read and too few jobs.
    """
    _check(options)
    chosen = seed if options.seed is None else options.seed
    if options.recipe == "tiresias-testbed":
        return testbed_jobs(options.load, _rng(chosen, "testbed"))[: options.jobs]
    if options.recipe == "tiresias-example":
        return example_jobs()
    path = Path(options.source)
    named = options.source in (SHIPPED, GENERATED)
    if not named and (options.format == "workload" or (options.format == "auto" and _holds_workloads(path))):
        return _listed(path, options)
    trace = load_trace(options, chosen)
    if options.recipe == "as-is":
        return specs_of(trace.table if options.jobs is None else trace.table.head(options.jobs))
    if options.recipe == "replay":
        return replay_trace(trace, _replay_of(options), _rng(chosen, "replay"), initial_batch_sizes)
    jobs = 160 if options.jobs is None else options.jobs
    recipe = Recipe(jobs, options.load, options.start_hour, options.window_h, options.configs)
    days = [
        draw_workload(trace, recipe, _seed_of_day(chosen, day), configurations or {}, initial_batch_sizes)
        for day in range(options.windows)
    ]
    return _one_after_another(days)


def _seed_of_day(seed: int, day: int) -> int:
    """Give the seed of a day's sample: the first day's is that of a single window."""
    return seed if day == 0 else int(np.random.SeedSequence([seed, day, *b"windows"]).generate_state(1)[0])


def _one_after_another(days: Sequence[list[JobSpec]]) -> list[JobSpec]:
    """Put samples on successive days, numbering the jobs through."""
    jobs = [(day, job) for day, sample in enumerate(days) for job in sample]
    return [
        replace(job, id=f"{job.application}-{i}", submit_time_s=job.submit_time_s + day * _DAY_S)
        for i, (day, job) in enumerate(jobs)
    ]


def load_trace(options: WorkloadOptions, seed: int) -> Trace:
    """Read or generate the trace that the options name; raises `InputError` for a source that is neither."""
    if options.source == SHIPPED:
        return replace(read_trace(data_folder("traces") / f"{SHIPPED}.csv"), name=SHIPPED)
    if options.source == GENERATED:
        made = GeneratorOptions(days=options.days, scale=options.scale, statuses=options.statuses)
        return generate_from_seed(made, seed)
    if not Path(options.source).exists():
        known = nearest(options.source, [SHIPPED, GENERATED])
        raise input_error("workload.source", f"'{options.source}' is no file and no known source", known)
    return read_trace(options.source, options.format)


def _holds_workloads(path: Path) -> bool:
    """Tell whether a path is a workload CSV or a folder of them, rather than a trace."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    return bool(files) and files[0].is_file() and is_workload(head_of(files[0]))


def _listed(path: Path, options: WorkloadOptions) -> list[JobSpec]:
    """Read a job list, which leaves nothing to choose but how many of its jobs to take."""
    if path.is_dir():
        message = f"'{path}' is a folder of {len(workload_files(path))} workloads, and a run takes one"
        raise input_error("workload.source", message, f"name one of them, such as {workload_files(path)[0].name}")
    if options.recipe not in (None, "as-is"):
        message = f"'{options.recipe}' needs a trace, and {path} is a list of jobs ready to run"
        raise input_error("workload.recipe", message, "use recipe: as-is")
    if options.load != 1:
        raise input_error("workload.load", f"{options.load:g} cannot be applied to a list of jobs", "leave it out")
    jobs = read_workload(path)
    return jobs if options.jobs is None else jobs[: options.jobs]


def _replay_of(options: WorkloadOptions) -> Replay:
    return Replay(
        load=options.load,
        from_s=options.from_s,
        until_s=options.until_s,
        max_gpus=options.max_gpus,
        sample=options.sample,
        jobs=options.jobs,
        assign=options.assign,
        models=options.models is not None,
    )


def _rng(seed: int, purpose: str) -> np.random.Generator:
    """Make a generator of its own for each purpose, so that one cannot disturb the other."""
    return np.random.default_rng(np.random.SeedSequence([seed, *purpose.encode()]))


def _check(options: WorkloadOptions) -> None:
    """Raise `InputError` with everything that is wrong with the options."""
    problems = [
        Problem(f"workload.{key}", f"{value!r} is out of range", f"give {expected}")
        for key, value, good, expected in _ranges(options)
        if not good
    ]
    for key, value, known in (
        ("recipe", options.recipe, RECIPES),
        ("configs", options.configs, ("tuned", "realistic")),
        ("statuses", options.statuses, ("pass", "all")),
        ("models", options.models, ("tiresias",)),
    ):
        if value is not None and value not in known:
            problems.append(Problem(f"workload.{key}", f"'{value}' is unknown", nearest(str(value), known)))
    if options.models is not None and options.assign:
        problems.append(Problem("workload.models", "cannot be combined with 'assign'", "give one of them"))
    if problems:
        raise InputError(*problems)


def _ranges(options: WorkloadOptions) -> Sequence[tuple[str, object, bool, str]]:
    """List each number with whether it is in range and what would be."""
    positive = [(key, getattr(options, key)) for key in ("jobs", "max_gpus", "sample", "until_s", "days", "windows")]
    return [
        *((key, value, value is None or value >= 1, "a whole number of at least 1") for key, value in positive),
        ("load", options.load, 0 < options.load < float("inf"), "a number above 0"),
        ("scale", options.scale, 0 < options.scale < float("inf"), "a number above 0"),
        ("start_hour", options.start_hour, 0 <= options.start_hour <= 23, "an hour from 0 to 23"),
        ("window_h", options.window_h, 1 <= options.window_h <= 24, "1 to 24 hours"),
        ("from_s", options.from_s, options.from_s >= 0, "a number of seconds from 0 on"),
        ("seed", options.seed, options.seed is None or options.seed >= 0, "a whole number from 0 on"),
    ]
