"""`simsched forecast`: when waiting jobs will start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.admit import dump_of
from simsched.cli.gate import marked, print_answer, publish_answer, publish_verdict, tried, verdict_json
from simsched.cli.operator_options import NOW, SIMILAR, TRUST_ANYWAY, USUAL_DURATION, LogOptions, make_plan
from simsched.cli.options import COUNT, JSON, arg, command, opt
from simsched.cli.output import hours, print_json, print_table
from simsched.errors import input_error

if TYPE_CHECKING:
    from simsched.operators import Calibration
    from simsched.operators.live import Backtest, Queue, Start
    from simsched.report import TextTable

    #: An answer in words, as a table, and for `--json`.
    _Answer = tuple[list[str], TextTable, dict[str, Any]]


@command()
def forecast(
    dump: Path | None = arg("[DUMP]"),
    *,
    log: Path | None = opt("The log."),
    how: LogOptions,
    queue: Path | None = opt("Output of `squeue --json` now."),
    backtest: bool = opt("Forecast at past moments of the log, and compare with the actual starts."),
    moments: int = opt("Number of past moments.", type=COUNT, default=8),
    draws: int = opt("Runs of each queue.", type=click.IntRange(min=2), default=20),
    now: datetime | None = NOW,
    durations: tuple[Path, ...] = SIMILAR,
    duration: str = USUAL_DURATION,
    seed: int = opt(default=1),
    allow: tuple[str, ...] = opt("Kubernetes: accept a field that is not modelled.", metavar="FIELD"),
    trust_anyway: bool = TRUST_ANYWAY,
    no_plots: bool = opt("Write no page."),
    as_json: bool = JSON,
) -> None:
    """Forecast when each waiting job will start, from the jobs that run and wait now.

    Run times are drawn from the log: the fraction of their limit that jobs of the same user or the same limit ran,
    given the elapsed run time. Future jobs come as they did at that hour of another day. --backtest instead forecasts
    at random moments of the log, and at that of --queue if the log continues after it, and reports how many starts fell
    within the intervals, and the error next to that of Slurm's estimates. First, the log is replayed unchanged; if the
    replay does not match it, the answer is the misfit.

    DUMP is a Kubernetes cluster instead: what `kubectl get -o yaml` prints of nodes, queues, jobs and workloads. Run
    times are then those of ended jobs of the same namespace, queue, image and size, from the objects, --log or
    --durations.
    """
    if dump is not None:
        if queue is not None or backtest:
            raise click.UsageError("--queue and --backtest are for Slurm's logs, not for the objects of a cluster.")
        files = (*durations, *([log] if log else []))
        _of_dump(dump, now, files, duration, seed, draws, allow, as_json=as_json)
        return
    if log is None:
        raise click.UsageError("give --log FILE, or the objects of a Kubernetes cluster.")
    if queue is None and not backtest:
        raise input_error("--queue", "is missing", "give the output of `squeue --json`, or --backtest")
    from simsched.operators import calibrate, live
    from simsched.report.page import Section

    now_s = None if now is None else int(now.replace(tzinfo=UTC).timestamp())
    queues = [] if queue is None else [live.read_queue(queue, now_s=now_s)]
    found = calibrate(make_plan(log, how), progress=tried)
    plan = found.plan  # with the fitted settings
    heading = "When will waiting jobs start?"
    if not (found.verdict.is_open or trust_anyway):
        paths = [] if no_plots else publish_verdict(found)
        print_answer(found, Section("forecast", heading, [""]), paths, {"starts": []}, what="forecast", as_json=as_json)
        return
    if backtest:
        answer = _tested(live.backtest(plan, queues=queues, moments=moments, draws=draws, seed=seed))
    else:
        answer = _forecast(queues[0], *live.forecast_starts(plan, queues, draws=draws, seed=seed))
    _give(found, heading, answer, tabled=not backtest, no_plots=no_plots, as_json=as_json)


def _give(found: Calibration, heading: str, answer: _Answer, *, tabled: bool, no_plots: bool, as_json: bool) -> None:
    """Publish and print an answer, with its table if it is `tabled`."""
    from simsched.report.page import Section

    words, table, content = answer
    section = Section(
        "forecast", heading, [found.verdict.said(), *words], [table], question=words[0], sentence=words[0]
    )
    paths = [] if no_plots else publish_answer(found, section)[-1:]
    if as_json:
        print_json({"gate": verdict_json(found), **content})
        return
    for line in section.words:
        click.echo(line)
    if tabled:
        print_table(marked(table, found.verdict))
    for path in paths:
        click.echo(path)


def _of_dump(
    path: Path,
    now: datetime | None,
    durations: Sequence[Path],
    duration: str,
    seed: int,
    draws: int,
    allow: Sequence[str],
    *,
    as_json: bool,
) -> None:
    from simsched.operators.admit import forecast_moment, moment_of
    from simsched.operators.live import Start

    dump, similar = dump_of(path, now, durations, duration, seed)
    moment = moment_of(dump, allow=allow, future=True)
    whens = forecast_moment(moment, similar, draws=draws, seed=seed, progress=tried)
    if as_json:
        print_json({"now_s": dump.now_s, "starts": [one._asdict() for one in whens]})
        return
    starts = [Start(one.workload, one.queue, one.user, one.gpus, *one[4:]) for one in whens]
    print_table(_starts_table(starts, "When waiting workloads will start"))


def _forecast(queue: Queue, starts: Sequence[Start]) -> _Answer:
    moment = datetime.fromtimestamp(queue.now_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    running = int((queue.jobs["start_s"] >= 0).sum())
    words = [f"At {moment} {running} jobs ran and {len(starts)} waited."]
    content = {"now_s": queue.now_s, "starts": [asdict(one) for one in starts]}
    return words, _starts_table(starts, "When waiting jobs will start"), content


def _tested(score: Backtest) -> _Answer:
    table = _starts_table(score.starts, "Forecasts at past moments")
    return _score_words(score), table, {"backtest": asdict(score)}


def _score_words(score: Backtest) -> list[str]:
    said = [
        f"{len(score.starts)} forecasts at {score.moments} moments: {100 * score.coverage:.0f} % of the starts fell "
        f"within the 80 % intervals; half of the forecasts were off by less than {hours(score.error_s)} h, "
        f"guesses of the usual remaining wait by {hours(score.guess_error_s)} h."
    ]
    if score.slurm_error_s is None or score.same_error_s is None:
        return [*said, "Neither log nor queue has Slurm's estimates (start_time of waiting jobs in squeue --json)."]
    return [
        *said,
        f"For jobs with an estimate by Slurm, Slurm was off by {hours(score.slurm_error_s)} h, and the "
        f"forecast by {hours(score.same_error_s)} h.",
    ]


def _starts_table(starts: Sequence[Start], title: str) -> TextTable:
    from simsched.report import TextTable

    ordered = sorted(starts, key=lambda one: (one.median_s, one.job_id))
    estimated = any(one.slurm_s is not None for one in ordered)
    known = any(one.true_s is not None for one in ordered)
    rows = tuple(
        (
            one.job_id, one.queue, one.user, f"{one.gpus:g}", hours(one.waited_s), hours(one.median_s),
            f"{hours(one.low_s)} to {hours(one.high_s)}",
        )
        + ((hours(one.slurm_s),) if estimated else ()) + ((hours(one.true_s),) if known else ())
        for one in ordered
    )  # fmt: skip
    more = (("Slurm says (h)",) if estimated else ()) + (("started after (h)",) if known else ())
    headers = ("job", "queue", "user", "GPUs", "waited (h)", "starts in (h)", "between (h)", *more)
    return TextTable(
        title, headers, rows, ("Between: nine of ten start after its lower end, nine of ten before its upper end.",), 3
    )
