"""`simsched forecast`: when waiting jobs will start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.gate import tried, trust_option
from simsched.cli.operator_options import log_option, make_plan, operator_options, similar_options
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.operators import ReplayPlan, Verdict
    from simsched.operators.live import Backtest, Queue, Start
    from simsched.report import TextTable

    #: An answer in words, as a table, and for `--json`.
    _Answer = tuple[list[str], TextTable, dict[str, Any]]


@click.command()
@click.argument("dump", metavar="[DUMP]", required=False, type=click.Path(path_type=Path))
@operator_options(log_option)
@click.option("--queue", metavar="FILE", type=click.Path(path_type=Path), help="Output of `squeue --json` now.")
@click.option(
    "--backtest", "tests", is_flag=True, help="Forecast at past moments of the log, and compare with the actual starts."
)
@click.option("--moments", type=click.IntRange(min=1), default=8, show_default=True, help="Number of past moments.")
@click.option("--draws", type=click.IntRange(min=2), default=20, show_default=True, help="Runs of each queue.")
@similar_options
@click.option("--allow", multiple=True, metavar="FIELD", help="Kubernetes: accept a field that is not modelled.")
@trust_option
@click.option("--no-plots", is_flag=True, help="Write no page.")
@json_option
def forecast(
    dump: Path | None,
    queue: Path | None,
    now: datetime | None,
    tests: bool,
    moments: int,
    draws: int,
    seed: int,
    durations: tuple[Path, ...],
    duration: str,
    allow: tuple[str, ...],
    trust_anyway: bool,
    no_plots: bool,
    as_json: bool,
    **options: Any,
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
        if queue is not None or tests:
            raise click.UsageError("--queue and --backtest are for Slurm's logs, not for the objects of a cluster.")
        files = (*durations, *([options["log"]] if options["log"] else []))
        _of_dump(dump, now, files, duration, seed, draws, allow, as_json=as_json)
        return
    if options["log"] is None:
        raise click.UsageError("give --log FILE, or the objects of a Kubernetes cluster.")
    from simsched.cli.gate import marked, publish_verdict, refused, verdict_json
    from simsched.errors import input_error
    from simsched.operators import calibrate
    from simsched.operators.live import backtest, forecast_starts, read_queue

    if queue is None and not tests:
        raise input_error("--queue", "is missing", "give the output of `squeue --json`, or --backtest")
    plan = make_plan(**options)
    now_s = None if now is None else int(now.replace(tzinfo=UTC).timestamp())
    queues = [] if queue is None else [read_queue(queue, now_s=now_s)]
    found = calibrate(plan, progress=tried)
    plan = found.plan  # with the fitted settings
    if not (found.verdict.is_open or trust_anyway):
        paths = [] if no_plots else publish_verdict(found)
        if as_json:
            print_json({"gate": verdict_json(found), "starts": []})
        else:
            refused(found, plan, "forecast", paths)
        return
    if tests:
        said, table, shown = _tested(backtest(plan, queues=queues, moments=moments, draws=draws, seed=seed))
    else:
        said, table, shown = _forecast(queues[0], *forecast_starts(plan, queues, draws=draws, seed=seed))
    said, table = [found.verdict.said(), *said], marked(table, found.verdict)
    if not no_plots:
        publish_verdict(found)
    path = None if no_plots else _publish(plan, said, table, found.verdict)
    if as_json:
        print_json({"gate": verdict_json(found), **shown})
        return
    from simsched.cli.output import print_table

    for line in said:
        click.echo(line)
    if not tests:
        print_table(table)
    if path is not None:
        click.echo(f"{path}")


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
    from simsched.cli.admit import dump_of
    from simsched.cli.output import print_table
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
    said = [f"At {moment} {running} jobs ran and {len(starts)} waited."]
    shown = {"now_s": queue.now_s, "starts": [asdict(one) for one in starts]}
    return said, _starts_table(starts, "When waiting jobs will start"), shown


def _tested(score: Backtest) -> _Answer:
    shown = {"backtest": {**asdict(score), "starts": [asdict(one) for one in score.starts]}}
    return _score_words(score), _starts_table(score.starts, "Forecasts at past moments"), shown


def _score_words(score: Backtest) -> list[str]:
    said = [
        f"{len(score.starts)} forecasts at {score.moments} moments: {100 * score.coverage:.0f} % of the starts fell "
        f"within the 80 % intervals; half of the forecasts were off by less than {score.error_s / 3600:.2f} h, "
        f"guesses of the usual remaining wait by {score.guess_error_s / 3600:.2f} h."
    ]
    if score.slurm_error_s is None or score.same_error_s is None:
        return [*said, "Neither log nor queue has Slurm's estimates (start_time of waiting jobs in squeue --json)."]
    return [
        *said,
        f"For jobs with an estimate by Slurm, Slurm was off by {score.slurm_error_s / 3600:.2f} h, and the "
        f"forecast by {score.same_error_s / 3600:.2f} h.",
    ]


def _starts_table(starts: Sequence[Start], title: str) -> TextTable:
    from simsched.cli.show import hours
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


def _publish(plan: ReplayPlan, said: Sequence[str], table: TextTable, verdict: Verdict) -> Path:
    from simsched.cli.gate import publish, under_banner
    from simsched.report.page import Section

    heading, words = "When will waiting jobs start?", under_banner(said, verdict)
    return publish(
        plan, Section("forecast", heading, words, [table], trusted=verdict.is_open, question=said[1], sentence=said[1])
    )[-1]
