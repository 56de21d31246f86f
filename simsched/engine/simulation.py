"""Runs a workload on a cluster under a policy.

Processes and callbacks trigger events, the ledger changes the state, the policy decides. `Phase` orders one instant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from simsched.agent import AgentFactory, LeasingAgent, NoBatchAgent, configured_agent
from simsched.engine.admission import check_jobs
from simsched.engine.clock import Clock, Phase
from simsched.engine.errors import EngineError, InfeasibleDecisionError
from simsched.engine.failures import Failures, Nodes
from simsched.engine.fork import copy_of
from simsched.engine.invariants import CheckingRecorder, check_state, wanted
from simsched.engine.ledger import Ledger
from simsched.engine.lifecycles import Contention, Leases, TimeLimits, Watches
from simsched.engine.live_view import Delta, KeptReasons, LiveView, ReadOnly
from simsched.engine.options import EngineOptions, FailureOptions, Process, ProgressCallback, Terms, stream
from simsched.engine.processes import PATIENCE_S, Processes
from simsched.engine.providers import Granted, views_at_submission
from simsched.engine.records import (
    NO_MOVES,
    NONE_STRANDED,
    JobRecord,
    MemoryRecorder,
    Recorder,
    StrandedGpus,
    decision_record,
)
from simsched.engine.sharing import Neighbourhood, TruePairs
from simsched.engine.stalls import StallDetector
from simsched.engine.state import ClusterState, JobState, Leasing
from simsched.engine.validate import NO_CHANGES, Enactment
from simsched.errors import input_error
from simsched.model import ApplicationSource, Cluster, JobSpec
from simsched.model.application import facts_of
from simsched.model.colocation import Colocation, ConstantSharing
from simsched.model.tabulated import FixedDuration
from simsched.policy import Decision, JobView, Policy, View, no_decision
from simsched.policy.signals import SERVICE_HISTORY
from simsched.threads import one_thread, spared_by_the_collector

_PROGRESS_EVERY = 50  # decisions
_ARRIVAL = Phase.ARRIVAL  # looked up for every job

#: The stages of a simulation, as `repr` names them.
_NEW, _RUNNING, _DUE, _OVER, _FAILED = "not begun", "under way", "a decision is due", "complete", "failed"

#: The usual decision of policies that decide at every event.
_NO_CHANGE = Decision.change({}, [])


def simulate(
    cluster: Cluster,
    jobs: Sequence[JobSpec],
    applications: ApplicationSource,
    policy: Policy,
    options: EngineOptions,
    seed: int,
    recorder: Recorder,
    **settings: Any,
) -> Mapping[str, str]:
    """Run `jobs` to completion: a `Simulation` in which `policy` makes every decision.

    Returns the agent classes by application. `settings` are the further arguments of `Simulation`.
    """
    simulation = Simulation(cluster, jobs, applications, options, seed, policy, recorder=recorder, **settings)
    with one_thread():
        if simulation.agents is not policy:
            policy.begin(cluster)
        simulation.run(policy)
    return simulation.agent_classes


class Simulation:
    """A simulation that stops at every decision, for its caller to drive.

    `advance` runs to the next instant at which a decision is due and returns the view; `act` carries a decision out:

        while (view := simulation.advance()) is not None:
            simulation.act(policy.decide(view, simulation.rng))

    `run` is this loop. `fork` returns an independent copy.
    """

    _stage = _NEW
    _listed = _submitted = _finished = _decisions = 0
    _processes: Processes | None = None

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[JobSpec],
        applications: ApplicationSource,
        options: EngineOptions,
        seed: int,
        policy: Policy | Terms | None = None,
        *,
        recorder: Recorder | None = None,
        progress: ProgressCallback | None = None,
        agents: AgentFactory | None = None,
        colocation: Colocation | None = None,
        check_invariants: bool | None = None,
        processes: Sequence[Process] = (),
        failures: FailureOptions | None = None,
        lean: bool = True,
    ) -> None:
        """Prepare to run `jobs` (sorted by submit time; ties keep their order) to completion.

        `policy` sets the terms of decisions and creates the agents unless `agents` does; with mere `Terms` each job has
        the agent its user configured. `recorder` defaults to memory; `progress` is called occasionally with the second
        and the number of finished jobs. `colocation` gives the speeds of jobs that share a GPU (None: 1/k each among k
        jobs), `failures` how nodes and jobs fail (None: never), `processes` users' SimPy processes. Numbered invariants
        are checked if `check_invariants` or, at None, the environment says so. `lean` lets jobs with only GPUs and
        seconds start as soon as they are placed; results do not depend on it. The same arguments and decisions give the
        same records. Raises `InputError` for a workload that cannot run.
        """
        policy = Terms() if policy is None else policy
        self.terms = terms = policy if isinstance(policy, Terms) else Terms.of(policy)
        check_jobs(jobs, cluster, applications, rigid=terms.rigid, tick_s=options.tick_s)
        self.cluster, self.jobs, self.options, self._applications = cluster, jobs, options, applications
        self._seed, self._triggers, self._expected, self._last = seed, terms.triggers, len(jobs), len(jobs)
        #: Creates the agents: the policy unless `agents` are given; None if users configure them.
        self.agents: AgentFactory | None = agents or (None if isinstance(policy, Terms) else policy)
        #: The agent class by application.
        self.agent_classes: dict[str, str] = {}
        #: The random stream of decisions.
        self.rng = stream(seed, "policy")
        failures = failures or (FailureOptions() if processes else None)
        self._progress = progress
        self.recorder = MemoryRecorder() if recorder is None else recorder
        self._lean, self._checking = lean, wanted(check_invariants)
        checking = CheckingRecorder(self.recorder, options.tick_s, progress_falls=failures is not None)
        self._recorder = checking if self._checking else self.recorder
        self._views, self._history_gpu_s = dict[str, JobView](), list[float]()
        self._delta = Delta()
        self._clock = clock = Clock(options.tick_s, self._decide)
        self._interval = None if terms.triggers.interval_s is None else clock.ticks(terms.triggers.interval_s)
        spares = 0 if failures is None else failures.hot_spares
        first = len(cluster.nodes) - spares if spares else options.initial_nodes
        self._cluster = state = ClusterState(cluster, first, options.max_jobs_per_gpu)
        self._ledger = ledger = Ledger(clock, state, self._recorder, options.restart_delay_s, self._on_complete)
        self._active = ledger.active
        self._leases = Leases(ledger, self._on_leases_over)
        model = self._add_lifecycles(colocation)
        known = (ReadOnly(self._history_gpu_s), TruePairs(model, self._active), self._next_arrival_s, self._coming_jobs)
        self._granted = granted = Granted(terms.signals, cluster, *known, failures or FailureOptions(), clock, seed)
        self._reasons = KeptReasons(state) if options.reasons else None
        #: The caller's view: queue and cluster as they are now, and what changed since the last decision.
        self.view = LiveView(clock, state, self._views, granted.view, options)
        self.view.reasons = None if self._reasons is None else self._reasons.said
        self._stranded = StrandedGpus(cluster, rigid=terms.rigid) if options.fragmentation else None
        self._nodes = Nodes(ledger, clock.ticks(options.node_start_s), self._on_join)
        self._enactment = Enactment(terms, ledger, self._nodes, Watches(ledger, self._on_threshold))
        self._stalls = StallDetector(terms.name, ledger, options.idle_rounds, terms.longest_pause_s)
        self._failures = None if failures is None else self._failing(failures)
        for process in processes:
            self.process(*process) if isinstance(process, tuple) else self.process(process)

    def _add_lifecycles(self, colocation: Colocation | None) -> Colocation | None:
        """Let the ledger notify what options ask for; return the model of jobs that share a GPU, None if none may."""
        ledger, options, model = self._ledger, self.options, None
        if self._cluster.occupancy is not None:
            model = colocation or ConstantSharing()
            shares = options.gpu_shares
            ledger.neighbourhood = Neighbourhood(model, self._cluster.occupancy, self._active, shares=shares)
        if options.contention:
            contention = Contention(ledger)
            ledger.share_uplinks = contention.settle
            ledger.tell(contention)
        if options.kill_at_time_limit:
            ledger.tell(TimeLimits(ledger))
        return model

    @cached_property
    def _undisturbed(self) -> bool:
        """Whether only the policy's decisions affect a job with only GPUs and seconds."""
        options, slowed = self.options, self._ledger.neighbourhood is not None or self._granted.speeds
        return self._lean and not (slowed or self._failures or options.interference or options.contention)

    @cached_property
    def _known_ids(self) -> set[str]:
        """The ids of all jobs that are listed or were submitted by processes."""
        return {spec.id for spec in self.jobs}

    def _failing(self, options: FailureOptions) -> Failures:
        """Return the failures of nodes and jobs, which the ledger tells of what jobs do."""
        failures = Failures(options, self._seed, self._ledger, self._nodes, self._on_failure, self._on_repair)
        self._ledger.tell(failures)
        return failures

    def process(self, function: Callable[..., Any], params: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Run a SimPy process beside the cluster: `function(site, **params)`, see `Site`; they begin in this order.

        Raises `EngineError` if the simulation has begun without processes and failures, so that its jobs keep nothing
        to fall back to.
        """
        if self._processes is None:
            if self._failures is None and self._stage != _NEW:
                raise EngineError("a simulation without processes has begun; add the first one before advance()")
            self._failures = self._failures or self._failing(FailureOptions())
            self._stalls.pause_s = max(self._stalls.pause_s, PATIENCE_S)
            heard = (self._expect, self._on_failure)
            self._processes = Processes(self._seed, self._ledger, self._nodes, self._failures, *heard, self._known_ids)
            self._ledger.tell(self._processes)
        self._processes.add(function, params)

    def __repr__(self) -> str:
        jobs = f"{len(self._active)} of {self._expected} jobs active, {self._finished} finished"
        return f"<simulation at {self._clock.now_s} s: {jobs}, {self._stage}>"

    def advance(self) -> View | None:
        """Run to the next instant at which a decision is due and return the view, None once all jobs are complete.

        Raises `StuckError` if jobs are never placed, `StalledError` if events occur forever without progress, and
        `EngineError` if a decision is already due or the run has failed.
        """
        if self._stage != _RUNNING:
            if self._stage == _OVER:
                return None
            self._begin()
        self._stage = _FAILED  # until it succeeds
        if not self._clock.advance():
            raise self._stalls.stuck()
        if self._stage == _DUE:
            self._delta.tell(self.view)
            return self.view
        self._stage, self.view.now_s = _OVER, self._clock.now_s
        self._nodes.close()
        if self._progress:
            self._progress(self._clock.now_s, self._finished)
        return None

    def act(self, decision: Decision) -> None:
        """Carry out a due decision; a rejected one changes nothing and can be replaced.

        Raises `InfeasibleDecisionError` for an infeasible decision and `EngineError` if none is due.
        """
        if self._stage != _DUE:
            raise self._misused("no decision is due", "call advance() first")
        if type(decision) is not Decision and not isinstance(decision, Decision):
            raise InfeasibleDecisionError(self.terms.name, self._clock.now_s, [no_decision(decision)])
        changes = NO_CHANGES if decision == _NO_CHANGE else self._enactment.check(decision)
        self._stage = _FAILED  # until it succeeds
        self._clock.stopped = False
        moves = NO_MOVES if changes is NO_CHANGES else self._enactment.carry_out(changes, decision)
        cluster, stranded, fits = self._cluster, NONE_STRANDED, 0
        if self._stranded is not None:
            stranded = self._stranded.stranded(cluster.free, self._active)
            fits = self._stranded.fits_in_domain(cluster.free)
        now_s, active = self._clock.now * self._clock.unit_s, self._submitted - self._finished
        self._recorder.decision(decision_record(now_s, active, cluster, moves, decision.diagnostics, stranded, fits))
        if self._reasons is not None:
            for row in self._reasons.rows(now_s, self._active):
                self._recorder.reason(row)
        if decision.renew_leases or self._leases.paused:
            self._leases.renew(self._active.values() if decision.renew_leases else ())
        if self.options.interference:
            self._ledger.interfere(self._active.values(), self.options.interference)
        if self._interval is not None:
            self._clock.ask_at((self._clock.now // self._interval + 1) * self._interval)
        if decision.wake_at_s is not None:
            self._clock.ask_at(self._clock.wake(decision.wake_at_s))
        if decision.nodes is not None:
            self.view.show_nodes()
        self._decisions += 1
        if self._checking:
            check_state(self._cluster, self._active, self._submitted, self._finished, self.options.tick_s)
        if self._cluster.allocated_gpus or self._cluster.starting or self._submitted < self._expected:
            self._stalls.idle_rounds = 0
        elif not self._cluster.broken:  # another repair may help
            self._stalls.idle()
        if self._decisions % _PROGRESS_EVERY == 0:
            self._stalls.look(self._submitted, self._finished)
            if self._progress:
                self._progress(self._clock.now_s, self._finished)
        self._stage = _RUNNING

    def run(self, policy: Policy) -> None:
        """Let a policy make all remaining decisions."""
        with one_thread(), spared_by_the_collector():
            view = self.view if self._stage == _DUE else self.advance()
            while view is not None:
                self.act(policy.decide(view, self.rng))
                view = self.advance()

    @property
    def complete(self) -> bool:
        """Whether all jobs are complete and `advance` has returned None."""
        return self._stage == _OVER

    def fork(self) -> Simulation:
        """Return an independent copy; under the same decisions, both evolve alike.

        Copies agents, records, random streams, and a policy that creates the agents (as `agents`), but shares
        applications, jobs, cluster, classes and functions. Raises `EngineError` for what cannot be copied, by name.
        """
        applications = [self._applications, *(job.app for job in self._active.values())]
        return copy_of(self, [self.jobs, *applications])

    def _misused(self, problem: str, remedy: str) -> EngineError:
        if self._stage == _FAILED:
            problem, remedy = "the run has failed", "make another simulation"
        elif self._stage == _OVER:
            problem, remedy = "all jobs are complete", "advance() has returned None"
        return EngineError(f"'{self.terms.name}' at t={self._clock.now_s} s: {problem}; {remedy}")

    def _begin(self) -> None:
        if self._stage != _NEW:
            raise self._misused("a decision is due", "answer it with act() before you advance()")
        if self.agents is not None:
            self.agents.begin(self.cluster)
        if self._failures is not None:
            self._failures.begin()
        self._coming = self.jobs[0]
        self._clock.at(self._clock.ticks(self._coming.submit_time_s), Phase.ARRIVAL, self._arrive)

    def _arrive(self, due: object) -> None:
        clock, specs = self._clock, self.jobs
        while True:
            self._listed += 1
            self._submit(self._coming)
            if self._listed == self._last:
                return
            self._coming = specs[self._listed]
            arrival = clock.ticks(self._coming.submit_time_s)
            if arrival > clock.now:
                break
        clock.at(arrival, _ARRIVAL, self._arrive)

    def _next_arrival_s(self) -> float:
        """Return the next arrival in seconds, infinity if none."""
        if self._listed == self._last:
            return math.inf
        return self._clock.seconds(self._clock.ticks(self._coming.submit_time_s))

    def _coming_jobs(self) -> list[JobView]:
        coming = self.jobs[self._listed :]
        return views_at_submission(coming, self._cluster.cluster, self._applications, self.terms.signals)

    def _submit(self, spec: JobSpec, due: object = None) -> None:
        request, truth = spec.request, spec.truth
        app = self._applications.for_job(request, truth)
        facts = facts_of(app, request.shape)
        job = JobState(request, truth, app, facts, self._clock, self._cluster.cluster, self._clock.now)
        agent = configured_agent(request, facts) if self.agents is None else self.agents.agent(request, facts)
        job.agent = agent
        if app.name not in self.agent_classes:
            self.agent_classes[app.name] = type(agent).__name__
        if self._undisturbed and type(app) is FixedDuration and type(agent) is NoBatchAgent:
            job.plain, job.epoch_end = True, app.epoch_end(0)
        else:
            self._prepare(job, spec)
        job.view = self._views[spec.id] = JobView(request, job, self._granted.job)
        self._active[spec.id] = job
        self._submitted += 1
        self._delta.arrived.append(job)
        if self._triggers.arrival:
            self._clock.ask()
        if self._interval is not None:  # the next multiple of it, including this second but not 0
            self._clock.ask_at(max(-(-self._clock.now // self._interval), 1) * self._interval)

    def _prepare(self, job: JobState, spec: JobSpec) -> None:
        """Set up a job's leases, measurements and checkpoints."""
        if isinstance(job.agent, LeasingAgent):
            job.leasing = Leasing(job.agent)
            self._ledger.tell(self._leases, first=True)
        self._granted.prepare(job)
        if self._failures is not None:
            job.recovery = self._failures.recovery_of(spec, job.app)

    def _asks(self) -> bool:
        """Return whether to ask the policy now: jobs are active, or it also decides before future arrivals."""
        return bool(self._active) or (self._triggers.quiet and self._submitted < self._expected)

    def _on_threshold(self, job: JobState) -> None:
        self._delta.reach(job)
        self._clock.ask()

    def _on_failure(self, hit: Sequence[JobState], *, of_node: bool = True) -> None:
        self._delta.lose(hit)
        if self._active and (self._triggers.node_change or (self._triggers.completion and not of_node)):
            self._clock.ask()

    def _on_repair(self) -> None:
        """Notify the policy; a policy that stays idle after repeated repairs is stuck."""
        if self._triggers.node_change and self._active:
            self._clock.ask()
        if self._active and not self._cluster.allocated_gpus and self._submitted == self._expected:
            self._stalls.idle()

    def _on_leases_over(self) -> None:
        if self._triggers.leases_over and self._asks():
            self._clock.ask()

    def _on_complete(self, job: JobState, record: JobRecord) -> None:
        job_id = job.request.id
        del self._active[job_id], self._views[job_id]
        self._delta.finished.append(job_id)
        self._finished += 1
        if SERVICE_HISTORY in self._granted.view:  # a list that grows with the trace
            self._history_gpu_s.append(record.attained_gpu_s)
        del job.view  # breaks a reference cycle with the job
        if self._processes is not None:
            self._delta.withdraw(job)
            self._processes.ended(job, record)
            if self._finished == self._expected:  # a process may submit the next job at this instant
                self._clock.at(self._clock.now, Phase.RESUME, self._stop)
        if self._finished == self._expected and self._processes is None:
            self._clock.stopped = True
        elif self._triggers.completion:
            self._clock.ask()

    def _stop(self, due: object) -> None:
        """Stop the clock if all jobs are complete."""
        if self._finished == self._expected:
            self._clock.stopped = True

    def _expect(self, spec: JobSpec) -> None:
        """Let a job arrive now; raises `InputError` for one that cannot run."""
        check_jobs(
            [spec], self._cluster.cluster, self._applications, rigid=self.terms.rigid, tick_s=self.options.tick_s
        )
        if spec.id in self._known_ids:
            raise input_error(f"workload, job '{spec.id}'", "its id is used twice", "give each job an id of its own")
        self._expected += 1
        self._known_ids.add(spec.id)
        self._clock.at(self._clock.now, Phase.ARRIVAL, partial(self._submit, spec))

    def _decide(self, due: object) -> None:
        if self._ledger.stale:
            self._ledger.retune_stale()
        if self._active or self._asks():
            self._stage = _DUE
            self._clock.stopped = True

    def _on_join(self) -> None:
        if self._triggers.node_change:
            self._clock.ask()
