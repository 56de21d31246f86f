"""Gathers the applications and jobs of cells, with deadlines, offered loads and guarantees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simsched.applications import (
    ApplicationCatalogue,
    ApplicationsOptions,
    catalogue,
    initial_batch_sizes,
    tuned_configurations,
    with_speeds,
)
from simsched.engine import LEAVE_OUT, stream
from simsched.errors import InputError, input_error
from simsched.experiment.cuts import Cuts, cuts_of
from simsched.experiment.spec import ExperimentSpec, WorkloadSpec
from simsched.experiment.stored_jobs import HeldJobs, stored
from simsched.experiment.task import digest_of
from simsched.experiment.tuning import TuningOptions, require_optuna, template_jobs
from simsched.model import FIXED_DURATION, Application, ApplicationSource, Cluster, JobRequest, JobSpec
from simsched.model.job import JobTruth, values_of
from simsched.workload import (
    GENERATED,
    RECIPES,
    STRETCH_DAYS,
    Drawn,
    WorkloadOptions,
    drawn_in_parts,
    drawn_workload,
    extreme_jobs,
)
from simsched.workload.readers import head_of, is_workload, workload_files
from simsched.workload.recipes import PUBLISHED_JOBS, Configurations

if TYPE_CHECKING:
    from simsched.engine import TrueRemainingWork


def _work_of(request: JobRequest, app: Application, cluster: Cluster) -> TrueRemainingWork:
    """Return the work of a job that has not run yet."""
    from simsched.engine import TrueRemainingWork  # loads SimPy

    job: Any = SimpleNamespace(request=request, app=app, cluster=cluster, epoch=0, site=None)
    return TrueRemainingWork(job, 0.0)


def with_deadlines(
    jobs: Iterable[JobSpec],
    applications: ApplicationSource,
    cluster: Cluster,
    factor: float | tuple[float, float],
    share: float,
    seed: int,
) -> list[JobSpec]:
    """Return the jobs with deadlines: `factor`, or one drawn between two, times a job's solo time in seconds.

    The solo time is that of the job alone and consolidated, on its requested GPUs and batch, on the fastest usable
    type, without delays. A random `share` of the jobs gets deadlines, the same jobs over a sweep of factors. Raises
    `InputError` for a job that no type of the cluster can run.
    """
    rng = stream(seed, "deadlines")
    low, high = factor if isinstance(factor, tuple) else (factor, factor)
    known: dict[tuple[JobTruth, str, int, int], float] = {}
    made = []
    for job in jobs:
        chosen, place = rng.random(2)
        if chosen < share:
            key = (job.truth, job.application, job.num_gpus, job.batch_size)
            if key not in known:
                known[key] = _alone_s(job, applications.for_job(job.request, job.truth), cluster)
            job = replace(job, deadline_s=(low + (high - low) * float(place)) * known[key])
        made.append(job)
    return made


def _alone_s(job: JobSpec, app: Application, cluster: Cluster) -> float:
    try:
        return _work_of(job.request, app, cluster).seconds
    except (ValueError, LookupError) as error:
        types = ", ".join(cluster.gpu_types)
        message = f"job '{job.id}' ({app.name}) cannot run on {job.num_gpus} GPUs of any of the types {types}"
        raise input_error("workload.deadline_factor", message, "name types that it knows, or leave it out") from error


def with_offered_load(
    jobs: Sequence[JobSpec], applications: ApplicationSource, cluster: Cluster, load: float, *, parts: bool
) -> list[JobSpec]:
    """Return the jobs with interarrival times scaled to the offered load `load`; see `offered_load`.

    Whole seconds stay whole. Raises `InputError` if all jobs come at once or one can run nowhere.
    """
    found = offered_load(jobs, applications, cluster, parts=parts)
    if found is None:
        message = "nothing to scale: the jobs come at once, or one runs on no type of the cluster"
        raise input_error("workload.offered_load", message, "take jobs that come one after the other")
    first_s, factor = jobs[0].submit_time_s, found / load
    scaled = [first_s + factor * (job.submit_time_s - first_s) for job in jobs]
    if all(job.submit_time_s == int(job.submit_time_s) for job in jobs):
        scaled = [round(time_s) for time_s in scaled]
    return [replace(job, submit_time_s=time_s) for job, time_s in zip(jobs, scaled, strict=True)]


def offered_load(
    jobs: Sequence[JobSpec], applications: ApplicationSource, cluster: Cluster, *, parts: bool
) -> float | None:
    """Return the GPU time that jobs request relative to that of all GPUs from the first submission to the last.

    A job requests its GPUs (with `parts`, its part of them) for its solo time on them, consolidated, with the requested
    batch; on GPUs of several types at their mean speed for it. None if all come at once or one runs nowhere.
    """
    known: dict[object, float] = {}
    gpu_s, first_s, last_s = 0.0, float("inf"), 0.0
    told = values_of(jobs, "submit_time_s", "application", "num_gpus", "duration_s", "gpu_share")
    for place, (submit_s, application, gpus, duration_s, share) in enumerate(told):
        fixed = application == FIXED_DURATION
        key: object = gpus
        if not fixed:
            job = jobs[place]
            key = (job.truth, application, gpus, job.batch_size, job.profile)
        if key not in known:
            mean_s = _mean_s(jobs[place], applications, cluster)
            if mean_s is None:
                return None
            known[key] = mean_s / duration_s if fixed else mean_s
        gpu_s += known[key] * (duration_s if fixed else 1) * gpus * (share if parts else 1)
        first_s, last_s = min(first_s, submit_s), max(last_s, submit_s)
    return gpu_s / (cluster.total_gpus * (last_s - first_s)) if last_s > first_s else None


def _mean_s(job: JobSpec, applications: ApplicationSource, cluster: Cluster) -> float | None:
    """Return a job's solo time in seconds at the mean speed of all GPUs; None if it runs on no type."""
    work = _work_of(job.request, applications.for_job(job.request, job.truth), cluster)
    speed = 0.0
    for gpu_type, gpus in cluster.gpus_by_type.items():
        try:
            speed += gpus / work.seconds_on(gpu_type)
        except (ValueError, LookupError, ZeroDivisionError):
            continue  # it does not run there
    return cluster.total_gpus / speed if speed else None


def with_guarantees(jobs: Iterable[JobSpec], share: float, seed: int) -> list[JobSpec]:
    """Return the jobs with a random `share` of them guaranteed; a larger share includes those of a smaller one."""
    rng = stream(seed, "guarantees")
    return [replace(job, guaranteed=job.guaranteed or bool(rng.random() < share)) for job in jobs]


#: Days of a generated trace that hold jobs of all kinds; drawing a year takes ten times as long.
_ENOUGH_DAYS = 28
#: If a stretch of generated trace has this many jobs, any other of the same length surely has some.
_MANY = 100
#: Workload keys that belong to no recipe.
_OWN_KEYS = set(WorkloadSpec.model_fields) - {field.name for field in fields(WorkloadOptions)}


@dataclass(frozen=True)
class Gathered:
    """The jobs of a cell, their digest, the trace rows left out by reason, and the cuts between shards, if any."""

    jobs: Sequence[JobSpec]
    digest: str
    left_out: Mapping[str, int] | None = None
    cuts: Cuts | None = None


class CellInputs:
    """Creates applications, job lists and hashes once for all cells."""

    def __init__(self, *, alike: bool = False) -> None:
        """Start empty; with `alike`, sample generated traces from a month instead of a year.

        The kinds of jobs are the same, and drawing takes a tenth of the time: enough to check that they can run.
        """
        self._alike = alike
        self._jobs: dict[tuple[object, ...], Gathered] = {}
        self._configurations: dict[tuple[ApplicationsOptions, int, str], Configurations] = {}
        self._trials: dict[TuningOptions, Gathered] = {}
        self._extremes: dict[tuple[object, ...], Gathered | None] = {}

    def applications(self, options: ApplicationsOptions) -> ApplicationCatalogue:
        """Return the applications of a folder, or the shipped ones; raises `InputError` if one does not exist."""
        if options.path is not None and not Path(options.path).exists():
            raise _nothing_at("applications", options.path)
        return catalogue(options)

    def workload_files(self, workload: WorkloadSpec) -> tuple[str, ...]:
        """List the job lists in a folder, one replication each; ("",) if the workload is not such a folder."""
        if workload.file is None or not Path(workload.file).is_dir():
            return ("",)
        files = workload_files(Path(workload.file))
        if not is_workload(head_of(files[0])):
            return ("",)  # a trace in several files
        return tuple(str(file) for file in files)

    def workload_name(self, workload: WorkloadSpec) -> str:
        """Name a workload that is not a file of a folder."""
        return workload.source if workload.file is None else Path(workload.file).stem

    def trials(self, tuning: TuningOptions) -> Gathered:
        """Return the tuning trials as known in advance; raises `InputError` if tuning cannot run."""
        require_optuna()
        if tuning not in self._trials:
            jobs = template_jobs(tuning)
            self._trials[tuning] = Gathered(jobs, digest_of(jobs))
        return self._trials[tuning]

    def gathered(self, workload: WorkloadSpec, file: str, seed: int, spec: ExperimentSpec) -> Gathered:
        """Return a workload's job list under a seed; `file` picks one of a folder."""
        seed = 0 if file else seed if workload.seed is None else workload.seed  # a job list is deterministic
        what = (workload, file, seed, spec.cluster, spec.applications, spec.shards, spec.engine.sharing.model)
        if what not in self._jobs:
            self._jobs[what] = self._gather(workload, file, seed, spec)
        return self._jobs[what]

    def _gather(self, workload: WorkloadSpec, file: str, seed: int, spec: ExperimentSpec) -> Gathered:
        shards = spec.shards

        def gathered(jobs: Sequence[JobSpec], digest: str, left_out: Mapping[str, int] | None) -> Gathered:
            cut = shards.parts > 1 and not self._alike
            cuts = cuts_of(jobs, shards.parts, shards.warm_up_s) if cut else None
            return Gathered(jobs, digest, left_out, cuts)

        parts = self._in_parts(workload, file, seed) if shards.parts > 1 else None
        if parts is not None:
            left_out: Counter[str] = Counter()
            in_file = stored(job for part in parts for job in _counting(part, left_out))
            return gathered(in_file, in_file.digest, dict(left_out))
        drawn = self._draw_alike(workload, file, seed, spec) or self._draw(workload, file, seed, spec)
        return gathered(HeldJobs(drawn.jobs), digest_of(drawn.jobs), drawn.left_out)

    def _in_parts(self, workload: WorkloadSpec, file: str, seed: int) -> Iterator[Drawn] | None:
        """Return the jobs while their file is read, None if the draw needs the whole file."""
        if workload.guaranteed_share or workload.deadline_factor is not None or workload.offered_load is not None:
            return None
        return drawn_in_parts(self._options(workload, file), seed)

    def extremes(self, workload: WorkloadSpec, spec: ExperimentSpec) -> Gathered | None:
        """Return jobs that are as hard to run as any seed's, None if only drawing tells whether there are enough."""
        what = (workload, spec.cluster, spec.applications)
        if what not in self._extremes:
            enough = self._with_margin(workload, spec)
            jobs = tuple(self._draw(workload, "", None, spec).jobs) if enough else ()
            self._extremes[what] = Gathered(jobs, digest_of(jobs)) if enough else None
        return self._extremes[what]

    def _with_margin(self, workload: WorkloadSpec, spec: ExperimentSpec) -> bool:
        """Return whether a seed has so many jobs that other seeds with a trace of the same length have enough.

        That takes twice the requested number, and `_MANY` for a replay.
        """
        recipe = self._options(workload).recipe or "pollux"
        if workload.file is not None or workload.source != GENERATED or not RECIPES[recipe].needs_trace:
            return True
        keys = workload.model_dump(include={"jobs", "sample"})
        more = {"jobs": 2 * (keys["jobs"] or PUBLISHED_JOBS)} if recipe == "pollux" else {}
        if recipe == "replay":
            more = {"jobs": None} | ({"sample": 2 * keys["sample"]} if keys["sample"] else {})
        try:
            jobs = self.gathered(workload.model_copy(update=more), "", spec.seeds[0], spec).jobs
        except InputError:
            return False
        return len(jobs) >= _MANY or recipe == "pollux"

    def _draw_alike(self, workload: WorkloadSpec, file: str, seed: int, spec: ExperimentSpec) -> Drawn | None:
        """Sample jobs from the first weeks of a seed's year, None if not `alike` or too few."""
        keys = workload.model_dump(include={"recipe", "days"})
        samples = keys["recipe"] in (None, "pollux") and workload.path is None and workload.source == GENERATED
        if not (self._alike and samples and not file and (keys["days"] or STRETCH_DAYS) > _ENOUGH_DAYS):
            return None
        try:
            return self._draw(workload.model_copy(update={"days": _ENOUGH_DAYS, "stratify": False}), file, seed, spec)
        except InputError:
            return None  # the whole year shows any problem

    def _draw(self, workload: WorkloadSpec, file: str, seed: int | None, spec: ExperimentSpec) -> Drawn:
        """Draw jobs, or without a seed the extremes of any seed."""
        catalogued = self.applications(spec.applications)
        known = catalogued.applications
        options = self._options(workload, file)
        source = options.source
        if workload.path is not None and not Path(workload.path).exists():
            raise _nothing_at("workload", workload.path)
        tuned: Configurations = {}
        if options.recipe in (None, "pollux", "sia") and not _is_job_list(Path(source)):
            node = spec.cluster.build().nodes[0]
            tuned = self._tuned(spec.applications, node.gpus, node.gpu_type)
        given = tuned, initial_batch_sizes(known), catalogued.tabulated
        drawn = Drawn(extreme_jobs(options, *given)) if seed is None else drawn_workload(options, seed, *given)
        if workload.guaranteed_share:
            drawn = replace(drawn, jobs=with_guarantees(drawn.jobs, workload.guaranteed_share, seed or 0))
        if workload.deadline_factor is None and workload.offered_load is None:
            return drawn
        cluster = spec.cluster.build()
        speeds = with_speeds(catalogued, workload.gpu_speed, cluster)
        if workload.offered_load is not None and seed is not None:
            parts = spec.engine.build().gpu_shares
            jobs = with_offered_load(drawn.jobs, speeds, cluster, workload.offered_load, parts=parts)
            drawn = replace(drawn, jobs=jobs)
        if workload.deadline_factor is None:
            return drawn
        factor, share = workload.deadline_factor, 1 if seed is None else workload.deadline_share
        return replace(drawn, jobs=with_deadlines(drawn.jobs, speeds, cluster, factor, share, seed or 0))

    @staticmethod
    def _options(workload: WorkloadSpec, file: str = "") -> WorkloadOptions:
        source = file or workload.path or workload.source
        return WorkloadOptions(**{**workload.model_dump(exclude=_OWN_KEYS), "source": source})

    def _tuned(self, options: ApplicationsOptions, gpus_per_node: int, gpu_type: str) -> Configurations:
        """Return configurations of tuned jobs on nodes like the cluster's first."""
        what = (options, gpus_per_node, gpu_type)
        if what not in self._configurations:
            try:
                made = tuned_configurations(self.applications(options).applications, gpus_per_node, gpu_type)
            except ValueError as error:
                raise input_error("cluster.gpu_type", str(error)) from error
            self._configurations[what] = made
        return self._configurations[what]


def _nothing_at(section: str, path: str) -> InputError:
    from simsched.experiment.published import remedy_for  # reads what it declares

    remedies = filter(None, (f"name it with -o {section}.path=...", remedy_for(Path(path))))
    return input_error(f"{section}.path", f"there is no file or folder '{path}'", "; ".join(remedies))


def _counting(part: Drawn, left_out: Counter[str]) -> list[JobSpec]:
    left_out.update(part.left_out or {})
    return part.jobs


def leave_out_large(workload: WorkloadSpec) -> str:
    """Return the remedy for jobs larger than `{most}` GPUs, by the keys of the workload's recipe."""
    recipe = workload.recipe or "pollux"
    if workload.file is not None and (recipe == "as-is" or _is_job_list(Path(workload.file))):
        return LEAVE_OUT
    if any(field.name == "max_gpus" for field in fields(RECIPES[recipe])):  # type: ignore[arg-type]
        return "set workload.max_gpus: {most}"
    return "use a policy that may change the number of a job's GPUs, or recipe: replay with max_gpus: {most}"


def _is_job_list(path: Path) -> bool:
    return path.is_file() and is_workload(head_of(path))
