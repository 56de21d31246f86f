"""`simsched calibrate`: the verdict on a replay, the banner on untrusted answers, and the page of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import NO_PAGE, LogOptions, make_plan
from simsched.cli.options import JSON, NOT_NEGATIVE, arg, command, opt
from simsched.cli.output import print_json, print_table

if TYPE_CHECKING:
    from simsched.operators import Calibration, GateRow, Interval, ReplayPlan, Verdict
    from simsched.report import TextTable
    from simsched.report.figures import Drawn
    from simsched.report.page import Section

#: Marks every table, page and figure of an answer that was requested against the verdict.
BANNER = "NOT TRUSTED, the replay does not match this log"
_UNJUDGED = "NOT JUDGED, no waits are recorded"
LOG = arg("LOG")


def tried(attempt: str) -> None:
    """Tell on stderr what is being tried."""
    click.echo(attempt, err=True)


def titled(title: str, verdict: Verdict) -> str:
    """Put the banner before a title if the gate is closed."""
    return title if verdict.is_open else f"{BANNER if verdict.rows else _UNJUDGED}: {title}"


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
    return _publish(
        plan,
        Section(
            "calibrate",
            "Can these answers be trusted?",
            verdict_words(found),
            [marked(verdict_table(verdict), verdict)],
            [wait_comparison(found.jobs, title=title)],
            verdict.is_open,
            sentence=verdict.said(),
        ),
    )


def publish_answer(
    found: Calibration, section: Section, title: str = "", draw: Callable[[str], Drawn] | None = None
) -> list[Path]:
    """Put an answer below the verdict on the log's page, under the banner if the gate is closed; return its files.

    `draw` makes the figure with a title. An answer without tables tells that there is none.
    """
    verdict, words = found.verdict, [*section.words]
    if not found.plan.unrecorded:
        publish_verdict(found)
    if section.tables and not verdict.is_open:
        words = [f"{titled('', verdict).removesuffix(': ')}.", *words]
    drawn = [] if draw is None else [draw(titled(title, verdict))]
    tables = [marked(table, verdict) for table in section.tables]
    return _publish(found.plan, replace(section, words=words, tables=tables, drawn=drawn, trusted=verdict.is_open))


def _publish(plan: ReplayPlan, section: Section) -> list[Path]:
    """Save an answer's figures and add it to the log's page; return the files written."""
    from simsched.report.figures import save
    from simsched.report.page import answer_name, write_answer

    name = answer_name(section, plan.folder)
    paths: list[Path] = []
    for number, drawn in enumerate(section.drawn):
        paths += save(*drawn, plan.folder / "figures", f"{name}{number + 1 if number else ''}")
    return [*paths, write_answer(section, plan.folder, f"Waiting for GPUs: {plan.folder.name}")]


def print_answer(
    found: Calibration,
    section: Section,
    paths: list[Path],
    content: Mapping[str, Any],
    *,
    what: str = "answer",
    as_json: bool = False,
) -> None:
    """Print the verdict and an answer's tables; without tables, the misfit and its question; or `content` as JSON."""
    if as_json:
        print_json({"gate": verdict_json(found), **content})
        return
    if section.tables:
        click.echo(found.verdict.said())
    else:
        print_verdict(found)
        click.echo(f"{section.words[0]} No {what}. --trust-anyway answers nevertheless, with a banner.".lstrip())
    for table in section.tables:
        print_table(marked(table, found.verdict))
    for path in paths:
        click.echo(path)


def verdict_json(found: Calibration) -> dict[str, Any]:
    """Return the verdict for `--json`."""
    return {**asdict(found.verdict), "open": found.verdict.is_open, "said": found.verdict.said(), "odd": found.odd}


def print_verdict(found: Calibration) -> None:
    """Print the verdict in words and its table."""
    for line in verdict_words(found):
        click.echo(line)
    print_table(verdict_table(found.verdict))


@command()
def calibrate(
    log: Path = LOG,
    *,
    how: LogOptions,
    skip_h: float = opt("Hours to leave out as warm-up.", type=NOT_NEGATIVE, default=0.0),
    no_plots: bool = NO_PAGE,
    as_json: bool = JSON,
) -> None:
    """Replay a log under its original policy, and judge the replay by the recorded waits.

    LOG is `sacct -P` output or a table of jobs with submission, start and end (docs/operators.md). The verdict, which
    what-if and capacity also give first, goes to the page answers.html of the log's results.
    """
    from simsched.operators import calibrate as replay

    found = replay(make_plan(log, how), skip_h=skip_h, progress=tried)
    paths = [] if no_plots else publish_verdict(found)
    if as_json:
        print_json({**verdict_json(found), "figures": [str(path) for path in paths]})
        return
    print_verdict(found)
    for path in paths:
        click.echo(path)
