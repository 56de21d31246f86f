"""Loads an experiment's applications from shipped files, a folder of files or measurements, or a table of rates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from simsched.applications.measurements import PLACEMENTS, read_folder
from simsched.applications.rate_table import LINES_SUFFIX, SUFFIX, read_rate_lines, read_rate_table
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.keys import INPUT_FILE, key
from simsched.model import FIXED_DURATION, Application, JobRequest, Site
from simsched.model.colocation import PairTable, read_pairs
from simsched.model.fitted import FittedApplication, with_types
from simsched.model.job import JobTruth
from simsched.model.placement import consolidated_shape
from simsched.model.tabulated import FixedDuration, Setting, StagedJob, TabulatedJob, TabulatedModel
from simsched.model.tensors import TensorModelJob
from simsched.paths import data_folder
from simsched.reading import read_text

if TYPE_CHECKING:
    from simsched.model.plans import LargeModel, PlannedJob

#: The reference type of published speeds.
_BASE = "t4"


@dataclass(frozen=True)
class ApplicationsOptions:
    """The source of the applications; without `path`, the shipped ones."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    path: Annotated[str | None, INPUT_FILE] = key(
        None,
        "a folder of application YAMLs, of measurements or of tables of plans, or a table of rates (JSON, CSV)",
        min_length=1,
    )
    gpu_type: str = key("t4", "GPU type on which a folder of measurements or a CSV of rates was taken", min_length=1)
    bounds: Literal["pollux-osdi21"] | None = key(
        None, "published bounds by application for a folder of measurements, where the files have none"
    )
    extra_types: Literal["sia"] | None = key(
        None, "GPU types added by published speeds relative to a T4: rtx and a100, with the restart delays of Sia"
    )


class ApplicationCatalogue:
    """The applications that jobs may name, including fixed durations and the models of Tiresias's Table 6.

    `origin` names their source for messages and manifests.
    """

    def __init__(
        self,
        applications: Mapping[str, Application],
        origin: str,
        tabulated: Mapping[str, TabulatedModel] = MappingProxyType({}),
        planned: Mapping[str, LargeModel] = MappingProxyType({}),
        *,
        unread: Sequence[Path] = (),
    ) -> None:
        """Hold applications by name, with those known only by rates or plans separate.

        Files that are `unread` hold them all and are read when one is needed; jobs of fixed duration need none.
        """
        self._given, self._unread = (applications, planned), unread
        self.tabulated: Mapping[str, TabulatedModel] = MappingProxyType(dict(sorted(tabulated.items())))
        self.origin = origin

    @property
    def applications(self) -> Mapping[str, Application]:
        """The applications whose physics is known."""
        return self._read[0]

    @property
    def planned(self) -> Mapping[str, LargeModel]:
        """The applications that run by plans."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[Mapping[str, Application], Mapping[str, LargeModel]]:
        applications, planned = _read_files(self._unread) if self._unread else self._given
        return MappingProxyType(dict(sorted(applications.items()))), MappingProxyType(dict(sorted(planned.items())))

    @classmethod
    def load(cls, path: Path | None = None, *, gpu_type: str = "t4", bounds: str | None = None) -> ApplicationCatalogue:
        """Load the applications of a folder, by default the shipped ones.

        A folder whose subfolders hold `placements.csv` is one of measurements; otherwise its `*.yaml` files are read. A
        single file, or the folder of one application's measurements, works too. Measurements are of GPUs of `gpu_type`,
        within published `bounds` if named. A folder of `placements_*.csv` alone holds tables of measured plans. A file
        `*.json` is a table of rates, a file `*.csv` one of the rates on `gpu_type`. Raises `InputError` with every
        problem.
        """
        if path is None:
            place = data_folder("workloads") / "applications"
            return cls({}, str(place), unread=sorted(place.glob("*.yaml")))
        place = path
        if place.is_file() and place.suffix == SUFFIX:
            return cls({}, str(place), read_rate_table(place))
        if place.is_file() and place.suffix == LINES_SUFFIX:
            return cls({}, str(place), read_rate_lines(place, gpu_type))
        if place.is_file():
            return cls._of_files([place], str(place))
        if not place.is_dir():
            raise input_error(place, "there is no such folder", "name a folder of application files or of measurements")
        if (place / PLACEMENTS).is_file():
            measured = read_folder(place.parent, only=place.name, gpu_type=gpu_type, bounds=bounds)
            return cls(measured, str(place))
        files = sorted(place.glob("*.yaml"))
        is_measured = any((folder / PLACEMENTS).is_file() for folder in place.iterdir() if folder.is_dir())
        if not files and any(place.glob("placements_*.csv")):
            from simsched.applications.plans import read_plan_tables  # few experiments name plans

            return cls({}, str(place), {}, read_plan_tables(place, gpu_type))
        if is_measured and files:
            raise input_error(place, "holds both measurements and application files", "keep them in separate folders")
        if is_measured:
            return cls(read_folder(place, gpu_type=gpu_type, bounds=bounds), str(place))
        if bounds is not None:
            raise input_error("applications.bounds", f"{place} holds no measurements to bound", "leave it out")
        if not files:
            raise input_error(place, f"holds neither application files (*.yaml) nor folders with a {PLACEMENTS}")
        return cls._of_files(files, str(place))

    @classmethod
    def _of_files(cls, files: list[Path], origin: str) -> ApplicationCatalogue:
        applications, planned = _read_files(files)
        return cls(applications, origin, {}, planned)

    def names(self) -> tuple[str, ...]:
        """List the names that jobs may use, sorted, without that of fixed durations."""
        return (*self.applications, *self.tabulated, *self.planned)

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        """Return the application of a job; raises `InputError` if no application has that name."""
        name, duration_s = request.application, truth.duration_s
        if name == FIXED_DURATION:
            if not duration_s > 0:
                raise input_error("workload", "a job without an application needs a duration above 0 seconds")
            return FixedDuration(duration_s, request.num_gpus, truth.speedup)
        if request.profile is not None:
            return _staged(request, truth)
        found = self.applications.get(name)
        if found is not None:
            return found
        if name in self.tabulated:
            return self._tabulated(self.tabulated[name], request, truth)
        if self.has_plans(name):
            from simsched.applications.plans import shipped_llms

            return _planned(self.planned.get(name) or shipped_llms()[name], request, truth)
        from simsched.applications.published import shipped_models

        model = shipped_models().get(name)
        if model is None:
            from simsched.applications.plans import shipped_llms

            known = [*self.names(), *shipped_models(), *shipped_llms(), FIXED_DURATION]
            message = f"there is no application '{name}' in {self.origin}"
            raise input_error(f"workload, job '{request.id}'", message, nearest(name, known))
        if not duration_s > 0:
            raise input_error("workload", f"a job of the model '{name}' needs a duration above 0 seconds")
        return TensorModelJob(model, duration_s, request.num_gpus, truth.speedup)

    def has_plans(self, name: str) -> bool:
        """Return whether jobs of an application run by plans."""
        if name in self.planned:
            return True
        if name == FIXED_DURATION or name in self.applications or name in self.tabulated:
            return False
        from simsched.applications.plans import shipped_llms
        from simsched.applications.published import shipped_models

        if name in shipped_models():
            return False
        return name in shipped_llms()

    def _tabulated(self, model: TabulatedModel, request: JobRequest, truth: JobTruth) -> TabulatedJob:
        asked = Setting(request.batch_size, request.num_gpus)
        try:
            return TabulatedJob(model, asked, truth.total_steps, request.batch_rule)
        except ValueError as error:
            raise input_error(f"workload, job '{request.id}'", str(error), f"see {self.origin}") from error


def _planned(model: LargeModel, request: JobRequest, truth: JobTruth) -> PlannedJob:
    from simsched.model.plans import PlannedJob

    try:
        steps = truth.total_steps or _steps_of(model, request, truth.duration_s)
        return PlannedJob(model, steps, request.batch_size)
    except ValueError as error:
        raise input_error(f"workload, job '{request.id}'", str(error), "correct its row") from error


def _steps_of(model: LargeModel, request: JobRequest, duration_s: float) -> float:
    """Convert a duration on the requested GPUs to steps, with the requested plan or the best.

    Raises `ValueError` if the GPU type is unknown.
    """
    named = None if request.shape is None else request.shape.gpu_types
    kinds = [kind for kind in model.gpu_types if named is None or kind in named]
    if not duration_s:
        return 0
    if len(kinds) != 1:
        raise ValueError(f"a duration of {model.name} must name the GPU type: {', '.join(kinds) or 'none'}")
    site = Site(consolidated_shape(request.num_gpus, model.node_gpus(kinds[0])), kinds[0])
    batch = request.batch_size
    parts = model.best(site, batch).parts if request.plan is None else model.parts(request.plan, site, batch)
    return max(duration_s // float(parts.total), 1.0)


def _staged(request: JobRequest, truth: JobTruth) -> StagedJob:
    assert request.profile is not None
    try:
        return StagedJob(request.application, request.profile, truth.total_steps)
    except ValueError as error:
        raise input_error(f"workload, job '{request.id}'", str(error), "correct its row") from error


def catalogue(options: ApplicationsOptions = ApplicationsOptions()) -> ApplicationCatalogue:
    """Load an experiment's applications, by default the shipped ones; cached until their files change."""
    return _kept(options, () if options.path is None else _state_of(Path(options.path)))


def _state_of(place: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, time of change and size of a file, or of each file in a folder and in those right below it."""
    try:
        files = sorted([*place.glob("*"), *place.glob("*/*")]) if place.is_dir() else [place]
        states = [(str(file), file.stat()) for file in files if file.is_file()]
    except OSError as error:
        raise input_error(place, f"cannot be read: {error.strerror}", "name a folder of applications") from error
    return tuple((name, at.st_mtime_ns, at.st_size) for name, at in states)


@lru_cache(maxsize=4)
def _kept(options: ApplicationsOptions, _: tuple[tuple[str, int, int], ...]) -> ApplicationCatalogue:
    path = None if options.path is None else Path(options.path)
    found = ApplicationCatalogue.load(path, gpu_type=options.gpu_type, bounds=options.bounds)
    return found if options.extra_types is None else _with_sia_types(found)


def _with_sia_types(found: ApplicationCatalogue) -> ApplicationCatalogue:
    """Add the GPU types of Sia's evaluation to the fitted applications that it used."""
    figures = json.loads((data_folder("workloads") / "sia.json").read_text(encoding="utf-8"))["applications"]
    applications = dict(found.applications)
    for name, figure in sorted(figures.items()):
        app = applications.get(name)
        if isinstance(app, FittedApplication) and _BASE in app.step_models:
            speeds = {kind: speed for kind, speed in figure["speed"].items() if kind != _BASE}
            applications[name] = with_types(app, _BASE, speeds, restart_delay_s=figure["restart_delay_s"])
    return ApplicationCatalogue(applications, found.origin, found.tabulated, found.planned)


#: Files of large models and of the hardware that they name.
_OF_PLANS = re.compile(r"\bformat:\s*[\"']?simsched-(model|hardware)/")


def _read_files(files: Sequence[Path]) -> tuple[dict[str, Application], dict[str, LargeModel]]:
    """Read files of applications and large models; report all problems of all files at once."""
    from simsched.applications.file_format import read_document  # brings pydantic

    found: dict[str, Application] = {}
    planned: dict[str, LargeModel] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            kind = _OF_PLANS.search(read_text(file))
            if kind is None:
                application = read_document(file).application()
                name = application.name
            elif kind[1] == "model":
                from simsched.applications.plans import read_model

                model = read_model(file)
                name = model.name
            else:
                continue
        except InputError as error:
            problems.extend(error.problems)
            continue
        if name in found or name in planned or name == FIXED_DURATION:
            problems.append(Problem(str(file), f"the name '{name}' is taken", "give it another"))
        if kind is None:
            found[name] = application
        else:
            planned[name] = model
    if problems:
        raise InputError(*problems)
    return found, planned


def read_pair_table(path: Path, default: float | None = None) -> PairTable:
    """Read a CSV of pairs; raises `InputError` with every problem by file and line."""
    return read_pairs(read_text(path), str(path), default)
