"""The environment: decisions of a simulation as steps of Gymnasium."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from simsched.api import Simulation, Terms, drive_task, task_of
from simsched.engine import JobRecorder as JobRecorder, MemoryRecorder
from simsched.errors import input_error, nearest
from simsched.gym.observation import (
    CLUSTER_FEATURES,
    QUEUE_FEATURES,
    REWARDS,
    Moment,
    Observation,
    Observer,
    Reward,
)
from simsched.model import Allocation, Capacity
from simsched.model.placement import NOTHING
from simsched.model.pool import Placer
from simsched.policy import REMAINING_WORK, Decision, JobView, Signal, Triggers, View
from simsched.toolkit import PLACERS, PlacerName, Score, run_in_order

#: Creates the simulation of an episode from the seed of its jobs, under these terms.
Simulations = Callable[[int, Terms], Simulation]
#: The name of a shipped experiment, the path of a YAML file, or the content of such a file.
Experiment = str | Path | Mapping[str, Any]
#: The kind of action: a job of the window, a rule by index, or the weights of a rule.
ActionKind = Literal["job", "rule", "weights"]
#: Rules by name: the features whose weighted sum orders the starts of jobs.
RULES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "oldest": MappingProxyType({"age_s": 1.0}),
        "smallest": MappingProxyType({"gpus": -1.0}),
        "least-attained": MappingProxyType({"attained_gpu_s": -1.0}),
    }
)
_SECONDS_PER_HOUR = 3600.0
_NO_CHANGE = Decision.change({})
#: The GPUs that a job asks for, their placer, and the types on which it runs.
_Kind = tuple[int, Placer, tuple[int, ...]]
_NO_ARGUMENTS = frozenset({"self", "__class__"})
#: All events, including the completion of the last job before an idle period, up to which rewards count.
_TRIGGERS = Triggers(arrival=True, completion=True, node_change=True, quiet=True)


def simulations_of(experiment: Experiment, changes: Mapping[str, Any] | None = None) -> Simulations:
    """Return a factory of simulations of the first cell of an experiment; it caches the jobs of the last 256 seeds."""
    task = lru_cache(maxsize=256)(lambda seed: task_of(experiment, changes, seed))
    return lambda seed, terms: drive_task(task(seed), terms, JobRecorder())


class SchedulingEnv(gymnasium.Env[Observation, Any], EzPickle):
    """A cluster whose waiting jobs the agent starts: at each step one job, or all that fit by a rule.

    An episode is a workload, from its first submission until its last job is complete. A step ends at the next instant
    that offers a choice: the environment skips decisions at which no job waits, or at which no job that it may start
    fits.

    With `action="job"`, action i starts the i-th job of the window, and the last action, `window`, lets time pass. An
    action that cannot be carried out is replaced by letting time pass, and one that would stop time by starting the
    first job that fits; `info["replaced"]` reports this, and `action_masks()` and `info["action_mask"]` report
    beforehand which actions are possible. With `"rule"`, an action is the index of one of `rules`, with `"weights"` a
    weight from -1 to 1 for each of `features`: jobs start in the order of the weighted sum, the largest first, as long
    as they fit. With `preempt` the order includes running jobs, and those that no longer fit stop; without it, they
    keep running.

    A copy, also by pickle, has the same arguments and no episode yet.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (as gymnasium declares it)

    def __init__(
        self,
        simulations: Simulations | Experiment = "learning/episodes",
        changes: Mapping[str, Any] | None = None,
        *,
        action: ActionKind = "job",
        reward: str | Reward = "completion",
        features: Sequence[str] = QUEUE_FEATURES,
        cluster_features: Sequence[str] = tuple(CLUSTER_FEATURES),
        window: int = 16,
        running: int = 0,
        rules: Mapping[str, Mapping[str, float]] = RULES,
        preempt: bool = False,
        placement: PlacerName = "most-free",
        seeds: Sequence[int] = tuple(range(1, 17)),
        horizon_s: float = math.inf,
        render_mode: str | None = None,
    ) -> None:
        """Take the workloads of an experiment with `changes` as `sim.run` does, or a function that creates simulations.

        Each episode draws one of `seeds`, which select workloads, unless `reset(options={"seed": 7})` names one; it is
        truncated at `horizon_s` of simulated time. Observations show `features` of `window` waiting and of `running`
        running jobs, and `cluster_features`; an agent receives only the signals that the former and the `rules` read.
        `placement` chooses the GPUs of a job; if rules preempt, it is `most-free`. Raises `InputError` for invalid
        arguments.
        """
        rules = {name: dict(weights) for name, weights in rules.items()}
        EzPickle.__init__(self, **{name: value for name, value in locals().items() if name not in _NO_ARGUMENTS})
        if action not in get_args(ActionKind):
            raise input_error("action", f"there is no kind '{action}'", nearest(str(action), get_args(ActionKind)))
        if isinstance(reward, str) and reward not in REWARDS:
            raise input_error("reward", f"there is no reward '{reward}'", nearest(reward, REWARDS))
        if placement not in PLACERS:
            raise input_error("placement", f"there is no placer '{placement}'", nearest(placement, PLACERS))
        if preempt and placement != "most-free":
            raise input_error("placement", f"'{placement}' cannot be had where rules preempt", "leave it out")
        if action == "job" and preempt:
            raise input_error("preempt", "a job that is picked stops no other", "let the action be 'rule' or 'weights'")
        if not seeds or not horizon_s > 0 or not rules:
            raise input_error("SchedulingEnv", "seeds, rules or horizon_s are empty", "give at least one, and above 0")
        if isinstance(simulations, str | Path | Mapping):
            self._make = simulations_of(simulations, changes)
        else:
            self._make = simulations
            if changes:
                raise input_error("changes", "there is no experiment to change", "make the simulations accordingly")
        self._kind, self._preempt, self._seeds, self._horizon_s = action, preempt, tuple(seeds), horizon_s
        self._placer, self._window = PLACERS[placement], window
        self._reward = REWARDS[reward] if isinstance(reward, str) else reward
        self._times_needed = reward == "slowdown"
        self._observer = Observer(features, cluster_features, window, running)
        self._rules = [Score(weights) for weights in rules.values()] if action == "rule" else []
        self.signals: frozenset[Signal] = self._observer.features.needs.union(*(rule.needs for rule in self._rules))
        self.render_mode = render_mode
        self.observation_space: spaces.Space[Observation] = self._observer.space
        self.action_space = self._action_space()
        #: What an agent sees, by argument, for `simsched.gym.network_text`.
        self.seen: Mapping[str, Any] = {
            "features": tuple(features), "cluster_features": tuple(cluster_features), "window": window,
            "running": running, "placement": placement,
        }  # fmt: skip
        #: The simulation of the episode, whose tables `sim.results_of` returns once it is complete.
        self.simulation: Simulation | None = None

    def _action_space(self) -> spaces.Space[Any]:
        if self._kind == "weights":
            return spaces.Box(-1.0, 1.0, (len(self._observer.features.names),), np.float32)
        return spaces.Discrete(self._window + 1 if self._kind == "job" else len(self._rules))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, whose workload has the seed `info["seed"]`.

        `options` may hold that seed. Otherwise it is drawn from the environment's `seeds`, by a generator that `seed`
        seeds: equal seeds give equal sequences of workloads.
        """
        super().reset(seed=seed)
        self._seed = (options or {}).get("seed")
        if self._seed is None:
            self._seed = int(self.np_random.choice(self._seeds))
        signals = self.signals | ({REMAINING_WORK} if self._times_needed else set())
        self.simulation = self._make(self._seed, Terms(name="gym", triggers=_TRIGGERS, signals=signals))
        self._gpus = self.simulation.cluster.total_gpus
        self._alone_s: dict[str, float] = {}
        #: The kind of each job by number: a number is faster to look up than the kind itself.
        self._kinds: dict[str, int] = {}
        self._numbers: dict[_Kind, int] = {}
        self._by_number: dict[int, _Kind] = {}
        #: The allocation that a job of each kind would get, None if it does not fit.
        self._found: dict[int, Allocation | None] = {}
        self._over = self._truncated = False
        self._seen = 0
        self._notice(self.simulation.advance())
        if not self._choice():
            self._go_on(_NO_CHANGE)
        return self._shown(), self._told(replaced=False)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out an action; the reward covers the time until the next choice.

        Raises `ResetNeeded` after the end, and `InputError` for an action outside of `action_space`.
        """
        simulation = self.simulation
        if simulation is None or self._over or self._truncated:
            raise gymnasium.error.ResetNeeded("the episode is over, or has not begun: call reset()")
        if not (self._is_weights(action) if self._kind == "weights" else self.action_space.contains(action)):
            raise input_error("action", f"{action!r} is not in {self.action_space}", "give one that is")
        if self._kind != "job":
            reward, replaced = self._go_on(self._ordered(action)), False
        else:
            place = int(action)
            masks = self.action_masks()
            replaced = not masks[place]
            if replaced:
                place = self._window if masks[self._window] else int(np.argmax(masks))
            reward = self._go_on(Decision.change(self._start)) if place == self._window else self._pick(place)
        return self._shown(), reward, self._over, self._truncated, self._told(replaced=replaced)

    def _is_weights(self, action: Any) -> bool:
        """Return whether an action is weights from -1 to 1, of any kind of numbers."""
        numbers = np.asarray(action)
        return (
            numbers.shape == self.action_space.shape and numbers.dtype.kind in "fiu" and bool((abs(numbers) <= 1).all())
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are possible, shape (actions,); for weights all are, shape (features,)."""
        if self._kind != "job":
            size = len(self._rules) or len(self._observer.features.names)
            return np.ones(size, dtype=np.bool_)
        masks = np.zeros(self._window + 1, dtype=np.bool_)
        masks[: len(self._fits)] = self._fits
        masks[self._window] = self._time_passes()
        return masks

    def render(self) -> str | None:
        """Describe the simulation, its view and each job of the window in one line, in the mode `ansi`."""
        if self.render_mode != "ansi" or self.simulation is None:
            return None
        shown = self._waiting[: self._window]
        return "\n".join(map(repr, (self.simulation, self.simulation.view, *shown)))

    def _time_passes(self) -> bool:
        """Return whether events will occur without a start: a job runs, or one has yet to be submitted."""
        assert self.simulation is not None
        running = len(self._view.jobs) > len(self._waiting) or bool(self._start)
        return running or self._seen < len(self.simulation.jobs)

    def _ordered(self, action: Any) -> Decision:
        """Decide by a rule, or by the weights of one."""
        names = self._observer.features.names
        if self._kind == "rule":
            score = self._rules[int(action)]
        else:
            score = Score(dict(zip(names, np.asarray(action, dtype=np.float64).tolist(), strict=True)))
        if self._preempt:
            return Decision(run_in_order(score.rank(self._view.jobs.values()), self._view))
        for job in score.rank(self._waiting):
            if not self._free.total:
                break
            if self._chosen(job) is not None:
                self._let_start(job)
        return Decision.change(self._start)

    def _pick(self, place: int) -> float:
        """Record a start; carry it out once the choice is over, that is, when no other job fits."""
        self._let_start(self._waiting.pop(place))
        self._see_fits()
        return 0.0 if self._choice() else self._go_on(Decision.change(self._start))

    def _let_start(self, job: JobView) -> None:
        """Give a fitting job its GPUs; jobs that did not fit still do not, the others must be checked again."""
        found = self._start[job.id] = self._chosen(job) or NOTHING
        self._free.take(found, job.request.shape)
        self._found = dict.fromkeys([kind for kind, place in self._found.items() if place is None])

    def _go_on(self, decision: Decision) -> float:
        """Carry out a decision and run to the next choice; return the reward for the time in between."""
        simulation, reward = self.simulation, 0.0
        assert simulation is not None
        while True:
            simulation.act(decision)
            view, begin_s = self._view, simulation.view.now_s
            among = view.jobs.values() if self._preempt else self._candidates
            waiting = [job for job in among if not job.running]
            an_hour = self._reward(Moment(view, waiting, len(simulation.jobs), self._gpus, self._alone_s))
            if not math.isfinite(an_hour):
                raise input_error("reward", f"is {an_hour} at t={begin_s:g} s", "let it be a finite number")
            shown = simulation.advance()
            end_s = min(simulation.view.now_s, self._horizon_s)
            reward += an_hour * (end_s - begin_s) / _SECONDS_PER_HOUR
            self._notice(shown, waiting)
            self._truncated = not self._over and simulation.view.now_s >= self._horizon_s
            if self._over or self._truncated or self._choice():
                return reward
            decision = _NO_CHANGE

    def _notice(self, view: View | None, before: Sequence[JobView] = ()) -> None:
        """Read the view of a due decision, None at the end; `before` waited after the last decision."""
        assert self.simulation is not None
        self._over = view is None
        self._view: View = self.simulation.view
        self._waiting: list[JobView] = []
        self._candidates: list[JobView] = []
        self._start: dict[str, Allocation] = {}
        self._fits: list[bool] = []
        if view is None:
            return
        self._seen += len(view.arrived)
        if self._times_needed:
            self._alone_s.update((job.id, job[REMAINING_WORK].seconds) for job in view.arrived)
        #: All jobs that waited in the view, including those started since.
        self._candidates = [*before, *view.arrived]
        if view.lost:
            self._candidates = [job for job in view.jobs.values() if not job.running]
        self._waiting = list(self._candidates)
        if self._waiting:
            self._free = Capacity.of(view)
            self._found = {}
            self._see_fits()

    def _see_fits(self) -> None:
        """Record which jobs of the window fit into the free GPUs."""
        found, kinds, shown = self._found, self._kinds, self._waiting[: self._window]
        for job in shown:
            if kinds.get(job.id) not in found:
                self._chosen(job)
        self._fits = [found[kinds[job.id]] is not None for job in shown]

    def _chosen(self, job: JobView) -> Allocation | None:
        number = self._kinds.get(job.id)
        if number is None:
            kind = job.num_gpus, self._placer.within(job.request.shape), self._free.fitting(job.facts)
            number = self._kinds[job.id] = self._numbers.setdefault(kind, len(self._numbers))
            self._by_number[number] = kind
        if number not in self._found:
            gpus, placer, types = self._by_number[number]
            self._found[number] = self._free.choose(placer, gpus, types)
        return self._found[number]

    def _choice(self) -> bool:
        """Return whether there is something to choose."""
        return any(self._fits) if self._kind == "job" else bool(self._waiting)

    def _shown(self) -> Observation:
        return self._observer.show(self._view, self._waiting, self._fits, self._gpus)

    def _told(self, *, replaced: bool) -> dict[str, Any]:
        """Return further information for an agent."""
        told = {"time_s": float(self._view.now_s), "seed": self._seed, "replaced": replaced}
        told["action_mask"] = self.action_masks()
        recorder = None if self.simulation is None else self.simulation.recorder
        if self._over and isinstance(recorder, JobRecorder | MemoryRecorder):
            told["jct_mean_s"] = sum(job.jct_s for job in recorder.jobs) / len(recorder.jobs)
        return told
