"""Replays a trace: every job runs for its duration in the trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from simsched.errors import input_error
from simsched.keys import key
from simsched.model import FIXED_DURATION, JobSpec
from simsched.workload.estimates import with_estimates
from simsched.workload.recipes.as_is import RUNTIME_FROM, settled, specs_of
from simsched.workload.recipes.recipe import SIZE_CLASSES, Ingredients, jobs_key, load_key, size_class_of, trace_of
from simsched.workload.recipes.tiresias_testbed import MODELS, with_models
from simsched.workload.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ReplayRecipe:
    """Run every job of a trace for its duration in the trace.

    The filters apply in this order: jobs submitted from second `from_s` to before `until_s` of the trace (None: to its
    end); those that request at most `max_gpus` GPUs; a random `sample`; the first `jobs`. Submissions then count from
    `from_s`, divided by `load`, and `max_duration_s` cuts longer jobs. `assign` turns jobs into applications by class
    of GPU-time; `models` instead gives each job one of Tiresias's models, which keeps its duration and adds the cost of
    spreading and preemption. `estimates` adds missing time limits, see `simsched.workload.estimates`.
    """

    needs_trace: ClassVar[bool] = True

    jobs: int | None = jobs_key()
    load: float = load_key()
    from_s: int = key(0, "second of the trace at which a replay begins", ge=0)
    until_s: int | None = key(None, "second of the trace at which a replay ends", ge=1)
    max_gpus: int | None = key(None, "leave out jobs of a replay, or tuned requests, that ask for more GPUs", ge=1)
    max_duration_s: int | None = key(None, "cut the durations of a replay at this many seconds", ge=1)
    sample: int | None = key(None, "replay only this many jobs, drawn at random", ge=1)
    assign: bool = key(False, "replay jobs as applications of the same GPU-time class")
    models: Literal["tiresias"] | None = key(
        None, "replay jobs as models of Tiresias's Table 6, with their cost of spreading and preemption"
    )

    estimates: Literal["exact", "uniform", "rounded"] | None = key(
        None, "time limits for jobs of a replay that have none: their duration, or users' estimates"
    )
    estimate_factor: float = key(3.0, "largest excess of an estimate, as a multiple of the duration", ge=0)

    runtime_from: Literal["application", "duration"] | None = key(None, RUNTIME_FROM)

    @property
    def goes_by_row(self) -> bool:
        """Whether each job of the trace is replayed independently of the others."""
        return not self.unread and self.sample is None and self.estimates in (None, "exact")

    @property
    def unread(self) -> Collection[str]:
        """The trace's columns on applications, if the recipe replaces the applications."""
        return ("application", "batch_size") if self.assign or self.models is not None else ()

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs of the trace; raises `InputError` if none is left, and as `settled` does."""
        rng = ingredients.rng("replay")
        jobs = replay_trace(trace_of(ingredients), self, rng, ingredients.initial_batch_sizes)
        if self.estimates is None:
            return jobs
        return with_estimates(jobs, self.estimates, self.estimate_factor, ingredients.rng("estimates"))

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return all candidates of the sample if they are the same for all seeds, else jobs that request the most GPUs.

        With `assign` or `models`, return every application or model on 1 GPU and on the most GPUs.
        """
        if ingredients.trace is not None and not self.assign and self.models is None:
            return replace(self, sample=None, jobs=None).make(ingredients)
        most = min(most_gpus, most_gpus if self.max_gpus is None else self.max_gpus)
        initial = ingredients.initial_batch_sizes
        names = [name for _, _, names in SIZE_CLASSES for name in names if name in initial] if self.assign else []
        kinds = [FIXED_DURATION, *names, *(MODELS if self.models is not None else ())]
        return [
            JobSpec(f"{name}-of-{gpus}-gpus", 0, gpus, name, gpus * initial.get(name, 0), 1)
            for name in kinds
            for gpus in sorted({1, most})
        ]

    def left_out(self, trace: Trace) -> dict[str, int]:
        """Count the jobs of a trace that are not replayed by reason, including those that its reader left out."""
        submit, gpus = trace.table["submit_time_s"], trace.table["num_gpus"]
        early, late = submit < self.from_s, submit >= (np.inf if self.until_s is None else self.until_s)
        large = ~early & ~late & (gpus > (np.inf if self.max_gpus is None else self.max_gpus))
        kept = len(trace) - int((early | late | large).sum())
        sampled = min(kept, kept if self.sample is None else self.sample)
        taken = min(sampled, sampled if self.jobs is None else self.jobs)
        counts = {
            **trace.dropped,
            f"submitted before second {self.from_s}": int(early.sum()),
            f"submitted from second {self.until_s} on": int(late.sum()),
            f"asking for more than {self.max_gpus} GPUs": int(large.sum()),
            f"not in the sample of {self.sample}": kept - sampled,
            f"after the first {self.jobs}": sampled - taken,
        }
        return {reason: count for reason, count in counts.items() if count}


def replay_trace(
    trace: Trace, replay: ReplayRecipe, rng: np.random.Generator, initial_batch_sizes: Mapping[str, int] | None = None
) -> list[JobSpec]:
    """Convert a trace to jobs of fixed duration, in order of submission.

    A job of less than a second takes one. With `assign`, a job becomes an application of its class of GPU-time that
    requests the same GPUs with the initial batch size on each, and its duration is only recorded; jobs of 1000
    GPU-hours and more keep their fixed duration. Raises `InputError` if no job is left, the sample is larger than the
    trace, or as `settled` does.
    """
    table = _selected(trace, replay, rng)
    if not replay.unread:
        table = settled(table, replay.runtime_from)
    table = table.assign(
        submit_time_s=((table["submit_time_s"] - replay.from_s) / replay.load).round().astype("int64"),
        duration_s=table["duration_s"].clip(lower=1, upper=replay.max_duration_s).round().astype("int64"),
    )
    if replay.assign:
        table = _assigned(table, trace.name, rng, initial_batch_sizes or {})
    elif replay.models is not None:
        table = table.assign(application=with_models(len(table), rng))
    return specs_of(table)


def _selected(trace: Trace, replay: ReplayRecipe, rng: np.random.Generator) -> pd.DataFrame:
    table = trace.table
    submit = table["submit_time_s"]
    keep = submit >= replay.from_s
    if replay.until_s is not None:
        keep &= submit < replay.until_s
    if replay.max_gpus is not None:
        keep &= table["num_gpus"] <= replay.max_gpus
    table = table[keep]
    if table.empty:
        last = int(submit.iloc[-1])
        remedy = f"the trace has {len(trace)} jobs from second 0 to {last}"
        raise input_error(trace.name, "no job is left after the filters `from_s`, `until_s` and `max_gpus`", remedy)
    if replay.sample is not None:
        if replay.sample > len(table):
            message = f"a sample of {replay.sample} jobs was requested, but there are {len(table)}"
            raise input_error(trace.name, message, "ask for fewer")
        table = table.iloc[np.sort(rng.choice(len(table), size=replay.sample, replace=False))]
    return table if replay.jobs is None else table.head(replay.jobs)


def _assigned(
    table: pd.DataFrame, name: str, rng: np.random.Generator, initial_batch_sizes: Mapping[str, int]
) -> pd.DataFrame:
    """Assign each job an application of its class of GPU-time, with equal probability."""
    classes = size_class_of(table["duration_s"].to_numpy() * table["num_gpus"].to_numpy())
    applications: Any = np.full(len(table), FIXED_DURATION, dtype=object)
    for size, _, names in SIZE_CLASSES:
        unknown = [application for application in names if application not in initial_batch_sizes]
        if unknown:
            raise input_error(name, f"`assign` needs the application '{unknown[0]}'", "load it, or leave `assign` out")
        mask = classes == size
        applications[mask] = rng.choice(np.array(names, dtype=object), size=int(mask.sum()))
    batch = [initial_batch_sizes.get(application, 0) for application in applications]
    return table.assign(application=applications, batch_size=np.array(batch) * table["num_gpus"].to_numpy())
