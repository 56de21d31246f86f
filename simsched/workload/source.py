"""The single entry point that turns a user's options into a list of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from simsched.errors import InputError, Problem, input_error, nearest, tell
from simsched.keys import key, problems_with
from simsched.model import FIXED_DURATION, JobSpec
from simsched.model.job import Speedup
from simsched.model.tabulated import TabulatedModel
from simsched.paths import data_folder
from simsched.threads import spared_by_the_collector
from simsched.words import counted
from simsched.workload import readers
from simsched.workload.gavel import is_gavel_trace, is_shockwave_trace, read_gavel_jobs, read_shockwave_jobs
from simsched.workload.generator import STRETCH_DAYS, GeneratorOptions, stretch_of
from simsched.workload.philly_statistics import PhillyStatistics
from simsched.workload.readers.artifact_lists import ARTIFACT_LISTS
from simsched.workload.readers.format import Head, head_of, is_workload, workload_files
from simsched.workload.recipes.as_is import AsIsRecipe, RuntimeFrom
from simsched.workload.recipes.gavel import GavelRecipe
from simsched.workload.recipes.llm import LlmRecipe
from simsched.workload.recipes.log_normal import LogNormalRecipe
from simsched.workload.recipes.pollux import PolluxRecipe
from simsched.workload.recipes.recipe import Configurations, Ingredients, Recipe
from simsched.workload.recipes.replay import ReplayRecipe
from simsched.workload.recipes.sia import SiaRecipe
from simsched.workload.recipes.tiresias_testbed import MODELS, TiresiasExampleRecipe, TiresiasTestbedRecipe
from simsched.workload.trace import Trace

#: The source that names the ten weeks in `traces/`, and the one that gives every seed a separate stretch.
SHIPPED = "philly-synthetic"
GENERATED = "philly-generated"
NAMED_SOURCES = (SHIPPED, GENERATED)
RECIPES: Mapping[str, type[Recipe]] = MappingProxyType(
    {
        "pollux": PolluxRecipe,
        "replay": ReplayRecipe,
        "as-is": AsIsRecipe,
        "tiresias-testbed": TiresiasTestbedRecipe,
        "tiresias-example": TiresiasExampleRecipe,
        "gavel": GavelRecipe,
        "sia": SiaRecipe,
        "llm": LlmRecipe,
        "log-normal": LogNormalRecipe,
    }
)
_MOST_KEPT_BYTES = 4 << 20
#: Files of more bytes are read in parts if possible; this is about 35,000 jobs, or twice as many if compressed.
_LONG_BYTES = 1 << 20
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class GeneratedTrace:
    """The keys of the generated trace, which gives each seed a separate stretch."""

    days: int | None = key(
        None,
        "days of each seed's stretch of the generated trace; by default a year to sample from, else a week",
        ge=1,
        le=366,
    )
    scale: float = key(1.0, "factor on the rate of jobs of a generated trace", gt=0, le=1000)
    statuses: Literal["pass", "all"] = key("pass", "final states in a generated trace")


@dataclass(frozen=True)
class WorkloadOptions(
    GeneratedTrace,
    PolluxRecipe,
    ReplayRecipe,
    GavelRecipe,
    SiaRecipe,
    TiresiasTestbedRecipe,
    LlmRecipe,
    LogNormalRecipe,
):
    """A user's options for a workload: its source, the recipe, and the keys of all recipes.

    It inherits from recipes that have all keys. `recipe` None means `as-is` for a workload CSV and `pollux` for a
    trace; `seed` None means the seed of the run.
    """

    source: str = key(
        GENERATED,
        "philly-generated (an endless generated trace: each seed draws from a separate year, so that seeds are "
        "independent workloads), philly-synthetic (ten generated weeks, the same for all seeds: a seed varies only "
        "which of their jobs are drawn), or a file or folder (likewise the same for all seeds)",
        min_length=1,
    )
    format: str = key("auto", "layout of a trace file; detected by default")
    recipe: (
        Literal[
            "pollux", "replay", "as-is", "tiresias-testbed", "tiresias-example", "gavel", "sia", "llm", "log-normal"
        ]
        | None
    ) = key(
        None,
        "sample jobs as Pollux did, replay the trace, take a list of jobs unchanged, or, without a trace, draw the "
        "jobs of Tiresias's testbed, of Gavel's generator, of a mix of Sia, of a cluster for language models or by "
        "summary statistics, or give those of Tiresias's worked example",
    )
    seed: int | None = key(None, "fix the jobs for all seeds of the experiment", ge=0)
    speedup: Literal["linear"] | float | tuple[tuple[int, float], ...] | None = key(
        None,
        "speed of jobs with only a duration on other numbers of GPUs than requested: linear, sublinear by an exponent"
        " (0.8: GPUs to the power of 0.8), or by a table of [GPUs, speed]; by default they run on no others",
    )

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs of the recipe that the options name."""
        return recipe_of(self).make(ingredients)


def make_workload(
    options: WorkloadOptions,
    seed: int,
    configurations: Configurations | None = None,
    initial_batch_sizes: Mapping[str, int] = _NONE,
    tabulated: Mapping[str, TabulatedModel] = MappingProxyType({}),
) -> list[JobSpec]:
    """Return the jobs that the options describe, in order of submission.

    `configurations` (GPUs and batch sizes of tuned jobs) and `initial_batch_sizes` are by application, see
    `simsched.applications.tuned_requests`; only the recipe `pollux` and `assign` need them, and only `gavel` needs
    `tabulated`, the applications with a table of rates. The same options and seed give the same list. Raises
    `InputError` for wrong options, unreadable files, or too few jobs.
    """
    return drawn_workload(options, seed, configurations, initial_batch_sizes, tabulated).jobs


@dataclass(frozen=True)
class Drawn:
    """A job list with the counts of rows left out of its source by reason, None if jobs are sampled or generated."""

    jobs: list[JobSpec]
    left_out: Mapping[str, int] | None = None


@spared_by_the_collector()
def drawn_workload(
    options: WorkloadOptions,
    seed: int,
    configurations: Configurations | None = None,
    initial_batch_sizes: Mapping[str, int] = _NONE,
    tabulated: Mapping[str, TabulatedModel] = MappingProxyType({}),
) -> Drawn:
    """Return the result of `make_workload` and what it left out of a replayed trace or a list of jobs."""
    _check(options)
    chosen = seed if options.seed is None else options.seed
    known = Ingredients(chosen, None, configurations or {}, initial_batch_sizes, tabulated)
    drawn = _joined(options, seed) or _made(options, known)
    return replace(drawn, jobs=_sped(options, drawn.jobs))


def drawn_in_parts(options: WorkloadOptions, seed: int) -> Iterator[Drawn] | None:
    """Return the result of `drawn_workload` in parts, in order; None if it needs the whole source at once."""
    _check(options)
    recipe, place = recipe_of(options), Path(options.source)
    by_row = isinstance(recipe, ReplayRecipe) and recipe.goes_by_row and options.source not in NAMED_SOURCES
    if not by_row or _list_named(options) is not None or not readers.goes_by_row(place, options.format):
        return None
    assert isinstance(recipe, ReplayRecipe)
    return _replayed(recipe, options, seed)


def _joined(options: WorkloadOptions, seed: int) -> Drawn | None:
    """Return the jobs of a long file, read in parts to save memory; None for others."""
    if options.source in NAMED_SOURCES or not _is_long(Path(options.source)):
        return None
    jobs: list[JobSpec] = []
    left_out: Counter[str] = Counter()
    try:
        for part in drawn_in_parts(replace(options, speedup=None), seed) or ():
            jobs += part.jobs
            left_out.update(part.left_out or {})
    except InputError:
        return None  # reading the whole file sorts it or reports all of its problems
    return Drawn(jobs, dict(left_out)) if jobs else None


def _is_long(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > _LONG_BYTES


def _replayed(recipe: ReplayRecipe, options: WorkloadOptions, seed: int) -> Iterator[Drawn]:
    left, whole = recipe.jobs, replace(recipe, jobs=None)
    for part in readers.trace_in_parts(Path(options.source), options.format):
        left_out = whole.left_out(part)
        kept = len(part) - sum(left_out.values()) + sum(part.dropped.values())
        jobs = whole.make(Ingredients(seed, part, {}, {})) if kept else []
        taken = jobs if left is None else jobs[:left]
        if len(taken) < len(jobs):
            left_out[f"after the first {recipe.jobs}"] = len(jobs) - len(taken)
        left = None if left is None else left - len(taken)
        yield Drawn(_sped(options, taken), left_out)


def extreme_jobs(
    options: WorkloadOptions,
    configurations: Configurations | None = None,
    initial_batch_sizes: Mapping[str, int] = _NONE,
    tabulated: Mapping[str, TabulatedModel] = MappingProxyType({}),
) -> list[JobSpec]:
    """Return jobs such that a cluster that can run them can run every job of the options for any seed.

    Takes the arguments of `make_workload` and raises the same errors; empty if the source is a list of jobs.
    """
    recipe = recipe_of(options)
    trace, most_gpus, tenants = None, 0, [""]
    if recipe.needs_trace:
        if _list_named(options) is not None:
            return []
        if options.source == GENERATED:
            statistics = PhillyStatistics.load()
            most_gpus, tenants = statistics.most_gpus, [*statistics.tenants]
        else:
            trace = load_trace(options, 0)
            most_gpus, tenants = int(trace.column("num_gpus").max()), sorted(set(trace.column("tenant").tolist()))
    made = recipe.extremes(Ingredients(0, trace, configurations or {}, initial_batch_sizes, tabulated), most_gpus)
    made += [replace(made[0], id=f"{made[0].id}-of-{tenant}", tenant=tenant) for tenant in tenants if tenant]
    return _sped(options, made)


def _sped(options: WorkloadOptions, jobs: list[JobSpec]) -> list[JobSpec]:
    """Return the jobs with the speed-up that the options declare, if any; raises `InputError` if it is invalid."""
    if options.speedup is None:
        return jobs
    try:
        speedup = Speedup.of(options.speedup)
    except ValueError as error:
        remedy = "write linear, an exponent such as 0.8, or a table such as [[1, 1], [2, 1.8], [4, 3.2]]"
        raise input_error("workload.speedup", str(error), remedy) from error
    return [replace(job, speedup=speedup) for job in jobs]


def _made(options: WorkloadOptions, known: Ingredients) -> Drawn:
    recipe = recipe_of(options)
    trace: Trace | None = None
    if recipe.needs_trace:
        kind = _list_named(options)
        if kind is not None:
            return _listed(Path(options.source), options, kind)
        trace = load_trace(options, known.seed)
        _tell_unread(options, recipe, trace)
    try:
        jobs = recipe.make(replace(known, trace=trace))
    except InputError as error:
        from simsched.workload.places import located  # loads the readers

        raise InputError(*located(error.problems, Path(options.source))) from None
    return Drawn(jobs, recipe.left_out(trace) if isinstance(recipe, ReplayRecipe) and trace is not None else None)


def _tell_unread(options: WorkloadOptions, recipe: Recipe, trace: Trace) -> None:
    """Warn of non-empty columns of a trace that the recipe does not read."""
    said = [name for name in recipe.unread if trace.says(name)]
    if said:
        named = ", ".join(f"'{name}'" for name in said)
        tell(trace.name, f"the recipe '{options.recipe or 'pollux'}' ignores {named} and sets these itself")


def recipe_of(options: WorkloadOptions) -> Recipe:
    """Return the recipe that the options name, with its keys."""
    kind = RECIPES[options.recipe or "pollux"]
    return kind(**{field.name: getattr(options, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def load_trace(options: WorkloadOptions, seed: int) -> Trace:
    """Read or generate the trace that the options name; raises `InputError` for an unknown source."""
    if options.source == SHIPPED:
        return replace(readers.read_trace(data_folder("traces") / f"{SHIPPED}.csv.gz"), name=SHIPPED)
    if options.source == GENERATED:
        usual = STRETCH_DAYS if options.recipe in (None, "pollux") else 7
        made = GeneratorOptions(days=options.days or usual, scale=options.scale, statuses=options.statuses)
        return stretch_of(made, seed)
    if not Path(options.source).exists():
        known = nearest(options.source, NAMED_SOURCES)
        raise input_error("workload.source", f"'{options.source}' is neither a file nor a known source", known)
    return _read(Path(options.source), options.format)


def _read(place: Path, layout: str) -> Trace:
    """Read a trace; a small file is cached for the next seeds of an experiment."""
    at = place.stat()
    if place.is_dir() or at.st_size > _MOST_KEPT_BYTES:
        return readers.read_trace(place, layout)
    kept = _kept(place, layout, at.st_mtime_ns, at.st_size)
    return replace(kept, columns=dict(kept.columns))


@lru_cache(maxsize=2)
def _kept(place: Path, layout: str, mtime_ns: int, size: int) -> Trace:
    return readers.read_trace(place, layout)


@dataclass(frozen=True)
class JobList:
    """A format of job lists that are ready to run: its name, how to recognise it, and how to read it."""

    name: str
    matches: Callable[[Head], bool]
    read: Callable[[Path], list[JobSpec]]


#: The formats of job lists, in the order of detection.
JOB_LISTS = (
    JobList("workload", is_workload, lambda path: readers.read_workload(path)),
    JobList("gavel", is_gavel_trace, read_gavel_jobs),
    JobList("shockwave", is_shockwave_trace, read_shockwave_jobs),
    *(JobList(one.name, one.matches, one.read) for one in ARTIFACT_LISTS),
)


def _list_format(path: Path) -> JobList | None:
    """Return the format of a job list or a folder of them; None for a trace."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        return None
    head = head_of(files[0])
    return next((one for one in JOB_LISTS if one.matches(head)), None)


def _listed(path: Path, options: WorkloadOptions, kind: JobList) -> Drawn:
    """Read a job list; the only choice is how many of its jobs to take."""
    if path.is_dir():
        message = f"'{path}' is a folder of {len(workload_files(path))} workloads, but a run takes one"
        raise input_error("workload.source", message, f"name one of them, such as {workload_files(path)[0].name}")
    if options.recipe not in (None, "as-is"):
        message = f"'{options.recipe}' needs a trace, but {path} is a list of jobs ready to run"
        raise input_error("workload.recipe", message, "use recipe: as-is")
    if options.load != 1:
        raise input_error("workload.load", f"{options.load:g} cannot be applied to a list of jobs", "leave it out")
    jobs = kind.read(path) if kind.name != "workload" else _settled(path, kind.read(path), options.runtime_from)
    kept = jobs if options.jobs is None else jobs[: options.jobs]
    return Drawn(kept, {f"after the first {len(kept)}": len(jobs) - len(kept)} if len(kept) < len(jobs) else {})


def _settled(path: Path, jobs: list[JobSpec], runtime_from: RuntimeFrom) -> list[JobSpec]:
    """Return the jobs of a workload CSV; an application takes precedence over a duration unless `runtime_from` differs.

    `simsched workload make` writes both for the record; without `runtime_from`, a notice names the one that counts.
    """
    both = {job.id for job in jobs if job.duration_s > 0 and job.application not in (FIXED_DURATION, *MODELS)}
    if runtime_from == "duration":
        return [replace(job, application=FIXED_DURATION, batch_size=0) if job.id in both else job for job in jobs]
    if both and runtime_from is None:
        message = f"{counted(len(both), 'job')} with an application and a duration; the application counts"
        tell(path, message, "choose with runtime_from: application or duration")
    return jobs


def _list_named(options: WorkloadOptions) -> JobList | None:
    """Return the format of the source if it is a job list, None if it is a trace."""
    if options.source in NAMED_SOURCES:
        return None
    if options.format == "auto":
        return _list_format(Path(options.source))
    return next((one for one in JOB_LISTS if one.name == options.format), None)


def _check(options: WorkloadOptions) -> None:
    """Raise `InputError` with every problem of the options."""
    problems = list(problems_with(options, "workload"))
    if options.models is not None and options.assign:
        problems.append(Problem("workload.models", "cannot be combined with 'assign'", "give one of them"))
    if problems:
        raise InputError(*problems)
