"""A trace as a job list: every job runs for as long as the trace says."""

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
    """Run every job of a trace for as long as the trace says.

    The jobs from second `from_s` to before `until_s` of the trace are kept (None: to its end), of those the ones that
    ask for at most `max_gpus` GPUs, of those a random `sample`, of those the first `jobs`; their submissions then count
    from `from_s`, divided by `load`, and what runs longer than `max_duration_s` ends then. `assign` turns them into
    applications by class of GPU-time; `models` gives each one of the models of Tiresias instead, which keeps its
    duration and adds what spreading and preemption cost. `estimates` gives jobs without a time limit one, see
    `simsched.workload.estimates`.
    """

    needs_trace: ClassVar[bool] = True

    jobs: int | None = jobs_key()
    load: float = load_key()
    from_s: int = key(0, "second of the trace at which a replay begins", ge=0)
    until_s: int | None = key(None, "second of the trace at which a replay ends", ge=1)
    max_gpus: int | None = key(None, "leave out what asks for more GPUs: jobs of a replay, or tuned requests", ge=1)
    max_duration_s: int | None = key(
        None, "cut the durations of a replay to so many seconds, as a bound on their tail", ge=1
    )
    sample: int | None = key(None, "replay only so many jobs, drawn at random", ge=1)
    assign: bool = key(False, "replay as applications of the same GPU-time class")
    models: Literal["tiresias"] | None = key(
        None, "replay as models of Tiresias's Table 6, with what spreading and preemption cost"
    )

    estimates: Literal["exact", "uniform", "rounded"] | None = key(
        None, "time limits for jobs of a replay that have none: their duration, or as users estimate"
    )
    estimate_factor: float = key(3.0, "by how much estimates may exceed the duration, as a multiple of it", ge=0)

    runtime_from: Literal["application", "duration"] | None = key(None, RUNTIME_FROM)

    @property
    def goes_by_row(self) -> bool:
        """Whether each job of the trace is replayed whatever the others are."""
        return not self.unread and self.sample is None and self.estimates in (None, "exact")

    @property
    def unread(self) -> Collection[str]:
        """What the trace says of applications, where the recipe gives each job another."""
        return ("application", "batch_size") if self.assign or self.models is not None else ()

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs of the trace; raises `InputError` where none is left, and as `settled` does."""
        rng = ingredients.rng("replay")
        jobs = replay_trace(trace_of(ingredients), self, rng, ingredients.initial_batch_sizes)
        if self.estimates is None:
            return jobs
        return with_estimates(jobs, self.estimates, self.estimate_factor, ingredients.rng("estimates"))

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return all jobs from which a sample is drawn where seeds have the same, else jobs that ask for the most GPUs.

        With `assign` or `models`, those of every application or model on 1 GPU and on the most.
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
        """Count, by reason, the jobs of a trace that are not replayed, those that its reader left out among them."""
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
    """Turn a trace into jobs of fixed duration, in order of submission.

    A job of less than a second takes one. With `assign` a job becomes an application of its class of GPU-time instead,
    asks for its GPUs and the initial batch size on each, and its duration is only remembered; jobs of 1000 GPU-hours
    and more stay of fixed duration. Raises `InputError` where no job is left, the sample is larger than the trace, or
    as `settled` does.
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
            message = f"a sample of {replay.sample} jobs was asked for, and there are {len(table)}"
            raise input_error(trace.name, message, "ask for fewer")
        table = table.iloc[np.sort(rng.choice(len(table), size=replay.sample, replace=False))]
    return table if replay.jobs is None else table.head(replay.jobs)


def _assigned(
    table: pd.DataFrame, name: str, rng: np.random.Generator, initial_batch_sizes: Mapping[str, int]
) -> pd.DataFrame:
    """Assign each job an application of its class of GPU-time, each of the class being equally likely."""
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
