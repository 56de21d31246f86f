"""`simsched calibrate`: the verdict on a replay, the banner on untrusted answers, and the page of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.operators import Calibration, GateRow, Interval, ReplayPlan, Verdict
    from simsched.report import TextTable
    from simsched.report.page import Section

#: Marks every table, page and figure of an answer that was requested against the verdict.
BANNER = "NOT TRUSTED, the replay does not match this log"
_UNJUDGED = "NOT JUDGED, no waits are recorded"

trust_option: Callable[..., Any] = click.option(
    "--trust-anyway", is_flag=True, help="Answer even if the replay does not match the log, with a banner everywhere."
)


def tried(said: str) -> None:
    """Tell on stderr what is being tried."""
    click.echo(said, err=True)


def banner(verdict: Verdict) -> str:
    """Return the banner of an answer if the gate is closed."""
    return BANNER if verdict.rows else _UNJUDGED


def titled(title: str, verdict: Verdict) -> str:
    """Put the banner before a title if the gate is closed."""
    return title if verdict.is_open else f"{banner(verdict)}: {title}"


def under_banner(words: Sequence[str], verdict: Verdict) -> list[str]:
    """Put the banner before a text if the gate is closed."""
    return [*words] if verdict.is_open else [f"{banner(verdict)}.", *words]


def marked(table: TextTable, verdict: Verdict) -> TextTable:
    """Put the banner on a table if the gate is closed."""
    return replace(table, title=titled(table.title, verdict))


def verdict_words(found: Calibration) -> list[str]:
    """Describe the verdict, its reasons, and the evidence in the log."""
    verdict = found.verdict
    words = [verdict.said()]
    words += [f"Why not: {reason}." for reason in verdict.reasons]
    words += [f"Likely, from the log: {cause}{'' if cause.endswith('?') else '.'}" for cause in verdict.causes]
    return [*words, *(f"{line}." for line in found.said), *(f"Differs most: {one}." for one in found.odd)]


def verdict_table(verdict: Verdict) -> TextTable:
    """Tabulate recorded and simulated waits, skill first."""
    from simsched.report import TextTable

    headers = (
        "jobs by", "", "jobs", "waited", "skill among these", "skill", "best guess", "recorded mean (h)",
        "simulated mean (h)", "off (%)", "recorded p90 (h)", "simulated p90 (h)",
    )  # fmt: skip
    rows = tuple(
        (
            row.kind, row.group, f"{row.jobs}", f"{row.waited}", _skill(row.waited_skill), _skill(row.skill),
            row.guess, _hours(row.recorded_mean_s), _hours(row.simulated_mean_s), _off(row),
            _hours(row.recorded_p90_s), _hours(row.simulated_p90_s),
        )
        for row in verdict.rows
    )  # fmt: skip
    notes = (
        "Skill: 1 minus the mean error relative to that of the best guess (zero, the median, the mean of the hour of "
        "the day, from the first half of the period): 0 is no better than guessing, 1 is exact.",
        "Waited: five minutes or more. In brackets: 95 % intervals over resampled days.",
    )
    return TextTable(f"Waits under {verdict.policy}, recorded and replayed", headers, rows, notes, 2)


def _skill(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _hours(one: Interval) -> str:
    return f"{one.value / 3600:.2f} [{one.low / 3600:.2f}, {one.high / 3600:.2f}]"


def _off(row: GateRow) -> str:
    return "-" if row.recorded_mean_s.value < 60 else f"{100 * row.off.value:+.0f}"


def publish_verdict(found: Calibration) -> list[Path]:
    """Put the verdict with its figure at the top of the log's page."""
    from simsched.report.figures import wait_comparison
    from simsched.report.page import Section

    plan, verdict = found.plan, found.verdict
    title = titled(f"Waits of {plan.folder.name}: recorded, and simulated under {plan.policy}", verdict)
    drawn = wait_comparison(found.jobs, title=title)
    tables = [marked(verdict_table(verdict), verdict)]
    section = Section(
        "calibrate",
        "Can these answers be trusted?",
        verdict_words(found),
        tables,
        [drawn],
        verdict.is_open,
        sentence=verdict.said(),
    )
    return publish(plan, section)


def verdict_json(found: Calibration) -> dict[str, Any]:
    """Return the verdict for `--json`."""
    return {**asdict(found.verdict), "open": found.verdict.is_open, "said": found.verdict.said(), "odd": found.odd}


def print_verdict(found: Calibration) -> None:
    """Print the verdict in words and its table."""
    from simsched.cli.output import print_table

    for line in verdict_words(found):
        click.echo(line)
    print_table(verdict_table(found.verdict))


def refused(found: Calibration, plan: ReplayPlan, what: str, paths: Sequence[Path]) -> None:
    """Answer only with the misfit."""
    print_verdict(found)
    click.echo(f"No {what}. --trust-anyway answers nevertheless, with a banner.")
    say(paths)


def publish(plan: ReplayPlan, section: Section) -> list[Path]:
    """Save an answer's figures and add it to the log's page; returns the files written."""
    from simsched.report.figures import save
    from simsched.report.page import answer_name, write_answer

    name = answer_name(section, plan.folder)
    paths: list[Path] = []
    for number, drawn in enumerate(section.drawn):
        paths += save(*drawn, plan.folder / "figures", f"{name}{number + 1 if number else ''}")
    return [*paths, write_answer(section, plan.folder, f"Waiting for GPUs: {plan.folder.name}")]


def say(paths: Iterable[Path]) -> None:
    """Print paths."""
    for path in paths:
        click.echo(f"{path}")


@click.command()
@operator_options()
@click.option(
    "--skip-h", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Hours to leave out as warm-up."
)
@click.option("--no-plots", is_flag=True, help="Do not draw a figure or write a page.")
@json_option
def calibrate(skip_h: float, no_plots: bool, as_json: bool, **options: Any) -> None:
    """Replay a log under its original policy, and judge the replay by the recorded waits.

    LOG is `sacct -P` output or a table of jobs with submission, start and end (docs/operators.md). The verdict, which
    what-if and capacity also give first, goes to the page answers.html of the log's results.
    """
    from simsched.operators import calibrate as replay

    found = replay(make_plan(**options), skip_h=skip_h, progress=tried)
    paths = [] if no_plots else publish_verdict(found)
    if as_json:
        print_json({**verdict_json(found), "figures": [str(path) for path in paths]})
        return
    print_verdict(found)
    say(paths)
