"""Runs a workload on a cluster under a policy.

Processes and appointments say when something is due; the ledger changes the state; the policy decides. See `Phase` for
the order within one instant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import cast

import simpy

from simsched.agent import AgentFactory, LeasingAgent
from simsched.engine.admission import check_jobs, check_replies
from simsched.engine.clock import Clock, Phase
from simsched.engine.decision_record import NO_MOVES, Moves, decision_record
from simsched.engine.errors import EngineError, InfeasibleDecisionError
from simsched.engine.failure_options import FailureOptions
from simsched.engine.failures import Failures
from simsched.engine.fragmentation import NONE_STRANDED, Fragmentation
from simsched.engine.garbage import spared_by_the_collector
from simsched.engine.invariants import CheckingRecorder, check_state, wanted_by_environment
from simsched.engine.job_record import CANCELLED
from simsched.engine.ledger import Ledger
from simsched.engine.live_view import LiveView, ReadOnly
from simsched.engine.news import News
from simsched.engine.options import EngineOptions
from simsched.engine.outage_log import OutageLog
from simsched.engine.patience import Patience
from simsched.engine.progress_watch import ProgressWatch
from simsched.engine.providers import Granted, views_at_submission
from simsched.engine.records import JobRecord, Recorder
from simsched.engine.sharing import Neighbourhood, TruePairs
from simsched.engine.state import ClusterState, JobState
from simsched.engine.streams import stream
from simsched.engine.validate import changes_of, check_changes, check_names, check_nodes_to_leave
from simsched.model import Allocation, ApplicationSource, Cluster, JobSpec, facts_of
from simsched.model.colocation import Colocation, ConstantSharing, GuaranteedFirst
from simsched.policy import Decision, JobView, Policy, no_decision
from simsched.threads import one_thread

#: Called now and then with the simulated second and the number of finished jobs.
ProgressCallback = Callable[[float, int], None]

#: Says which jobs follow a finished one; they arrive at the second of its end or later.
OnFinish = Callable[[JobRecord], Sequence[JobSpec]]

_PROGRESS_EVERY = 50  # decisions

#: What many decisions of policies that decide at every event are.
_NO_CHANGE = Decision.change({}, [])


def simulate(
    cluster: Cluster,
    jobs: Sequence[JobSpec],
    applications: ApplicationSource,
    policy: Policy,
    options: EngineOptions,
    seed: int,
    recorder: Recorder,
    progress: ProgressCallback | None = None,
    *,
    agents: AgentFactory | None = None,
    colocation: Colocation | None = None,
    check_invariants: bool | None = None,
    on_finish: OnFinish | None = None,
    failures: FailureOptions | None = None,
) -> Mapping[str, str]:
    """Run `jobs` (sorted by submit time; equal times keep their order) until all are complete.

    Every record goes to `recorder` in the order in which things happen. The same arguments give the same records.
    `agents` makes the agents instead of the policy; `colocation` says how fast jobs are that share a GPU (None: at 1/k
    among k jobs), where the options let them, and a policy that is `guaranteed_first` how they divide that. Returns the
    class of the agents by application.
    `on_finish` is asked at every completion for the jobs submitted in reply to it, at that second or later; the run
    ends when these are complete too. `check_invariants` has the numbered invariants checked as the run goes (None: if
    the environment says so). `failures` says how nodes and jobs fail (None: they do not).

    Raises `InputError` for a workload that cannot run, `InfeasibleDecisionError` for a decision that cannot be carried
    out, `StuckError` where jobs are left that the policy never places, and `StalledError` where things happen for ever
    but no job comes nearer to its end.
    """
    check_jobs(jobs, cluster, applications, rigid=policy.rigid)
    checking = wanted_by_environment() if check_invariants is None else check_invariants
    if checking:
        recorder = CheckingRecorder(recorder, options.tick_s, progress_falls=failures is not None)
    run = _Simulation(
        cluster,
        jobs,
        applications,
        policy,
        options,
        seed,
        recorder,
        progress,
        agents=agents,
        colocation=colocation,
        checking=checking,
        on_finish=on_finish,
        failures=failures,
    )
    with one_thread(), spared_by_the_collector():
        run.run()
    return run.agent_classes


class _Simulation:
    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[JobSpec],
        applications: ApplicationSource,
        policy: Policy,
        options: EngineOptions,
        seed: int,
        recorder: Recorder,
        progress: ProgressCallback | None,
        *,
        agents: AgentFactory | None,
        colocation: Colocation | None,
        checking: bool,
        on_finish: OnFinish | None,
        failures: FailureOptions | None,
    ) -> None:
        self._specs = jobs
        self._applications = applications
        self._policy = policy
        self._triggers = policy.triggers
        self._options = options
        self._recorder = recorder
        self._progress = progress
        self._checking = checking
        self._on_finish = on_finish
        self._known_ids = {spec.id for spec in jobs} if on_finish is not None else set()
        self._expected = len(jobs)
        self._listed = self._submitted = self._finished = self._decisions = 0
        self._rng = stream(seed, "policy")
        self._clock = Clock(options.tick_s)
        self._cluster = ClusterState(cluster, options.initial_nodes, options.max_jobs_per_gpu)
        self._active: dict[str, JobState] = {}
        self._views: dict[str, JobView] = {}
        self._history_gpu_s: list[float] = []
        pause_s = getattr(policy, "longest_pause_s", 0.0)  # a policy need not be a subclass of Policy
        self._patience = Patience(policy.name, self._clock, options.idle_rounds, pause_s)
        self._watch = ProgressWatch(policy.name, self._clock, self._cluster, self._active)
        self._due: set[float] = set()
        self._interval = None if self._triggers.interval_s is None else self._clock.ticks(self._triggers.interval_s)
        self._news = News()
        self._agents = agents or policy
        #: The class of the agents by application.
        self.agent_classes: dict[str, str] = {}
        model = (colocation or ConstantSharing()) if options.max_jobs_per_gpu > 1 else None
        if model is not None and getattr(policy, "guaranteed_first", False):
            model = GuaranteedFirst(model)
        self._ledger = self._made_ledger(recorder, model)
        pairs = TruePairs(model, self._active)
        self._granted = Granted(
            policy.signals,
            cluster,
            ReadOnly(self._history_gpu_s),
            pairs,
            self._next_arrival_s,
            self._coming_jobs,
            seed,
        )
        shown = (self._clock, self._cluster, self._views, self._granted.view)
        self._view = LiveView(*shown, options.restart_delay_s, options.max_jobs_per_gpu)
        self._fragmentation = Fragmentation(cluster, rigid=policy.rigid) if options.fragmentation else None
        self._log = OutageLog(self._clock, recorder, [node for node, up in enumerate(self._cluster.up) if not up])
        state = (self._clock, self._cluster, self._ledger, self._active, self._log)
        happens = (self._on_failure, self._on_repair)
        self._failures = None if failures is None else Failures(failures, seed, *state, *happens)

    def _made_ledger(self, recorder: Recorder, colocation: Colocation | None) -> Ledger:
        """Make the ledger, with a model of colocation where GPUs are shared."""
        heard = (self._on_complete, self._on_threshold, self._on_leases_over, self._on_failed_attempt)
        ledger = Ledger(self._clock, self._cluster, recorder, self._options.restart_delay_s, *heard)
        ledger.kill_at_time_limit = self._options.kill_at_time_limit
        occupancy = self._cluster.occupancy
        if occupancy is not None and colocation is not None:
            shares = self._options.gpu_shares
            ledger.neighbourhood = Neighbourhood(colocation, occupancy, self._active, shares=shares)
        return ledger

    def run(self) -> None:
        """Let the clock run until every job is complete."""
        self._policy.begin(self._cluster.cluster)
        if self._agents is not self._policy:
            self._agents.begin(self._cluster.cluster)
        self._clock.env.process(self._arrivals())
        if self._failures is not None:
            self._failures.begin()
        if not self._clock.run():
            raise self._patience.stuck(self._active)
        self._log.close()
        if self._progress:
            self._progress(self._clock.now_s, self._finished)

    def _arrivals(self) -> Generator[simpy.Event, None, None]:
        clock = self._clock
        for spec in self._specs:
            time = clock.ticks(spec.submit_time_s)
            if time > clock.now or not self._submitted:
                yield clock.until(time, Phase.ARRIVAL)
            self._listed += 1
            self._submit(spec)

    def _next_arrival_s(self) -> float:
        """Return when the next job of the list arrives; infinity where none does."""
        if self._listed == len(self._specs):
            return math.inf
        return self._clock.seconds(self._clock.ticks(self._specs[self._listed].submit_time_s))

    def _coming_jobs(self) -> list[JobView]:
        """Show the jobs of the list that have not arrived yet."""
        coming = self._specs[self._listed :]
        return views_at_submission(coming, self._cluster.cluster, self._applications, self._policy.signals)

    def _submit(self, spec: JobSpec) -> None:
        request, truth = spec.request, spec.truth
        app = self._applications.for_job(request, truth)
        facts = facts_of(app)
        job = JobState(request, truth, app, facts, self._clock, self._cluster.cluster)
        job.agent = self._agents.agent(request, facts)
        if hasattr(job.agent, "lease"):
            job.leases = cast("LeasingAgent", job.agent)
        self.agent_classes.setdefault(app.name, type(job.agent).__name__)
        self._granted.prepare(job)
        if self._failures is not None:
            job.recovery = self._failures.recovery_of(spec)
        job.view = JobView(request, job, self._granted.job)
        self._active[spec.id] = job
        self._views[spec.id] = job.view
        self._submitted += 1
        self._news.arrive(job)
        if self._triggers.arrival:
            self._request(self._clock.now)
        self._request_round()

    def _request_round(self) -> None:
        """Ask for a decision at the next multiple of the interval (this very second included, 0 excluded)."""
        interval = self._interval
        if interval is not None:
            self._request(max(-(-self._clock.now // interval), 1) * interval)

    def _request(self, time: float) -> None:
        if time not in self._due:
            self._due.add(time)
            self._clock.at(time, Phase.DECISION, self._decide)

    def _asks(self) -> bool:
        """Return whether the policy is asked now: jobs are active, or are to come and it wants to be asked then too."""
        return bool(self._active) or (self._triggers.quiet and self._submitted < self._expected)

    def _on_threshold(self, job: JobState) -> None:
        self._news.reach(job)
        self._request(self._clock.now)

    def _on_failed_attempt(self, job: JobState) -> None:
        self._news.lose([job])
        if self._triggers.completion or self._triggers.node_change:
            self._request(self._clock.now)

    def _on_failure(self, hit: Sequence[JobState]) -> None:
        self._news.lose(hit)
        if self._triggers.node_change and self._active:
            self._request(self._clock.now)

    def _on_repair(self) -> None:
        """Have the policy told; a policy that leaves everything idle at repair after repair is stuck."""
        if self._triggers.node_change and self._active:
            self._request(self._clock.now)
        if self._active and not self._cluster.allocated_gpus and self._submitted == self._expected:
            self._patience.idle(self._active)

    def _on_leases_over(self) -> None:
        if self._triggers.leases_over and self._asks():
            self._request(self._clock.now)

    def _on_complete(self, job: JobState, record: JobRecord) -> None:
        job_id = job.request.id
        del self._active[job_id], self._views[job_id]
        self._news.go(job_id)
        self._finished += 1
        self._history_gpu_s.append(record.attained_gpu_s)
        del job.view  # which knows the job: two objects that would wait for the collector
        if self._on_finish is not None:
            self._expect(self._on_finish(record))
        if self._finished == self._expected:
            self._clock.stop()
        elif self._triggers.completion:
            self._request(self._clock.now)

    def _expect(self, replies: Sequence[JobSpec]) -> None:
        """Have jobs that follow a completion arrive when they are due."""
        check_replies(
            replies, self._known_ids, self._clock.now_s, self._cluster.cluster, self._applications, self._policy.rigid
        )
        self._expected += len(replies)
        self._known_ids.update(spec.id for spec in replies)
        for spec in replies:
            self._clock.at(self._clock.ticks(spec.submit_time_s), Phase.ARRIVAL, partial(self._submit, spec))

    def _decide(self) -> None:
        now = self._clock.now
        self._due.remove(now)
        self._ledger.retune_stale()
        if not self._asks():
            return
        decision = self._ask()
        moves = self._apply({} if decision == _NO_CHANGE else self._check(decision), decision)
        self._record(moves, decision.diagnostics)
        if decision.renew_leases:
            self._ledger.renew_leases(self._active.values())
        elif self._ledger.paused:
            self._ledger.renew_leases()
        if self._options.interference:
            self._ledger.interfere(self._active.values(), self._options.interference)
        if self._interval is not None:
            self._request((now // self._interval + 1) * self._interval)
        if decision.wake_at_s is not None:
            self._request(self._clock.wake(decision.wake_at_s))
        self._after_decision()

    def _ask(self) -> Decision:
        self._news.tell(self._view, self._active)
        decision = self._policy.decide(self._view, self._rng)
        if not isinstance(decision, Decision):
            raise InfeasibleDecisionError(self._policy.name, self._clock.now_s, [no_decision(decision)])
        return decision

    def _check(self, decision: Decision) -> dict[str, Allocation]:
        name, now = self._policy.name, self._clock.now_s
        check_names(decision, self._active, len(self._cluster.up), name, now)
        changes = changes_of(decision, self._active)
        check_changes(changes, self._active, self._cluster, decision, name, now, rigid=self._policy.rigid)
        if decision.target_nodes is not None:
            check_nodes_to_leave(decision.target_nodes, changes, self._active, name, now)
        return changes

    def _apply(self, changes: Mapping[str, Allocation], decision: Decision) -> Moves:
        """Carry out a decision that has been checked."""
        moves = NO_MOVES
        for job_id, guaranteed in decision.guaranteed.items():
            self._active[job_id].guaranteed = guaranteed
        try:
            if changes or decision.cancel:
                moves = self._move(changes, decision)
            self._ledger.set_speeds()
        except EngineError as error:
            raise InfeasibleDecisionError(self._policy.name, self._clock.now_s, [str(error)]) from error
        if decision.target_nodes is not None:
            self._provision(set(decision.target_nodes))
        if decision.declined:
            for job_id in decision.declined:
                self._active[job_id].declined = True
        if decision.watch:
            for job_id, attained_gpu_s in decision.watch.items():
                self._ledger.watch(self._active[job_id], attained_gpu_s)
        return moves

    def _move(self, changes: Mapping[str, Allocation], decision: Decision) -> Moves:
        """Take GPUs from jobs and give them to others."""
        active, ledger = self._active, self._ledger
        started = stopped = moved = 0
        for job_id, allocation in changes.items():
            job = active[job_id]
            if job.allocation:
                (ledger.begin_anew if job_id in decision.unsaved else ledger.release)(job)
                moved += bool(allocation)
                stopped += not allocation
            else:
                started += bool(allocation)
        if decision.cancel:
            given = {job_id: active[job_id] for job_id, allocation in changes.items() if allocation}
            for job_id in decision.cancel:
                ledger.complete(active[job_id], CANCELLED)
            active = given
        beside, onto = decision.beside, decision.onto
        for job_id, allocation in changes.items():
            if allocation:
                ledger.place(active[job_id], allocation, beside.get(job_id, ()), onto.get(job_id))
        return Moves(started, stopped, moved)

    def _record(self, moves: Moves, diagnostics: Mapping[str, float]) -> None:
        counted = self._fragmentation
        stranded = NONE_STRANDED if counted is None else counted.stranded(self._cluster.free, self._active)
        now_s, active = self._clock.now_s, len(self._active)
        self._recorder.decision(decision_record(now_s, active, self._cluster, moves, diagnostics, stranded))

    def _provision(self, wanted: set[int]) -> None:
        """Let nodes go that are not wanted, and have those come up that are wanted and down."""
        cluster = self._cluster
        ready = self._clock.now + self._clock.ticks(self._options.node_start_s)
        for node in range(len(cluster.up)):
            if node not in wanted:
                cluster.returning.discard(node)
                cluster.take_down(node)
                self._log.let_go(node)
            elif node in cluster.broken:
                cluster.returning.add(node)
                self._log.back(node)
            elif not cluster.up[node] and node not in cluster.starting:
                cluster.start(node, self._clock.at(ready, Phase.RECOVERY, partial(self._on_join, node)))

    def _on_join(self, node: int) -> None:
        self._cluster.bring_up(node)
        self._log.back(node)
        if self._triggers.node_change:
            self._request(self._clock.now)

    def _after_decision(self) -> None:
        self._decisions += 1
        if self._checking:
            check_state(self._cluster, self._active, self._submitted, self._finished, self._options.tick_s)
        if self._cluster.allocated_gpus or self._cluster.starting or self._submitted < self._expected:
            self._patience.renew()
        elif not self._cluster.broken:  # otherwise the next repair may change something
            self._patience.idle(self._active)
        if self._decisions % _PROGRESS_EVERY == 0:
            self._watch.look(self._submitted, self._finished)
            if self._progress:
                self._progress(self._clock.now_s, self._finished)
