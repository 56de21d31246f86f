"""What a policy may know beyond the queue and the cluster.

Each signal is defined here and provided by `simsched.engine.providers`. A policy lists the signals that it needs in its
traits, and reads them as `job[SIGNAL]` or `view[SIGNAL]`; all others are absent. The manifest of every result records
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from simsched.agent import GoodputReport, Prior
from simsched.knowledge import Known
from simsched.model import Site
from simsched.model.application import StepTime
from simsched.model.outages import Market, Offer, Outage
from simsched.model.plans import LargeModel
from simsched.model.regimes import BatchRegimes

T = TypeVar("T")


class _Signal(Generic[T]):
    """A kind of knowledge: its name, its content, and how a real scheduler would obtain it."""

    __slots__ = ("known", "name", "tells")

    def __init__(self, name: str, tells: str, known: Known) -> None:
        self.name = name
        self.tells = tells
        self.known = known

    @property
    def oracle(self) -> bool:
        """Whether no real scheduler has it."""
        return self.known is Known.ORACLE

    def __repr__(self) -> str:
        """Show the name."""
        return self.name


class JobSignal(_Signal[T]):
    """A signal about one job, read as `job[SIGNAL]`."""

    __slots__ = ()


class ViewSignal(_Signal[T]):
    """A signal about the cluster or all jobs, read as `view[SIGNAL]`."""

    __slots__ = ()


class FileSignal(_Signal[None]):
    """Knowledge that the policy itself reads from an input file, which its parameters name."""

    __slots__ = ()


#: A signal of any of the three kinds.
Signal = JobSignal[Any] | ViewSignal[Any] | FileSignal


def known_by(signals: Iterable[Signal]) -> dict[str, str]:
    """Return how a real scheduler would obtain each signal, by name."""
    return {signal.name: str(signal.known) for signal in sorted(signals, key=str)}


class UndeclaredSignalError(AttributeError):
    """A policy read a signal that it does not declare."""


class RemainingWork(Protocol):
    """The true work that a job has left, at the time of the decision."""

    @property
    def epoch(self) -> int:
        """Return the 0-based epoch in progress."""

    @property
    def epochs(self) -> int:
        """Return the number of epochs until completion."""

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations done by the end of an epoch at a constant `batch_size`."""

    def seconds_on(self, gpu_type: str, gpus: int | None = None) -> float:
        """Return the seconds left on GPUs of a type, at the requested batch size, undisturbed and consolidated.

        The number of GPUs is the requested one, unless `gpus` is given.
        """

    @property
    def seconds(self) -> float:
        """Return the seconds left on the GPU type that the job holds, or else on the fastest that it can use."""

    @property
    def progress(self) -> float:
        """Return the progress left, in the unit of `TRUE_RATES`."""


class StepCounts(Protocol):
    """The steps of a job whose application is known by a table of rates, counted at the batch size asked for."""

    @property
    def total(self) -> float:
        """Return the total steps."""

    @property
    def done(self) -> float:
        """Return the steps done."""

    @property
    def regimes(self) -> BatchRegimes | None:
        """Return the published batch regimes of what the job trains, None if there are none."""

    @property
    def profile(self) -> tuple[int, ...]:
        """Return the batch size of each epoch as a profile predicts it from the job's batch rule."""

    def profile_s(self, gpu_type: str) -> tuple[float, ...]:
        """Return the seconds of each epoch of the profile, alone on the GPUs asked for, for a GPU type."""

    def rate(self, gpu_type: str, batch_size: int = 0, num_gpus: int = 0) -> float:
        """Return steps per second at a batch size on some GPUs (0: what is asked for); 0 if unknown."""


class PairSpeeds(Protocol):
    """The speeds of two jobs that share a GPU."""

    def beside(self, one: str, other: str, gpu_type: str) -> tuple[float, float]:
        """Return the speeds of two jobs, by id, as shares of those when alone; zeros if they cannot share a GPU."""
        ...


class Speed(NamedTuple):
    """The speed of a job on a site: examples per second, seconds of an iteration, and progress per second.

    Progress counts iterations at the application's initial batch size, or steps, or seconds of a fixed duration.
    """

    throughput: float
    iteration_s: float
    rate: float = 0.0


class LossReports(NamedTuple):
    """The losses that a job has reported so far, each with the epochs trained by then, both in order of time.

    `done` are the epochs trained by now, fractions included; `epoch_progress` is the progress of an epoch, in the unit
    of `Speed.rate`.
    """

    epochs: tuple[float, ...]
    losses: tuple[float, ...]
    done: float
    epoch_progress: float


#: The model of its goodput that the job's agent has fitted.
GOODPUT: JobSignal[GoodputReport] = JobSignal(
    "goodput", "the goodput model fitted by the job's own agent", Known.LEARNT
)
#: Speeds by site, as last measured while the job ran there.
MEASURED_SPEEDS: JobSignal[Mapping[Site, Speed]] = JobSignal(
    "measured_speeds", "the speed that the job itself has measured on each site where it ran", Known.REPORTED
)
#: Reported losses; None if the application reports none.
LOSSES: JobSignal[LossReports | None] = JobSignal(
    "losses", "the losses that the job has reported so far", Known.REPORTED
)
#: What an operator who has profiled the application knows, by GPU type.
OFFLINE_PROFILES: JobSignal[Mapping[str, Prior]] = JobSignal(
    "offline_profiles", "true step times of the application, profiled before the job was submitted", Known.PROFILED
)
#: The step times of its plans on any site; None for a job without plans.
PLANS: JobSignal[LargeModel | None] = JobSignal(
    "plans", "how long a step takes by any plan on any site, profiled before the job was submitted", Known.PROFILED
)
#: Seconds of an iteration that storage and processors, GPU and network are busy; () if nobody has profiled them.
STAGE_TIMES: JobSignal[tuple[float, ...]] = JobSignal(
    "stage_times",
    "how long an iteration keeps each resource busy, profiled before the job was submitted",
    Known.PROFILED,
)
#: The share of an iteration for which the job keeps its GPUs busy when alone; None if nobody has profiled it.
GPU_BUSY: JobSignal[float | None] = JobSignal(
    "gpu_busy", "how busy the job keeps its GPUs when alone, profiled before it was submitted", Known.PROFILED
)
#: The true step time by site and per-GPU batch size, in seconds.
STEP_TIMES: JobSignal[Callable[[Site, int], StepTime]] = JobSignal(
    "step_times", "the true step time on any site", Known.ORACLE
)
#: The true rate of progress by GPU type.
TRUE_RATES: JobSignal[Mapping[str, float]] = JobSignal(
    "true_rates", "the true progress per second on as many GPUs of each type as the job asks for", Known.ORACLE
)
#: The true work left.
REMAINING_WORK: JobSignal[RemainingWork] = JobSignal(
    "remaining_work", "the true work that the job has left", Known.ORACLE
)
#: Total steps, steps done, and steps per second; None if the application has no table of rates.
STEPS: JobSignal[StepCounts | None] = JobSignal(
    "steps", "the steps of the job, done and in all, and its true steps per second", Known.ORACLE
)
#: The duration of the job on the GPUs asked for according to the trace, in seconds (0: unknown).
RECORDED_DURATION: JobSignal[float] = JobSignal(
    "recorded_duration", "how long the job ran according to the trace", Known.ORACLE
)
#: Attained service of finished jobs in GPU-seconds, in order of completion.
SERVICE_HISTORY: ViewSignal[Sequence[float]] = ViewSignal(
    "service_history", "the attained service of jobs that have finished", Known.REPORTED
)
#: True speeds of jobs that share a GPU, which a real scheduler would have to measure pair by pair.
PAIR_SPEEDS: ViewSignal[PairSpeeds] = ViewSignal(
    "pair_speeds", "the true speeds of any two jobs beside each other on a GPU", Known.ORACLE
)
#: When the next job of the workload arrives, in seconds (infinity: never), which only a replay can know.
NEXT_ARRIVAL: ViewSignal[Callable[[], float]] = ViewSignal(
    "next_arrival", "when the next job of the workload will be submitted", Known.ORACLE
)
#: Announced outages, of the kind maintenance: which nodes will be down when.
PLANNED_OUTAGES: ViewSignal[Sequence[Outage]] = ViewSignal(
    "planned_outages", "when which nodes will be down for maintenance", Known.REPORTED
)
#: What the market offers now: zone, nodes, whether they are spot, and the dollars of a node-hour, by group of nodes.
OFFERS: ViewSignal[Callable[[], Sequence[Offer]]] = ViewSignal(
    "offers", "what the market offers now: zones, spot and on-demand nodes, and their prices", Known.REPORTED
)
#: When the market will offer which nodes, and at which prices.
MARKET: ViewSignal[Market] = ViewSignal(
    "market", "which nodes the market will offer when, and their prices", Known.ORACLE
)
#: The jobs of the workload that will still be submitted, in its order: `JobView`s, which depend on the signals, of
#: their state at that time. For replays that look ahead.
COMING_JOBS: ViewSignal[Callable[[], Sequence[Any]]] = ViewSignal(
    "coming_jobs", "the jobs of the workload that will still be submitted", Known.ORACLE
)
#: Measurements of jobs that finished in an earlier run, from a file.
EARLIER_RUNS = FileSignal("earlier_runs", "what jobs of an earlier run measured, from a file", Known.LEARNT)
#: Measurements of jobs of this run that have finished.
FINISHED_JOBS = FileSignal("finished_jobs", "what finished jobs of this run measured, from their agents", Known.LEARNT)
