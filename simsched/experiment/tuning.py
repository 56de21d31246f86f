"""Hyper-parameter tuning as a workload: each trial is a job, and processes submit the next when one ends.

A trial's final accuracy comes from a synthetic response surface. The accuracies of Pollux's trials (OSDI'21, section
5.4, Table 3) are unpublished. This formula has the known traits of ResNet-18 on CIFAR-10: a smooth peak in the
effective learning rate lr / (1 - momentum), weight decay and annealing, a small gain from width, and a spread between
seeds. It ignores GPUs, batch sizes and time: equal hyper-parameters and trial numbers give equal accuracy under any
scheduler. Only the peak's height and the spread are calibrated: with 100 trials of a TPE, four at a time, the best five
should average 95.4 to 95.5 % with a standard deviation of 0.2 to 0.3, as published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from simsched.engine import stream
from simsched.errors import extra, input_error
from simsched.keys import key
from simsched.model import Application, ApplicationSource, JobRequest, JobSpec
from simsched.model.application import ScaledApplication
from simsched.model.job import JobTruth

if TYPE_CHECKING:
    import pandas as pd

    from simsched.engine import JobRecord, Site


#: Network widths, as multiples of ResNet-18's.
WIDTHS = (0.75, 0.875, 1.0, 1.125, 1.25)
#: Ranges of the continuous hyper-parameters; all but momentum are searched on a log scale.
LEARNING_RATE = (0.003, 1.0)
ANNEALING = (0.001, 1.0)
MOMENTUM = (0.5, 0.99)
WEIGHT_DECAY = (1e-5, 1e-2)

PEAK = 94.6  # per cent, at width 1 and everything else at its best
SPREAD = 0.65  # per cent, standard deviation between seeds
_CHANCE = 10.0  # per cent, ten classes


@dataclass(frozen=True)
class Hyperparameters:
    """A trial's hyper-parameters: `annealing` relative to the initial learning rate, `width` to ResNet-18's."""

    learning_rate: float
    annealing: float
    momentum: float
    weight_decay: float
    width: float


def expected_accuracy(chosen: Hyperparameters) -> float:
    """Return the accuracy in per cent, without the spread between runs.

    Losses are quadratic in decades of the effective learning rate (best at 1), weight decay (at 5e-4) and annealing (at
    0.01), and in momentum (at 0.9); doubling the width gains 0.6 less 0.15 for each doubling.
    """
    decades = math.log10(chosen.learning_rate / (1 - chosen.momentum))
    loss = 1.6 * decades**2
    loss += 0.6 * math.log10(chosen.weight_decay / 5e-4) ** 2
    loss += 0.4 * math.log10(chosen.annealing / 0.01) ** 2
    loss += 10.0 * (chosen.momentum - 0.9) ** 2
    doublings = math.log2(chosen.width)
    return max(PEAK - loss + 0.6 * doublings - 0.15 * doublings**2, _CHANCE)


def accuracy(chosen: Hyperparameters, rng: np.random.Generator) -> float:
    """Draw a run's final accuracy in per cent, between chance and 100."""
    drawn = expected_accuracy(chosen) + SPREAD * float(rng.standard_normal())
    return min(max(drawn, _CHANCE), 100.0)


def step_factor(width: float) -> float:
    """Return the step time relative to width 1: arithmetic and gradients both grow with its square."""
    return width**2


_WIDTH = "@"  # separates application and width: `cifar10@1.25`


@dataclass(frozen=True)
class TuningOptions:
    """Hyper-parameter tuning instead of a workload; every trial is a job."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    application: str = key("cifar10", "application that every trial trains, at some width", min_length=1)
    trials: int = key(100, "total number of trials", ge=1, le=100_000)
    at_once: int = key(4, "trials in flight; the next is submitted when one finishes", ge=1)
    gpus: int = key(4, "requested GPUs of a trial", ge=1)
    batch_size: int = key(512, "requested total batch size of a trial; 0 for none", ge=0)
    startup_trials: int = key(20, "trials drawn at random before the estimator chooses", ge=0)


def require_optuna() -> None:
    """Raise `InputError` if optuna is not installed."""
    if find_spec("optuna") is None:
        raise input_error("tuning", "hyper-parameter tuning needs the package 'optuna'", extra("hpo"))


def template_jobs(spec: TuningOptions) -> tuple[JobSpec, ...]:
    """Return one job per trial as known in advance, without hyper-parameters and submitted at second 0."""
    return tuple(
        JobSpec(f"trial-{number:03d}", 0, spec.gpus, application=spec.application, batch_size=spec.batch_size)
        for number in range(spec.trials)
    )


class TrialApplications:
    """A catalogue's applications, also at other widths: `cifar10@1.25`."""

    def __init__(self, inner: ApplicationSource) -> None:
        """Scale the applications of `inner`, which have width 1."""
        self._inner = inner
        self._scaled: dict[str, Application] = {}

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        """Return a job's application; raises `InputError` for an unknown name."""
        name = request.application
        base, sign, width = name.partition(_WIDTH)
        if not sign:
            return self._inner.for_job(request, truth)
        if name not in self._scaled:
            factor = step_factor(float(width))
            self._scaled[name] = ScaledApplication(
                self._inner.for_job(request._replace(application=base), truth), name, factor
            )
        return self._scaled[name]


class Tuner:
    """Chooses trials with a tree-structured Parzen estimator and learns from finished ones.

    Uses optuna's `TPESampler`. The choice depends on the order in which trials finish, hence on the scheduler; a
    trial's accuracy depends only on its hyper-parameters, its number and the seed.
    """

    def __init__(self, spec: TuningOptions, seed: int) -> None:
        """Start without trials; `seed` determines the first ones."""
        self._spec = spec
        self._seed = seed
        self._optuna = _optuna()
        self._templates = template_jobs(spec)
        self._open: dict[str, tuple[Any, Hyperparameters]] = {}
        self._rows: list[dict[str, object]] = []
        self._asked = 0
        with _quiet(self._optuna):
            sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=spec.startup_trials)
            self._study = self._optuna.create_study(direction="maximize", sampler=sampler)

    def first(self) -> tuple[JobSpec, ...]:
        """Return the trials that start at second 0."""
        return tuple(self._next(0) for _ in range(min(self._spec.at_once, self._spec.trials)))

    def processes(self, first: Sequence[JobSpec]) -> list[tuple[Callable[..., Any], Mapping[str, str]]]:
        """Return the processes that let other trials follow the first ones."""
        return [(self._follow, {"trial": job.id}) for job in first]

    def _follow(self, site: Site, trial: str) -> Generator[Any, JobRecord, None]:
        """Submit the next trial whenever one ends, as a process beside the cluster; `trial` is the first."""
        while True:
            self._learn((yield site.finished(trial)))
            if self._asked == self._spec.trials:
                return
            job = self._next(site.now_s)
            trial = site.submit(
                id=job.id, num_gpus=job.num_gpus, application=job.application, batch_size=job.batch_size, user=""
            )

    def _learn(self, record: JobRecord) -> None:
        """Tell the estimator how accurate a finished trial is."""
        trial, chosen = self._open.pop(record.job_id)
        number = int(record.job_id.rpartition("-")[2])
        reached = accuracy(chosen, stream(self._seed, f"accuracy of trial {number}"))
        with _quiet(self._optuna):
            self._study.tell(trial, reached)
        times = {"submit_time_s": record.submit_time_s, "end_time_s": record.end_time_s}
        self._rows.append({"job_id": record.job_id, **times, **asdict(chosen), "accuracy": reached})

    def trials(self) -> pd.DataFrame:
        """Return the finished trials by completion, one row each."""
        import pandas as pd

        return pd.DataFrame(self._rows)

    def _next(self, time_s: float) -> JobSpec:
        trial = self._study.ask()
        chosen = _suggest(trial)
        template = self._templates[self._asked]
        self._asked += 1
        self._open[template.id] = trial, chosen
        application = f"{self._spec.application}{_WIDTH}{chosen.width:g}"
        return JobSpec(template.id, time_s, self._spec.gpus, application, self._spec.batch_size)


def _suggest(trial: Any) -> Hyperparameters:
    return Hyperparameters(
        learning_rate=trial.suggest_float("learning_rate", *LEARNING_RATE, log=True),
        annealing=trial.suggest_float("annealing", *ANNEALING, log=True),
        momentum=trial.suggest_float("momentum", *MOMENTUM),
        weight_decay=trial.suggest_float("weight_decay", *WEIGHT_DECAY, log=True),
        width=trial.suggest_categorical("width", WIDTHS),
    )


def _optuna() -> ModuleType:
    require_optuna()
    import optuna

    module: ModuleType = optuna
    return module


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Silence optuna's report of every trial on stderr."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
