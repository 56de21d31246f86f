"""`simsched calibrate`: simulated against recorded waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.operators import WaitRow
    from simsched.report import TextTable


@click.command()
@operator_options
@click.option("--skip-h", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Leave out as warm-up.")
@click.option("--no-plots", is_flag=True, help="Draw no picture and write no page.")
@json_option
def calibrate(skip_h: float, no_plots: bool, as_json: bool, **options: Any) -> None:
    """Replay a log under the policy that was in force, and compare its waits with the simulated ones.

    LOG is `sacct -P` output or a table of jobs with submission, start and end (docs/operators.md). What is found goes
    onto the page answers.html of the log's results.
    """
    from simsched.operators import calibrate as compare

    plan = make_plan(**options)
    found = compare(plan, skip_h=skip_h)
    table = _table(found.rows, plan.policy)
    paths: list[Path] = []
    if not no_plots:
        from simsched.cli.answers import publish
        from simsched.report.figures import wait_comparison
        from simsched.report.page import Section

        title = f"Waits of {plan.folder.name}: recorded, and simulated under {plan.policy}"
        drawn = wait_comparison(found.jobs, title=title)
        words = (_answer(found.rows[0], plan.policy), "The nearer the two colours, the more the answers count.")
        paths = publish(
            plan, Section("calibrate", "Does the simulation wait as the cluster did?", words, [table], [drawn])
        )
    if as_json:
        print_json({"rows": [asdict(row) for row in found.rows], "figures": [str(path) for path in paths]})
        return
    from simsched.cli.tables import print_table

    print_table(table)
    for path in paths:
        click.echo(f"{path}")


def _answer(every: WaitRow, policy: str) -> str:
    """Summarise in a sentence how close the simulation is."""
    recorded, simulated = every.recorded_mean_s / 3600, every.simulated_mean_s / 3600
    return (
        f"Under {policy}, {100 * every.close:.0f} % of {every.jobs} jobs wait about as long as the log says. "
        f"On average they waited {recorded:.2f} h, and wait {simulated:.2f} h in the simulation."
    )


def _table(found: Sequence[WaitRow], policy: str) -> TextTable:
    from simsched.cli.groups import hours
    from simsched.report import TextTable

    headers = (
        "jobs by", "", "jobs", "recorded median (h)", "simulated median (h)", "recorded p90 (h)", "simulated p90 (h)",
        "recorded mean (h)", "simulated mean (h)", "close (%)",
    )  # fmt: skip
    rows = tuple(
        (
            row.kind, row.group, f"{row.jobs}", hours(row.recorded_median_s), hours(row.simulated_median_s),
            hours(row.recorded_p90_s), hours(row.simulated_p90_s), hours(row.recorded_mean_s),
            hours(row.simulated_mean_s), f"{100 * row.close:.0f}",
        )
        for row in found
    )  # fmt: skip
    note = "Close: within 5 minutes or a fifth of the recorded wait."
    return TextTable(f"Waits under {policy}", headers, rows, (note,), 2)
