"""`simsched calibrate`: whether a replay of the log is like what the log recorded."""

from __future__ import annotations

from typing import Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json


@click.command()
@operator_options()
@click.option("--skip-h", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Leave out as warm-up.")
@click.option("--no-plots", is_flag=True, help="Draw no picture and write no page.")
@json_option
def calibrate(skip_h: float, no_plots: bool, as_json: bool, **options: Any) -> None:
    """Replay a log under the policy that was in force, and judge the replay by the waits that were recorded.

    LOG is `sacct -P` output or a table of jobs with submission, start and end (docs/operators.md). The verdict, which
    what-if and capacity give first too, goes onto the page answers.html of the log's results.
    """
    from simsched.cli.gate import print_verdict, publish_verdict, verdict_json
    from simsched.operators import calibrate as replay

    found = replay(make_plan(**options), skip_h=skip_h)
    paths = [] if no_plots else publish_verdict(found)
    if as_json:
        print_json({**verdict_json(found), "figures": [str(path) for path in paths]})
        return
    print_verdict(found)
    for path in paths:
        click.echo(f"{path}")
