"""Learning the weights of a score by evolution: the cross-entropy method over episodes of the environment.

Source: Rubinstein (1999), as used by Szita and Lőrincz (2006) for linear policies. A generation draws weights from a
normal distribution, plays each on the same workloads, and moves the distribution towards the best of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsched.api import task_of
from simsched.errors import input_error
from simsched.gym.environment import SchedulingEnv
from simsched.threads import one_thread
from simsched.toolkit.features import APPLICATION

#: The default features to weigh; applications are added to them.
WEIGHED = ("gpus", "age_s", "attained_gpu_s", "running")
_ELITE = 0.25
_FIRST_DEVIATION = 0.5
#: Added to the deviations of the best, less in each generation, so that the search does not settle too early.
_EXTRA_DEVIATION = 0.1
_DIGITS = 3

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Evolution:
    """The search: `generations` generations of `population` weights, each on `episodes` of the workloads of `seeds`.

    After each generation the mean of the best weights plays the workloads of the seeds `held_out`.
    """

    generations: int = 12
    population: int = 24
    episodes: int = 6
    seeds: Sequence[int] = tuple(range(101, 125))
    workers: int = 1
    held_out: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Reject numbers with which nothing is learnt."""
        least = {"generations": 1, "population": 4, "episodes": 1, "workers": 1}
        for name, at_least in least.items():
            if getattr(self, name) < at_least:
                raise input_error(name, f"is {getattr(self, name)}", f"give {at_least} at least")
        if len(self.seeds) < self.episodes:
            message = f"are {len(self.seeds)}, fewer than the {self.episodes} episodes of a generation"
            raise input_error("seeds", message, "give more of them, or play fewer")
        if {*self.seeds} & {*self.held_out}:
            raise input_error("held_out", "shares seeds with those of the search", "hold other seeds out")


#: Receives the generation, counted from 1, and geometric means of mean JCTs in hours: of its best weights, and of the
#: mean of its best on the held-out workloads, NaN without these.
Heard = Callable[[int, float, float], None]


def evolve(
    experiment: str,
    changes: Mapping[str, Any] | None = None,
    *,
    features: Sequence[str] = (),
    search: Evolution | None = None,
    seed: int = 1,
    heard: Heard = lambda generation, hours, held_out_hours: None,
) -> dict[str, float]:
    """Learn weights of features from -1 to 1 that finish jobs early, with preemption, on workloads of an experiment.

    The fitness of weights is the logarithm of the mean JCT, so that no workload counts for more because its jobs take
    longer. The default `features` are those of `WEIGHED` and, if there are several, the application of a job. The same
    arguments give the same weights on the same processor, whatever the number of workers. Raises `InputError` as the
    environment does.
    """
    search = Evolution() if search is None else search
    if not features:
        trained = sorted({job.application for job in task_of(experiment, changes, search.seeds[0]).jobs})
        features = (*WEIGHED, *(f"{APPLICATION}{name}" for name in trained if len(trained) > 1))
    rng = np.random.default_rng(seed)
    play = partial(_log_hours, experiment, json.dumps(dict(changes or {}), sort_keys=True), tuple(features))
    centre, deviation = np.zeros(len(features)), np.full(len(features), _FIRST_DEVIATION)
    play(tuple(centre), search.seeds[0])  # reports errors before any process starts
    with ExitStack() as stack:
        each: Callable[..., Any] = map
        if search.workers > 1:
            pool = ProcessPoolExecutor(search.workers, mp_context=get_context("spawn"))
            each = stack.enter_context(pool).map
        for generation in range(1, search.generations + 1):
            drawn = np.clip(centre + deviation * rng.standard_normal((search.population, len(features))), -1.0, 1.0)
            drawn[0] = centre
            seeds = rng.choice(np.array(search.seeds), search.episodes, replace=False).tolist()
            games = [(tuple(weights), one) for weights in drawn.tolist() for one in seeds]
            found = np.array(list(each(play, *zip(*games, strict=True)))).reshape(search.population, -1).mean(axis=1)
            best = drawn[np.argsort(found, kind="stable")[: max(int(_ELITE * search.population), 2)]]
            centre = best.mean(axis=0)
            unseen = [*each(play, [tuple(centre.round(_DIGITS).tolist())] * len(search.held_out), search.held_out)]
            heard(generation, math.exp(float(found.min())), math.exp(np.mean(unseen)) if unseen else math.nan)
            deviation = best.std(axis=0) + _EXTRA_DEVIATION * (1 - generation / search.generations)
    return dict(zip(features, (round(weight, _DIGITS) for weight in centre.tolist()), strict=True))


@lru_cache(maxsize=4)
def _environment(experiment: str, changes: str, features: tuple[str, ...]) -> SchedulingEnv:
    """Return an environment, one per process for all episodes, since it caches the workloads."""
    return SchedulingEnv(experiment, json.loads(changes), action="weights", preempt=True, features=features, window=1)


def _log_hours(
    experiment: str, changes: str, features: tuple[str, ...], weights: tuple[float, ...], seed: int
) -> float:
    """Play one workload with constant weights; return the logarithm of the mean JCT in hours."""
    environment = _environment(experiment, changes, features)
    with one_thread():
        environment.reset(options={"seed": seed})
        total, over = 0.0, False
        while not over:
            _, reward, over, _, _ = environment.step(np.array(weights))
            total += reward
    return math.log(-total)


_POLICY = '''\
"""{name}: the jobs with the largest weighted sums of features first.

`simsched learn {experiment}` found the weights on the workloads of the seeds {first} to {last}:
{generations} generations of {population} weights, {episodes} workloads each.
"""

from typing import ClassVar

import numpy as np

from simsched.policy import EARLIER_RUNS, Decision, Policy, Traits, View
from simsched.toolkit import Score, run_in_order

#: Each feature counts from 0 to 1 (`simsched.toolkit.FEATURES`).
WEIGHTS = {{
{weights}
}}
SCORE = Score(WEIGHTS)


class {kind}(Policy):
    """Runs the jobs with the largest scores that fit, and stops others for them."""

    name: ClassVar[str] = "{name}"
    traits: ClassVar[Traits] = Traits(needs={{EARLIER_RUNS, *SCORE.needs}}, forgets=True)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Order all jobs, and run those that fit."""
        return Decision(run_in_order(SCORE.rank(view.jobs.values()), view))
'''


def policy_text(name: str, weights: Mapping[str, float], experiment: str, search: Evolution) -> str:
    """Return a policy file, with a class named after `name`, that orders jobs by learnt weights."""
    kind = "".join(part.capitalize() for part in name.replace("_", "-").split("-"))
    lines = "\n".join(f'    "{feature}": {weight:g},' for feature, weight in weights.items())
    return _POLICY.format(
        name=name,
        kind=kind,
        weights=lines,
        experiment=experiment,
        first=min(search.seeds),
        last=max(search.seeds),
        generations=search.generations,
        population=search.population,
        episodes=search.episodes,
    )
