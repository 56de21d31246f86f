"""Forecasts when waiting jobs will start, by many simulations from a snapshot of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import input_error
from simsched.operators.beginning import RunTimes, trace_of
from simsched.operators.log_input import held_nodes
from simsched.operators.replays import Progress, ReplayPlan, counted_from, run_replay
from simsched.workload.readers import ClusterLog, joined, read_squeue

Numbers = npt.NDArray[np.float64]

DAY_S = 86400
#: How far ahead future submissions are drawn, from the same hour on other days of the log.
_AHEAD_S = 2 * DAY_S
#: The forecast interval: nine of ten starts are after its start, nine of ten before its end.
LOW, HIGH = 10, 90
_FOLDER = "draws"


@dataclass(frozen=True)
class Queue:
    """Running and waiting jobs at a moment, in seconds since 1970: rows as in a log, and Slurm's estimated starts."""

    now_s: int
    jobs: pd.DataFrame
    estimates: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """When a waiting job will start, in seconds from now: the median and the 80 % interval of the draws.

    `slurm_s` is Slurm's estimate and `true_s` the actual start, None if unknown.
    """

    job_id: str
    queue: str
    user: str
    gpus: float
    waited_s: float
    median_s: float
    low_s: float
    high_s: float
    slurm_s: float | None = None
    true_s: float | None = None


@dataclass(frozen=True)
class Backtest:
    """Accuracy of forecasts at past moments: the share of starts in intervals, and median absolute errors in seconds.

    `slurm_error_s` is the error of Slurm's estimates and `same_error_s` ours for the same jobs, None without estimates.
    `guess_error_s` is the error of guessing the usual remaining wait of the log's jobs.
    """

    moments: int
    starts: tuple[Start, ...]
    coverage: float
    error_s: float
    guess_error_s: float
    slurm_error_s: float | None
    same_error_s: float | None


def read_queue(path: Path, *, now_s: int | None = None) -> Queue:
    """Read `squeue --json`; raises `InputError` if the file is not such output."""
    found = read_squeue(path, now_s=now_s)
    return Queue(found.now_s, found.log.still, found.estimates)


def queue_at(log: ClusterLog, now_s: int) -> Queue:
    """Return the jobs that ran or waited at a moment of a log."""
    table = log.every
    there = (table["eligible_s"] <= now_s) & ((table["end_s"] > now_s) | (table["end_s"] < 0))
    jobs = table[there]
    return Queue(now_s, jobs.assign(start_s=jobs["start_s"].where(jobs["start_s"].between(0, now_s), -1)))


def forecast_starts(
    plan: ReplayPlan, queues: Sequence[Queue], *, draws: int = 20, seed: int = 1, progress: Progress | None = None
) -> list[list[Start]]:
    """Forecast when the waiting jobs of each moment start.

    In each draw, run times come from the fractions of their limits that the log's jobs ran before the moment, given the
    elapsed run time, and future jobs come as on an earlier day of the log from that hour on. Raises `InputError` if
    none of the log's jobs ended before a moment.
    """
    log = plan.recorded
    found = []
    for place, queue in enumerate(queues):
        known = log.table[log.table["end_s"] <= queue.now_s]
        if known.empty:
            raise input_error(log.name, "none of its jobs ended before the given moment", "give a log that goes back")
        rng, times = np.random.default_rng((seed, place)), RunTimes.of(known)
        runs = (queue.jobs["start_s"] >= 0).to_numpy("bool")
        placed = replace(queue, jobs=queue.jobs.assign(held_nodes=held_nodes(plan.log, queue.jobs, runs)))
        drawn = [trace_of(plan.log, log, _draw(known, placed, times, rng), plan.groups) for _ in range(draws)]
        traces = {f"{_FOLDER}/{place}-{number}.csv.gz": one.trace for number, one in enumerate(drawn)}
        run = run_replay(counted_from(plan, drawn[0]), "forecast", traces=traces, progress=progress)
        found.append(_starts(queue, [cell.jobs.set_index("job_id")["start_time_s"] for cell in run.cells]))
    return found


def _draw(known: pd.DataFrame, queue: Queue, times: RunTimes, rng: np.random.Generator) -> pd.DataFrame:
    """Draw the run times of a queue's jobs, and the jobs that come after them."""
    jobs = queue.jobs
    runs = (jobs["start_s"] >= 0).to_numpy("bool")
    elapsed = np.where(runs, queue.now_s - jobs["start_s"], 0).astype("float64")
    drawn = jobs.assign(
        duration_s=times.draw(jobs, elapsed, rng),
        eligible_s=np.where(runs, jobs["start_s"], queue.now_s),
        waited_s=np.where(runs, 0, queue.now_s - jobs["eligible_s"]),
    )
    return joined(drawn, _later(known, queue.now_s, rng))


def _later(known: pd.DataFrame, now_s: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return the jobs that came from this hour on, on a day of the log that is long enough ago."""
    first, last = int(known["eligible_s"].min()), now_s - _AHEAD_S
    days = np.arange((now_s - first) // DAY_S, (now_s - last) // DAY_S - 1, -1)
    if not len(days):
        return known.iloc[:0]
    back = int(rng.choice(days)) * DAY_S
    came = known[known["eligible_s"].between(now_s - back, now_s - back + _AHEAD_S, inclusive="right")]
    return came.assign(
        job_id="later-" + came["job_id"].astype(str), eligible_s=came["eligible_s"] + back, line=came["line"] + 10**9
    )


def _starts(queue: Queue, drawn: Sequence[pd.Series]) -> list[Start]:
    jobs, found = queue.jobs, []
    earliest = min(int(jobs["start_s"].where(jobs["start_s"] >= 0, queue.now_s).min()), queue.now_s)
    for row in jobs[jobs["start_s"] < 0].itertuples(index=False):
        name = str(row.job_id)
        waits = np.array([one[name] + earliest - queue.now_s for one in drawn if name in one.index], dtype=np.float64)
        if not len(waits):
            continue
        # With few draws, these ranks contain eight of ten further draws, unlike interpolated ones.
        low, middle, high = np.percentile(np.maximum(waits, 0), (LOW, 50, HIGH), method="weibull")
        estimate = queue.estimates.get(name)
        slurm = None if estimate is None else float(max(estimate - queue.now_s, 0))
        waited = float(queue.now_s - int(str(row.eligible_s)))
        found.append(Start(name, str(row.queue), str(row.user), float(str(row.gpus)), waited, middle, low, high, slurm))
    return found


def backtest(
    plan: ReplayPlan,
    *,
    queues: Sequence[Queue] = (),
    moments: int = 8,
    draws: int = 10,
    seed: int = 1,
    progress: Progress | None = None,
) -> Backtest:
    """Forecast at random moments of the second half of a log and at those of `queues`; compare with actual starts.

    Jobs that had not started when the log ended count as outside an interval that ends earlier, and are otherwise
    ignored. Raises `InputError` if nobody waited.
    """
    log = plan.recorded
    first, last = int(log.table["end_s"].min()), log.last_s
    dice = np.random.default_rng(seed)
    asked = [queue_at(log, int(moment)) for moment in np.sort(dice.uniform((first + last) / 2, last - DAY_S, moments))]
    asked = [queue for queue in asked if (queue.jobs["start_s"] < 0).any()]
    asked += [queue for queue in queues if first < queue.now_s < last]
    if not asked:
        raise input_error(log.name, "no job waited at any of the moments", "use more moments, --moments 50")
    truth = log.every.set_index("job_id")["start_s"]
    scored: list[tuple[Start, float]] = []
    for queue, starts in zip(
        asked, forecast_starts(plan, asked, draws=draws, seed=seed, progress=progress), strict=True
    ):
        past = log.table[log.table["start_s"] <= queue.now_s]
        waits = (past["start_s"] - past["eligible_s"]).to_numpy("float64")
        for one in starts:
            true = float(truth.get(one.job_id, -1))
            if true >= 0 or one.high_s + queue.now_s < last:
                true_s = (true if true >= 0 else float(last)) - queue.now_s
                scored.append((replace(one, true_s=true_s), _usual_rest_s(waits, one.waited_s)))
    return _scored(len(asked), scored)


def _usual_rest_s(waits: Numbers, waited_s: float) -> float:
    """Return the median remaining wait of those of a log's jobs that waited for longer, 0 if none did."""
    longer = waits[waits > waited_s]
    return float(np.median(longer) - waited_s) if len(longer) else 0.0


def _scored(moments: int, scored: Sequence[tuple[Start, float]]) -> Backtest:
    starts = tuple(one for one, _ in scored)
    true = np.array([one.true_s for one in starts], dtype=np.float64)
    middle = np.array([one.median_s for one in starts])
    inside = [one.low_s - 60 <= at <= one.high_s + 60 for one, at in zip(starts, true, strict=True)]
    slurm = np.array([np.nan if one.slurm_s is None else one.slurm_s for one in starts])
    known = np.isfinite(slurm)
    return Backtest(
        moments,
        starts,
        float(np.mean(inside)),
        float(np.median(np.abs(middle - true))),
        float(np.median(np.abs(np.array([guess for _, guess in scored]) - true))),
        float(np.median(np.abs(slurm - true)[known])) if known.any() else None,
        float(np.median(np.abs(middle - true)[known])) if known.any() else None,
    )
