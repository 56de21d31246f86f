"""`simsched calibrate`: how far simulated waits are from recorded ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json


@click.command()
@operator_options
@click.option("--skip-h", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Leave out as warm-up.")
@click.option("--no-plots", is_flag=True, help="Draw no picture.")
@json_option
def calibrate(skip_h: float, no_plots: bool, as_json: bool, **options: Any) -> None:
    """Replay a log under the policy that was in force, and compare its waits with the simulated ones.

    LOG is `sacct -P` output or a table of jobs with submission, start and end (docs/operators.md).
    """
    from simsched.operators.calibrate import calibrate as compare

    plan = make_plan(**options)
    found = compare(plan, skip_h=skip_h)
    paths = []
    if not no_plots:
        from simsched.report.figures.style import save
        from simsched.report.figures.waits import wait_comparison

        title = f"Waits of {plan.folder.name}: recorded, and simulated under {plan.policy}"
        paths = save(*wait_comparison(found.jobs, title=title), plan.folder / "figures", "calibrate")
    if as_json:
        print_json({"rows": [asdict(row) for row in found.rows], "figures": [str(path) for path in paths]})
        return
    from simsched.cli.groups import hours
    from simsched.cli.tables import print_table
    from simsched.report.tables import TextTable

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
        for row in found.rows
    )  # fmt: skip
    note = "Close: within 5 minutes or a fifth of the recorded wait."
    print_table(TextTable(f"Waits under {plan.policy}", headers, rows, (note,), 2))
    for path in paths:
        click.echo(f"{path}")
